"""Runs one target plain and checkpointed in every scenario, and finds the causes of the differences."""

import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatch
from typing import Any

import torch
from torch import Tensor, nn

from rematch.safe import findings
from rematch.safe.branches import Branches
from rematch.safe.causes import COMPUTED, Diagnosis, diagnose
from rematch.safe.causes.computations import COMPILED, ENDLESS, NAMES, SET_BY_CALLERS, SWITCH_ADDS, SWITCH_DROPS
from rematch.safe.causes.states import is_tensor, unnumbered
from rematch.safe.compare import Change, changes, differences, is_small, rounding
from rematch.safe.evidence import watch
from rematch.safe.generators import random_leaves, seed_all
from rematch.safe.judging_memory import judge_memory
from rematch.safe.process import is_of_process
from rematch.safe.scenarios import BEHIND_FROZEN, FIRST, OTHERS_DRAW, OWN, SCENARIOS, Scenario, Variant, has_mode
from rematch.safe.state import ATTRIBUTE
from rematch.safe.switch import flag_switch, flags_that_are_on, is_named_after_checkpointing
from rematch.safe.tape import Tape
from rematch.safe.target import Target, copied
from rematch.safe.target_run import GRADIENT, OUTPUT, Seen, run
from rematch.safe.values import Extent
from rematch.safe.verdict import Finding, Verdict

MORE_SEEDS = 8
"""How many further seeds are tried if the randomness of NumPy or Python may decide what runs."""
_MORE_RUNS = 6
"""How many more times each side runs before a state is accused. Noise with two values is accused if each side repeats
its own in all of them, which has the probability 2 p^7 (1-p)^8: at most 1 in 10,000, whatever p is."""
_ONCE = (
    "only allowed to backward once on any region computed under selective activation checkpoint",
    "'_GeneratorContextManager' object has no attribute 'args'",
)
"""The first error is PyTorch's about policies, the second Python's about contexts that are entered again, such as that
of debug=True: neither allows a second backward over a retained graph."""
NOTHING_MOVES = "its forward changes no state that a second one reads"
_PROGRESS_AFTER = 2.0


