"""Runs all operators of a training step twice, a part of them in each watched step."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from rematch.finding import UNDECIDED, WRITTEN, Finding, rank
from rematch.journal.computations import Modules, known_of
from rematch.journal.journal import BACKWARD, FORWARD, RECOMPUTATION
from rematch.journal.operators import Operator, OperatorsAroundCompiled, tensors
from rematch.journal.fingerprint import Fingerprints, flattened
from rematch.journal.phases import OPTIMIZER, STEPPED, Lasting, Phases, in_backward
from rematch.journal.twice import Repeated, Twice, is_plain, written


_MOST_WRITERS = 3
_MOST_WAITS = 1024
"""For how many steps, all of which are watched, a part waits for one that has its phase."""
_OTHERS = str(Path(torch.__file__).parent), str(Path(__file__).parent)


class Rotation:
    """The parts of a step that take their turns. The first step only counts operators.

    A part is a range of the operators of one phase, so that a mode is on during that phase alone.
    """

    def __init__(
        self,
        turns: int,
        snapshot: str | Path | None,
        tell: Callable[[Finding], None],
        unseen: Callable[[str, Exception], None],
        ranks: Any = None,
    ) -> None:
        """`turns`: in how many parts a step is cut, about. `tell` is told of what differs, and may raise. `ranks`: the
        process group in which all have the same gradients and parameters."""
        self._ranks, self._fingerprints = ranks, Fingerprints()
        self.turns, self.completed = turns, 0
        self.parts: list[tuple[str, range]] = []
        """The parts of a step, each with its phase; empty before operators are counted."""
        self._next, self._tell, self._step, self._running = 0, tell, 0, ""
        self._twice = Twice(self._differs, self._note)
        self._twice.snapshot = None if snapshot is None else Path(snapshot)
        self._nodes: dict[int, str] = {}
        """For each node of autograd, as numbered from the step's begin, the submodule that made it."""
        self._suspects: list[Finding] = []
        self._mode = Lasting(OperatorsAroundCompiled(self._twice, unseen=unseen))
        self._counts: dict[str, int] = {}
        """For each phase of this step in which the mode is on, how many operators there were."""
        self._known: dict[str, int | None] = {}
        """For each phase of any step, how many operators it had when they were counted; None before that."""
        self._waits, self._skipped = 0, False
        self._compares_ranks = self._has_stepped = False
        self._phases: Phases | None = None
        self._modules: Modules | None = None

    @property
    def ran(self) -> int:
        """How many operators ran twice so far."""
        return self._twice.ran

    @property
    def is_first(self) -> bool:
        """Whether the next watched step counts operators, or looks at suspects."""
        return not self.parts or self.has_suspects

    @property
    def has_suspects(self) -> bool:
        """Whether a finding waits for the next step to say more."""
        return bool(self._suspects)

    @property
    def waits(self) -> bool:
        """Whether the next step is to be watched, too."""
        return self._waits > 0 or self.has_suspects

    def begin(self, model: nn.Module, modules: Modules, step: int, is_due: bool) -> None:
        """A watched step begins. `is_due`: it is one that all ranks watch."""
        self._compares_ranks, self._has_stepped = is_due and self._ranks is not None, False
        self._modules, self._step, self._counts = modules, step, {}
        if self.is_first:
            self.parts, self._next, self._nodes = [], 0, {}
        self._phases = Phases(model, self._changed)
        self._phases.begin()

    def suspect(self, finding: Finding) -> None:
        """Looks in the next step whether the operator of a finding computes the same again on the same tensors,
        and what writes its states."""
        self._suspects.append(finding)

    def over(self, all_ranks: bool = False) -> list[Finding]:
        """The watched step is over, on `all_ranks` if these are to be compared. Returns the suspects of which more is
        known now."""
        if self._phases is None:
            return []
        if all_ranks and self._has_stepped:
            # Not behind the step of an optimizer, which others may surround that exchange parameters.
            self._compare_ranks("parameter", lambda p: p)
        self._phases.over()
        if Phases.has_optimizer[self._phases.model]:
            self._known.setdefault(OPTIMIZER, None)
        self._phases = self._modules = None
        if self.parts:
            self._turn()
            return []
        self._known.update(self._counts)
        if None not in self._known.values() or self._waits == _MOST_WAITS:
            self._waits = 0
            self._cut()
        else:
            self._waits += 1
        seen = [f for f in self._suspects if f.step < self._step]
        self._suspects = [f for f in self._suspects if f.step == self._step]
        for finding in seen:
            finding.recurs = finding.times > 1
        return [f for f in seen if f.writers or f.kind not in (UNDECIDED, WRITTEN)]

    def _cut(self) -> None:
        counts = {phase: count for phase, count in self._known.items() if count}
        size = max(1, -(-sum(counts.values()) // self.turns))
        for phase, count in counts.items():
            ends = [*range(size, count, size), sys.maxsize]
            self.parts += [(phase, range(first, end)) for first, end in zip([0, *ends], ends, strict=False)]

    def _turn(self) -> None:
        phase, part = self.parts[self._next]
        if phase not in self._counts and self._waits < _MOST_WAITS:
            # Where gradients are accumulated, not every step has an optimizer.
            self._waits += 1
            return
        self._skipped |= self._waits == _MOST_WAITS
        self._next, self._waits = self._next + 1, 0
        if self._next == len(self.parts):
            self._next, self.completed, self._skipped = 0, self.completed + (not self._skipped), False
            self._twice.round += 1
            if part.start >= self._counts.get(phase, 0):
                # Steps have become shorter.
                self.parts, self._known = [], {}
        if None in self._known.values():
            self.parts = []

    def _changed(self, phase: str) -> None:
        """A phase of the step begins, or a time that is no part of it."""
        self._twice.listens = False
        if self._running:
            self._mode.leave()
            self._counts[self._running] = self._twice.count
            self._running = ""
        if phase == OPTIMIZER:
            self._compare_ranks("gradient", lambda p: p.grad)
        self._has_stepped |= phase == STEPPED
        if phase in ("", STEPPED):
            return
        self._known.setdefault(phase, None)
        turn = self.parts[self._next] if self.parts else (phase, None)
        if turn[0] == phase:
            # A phase may come several times a step.
            self._twice.count, self._twice.chosen = self._counts.get(phase, 0), turn[1]
            self._running, self._twice.listens = phase, True
            self._mode.enter()

    def _compare_ranks(self, what: str, of: Callable[[nn.Parameter], Tensor | None]) -> None:
        """Exchanges a hash of each tensor with the other ranks, and tells of the first that is not the same on all."""
        if not self._compares_ranks or self._phases is None:
            return
        found = ((name, of(p)) for name, p in self._phases.model.named_parameters())
        named = {name: t for name, t in found if t is not None and t.layout == torch.strided}
        if not named:
            return
        with torch.no_grad(), torch._C.DisableTorchFunction():
            own = torch.stack(self._fingerprints.of_all([flattened(t) for t in named.values()]))
            every = [torch.empty_like(own) for _ in range(self._ranks.size())]
            torch.distributed.all_gather(every, own, self._ranks)
        for name, prints in zip(named, torch.stack(every, 1).tolist(), strict=True):
            most = max(prints, key=prints.count)
            if unlike := tuple(i for i, one in enumerate(prints) if one != most):
                return self._tell(Finding(self._step, rank(), name, what, None, phase=OPTIMIZER, ranks=unlike))

    def _note(self, op: Operator) -> bool:
        """Notes which submodule runs an operator. Returns whether it runs again, since it is the operator of a suspect."""
        assert self._modules is not None and self._phases is not None
        found = self._modules.at(sys._getframe(), None)
        if found is not None and found[1] is not None:
            self._nodes.setdefault(torch.autograd._get_sequence_nr() - 1 - self._phases.first_node, found[0])
        if self._suspects and found is not None:
            self._look_for_writers(op)
            return any((f.module, f.operator) == (found[0], known_of(op.func).text) for f in self._suspects)
        return False

    def _look_for_writers(self, op: Operator) -> None:
        is_mutable = getattr(getattr(op.func, "_schema", None), "is_mutable", False)
        if self._modules is None or self._running not in (FORWARD, BACKWARD) or not is_mutable:
            return
        begins = [t.data_ptr() - t.storage_offset() * t.element_size() for t in tensors(tuple(written(op).values()))]
        names = [self._modules.states.get(place) for place in begins]
        for finding in self._suspects:
            states = finding.comparison.states if finding.comparison is not None else ()
            for name in [state.name for state in states if state.name in names]:
                text = f"{known_of(op.func).text} writes {name}, in the {self._running}, {_line()}"
                if text not in finding.writers and len(finding.writers) < _MOST_WRITERS:
                    finding.writers.append(text)

    def _differs(self, op: Operator, taken: Sequence[Tensor], repeated: Repeated) -> None:
        module, phase = self._place(taken)
        finding = Finding(self._step, rank(), module, known_of(op.func).text, repeated.element, None, repeated, phase)
        self._tell(finding)

    def _place(self, taken: Sequence[Tensor]) -> tuple[str, str]:
        """Returns the submodule whose operator it is, or the parameter whose update, and the phase."""
        assert self._modules is not None and self._phases is not None
        found = self._modules.at(sys._getframe(), None)
        is_backward = in_backward()
        if found is not None and found[1] is not None:
            return found[0], RECOMPUTATION if is_backward else self._running
        if is_backward:
            node = torch._C._current_autograd_node()
            number = -1 if node is None else node._sequence_nr() - self._phases.first_node
            return self._nodes.get(number, ""), BACKWARD
        parameter = self._parameter(taken)
        return parameter, self._running if parameter else f"{self._running}, {_line()}"

    def _parameter(self, taken: Sequence[Tensor]) -> str:
        """Returns the name of the parameter of which these tensors are the value, the gradient or a state; or ""."""
        assert self._phases is not None
        optimizer, places = self._phases.optimizer, {t.data_ptr() for t in taken}
        for name, parameter in self._phases.model.named_parameters():
            states = optimizer.state.get(parameter, {}).values() if optimizer is not None else ()
            for t in (parameter, parameter.grad, *states):
                if isinstance(t, Tensor) and is_plain(t) and t.data_ptr() in places:
                    return name
        return ""


def _line() -> str:
    """Returns the line of the program that runs, as a file and a number."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(_OTHERS):
        frame = frame.f_back
    return "in a library" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
