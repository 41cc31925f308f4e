"""Compares, now and then in a running job, what recomputations compute with what their forwards computed."""

import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._pytree import tree_leaves

from rematch.finding import Finding, rank
from rematch.journal.comparison import Comparison, compare
from rematch.journal.computations import Computation, Computations, Modules
from rematch.journal.fingerprint import Fingerprints
from rematch.journal.phases import Lasting, in_backward, is_of, is_traced
from rematch.journal.regions import Region, Regions, told, why
from rematch.rotation import Rotation

_SHARE = 4
"""Which part of the regions a watched step looks at: each fourth one, after a first step that looks at all."""
_LOOKS = 4
"""In how many looks on end a region must grow until that is said."""
_COMPILED_STAYS = tuple(int(number) for number in torch.__version__.split(".")[:2]) >= (2, 15)
"""Whether compiled code stays compiled when a mode is entered: of the releases that were tried, in 2.15, not in 2.9."""


class WatchWarning(UserWarning):
    """Says that a recomputation differs from its forward, or cannot be seen."""


class RecomputationDiffers(RuntimeError):
    """Raised with `on_difference="raise"` out of backward(), or out of the operator that differs; `finding` says what
    differs."""

    def __init__(self, finding: "Finding") -> None:
        super().__init__(str(finding))
        self.finding = finding


