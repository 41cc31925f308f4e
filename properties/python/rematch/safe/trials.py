"""Tries scenarios that only some targets have: what callers set, other lengths, clocks, arguments left at None."""

from dataclasses import replace

from torch import nn

from rematch.safe import findings
from rematch.safe.arguments import handed_otherwise, left_at_none, noting_arguments, worth_a_trial
from rematch.safe.callers import other_value, set_by_callers
from rematch.safe.causes.computations import SWITCH, SWITCH_HANDS
from rematch.safe.compare import changes, differences
from rematch.safe.judging import NOTHING_MOVES, Judge
from rematch.safe.judging_memory import listed
from rematch.safe.scenarios import FIRST, LATER, LENGTHS, OWN, Scenario, set_between, with_arguments
from rematch.safe.tape import Tape, may_read
from rematch.safe.target_run import OUTPUT, run
from rematch.safe.wide import longer_ones


class Trier(Judge):
    """A judge that also tries these scenarios."""

    def further(self) -> None:
        self._compare_handed(FIRST)
        self._try_arguments()
        self._try_lengths()
        if self._target.grad:
            self._set_between()
            self._read_later()

    def _try_arguments(self) -> None:
        """Passes arguments that were left at None, if their names say what they may be and they change an output."""
        target = self._target
        without, unknown, found = self._plain_run(FIRST, self._seed), [], {}
        for name in left_at_none(target.function, target.args, target.kwargs):
            for value in worth_a_trial(name, target.tensors):
                with target.given_also({name: value}):
                    seen = run(target, with_arguments(name), None, self._seed)
                if seen.error:
                    continue
                if any(c.kind == OUTPUT for c in differences(without, seen, self._leave_out)):
                    found[name] = value
                else:
                    why = "a mask or other positions change no output"
                    self.verdict.not_tried.append((with_arguments(name).name, why))
                break
            else:
                unknown.append(name)
        if unknown:
            self.verdict.not_tried.append(
                (f"arguments that are None: {listed(unknown)}", "what they may be is not known")
            )
        if found:
            scenario = with_arguments(*found)
            with target.given_also(found):
                self._compare(scenario, self._seed)
                if any(by is scenario for finding in self.verdict.findings for _, by in finding.shown):
                    self._compare_handed(scenario)

    def _compare_handed(self, scenario: Scenario) -> None:
        """Compares the arguments that the model passes to its modules with its own switch off and on."""
        target, model = self._target, self._target.function
        if target.switch is None or target.make is not None or not isinstance(model, nn.Module):
            return
        noted = []
        for variant in (None, OWN):
            with noting_arguments(model) as handed:
                run(target, scenario, variant, self._seed)
            noted.append(handed)
        others: dict[str, list[str]] = {}
        for name, text in handed_otherwise(*noted).items():
            others.setdefault(text, []).append(name)
        for text, names in others.items():
            wrong = [f for f in self.verdict.findings if f.cause is SWITCH]
            for finding in wrong:
                finding.more.insert(0, f"{listed(names)}: {text}")
            if not wrong:
                findings.remark(self.verdict.findings, SWITCH_HANDS, listed(names), text, scenario)

    def _try_lengths(self) -> None:
        """Tries a second, longer forward, if such a forward changes any state."""
        target, name = self._target, LENGTHS.name
        if not target.length:
            return self.verdict.not_tried.append((name, "no input has an axis that may be a sequence"))
        for length in longer_ones(target.length, target.state.modules().values()):
            alone = run(target, replace(LENGTHS, forwards=1, lengths=(length,)), None, self._seed)
            if alone.error:
                return self.verdict.not_tried.append((name, f"one of length {length} fails: {alone.error[:120]}"))
            moved = {change.name for change in changes(self._before, target.state.leaves(target.copies))}
            if moved - self._leave_out:
                return self._compare(replace(LENGTHS, lengths=(0, length)), self._seed)
        return self.verdict.not_tried.append((name, NOTHING_MOVES))

    def _set_between(self) -> None:
        """Sets each attribute that callers set, one at a time, unless a forward has changed it."""
        for name, places in set_by_callers(self._target.state).items():
            scenario = set_between(name)
            values = [place[key] for place, key, _ in places]
            if all(other_value(value) is value for value in values):
                why = "it is None" if values[0] is None else "no other value is known"
                self.verdict.not_tried.append((scenario.name, why))
            elif name.split()[-1] not in {change.partition("[")[0].rpartition(".")[2] for change in self._moved}:
                self._compare(scenario, self._seed)

    def _read_later(self) -> None:
        """Lets the backward read other clocks and loads if a forward reads any: first higher loads, then lower ones."""
        target, kept = self._target, self._target.tape
        if not may_read(target.state.functions()):
            return
        try:
            for load in (64, 1 / 64):
                target.tape = Tape(load)
                self._plain.pop((LATER.name, self._seed), None)
                self._plain_run(LATER, self._seed)
                if target.tape.log if load > 1 else target.tape.reads_loads:
                    self._compare(LATER, self._seed)
        finally:
            target.tape = kept
