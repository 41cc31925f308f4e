"""One run of a case in PyTorch, with everything that is seen written down."""

from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rematch.frameworks.pytorch.custom import to_one
from rematch.frameworks.pytorch.layers import loss_of, mean_square, rows
from rematch.frameworks.pytorch.machine import unwritten
from rematch.frameworks.pytorch.model import Forward, Injection, TorchModel
from rematch.frameworks.pytorch.operators import INFERENCE, SCOPES
from rematch.frameworks.pytorch.trial import WrittenTo, left_behind, other_error, put_back
from rematch.frameworks.pytorch.watch import Watch, to_numpy
from rematch.subjects.protocol import Request
from rematch.subjects.records import Record
from rematch.subjects.steps import Steps, TrialError


class TorchRun(Steps):
    """A model that is trained by PyTorch's own optimizers, within scopes that watch it."""

    def __init__(self, request: Request, model: TorchModel, record: Record) -> None:
        super().__init__(request, record)
        self._model = model
        self._parameters = model.trained()
        self._fired: list[Counter[int]] = [Counter() for _ in self._parameters]
        for group, fired in zip(self._parameters, self._fired, strict=True):
            for at, parameter in enumerate(group):
                if parameter.requires_grad:
                    parameter.register_hook(lambda _, fired=fired, at=at: fired.update([at]))
        self._set_prior_gradients()
        scale = self.protocol.loss_scale
        self._scaler = torch.amp.GradScaler("cpu", init_scale=scale) if scale else None
        self._optimizer: torch.optim.Optimizer | None = None
        self._scope = SCOPES.get(request.case.options.get(INFERENCE, ""))
        self._wrong = ""

    @property
    def watch(self) -> Watch:
        return self._model.watch

    def go(self) -> None:
        with unwritten.filled(self.request.case):
            super().go()
        self._model.note_promises()
        if self._scope and self.request.checkpointed:
            self.record.add("promises", name=INFERENCE, broken=self._wrong)

    def _all(self) -> list[Tensor]:
        return [p for group in self._parameters for p in group]

    def _set_prior_gradients(self) -> None:
        for parameter in self._all():
            if not parameter.requires_grad:
                continue
            prior = self.protocol.prior_gradients
            parameter.grad = self._model.ones(parameter) if prior else None

    def begin(self) -> None:
        protocol, parameters = self.protocol, self._all()
        if parameters and protocol.optimizer == "adam":
            self._optimizer = torch.optim.Adam(parameters, protocol.learning_rate)
        elif parameters:
            self._optimizer = torch.optim.SGD(parameters, protocol.learning_rate, protocol.momentum)

    def microbatch(self, last: bool) -> AbstractContextManager[Any]:
        return self._model.microbatch(last)

    def update(self) -> None:
        if self._optimizer is not None:
            self._step_of(self._optimizer)
        if self.protocol.zero_grad:
            for parameter in self._all():
                parameter.grad = None

    def _step_of(self, optimizer: torch.optim.Optimizer) -> None:
        # A scaler refuses to update what has no gradients.
        scaler = self._scaler if any(p.grad is not None for p in self._all()) else None
        if scaler is not None:
            scaler.unscale_(optimizer)
        if self.protocol.clip:
            torch.nn.utils.clip_grad_norm_(self._all(), self.protocol.clip)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()

    def fail(self) -> None:
        # Only the error of a trial is of concern, not what it shows on the way.
        self._watch, self._model.watch = self._model.watch, Watch()
        kind, layer = self.protocol.inject, self.protocol.inject_layer
        self._model.injection = Injection(kind, layer)
        arrays = self.request.arrays
        given = None
        if arrays.trial_input is not None:
            given = [arrays.trial_input, *arrays.further_trial_inputs]
        state = self.forward(0, 0, given, arrays.trial_target)
        if kind == "graph_dropped":
            return
        written: AbstractContextManager[Any] = nullcontext()
        if kind == "input_changed":
            written = WrittenTo(state.inputs[0])
        if kind == "weight_changed":
            used = self.request.model.layer_parameters[layer]
            written = WrittenTo(self._weight(used[0]))
        with written:
            self.backward(state)

    def _weight(self, index: int) -> Tensor:
        """A parameter that a trial writes to."""
        return self._model.parameters[index]

    def other_error(self, error: Exception) -> str:
        if self._model.checkpoint is not checkpoint:
            return ""
        throws = self.protocol.inject.endswith("_throws")
        return other_error(error, TrialError if throws else RuntimeError)

    def left_behind(self) -> str:
        return left_behind()

    def restore(self) -> str:
        put_back()
        self._model.watch, self._model.injection = self._watch, Injection()
        self._set_prior_gradients()
        return ""

    def _autocast(self, wanted: bool) -> AbstractContextManager[Any]:
        if not wanted:
            return nullcontext()
        cached = self.protocol.cast_cache
        return torch.autocast("cpu", torch.bfloat16, cache_enabled=cached)

    def forward(
        self, step: int, microbatch: int, given: list[np.ndarray] | None = None, target: np.ndarray | None = None
    ) -> Forward:
        """`given` inputs and `target`: those of the forward, unless others are given."""
        protocol, request, watch = self.protocol, self.request, self._model.watch
        at = step * protocol.microbatches + microbatch
        given = request.arrays.inputs_of(at) if given is None else given
        target = request.arrays.targets[at] if target is None else target
        place = {"step": step, "microbatch": microbatch}
        state = Forward(step, microbatch, [0] * len(request.case.layers))
        for array, trained in zip(given, request.case.inputs_require_grad(), strict=True):
            state.inputs.append(torch.tensor(array).requires_grad_(trained))
        wanted = torch.from_numpy(target)
        wanted = wanted if wanted.is_floating_point() else wanted.long()
        watch.starts(state.inputs, wanted)
        with self._autocast(protocol.autocast != "off"), watch.forward():
            with watch.model(offload=request.case.plan.offload and request.checkpointed):
                outputs = self._model.forward(state)
            losses = [self._loss(outputs[0], wanted)]
            if protocol.auxiliary_losses:
                losses += [self._auxiliary_loss(output) for output in outputs[1:]]
        for index, output in enumerate(outputs):
            self.note("output", output, index=index, **place)
        for index, loss in enumerate(losses):
            self.note("loss", loss, index=index, **place)
        state.losses = [loss for loss in losses if loss.requires_grad]
        if self._scaler is not None:
            state.losses = [self._scaler.scale(loss) for loss in state.losses]
        self._note_moment("after_forward", place)
        return state

    def _loss(self, output: Tensor, target: Tensor) -> Tensor:
        return loss_of(self.protocol.loss, rows(output), target)

    def _auxiliary_loss(self, output: Tensor) -> Tensor:
        return mean_square(rows(output))

    def _infer(self, state: Forward) -> None:
        """Evaluates the model under its plan, between a forward and its backward."""
        given = [x.detach() for x in state.inputs]
        # Some layers draw in evaluation, too.
        before = [generator.get_state() for generator in self._model.generators]
        expected = self._model.evaluate(given, self._model.without_plan)
        self._set_back(before)
        with self._scope():
            got = self._model.evaluate(given, self._model.forward)
        self._set_back(before)
        same = to_numpy(expected).tobytes() == to_numpy(got).tobytes() and not got.requires_grad
        if not same and not self._wrong:
            self._wrong = f"without a plan {expected.flatten()[:4].tolist()}, with it {got.flatten()[:4].tolist()}"

    def _set_back(self, states: list[Tensor]) -> None:
        for generator, state in zip(self._model.generators, states, strict=True):
            generator.set_state(state)

    def backward(self, state: Forward) -> None:
        if self._scope:
            self._infer(state)
        watch = self._model.watch
        place = {"step": state.step, "microbatch": state.microbatch}
        for fired in self._fired:
            fired.clear()
        losses, state.losses = state.losses, []
        parts = self._parts_of_backward(state.inputs)
        calls = list(product(range(self.protocol.backwards), losses, parts))
        for left, (_, loss, inputs) in zip(reversed(range(len(calls))), calls, strict=True):
            retain = left > 0
            with self._autocast(self.protocol.autocast == "both"), watch.backward():
                loss.backward(retain_graph=retain, inputs=inputs)
            if retain:
                watch.note_bytes("after_backward", retained=True, **place)
        # The loss is still there, and with it the graph: what that did not let go of counts, unless
        # only other backwards need it.
        whole = len(losses) == 1 and not self.protocol.partial
        loss, calls = None, []
        if not whole:
            losses = []
        self._note_moment("after_backward", place)
        losses = []
        for index, given in enumerate(state.inputs):
            self.note("input_gradient", given.grad, index=index, **place)
        self.record.hooks([max(fired.values(), default=0) for fired in self._fired], **place)
        watch.note_executions(state.executions, **place)

    def _parts_of_backward(self, inputs: list[Tensor]) -> list[list[Tensor] | None]:
        """Tensors that each backward is asked for; None: all."""
        if not self.protocol.partial:
            return [None]
        named = zip(self._parameters, self.request.model.parameters, strict=True)
        groups = [[p for p in group if p.requires_grad] for group, info in named if not info.frozen]
        groups += [[given] for given in inputs if given.requires_grad]
        parts = [list(chain(*groups[part::2])) for part in (0, 1)]
        return [part for part in parts if part]

    def parameter(self, index: int) -> Tensor:
        return self._shown(self._parameters[index])

    def buffer(self, index: int) -> Tensor:
        return self._model.buffer(index)

    def evaluate(self) -> Tensor:
        arrays = self.request.arrays
        given = [arrays.reevaluation, *arrays.further_reevaluation_inputs]
        return self._model.evaluate([torch.from_numpy(array.copy()) for array in given])

    def _note_moment(self, moment: str, place: dict[str, int]) -> None:
        self.note_random_state(moment, **place)
        self._model.watch.note_bytes(moment, **place)

    def note_random_state(self, moment: str, **place: int) -> None:
        if moment == "after_step":
            self._model.watch.note_step(**place)
        for stream, generator in enumerate(self._model.generators):
            state = generator.get_state().numpy().tobytes()
            self.record.stream(moment, state, stream=stream, **place)

    def note(self, quantity: str, t: Tensor | None, **place: int) -> None:
        if t is None:
            self.record.observe(quantity, None, **place)
            return
        dtype = "bfloat16" if t.dtype == torch.bfloat16 else None
        self.record.observe(quantity, to_numpy(t), requires_grad=t.requires_grad, dtype=dtype, **place)

    def _shown(self, group: list[Tensor]) -> Tensor:
        parts = [self._model.shown(p) for p in group]
        return parts[0] if len(parts) == 1 else to_one(parts)

    def gradient(self, index: int) -> Tensor | None:
        # A part without a gradient, of what counts as one parameter, has NaN in its place.
        group = self._parameters[index]
        if all(p.grad is None for p in group):
            return None
        return self._shown([torch.full_like(p, torch.nan) if p.grad is None else p.grad for p in group])