class Watch(Regions):
    """What rematch.watch() returns. `findings` are those of this process; `compared` counts recomputations, and
    `rounded` those in which a result was off by rounding that was not reported; `regions` counts the calls of
    checkpoint() in the last watched forward."""

    def __init__(
        self,
        model: nn.Module,
        every: int,
        on_difference: Literal["warn", "raise"] | Callable[[Finding], Any],
        keep_bytes: int,
        turns: int,
        snapshot: str | Path | None = None,
        ranks: Any = None,
    ) -> None:
        super().__init__()
        if every < 1 or keep_bytes < 8 or turns < 0:
            least = "every must be at least 1, keep_bytes at least 8, and turns at least 0"
            raise ValueError(f"{least}, not {every}, {keep_bytes} and {turns}")
        if on_difference not in ("warn", "raise") and not callable(on_difference):
            raise ValueError(f"on_difference must be 'warn', 'raise' or a function, not {on_difference!r}")
        self.every = every
        self.findings: list[Finding] = []
        self.steps = self.steps_watched = self.compared = self.rounded = 0
        self._on_difference, self._keep = on_difference, keep_bytes
        self._fingerprints = Fingerprints()
        self._modules: Modules | None = None
        self._said: set[str] = set()
        self._raised: Exception | None = None
        """What was raised on purpose."""
        self.sizes: dict[str, int] = {}
        """The bytes of all results that a region computes, by the module in which it begins, as of the last look."""
        self._weighed: dict[Any, list[int]] = {}
        self._lock = threading.Lock()
        self._listening, self._listeners = ExitStack(), 0
        self._forward = False
        self._handled: BaseException | None = None
        """What was handled when the forward began: a job may run within an `except`."""
        self.regions = self._counted = self._usual = 0
        self._all = True
        """Whether the watched step looks at all regions."""
        self._first: set[str] = set()
        """Modules with which a region began in a watched forward."""
        self._inside: set[str] = set()
        """Modules that ran within regions of this forward."""
        self._ran: dict[str, Any] = {}
        """For modules in `_first`, whether each runs in this forward, as a hook notes."""
        self._modes: dict[int, Computations] = {}
        self.rotation = Rotation(turns, snapshot, self._found, self._failed, ranks) if turns else None
        if _compiled(model):
            self._unseen("the whole model, because it is compiled")
            self._hooks = []
            return
        self._hooks = [
            model.register_forward_pre_hook(_Hook(self, "_enter")),
            model.register_forward_hook(_Hook(self, "_leave"), always_call=True),
            register_optimizer_step_post_hook(partial(_stepped, weakref.ref(self), weakref.ref(model))),
        ]

    def remove(self) -> None:
        """Ends the watch: the model is as it was, and recomputations that are still to come are not compared."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._modules = [], None
        self._leave()
        self._end_step()
        Lasting.tidy()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        # A rank that has failed would let the others wait.
        self._end_step(all_ranks=kind is None)
        self.remove()

    def _enter(self, model: nn.Module) -> None:
        # A recomputation of the whole model is part of its step.
        if in_backward() or is_traced() or not model.training or not torch.is_grad_enabled():
            return
        self._end_step(all_ranks=True)
        self.steps += 1
        self._handled = sys.exc_info()[1]
        if self.steps % self.every == 0 or (self.rotation is not None and self.rotation.waits):
            self._leave()
            with torch._C.DisableTorchFunction():
                self._begin_step(model)

    def _begin_step(self, model: nn.Module) -> None:
        if self.steps_watched and not self.count:
            self._unseen("any call of checkpoint() in a forward of the model; no recomputation is compared")
        compiled = [name for name, module in model.named_modules() if _compiled(module)]
        if compiled:
            named = f"({', '.join(compiled[:3])}{', ...' if compiled[3:] else ''})"
            if not _COMPILED_STAYS:
                return self._unseen(f"the whole model, because of compiled modules {named}")
            self._unseen(f"what compiled modules compute {named}")
        self.steps_watched += 1
        self._modules = Modules(model)
        self._forward, self._counted, self._inside = True, self.count, set()
        hooked = [(name, m) for name, m in model.named_modules() if name in self._first]
        self._ran = {name: _Ran(module) for name, module in hooked}
        # Where a region was left out, or a new one came, all are looked at once more.
        self._all = self.rotation is None or self.rotation.is_first or self.regions != self._usual
        self._usual = self.regions
        self._listen()
        if self.rotation is not None and not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()):
            self.rotation.begin(model, self._modules, self.steps, self.steps % self.every == 0)

    def _end_step(self, all_ranks: bool = False) -> None:
        for finding in self.rotation.over(all_ranks) if self.rotation is not None else ():
            if self._on_difference == "warn":
                warnings.warn(str(finding), WatchWarning, stacklevel=2)

    def _leave(self, *_: Any) -> None:
        if self._forward:
            self._forward = False
            self._listen(-1)
            self.regions, before = self.count - self._counted, self.regions
            raised = sys.exc_info()[1]
            has_failed = raised is not None and raised is not self._handled
            if has_failed:
                self._end_step()
            outside = sorted(name for name, ran in self._ran.items() if ran.over() and name not in self._inside)
            outside = outside if self._all else []
            if not has_failed and (outside or (before and not self.regions)):
                self._first -= set(outside)
                names = f" around {', '.join(outside[:3])}{', ...' if outside[3:] else ''}" if outside else ""
                self._unseen(f"any call of checkpoint(){names} in step {self.steps}, unlike in an earlier watched step")

    def _listen(self, change: int = 1) -> None:
        """Adds or removes a listener. Recomputations listen, too, for the checkpoints in them; several devices run at
        once."""
        with self._lock:
            self._listeners += change
            if change > 0 and self._listeners == 1:
                self._listening.enter_context(told(self))
            elif change < 0 and self._listeners == 0:
                self._listening.close()

    def safely(self, method: Callable[..., Any], *args: Any) -> Any:
        """Calls begin() or end(). Their errors are meant to reach the caller of backward()."""
        return method(*args)

    def begin(self, region: Region, recomputes: bool) -> Any:
        """Begins to note what runs, if this is a forward, or the recomputation of a noted one."""
        if self._modules is None or (region.memory is None if recomputes else not self._has_turn(region)):
            return None
        modules, forward, step = region.memory if recomputes else (self._modules, None, self.steps)
        try:
            around = forward.around if forward is not None else (modules.at(sys._getframe(), None) or ("",))[0]
            execution = Computation(around, region.reentrant)
            with torch._C.DisableTorchFunction():
                execution.take(modules, (region.args, region.kwargs))
        except Exception as error:
            self._unseen(f"a region: {why(error)}")
            return None
        if recomputes:
            self._listen()
        mode = self._modes.get(threading.get_ident())
        if mode is None:
            # One for each thread: compiled code may depend on which mode is entered.
            mode = self._modes[threading.get_ident()] = Computations(self._fingerprints, self._keep, self._unseen)
        if not mode.executions:
            mode.modules = modules
            mode.mode.__enter__()
        mode.executions.append(execution)
        return region, execution, (modules, execution, step), recomputes

    def end(self, token: Any) -> None:
        """Ends the notes, and compares a recomputation with its forward."""
        if token is None:
            return
        region, execution, memory, recomputes = token
        mode = self._modes[threading.get_ident()]
        mode.executions.remove(execution)
        if not mode.executions:
            mode.modules = None
            mode.mode.__exit__(None, None, None)
        if recomputes:
            self._listen(-1)
        comparison = None
        try:
            with torch._C.DisableTorchFunction(), torch.no_grad(), torch._C._DisableTorchDispatch():
                execution.close(self._fingerprints)
                comparison = self._over(region, execution, memory[2], recomputes)
                if not recomputes:
                    region.memory = memory
        except Exception as error:
            self._unseen(f"a region in {execution.around or 'the model'}: {why(error)}")
        if comparison is not None and not comparison.same:
            self._tell(comparison, memory[2])

    def _over(self, region: Region, execution: Computation, step: int, recomputes: bool) -> Comparison | None:
        """Ends a noted region, and returns how a recomputation compares with its forward."""
        if not recomputes:
            self._weigh(region, execution)
            modules = [noted.entry.module for noted in execution.results]
            self._inside.update(modules)
            self._first.update(modules[:1] if modules and modules[0] != execution.around else ())
            return None
        comparison = compare(region.memory[1], execution)
        self.compared += 1
        self.rounded += comparison.rounded
        return comparison

    def _weigh(self, region: Region, execution: Computation) -> None:
        """Notes how many bytes a region computes, and says where they grow with each look at the same arguments."""
        if not execution.results:
            return
        name = execution.results[0].entry.module
        shapes = tuple(t.shape for t in tree_leaves((region.args, region.kwargs)) if isinstance(t, torch.Tensor))
        entries = [noted.entry for noted in execution.results]
        self.sizes[name] = sum(e.shape.numel() * e.dtype.itemsize for e in entries)
        seen = self._weighed.setdefault((name, shapes), [])
        seen.append(self.sizes[name])
        del seen[:-_LOOKS]
        if len(seen) == _LOOKS and all(a < b for a, b in pairwise(seen)):
            grown = ", ".join(f"{count:,}" for count in seen)
            self._say(f"the region that begins in {name or 'the model'} computes more from look to look: {grown} B")

    def _has_turn(self, region: Region) -> bool:
        """Whether a forward is noted: not if no backward can follow it, or if a CUDA graph captures it."""
        if not region.reentrant and not torch.is_grad_enabled():
            return False
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            return False
        return self._all or (self.count - self._counted) % _SHARE == self.steps_watched % _SHARE

    def _tell(self, comparison: Comparison, step: int) -> None:
        self._found(Finding.of(comparison, step, rank()))

    def _failed(self, what: str, error: Exception) -> None:
        if error is self._raised:
            raise error
        self._unseen(f"{what}: {why(error)}")

    def _found(self, finding: Finding) -> None:
        known = finding.added_to(self.findings)
        if known is None and self.rotation is not None and finding.is_open:
            self.rotation.suspect(finding)
        if self._on_difference == "raise":
            self._raised = RecomputationDiffers(finding)
            raise self._raised
        if self._on_difference != "warn":
            try:
                self._on_difference(finding)
            except Exception as error:
                self._raised = error
                raise
        elif known is None:
            warnings.warn(str(finding), WatchWarning, stacklevel=2)

    def _unseen(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            self._say(f"not seen: {what}")

    def _say(self, text: str) -> None:
        warnings.warn(f"rematch.watch, {text}", WatchWarning, stacklevel=3)


def _stepped(watching: Any, watched: Any, optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """An optimizer has stepped. Takes weak references to a watch and its model."""
    if torch.compiler.is_compiling() or (watch := watching()) is None or watch.steps or (model := watched()) is None:
        return
    if is_of(optimizer, model.parameters()):
        watch._unseen("any forward of the model, which may have been compiled")


class _Ran:
    """Notes whether a module runs from here on."""

    def __init__(self, module: nn.Module) -> None:
        self._ran = False
        self._hook = module.register_forward_pre_hook(_Hook(self, "note"))

    def note(self, module: nn.Module) -> None:
        self._ran = True

    def over(self) -> bool:
        self._hook.remove()
        return self._ran


class _Hook:
    """A hook of the model. A copy of the model, made by deepcopy() or pickle, has one that does nothing."""

    def __init__(self, told: Watch | _Ran | None = None, method: str = "") -> None:
        self._call = None if told is None else getattr(told, method)

    def __call__(self, model: nn.Module, *_: Any) -> None:
        # Compilers trace it, too, and know of nothing beneath.
        if self._call is not None and not torch.compiler.is_compiling():
            self._call(model)

    def __reduce__(self) -> Any:
        return _Hook, ()


def watch(
    model: nn.Module,
    every: int = 100,
    on_difference: Literal["warn", "raise"] | Callable[[Finding], Any] = "warn",
    keep_bytes: int = 1 << 16,
    turns: int = 16,
    snapshot: str | Path | None = None,
    ranks: Any = None,
) -> Watch:
    """Compares recomputations of torch.utils.checkpoint with their forwards, in each `every`-th training step, and runs
    a part of the step's operators twice.

        watch = rematch.watch(model)
        for batch in batches:
            train(model, batch)

    A step is a forward of `model` in training mode, with gradients enabled; microbatches count as steps. In a watched
    step, every result of an operator in a checkpointed region, and every parameter, buffer and argument that it reads,
    gets a fingerprint on its device. The recomputation of the region, as far as it goes, is compared with these. The
    numbers of the step stay what they are.

    Beside that, about one in `turns` of all operators of the step runs again on the same tensors and random numbers, of
    the backward, the loss and the optimizer as well: after `turns` watched steps, and a first one that counts, each ran
    twice. Where bits differ, further executions tell one that was wrong from an operator that is not deterministic.

    Args:
        every: watches each `every`-th step.
        on_difference: "warn" warns once for each operator in each module, "raise" raises RecomputationDiffers out of
            backward(), and a function gets the Finding.
        keep_bytes: the most bytes kept of each tensor beside its fingerprint: all elements, or some at equal distances.
        snapshot: a file for the first operator that differs when it runs again: its arguments, random state and two
            results. `rematch judge FILE` runs it on any machine.
        ranks: the process group of a DDP job. In each `every`-th step all its ranks, which must all watch, exchange a
            hash of each gradient before the optimizer's step, and of each parameter before the next forward, or where
            the `with` of the watch ends.

    Where operators may add in any order, and in reentrant forwards, results that are off by at most 8 units in the last
    place of their largest element are only counted, in `rounded`. Raises ValueError for an unknown option.
    """
    return Watch(model, every, on_difference, keep_bytes, turns, snapshot, ranks)


def _compiled(module: nn.Module) -> bool:
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    if getattr(module, "_compiled_call_impl", None) is not None:
        return True
    return dynamo is not None and isinstance(module, dynamo.OptimizedModule)