class Judge:
    """Runs one target, and collects the findings in `verdict`."""

    def __init__(
        self, target: Target, variants: Sequence[Variant], ignore: Sequence[str], seed: int, progress: bool
    ) -> None:
        self._target, self._variants, self._ignore, self._seed = target, list(variants), ignore, seed
        self._progress = progress
        self._plain: dict[tuple[str, int], Seen] = {}
        self._known: dict[tuple[Any, ...], list[Finding]] = {}
        self._begin = time.monotonic()
        self._leave_out: set[str] = set()
        self._wrong: list[Variant] = []
        self._stopped: list[Variant] = []
        self._differs: dict[str, set[str]] = {}
        self.verdict = Verdict(target.name, [], {}, [])

    def judge(self, scenarios: Sequence[Scenario] = SCENARIOS) -> Verdict:
        """Runs all scenarios. Raises RuntimeError if the plain run fails, or does not repeat itself."""
        branches = self._target.branches = Branches(self._target.state.functions())
        # This is asked before any run: a forward may freeze what it has used.
        behind_frozen = self._behind_frozen()
        self._trainable = len(self._target.state.trainable())
        first = self._first()
        before, verdict, state = self._random_before, self.verdict, "the random state of"
        host = [n for n in ("numpy", "random") if first.values[f"{state} {n}"].value != before[f"{state} {n}"].value]
        self._moves |= bool(host)
        draws = not torch.equal(first.values[f"{state} PyTorch"].value, before[f"{state} PyTorch"].value)
        if first.regions:
            # What it checkpoints inside is judged as it stands.
            self._variants = [OWN]
            verdict.not_tried.append(("checkpointing it from outside", "it checkpoints inside; ask for its blocks"))
            self._find_switch()
        self._leave_out_dropped()
        for variant in self._variants:
            verdict.tried[variant.name] = []
            if variant.reentrant and self._target.state.trainable() and not behind_frozen:
                why = "its weights get no gradient then, as PyTorch documents"
                verdict.not_tried.append(("use_reentrant=True with inputs that require no grad", why))
        for number, scenario in enumerate(scenarios):
            self._tell(number, len(scenarios), scenario.name)
            why = self._left_out(scenario, draws)
            if why:
                verdict.not_tried.append((scenario.name, why))
                continue
            self._compare(scenario, self._seed)
        if behind_frozen:
            self._compare(BEHIND_FROZEN, self._seed)
        if host:
            self._compare(replace(OTHERS_DRAW, others_draw=tuple(host)), self._seed)
            for seed in range(self._seed + 1, self._seed + 1 + MORE_SEEDS):
                self._compare(FIRST, seed)
        self.further()
        findings.merge(self.verdict.findings)
        if self._target.grad:
            self._measure()
        else:
            verdict.notes.append("forwards ran alone, under torch.no_grad(): what is called a step had no backward")
        verdict.not_tried += branches.one_sided()
        unseen = self._target.unseen | self._target.state.unseen
        verdict.notes += [f"not seen: {what or 'the module'}, because {why}" for what, why in unseen.items()]
        verdict.seconds = time.monotonic() - self._begin
        return verdict

    def further(self) -> None:
        """Runs the scenarios that only some targets have; derived classes override it."""

    def _first(self) -> Seen:
        target = self._target
        target.begin(self._seed)
        before = target.state.leaves(target.copies)
        seed_all(self._seed)
        self._random_before = random_leaves(lambda t: t)
        plain = self._plain_run(FIRST, self._seed)
        own = self._variants == [OWN] and not target.asked
        while plain.error and len(target.grads) > (0 if own else 1):
            # An input that is no activation, such as a mask, may not require grad; those of a model need not.
            target.grads = target.grads[:1] if len(target.grads) > 1 else []
            self._plain.clear()
            plain = self._plain_run(FIRST, self._seed)
        if plain.error:
            raise RuntimeError(f"the module fails without checkpointing, too: {plain.error}") from plain.failure
        again = run(target, FIRST, None, self._seed)
        self._moved = {change.name for change in changes(before, target.state.leaves(target.copies))}
        self._moves, self._before = bool(self._moved), before
        apart = differences(plain, again)
        if any(is_of_process(change.name) for change in apart):
            plain = self._plain[FIRST.name, self._seed] = again
            again = run(target, FIRST, None, self._seed)
            apart = differences(plain, again)
        counts = [
            c for c in apart if c.kind in (GRADIENT, "flag", "error") or (c.kind == OUTPUT and is_tensor(c.before))
        ]
        if counts and target.tape is None and not target.state.unrestored:
            target.tape = Tape()
            self._plain.clear()
            try:
                repeated = self._first()
            except RuntimeError:
                target.tape = None
            else:
                self.verdict.notes.append(
                    "two plain runs repeat each other only where clocks and the randomness of the system are replaced "
                    "by numbers that repeat, as they are here"
                )
                return repeated
        if counts:
            raise RuntimeError(
                f"two plain runs from the same seeds differ, so that nothing can be compared: {counts[0].text}"
                + self._why_not_repeatable(apart)
            )
        self._leave_out = {change.name for change in apart}
        if target.switch is not None:
            self._leave_out_switch()
        for change in apart:
            self.verdict.not_tried.append((change.name, "it differs between two plain runs"))
        return plain

    def _behind_frozen(self) -> bool:
        """Whether the target is partly frozen, trains, and was given no input that requires grad."""
        given = self._target.state.tensors().values()
        frozen = any(isinstance(t, nn.Parameter) and not t.requires_grad for t in given)
        return frozen and bool(self._target.state.trainable()) and not self._target.asked

    def _find_switch(self) -> None:
        """Looks for the flag that turns the target's own checkpointing off; plain runs lack all that it changes."""
        target = self._target
        if target.switch is not None:
            return
        for name in flags_that_are_on(target.function):
            switch = flag_switch(name)
            target.switch = lambda function, on, turn=switch.turn: None if on else turn(function, False)
            plain = run(target, FIRST, None, self._seed)
            if not plain.regions and not plain.error:
                if not is_named_after_checkpointing(name) and differences(self._plain_run(FIRST, self._seed), plain):
                    why = (
                        f"without the attribute {name} it does not, and computes something else; if that is the switch"
                    )
                    self.verdict.not_tried.append(
                        (f"turning its own checkpointing off by {name}", f"{why}, give switch=")
                    )
                    continue
                self._plain.clear()
                self._leave_out_switch()
                self.verdict.notes.append(
                    f"{switch.name} turns its own checkpointing off: the plain runs are without it"
                )
                return
        target.switch = None
        why = "no flag was found that turns it off; give switch="
        self.verdict.not_tried.append(("what else its own switch changes", why))

    def _leave_out_switch(self) -> None:
        """Leaves out the state that the switch itself sets."""
        target = self._target
        sides = []
        for on in (False, True):
            target.begin(self._seed)
            if target.switch is not None:
                target.switch(target.function, on)
            sides.append(target.state.leaves(copied))
        self._leave_out |= {change.name for change in changes(sides[0], sides[1])}

    def _leave_out_dropped(self) -> None:
        """Leaves outputs that only one side of the switch returns, such as a cache, out of the loss."""
        target = self._target
        if target.switch is None or target.loss is not None:
            return
        sides = [self._plain_run(FIRST, self._seed), run(target, FIRST, OWN, self._seed)]
        off, on = ({n for n, v in seen.values.items() if v.kind == OUTPUT and is_tensor(v.value)} for seen in sides)
        if not any(seen.error for seen in sides) and off != on and any(sides[0].flags.get(n) for n in off & on):
            target.common = off & on
            self._plain.clear()

    def _why_not_repeatable(self, apart: Sequence[Change]) -> str:
        moved = [c.text for c in apart if c.kind not in (OUTPUT, GRADIENT, "flag", "error")]
        lost = self._target.state.unrestored
        if lost:
            return (
                f"; {lost[0]} cannot be put back for the second run: hand over make=, a function that makes the module"
            )
        if moved:
            return f"; {moved[0]}; where that is not put back between runs, hand over make="
        return (
            "; it reads a clock, randomness of the system, addresses of objects, a state that is not seen (then hand "
            "over make=, a function that makes the module), or a kernel that is not deterministic"
        )

    def _left_out(self, scenario: Scenario, draws: bool) -> str:
        target = self._target
        if not scenario.preserve_rng_state and draws:
            return "masks are drawn anew, as PyTorch documents"
        if not scenario.inputs_require_grad and not self._trainable:
            return "nothing else trains"
        if not scenario.inputs_require_grad and self._variants == [OWN] and target.asked:
            return "the inputs that were handed over require grad"
        if scenario.forwards > 1 and not self._moves:
            return NOTHING_MOVES
        if scenario.only_first_input and len(target.grads) < 2:
            return "it has one input"
        if scenario.frozen and self._trainable < 3:
            return "it has fewer than three parameters"
        modules = target.state.modules().values()
        if scenario.eval_parts and not any(has_mode(m) and m.training for m in modules):
            return "it has none in training mode"
        if not scenario.train and not any(m.training for m in modules):
            return "it is in evaluation mode already"
        return ""

    def _applies(self, scenario: Scenario, variant: Variant) -> bool:
        if scenario.documented and not variant.reentrant:
            return False
        if variant.own:
            return scenario.preserve_rng_state and not scenario.policy
        if variant.reentrant and not scenario.reentrant:
            return False
        return not (set(scenario.options()) & set(variant.options))

    def _compare(self, scenario: Scenario, seed: int) -> None:
        plain = self._plain_run(scenario, seed)
        if plain.error and self._target.rolls and scenario.has_others:
            # Some integers, such as extents, may not change places.
            self._target.rolls = False
            plain = self._plain[scenario.plain or scenario.name, seed] = run(self._target, scenario, None, seed)
        if plain.error:
            return self.verdict.not_tried.append(
                (scenario.name, f"fails without checkpointing, too: {plain.error[:200]}")
            )
        if scenario.frozen and not any(plain.flags.values()):
            return self.verdict.not_tried.append((scenario.name, "no parameter that is left trains"))
        for variant in self._variants:
            if not self._applies(scenario, variant) or variant in self._stopped:
                continue
            seen = run(self._target, scenario, variant, seed)
            self.verdict.regions = max(self.verdict.regions, seen.regions)
            found = [c for c in differences(plain, seen, self._leave_out) if not self._accepted(c)]
            if variant.own and self.verdict.regions and not seen.regions and not found:
                self.verdict.not_tried.append((scenario.name, "the model checkpoints nothing then"))
                continue
            tried = self.verdict.tried[variant.name]
            if scenario.name not in tried:
                tried.append(scenario.name)
            if not seen.endless and any(is_of_process(change.name) for change in found):
                # What a late import changes does not change again.
                plain = self._plain[scenario.plain or scenario.name, seed] = run(self._target, scenario, None, seed)
                seen = run(self._target, scenario, variant, seed)
                found = [c for c in differences(plain, seen, self._leave_out) if not self._accepted(c)]
            if seen.endless:
                self._stop(scenario, variant, seen.error)
                continue
            dropped = _one_sided(found) if self._target.switch is not None else []
            for change in dropped[:1]:
                name, on = change.name.split(",")[0], change.after is not None
                what = f"{name} is {'returned with the switch on alone' if on else 'not returned'}"
                findings.remark(self.verdict.findings, SWITCH_ADDS if on else SWITCH_DROPS, name, what, scenario)
            # Callers may set it for a log: what a forward only notes of it does not count.
            found = [c for c in found if c not in dropped and (not scenario.sets or c.kind in COMPUTED)]
            if found and (seen.reentrant or self._target.common is not None) and not seen.error:
                found = self._beyond_rounding(scenario, variant, seed, found)
            if found and seen.error and (scenario.policy or any(text in seen.error for text in _ONCE)):
                self.verdict.notes.append(f"{scenario.name}: PyTorch raises an error: {found[0].text[:160]}")
                continue
            if scenario is FIRST and seed == self._seed:
                self._differs[variant.name] = {change.name for change in found}
            if found and not scenario.compiled:
                found = self._repeatable(scenario, variant, seed, plain, seen, found)
            if scenario.later:
                # Values that are only noted, such as how long a forward took, are right.
                known = self._differs.get(variant.name, ())
                found = [c for c in found if c.kind in COMPUTED and c.name not in known]
            if found and scenario.compiled:
                self._blame(Diagnosis(COMPILED, ""), scenario, variant, found)
            elif found and scenario.sets:
                self._blame(Diagnosis(SET_BY_CALLERS, scenario.sets), scenario, variant, found)
            elif found:
                self._explain(scenario, variant, seed, plain, found)
        return None

    def _stop(self, scenario: Scenario, variant: Variant, error: str) -> None:
        self._stopped.append(variant)
        why = error.partition(": ")[2].removeprefix("does not end: ")
        change = Change("error", "error", "", error, f"does not end: {why}")
        findings.add(self.verdict.findings, Diagnosis(ENDLESS, why, (change,)), variant, scenario)
        self.verdict.not_tried.append((f"{variant.name} in what comes after {scenario.name}", "it does not end there"))

    def _blame(self, what: Diagnosis, scenario: Scenario, variant: Variant, found: list[Change]) -> None:
        """Adds a finding with the cause `what` for differences that an ordinary training step does not show."""
        alone = [change for change in found if change.name not in self._differs.get(variant.name, ())]
        for finding in self.verdict.findings if len(alone) < len(found) else ():
            if any(by is FIRST and kind is variant for kind, by in finding.shown):
                finding.shown.append((variant, scenario))
        if alone:
            findings.add(self.verdict.findings, replace(what, explains=tuple(alone)), variant, scenario)

    def _beyond_rounding(self, scenario: Scenario, variant: Variant, seed: int, found: list[Change]) -> list[Change]:
        """Returns `found` without the differences that are no more than rounding, as runs in float64 show."""
        computed = [c.before.dtype for c in found if isinstance(c.before, Tensor) and c.before.is_floating_point()]
        if not computed:
            return found
        eps = max(torch.finfo(dtype).eps for dtype in (*computed, *([torch.bfloat16] if scenario.autocast else [])))
        wide = [run(self._target, scenario, kind, seed, in_float64=True) for kind in (None, variant)]
        same = [] if any(seen.error for seen in wide) else rounding(found, wide[0], wide[1], eps)
        return [change for change in found if change not in same]

    def _repeatable(
        self, scenario: Scenario, variant: Variant, seed: int, plain: Seen, seen: Seen, found: list[Change]
    ) -> list[Change]:
        """Returns the differences in `found` on which repeated runs agree: a scenario may use kernels that others do
        not, and threads may end in any order."""
        key = f"{scenario.plain or scenario.name}, again", seed
        if key not in self._plain:
            self._plain[key] = run(self._target, scenario, None, seed)
        pairs = [(plain, self._plain[key])]
        if _signature(variant, found) not in self._known:
            states = any(change.kind not in COMPUTED for change in found)
            for kind, one in (None, plain), (variant, seen):
                pairs += [(one, run(self._target, scenario, kind, seed)) for _ in range(_MORE_RUNS if states else 2)]
        apart: dict[str, str] = {}
        for one, other in pairs:
            why = f"it differs between two {'plain' if one is plain else 'checkpointed'} runs"
            changed = differences(one, other)
            if one is seen:
                # Each run leaves an object of its own where a process has another one; and gradients that are far off
                # are no noise where those of plain runs agree, such as those of memory that nothing has written.
                changed = [c for c in changed if not is_of_process(c.name) and (c.kind not in COMPUTED or is_small(c))]
            if bool(one.error) != bool(other.error):
                # It is no noise either if only some checkpointed runs fail.
                changed = [] if one is seen else [c for c in changed if c.kind == "error"]
            apart |= {} if one.error and other.error else {_noisy(c): why for c in changed if _noisy(c) not in apart}
        for change in found:
            if _noisy(change) in apart:
                self.verdict.not_tried.append((f"{change.name}, {scenario.name}", apart[_noisy(change)]))
        return [] if "error" in apart else [change for change in found if _noisy(change) not in apart]

    def _explain(self, scenario: Scenario, variant: Variant, seed: int, plain: Seen, found: list[Change]) -> None:
        special = bool(scenario.policy or scenario.offload)
        if not special and any(change.kind in COMPUTED for change in found):
            self._wrong.append(variant)
        signature = _signature(variant, found)
        if signature not in self._known:
            evidence = watch(self._target, scenario, variant, seed, plain, found)
            evidence.differ_alone = frozenset(map(unnumbered, self._differs.get(variant.name, ())))
            evidence.right_otherwise = special and variant not in self._wrong
            told = self.verdict.findings
            self._known[signature] = [findings.add(told, d, variant, scenario) for d in diagnose(evidence)]
        for finding in self._known[signature]:
            if (variant, scenario) not in finding.shown:
                finding.shown.append((variant, scenario))

    def _accepted(self, change: Change) -> bool:
        if self._target.switch is not None and change.kind == "flag" and change.after:
            # Switches make embeddings require grad, for the reentrant variant.
            return True
        if self._target.switch is not None and change.before is None and change.kind == ATTRIBUTE:
            # The code behind the switch notes it for itself.
            return True
        return any(fnmatch(text, p) for p in self._ignore for text in (change.name, f"{change.kind} {change.name}"))

    def _plain_run(self, scenario: Scenario, seed: int) -> Seen:
        key = scenario.plain or scenario.name, seed
        if key not in self._plain:
            self._plain[key] = run(self._target, scenario, None, seed)
        return self._plain[key]

    def _measure(self) -> None:
        """Measures the bytes that steps hold, and looks for names that wrappers for checkpointing have changed."""
        errs = {name for name, differ in self._differs.items() if "error" in differ}
        variants = [v for v in self._variants if v not in self._stopped and v.name not in errs]
        judge_memory(self._target, variants, self._seed, self.verdict, self._accepted)
        if OWN in variants and isinstance(self._target.function, nn.Module):
            self._look_at_names(self._target.function)

    def _look_at_names(self, model: nn.Module) -> None:
        self._target.begin(self._seed)
        if self._target.switch is not None:
            self._target.switch(model, True)
        kept = model.state_dict().keys()
        other = [name for name, _ in model.named_parameters(remove_duplicate=False) if name not in kept]
        if other:
            what = f"{len(other)} names of parameters are in named_parameters() alone"
            findings.remark(self.verdict.findings, NAMES, other[0], what, FIRST)

    def _tell(self, number: int, count: int, name: str) -> None:
        passed = time.monotonic() - self._begin
        if self._progress and passed > _PROGRESS_AFTER and number:
            rest = passed / number * (count - number)
            print(
                f"\r{self._target.name}: {number} of {count} scenarios, about {rest:.0f} s left: {name}\x1b[K",
                end="",
                file=sys.stderr,
                flush=True,
            )
        if number == count - 1 and passed > _PROGRESS_AFTER and self._progress:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _one_sided(found: Sequence[Change]) -> list[Change]:
    """Returns the outputs that only one of two runs has, and then the containers that hold them."""
    alone = [c for c in found if c.kind == OUTPUT and (c.before is None or c.after is None)]
    held = [c for c in found if c.kind == OUTPUT and isinstance(c.before, Extent)]
    names = {unnumbered(c.name) for c in alone}
    return alone + [
        c for c in held if any(n.startswith((f"{unnumbered(c.name)}[", f"{unnumbered(c.name)}.")) for n in names)
    ]


def _noisy(change: Change) -> str:
    """Returns the name for noise of this change: that of a whole list, which threads may fill in any order."""
    return change.name if change.kind in COMPUTED else re.split(r"[\[,]", change.name)[0]


def _signature(variant: Variant, found: Sequence[Change]) -> tuple[str, ...]:
    return variant.name, *sorted({unnumbered(change.name) for change in found})
