"""One run of a case: its protocol, step by step, with everything that is seen written down."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from itertools import chain, product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rematch.frameworks.pytorch.custom import to_one
from rematch.frameworks.pytorch.layers import loss_of, mean_square, rows
from rematch.frameworks.pytorch.model import Forward, Injection, TorchModel, TrialError
from rematch.frameworks.pytorch.trial import WrittenTo, left_behind, other_error, put_back
from rematch.frameworks.pytorch.watch import Watch, to_numpy
from rematch.protocol import Request
from rematch.record import Record


class Run:
    """A model that is trained as the case says. The protocol is that of PROTOCOL.md."""

    def __init__(self, request: Request, model: TorchModel, record: Record) -> None:
        self._request = request
        self._protocol = request.case.protocol
        self._model = model
        self._record = record
        self._parameters = model.trained()
        self._fired = [[0] * len(group) for group in self._parameters]
        for group, fired in zip(self._parameters, self._fired, strict=True):
            for at, parameter in enumerate(group):
                if parameter.requires_grad:
                    parameter.register_hook(self._counter(fired, at))
        self._set_prior_gradients()
        scale = self._protocol.loss_scale
        self._scaler = torch.amp.GradScaler("cpu", init_scale=scale) if scale else None

    def go(self) -> None:
        """Runs all steps. Whatever the implementation raises comes through."""
        protocol = self._protocol
        if protocol.inject != "none":
            self._run_trial()
        optimizer = self._optimizer()
        for step in range(protocol.steps):
            self._run_step(step)
            if optimizer is not None:
                self._update(optimizer)
            self._note_state(step)
            if protocol.zero_grad:
                self._drop_gradients()
        if protocol.reevaluate:
            arrays = self._request.arrays
            assert arrays.reevaluation is not None, "reevaluate without an input for it"
            given = [arrays.reevaluation, *arrays.further_reevaluation_inputs]
            output = self._model.evaluate([torch.from_numpy(array.copy()) for array in given])
            self._note("reevaluation", output, step=protocol.steps - 1)

    def _counter(self, fired: list[int], at: int) -> Any:
        def count(_: Tensor) -> None:
            fired[at] += 1

        return count

    def _all(self) -> list[Tensor]:
        return [p for group in self._parameters for p in group]

    def _set_prior_gradients(self) -> None:
        for parameter in self._all():
            if not parameter.requires_grad:
                continue
            prior = self._protocol.prior_gradients
            parameter.grad = torch.ones_like(parameter) if prior else None

    def _drop_gradients(self) -> None:
        for parameter in self._all():
            parameter.grad = None

    def _optimizer(self) -> torch.optim.Optimizer | None:
        protocol, parameters = self._protocol, self._all()
        if not parameters:
            return None
        if protocol.optimizer == "adam":
            return torch.optim.Adam(parameters, protocol.learning_rate)
        return torch.optim.SGD(parameters, protocol.learning_rate, protocol.momentum)

    def _update(self, optimizer: torch.optim.Optimizer) -> None:
        # A scaler refuses to update what has no gradients.
        scaler = self._scaler if any(p.grad is not None for p in self._all()) else None
        if scaler is not None:
            scaler.unscale_(optimizer)
        if self._protocol.clip:
            torch.nn.utils.clip_grad_norm_(self._all(), self._protocol.clip)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()

    def _run_trial(self) -> None:
        """What the trial shows on the way is of no concern, its error is."""
        watch, self._model.watch = self._model.watch, Watch()
        record, self._record = self._record, Record()
        failed, message, wrong = False, "", ""
        try:
            self._fail()
            changed = left_behind()
        except Exception as error:
            failed, message = True, str(error)
            if self._model.checkpoint is checkpoint:
                throws = self._protocol.inject.endswith("_throws")
                wrong = other_error(error, TrialError if throws else RuntimeError)
            # Looked at while the error is handled: with it go the frames that it came through, and
            # generators in them that were not told of it.
            changed = left_behind()
        put_back()
        self._model.watch, self._record = watch, record
        self._model.injection = Injection()
        self._set_prior_gradients()
        record.trial(failed, message, changed)
        if wrong:
            record.error("OtherError", wrong)

    def _fail(self) -> None:
        kind, layer = self._protocol.inject, self._protocol.inject_layer
        self._model.injection = Injection(kind, layer)
        arrays = self._request.arrays
        given = None
        if arrays.trial_input is not None:
            given = [arrays.trial_input, *arrays.further_trial_inputs]
        state = self._run_forward(0, 0, given, arrays.trial_target)
        if kind == "graph_dropped":
            return
        written: AbstractContextManager[Any] = nullcontext()
        if kind == "input_changed":
            written = WrittenTo(state.inputs[0])
        if kind == "weight_changed":
            used = self._request.model.layer_parameters[layer]
            written = WrittenTo(self._model.parameters[used[0]])
        with written:
            self._run_backward(state)

    def _run_step(self, step: int) -> None:
        waiting = []
        for microbatch in range(self._protocol.microbatches):
            with self._model.microbatch(last=microbatch + 1 == self._protocol.microbatches):
                waiting.append(self._run_forward(step, microbatch))
                if not self._protocol.forwards_first:
                    self._run_backward(waiting.pop())
        while waiting:
            self._run_backward(waiting.pop())
        for index, group in enumerate(self._parameters):
            self._note("parameter_gradient", self._gradient(group), step=step, index=index)

    def _autocast(self, wanted: bool) -> AbstractContextManager[Any]:
        if not wanted:
            return nullcontext()
        cached = self._protocol.cast_cache
        return torch.autocast("cpu", torch.bfloat16, cache_enabled=cached)

    def _run_forward(
        self,
        step: int,
        microbatch: int,
        given: list[np.ndarray] | None = None,
        target: np.ndarray | None = None,
    ) -> Forward:
        """`given` inputs and `target`: those of the forward, unless others are given."""
        protocol, request, watch = self._protocol, self._request, self._model.watch
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
                losses += [mean_square(rows(output)) for output in outputs[1:]]
        for index, output in enumerate(outputs):
            self._note("output", output, index=index, **place)
        for index, loss in enumerate(losses):
            self._note("loss", loss, index=index, **place)
        state.losses = [loss for loss in losses if loss.requires_grad]
        if self._scaler is not None:
            state.losses = [self._scaler.scale(loss) for loss in state.losses]
        self._note_moment("after_forward", place)
        return state

    def _loss(self, output: Tensor, target: Tensor) -> Tensor:
        return loss_of(self._protocol.loss, rows(output), target)

    def _run_backward(self, state: Forward) -> None:
        watch = self._model.watch
        place = {"step": state.step, "microbatch": state.microbatch}
        for fired in self._fired:
            fired[:] = [0] * len(fired)
        losses, state.losses = state.losses, []
        parts = self._parts_of_backward(state.inputs)
        calls = list(product(range(self._protocol.backwards), losses, parts))
        for left, (_, loss, inputs) in zip(reversed(range(len(calls))), calls, strict=True):
            retain = left > 0
            with self._autocast(self._protocol.autocast == "both"), watch.backward():
                loss.backward(retain_graph=retain, inputs=inputs)
            if retain:
                watch.note_bytes("after_backward", retained=True, **place)
        # The loss is still there, and with it the graph: what that did not let go of counts, unless
        # only other backwards need it.
        whole = len(losses) == 1 and not self._protocol.partial
        loss, calls = None, []
        if not whole:
            losses = []
        self._note_moment("after_backward", place)
        losses = []
        for index, given in enumerate(state.inputs):
            self._note("input_gradient", given.grad, index=index, **place)
        self._record.hooks([max(fired, default=0) for fired in self._fired], **place)
        watch.note_executions(state.executions, **place)

    def _parts_of_backward(self, inputs: list[Tensor]) -> list[list[Tensor] | None]:
        """What each backward is asked for; None: everything."""
        if not self._protocol.partial:
            return [None]
        named = zip(self._parameters, self._request.model.parameters, strict=True)
        groups = [[p for p in group if p.requires_grad] for group, info in named if not info.frozen]
        groups += [[given] for given in inputs if given.requires_grad]
        parts = [list(chain(*groups[part::2])) for part in (0, 1)]
        return [part for part in parts if part]

    def _note_state(self, step: int) -> None:
        for index, group in enumerate(self._parameters):
            self._note("parameter", self._whole(group), step=step, index=index)
        for index in range(len(self._model.buffers)):
            self._note("buffer", self._model.buffer(index), step=step, index=index)
        self._note_stream("after_step", step=step)

    def _note_moment(self, moment: str, place: dict[str, int]) -> None:
        self._note_stream(moment, **place)
        self._model.watch.note_bytes(moment, **place)

    def _note_stream(self, moment: str, **place: int) -> None:
        for stream, generator in enumerate(self._model.generators):
            state = generator.get_state().numpy().tobytes()
            self._record.stream(moment, state, stream=stream, **place)

    def _note(self, quantity: str, t: Tensor | None, **place: int) -> None:
        if t is None:
            self._record.observe(quantity, None, **place)
            return
        dtype = "bfloat16" if t.dtype == torch.bfloat16 else None
        self._record.observe(
            quantity, to_numpy(t), requires_grad=t.requires_grad, dtype=dtype, **place
        )

    def _whole(self, group: list[Tensor]) -> Tensor:
        whole = [self._model.whole(p) for p in group]
        return whole[0] if len(whole) == 1 else to_one(whole)

    def _gradient(self, group: list[Tensor]) -> Tensor | None:
        """The gradient of what counts as one parameter. A part without one has NaN in its place."""
        if all(p.grad is None for p in group):
            return None
        return self._whole(
            [torch.full_like(p, torch.nan) if p.grad is None else p.grad for p in group]
        )
