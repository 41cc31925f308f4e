"""Measures and judges what checkpointing does to the memory of a target's own steps."""

from collections.abc import Callable, Sequence

from torch import nn

from rematch.safe import findings
from rematch.safe.blocks import repeated_children
from rematch.safe.causes import Cause, Diagnosis, memory
from rematch.safe.compare import Change
from rematch.safe.memory import Footprint, measure
from rematch.safe.scenarios import FIRST, Variant
from rematch.safe.target import Target
from rematch.safe.verdict import Verdict


def judge_memory(
    target: Target, variants: Sequence[Variant], seed: int, verdict: Verdict, accepts: Callable[[Change], bool]
) -> None:
    """Measures plain and checkpointed steps, and adds to `verdict` the bytes that they hold and a finding for what is
    wrong, unless `accepts` accepts it."""
    plain = measure(target, None, seed)
    if plain.error:
        verdict.not_tried.append(("the bytes of its steps", plain.error))
        return
    verdict.saved, verdict.peak = {"plain": plain.held}, {"plain": plain.peak}
    for variant in variants:
        on = measure(target, variant, seed)
        if on.error:
            verdict.not_tried.append((f"the bytes of its steps, {variant.name}", on.error))
            continue
        verdict.saved[variant.name], verdict.peak[variant.name] = on.held, on.peak
        _Judged(verdict, variant, plain, on, accepts).judge(target)


class _Judged:
    """Adds the findings about the memory of one variant."""

    def __init__(
        self, verdict: Verdict, variant: Variant, plain: Footprint, on: Footprint, accepts: Callable[[Change], bool]
    ) -> None:
        self._verdict, self._variant, self._plain, self._on, self._accepts = verdict, variant, plain, on, accepts

    def judge(self, target: Target) -> None:
        plain, on = self._plain, self._on
        if target.is_model and on.steps[0].regions and on.held > plain.held:
            what = f"{on.held:,} B are held for the backward with the switch on, {plain.held:,} B with it off"
            self._wrong(memory.KEEPS_MORE, what, plain.held, on.held)
        waits = on.steps[-1].collected
        if on.growth and not plain.growth:
            self._wrong(
                memory.GROWS, f"after a step {on.growth:,} B more are left than after the one before", 0, on.growth
            )
        elif waits and not plain.steps[-1].collected:
            self._remark(memory.COLLECTED, "", f"{waits:,} B are freed by gc.collect() alone")
        counts = [step.regions for step in on.steps]
        if min(counts) < counts[0]:
            what = f"regions of the steps: {', '.join(map(str, counts))}"
            self._wrong(memory.NO_LONGER, what, counts[0], min(counts))
        for name, policy in on.policies.items():
            asked = ", ".join(sorted(policy.kept | policy.recomputed))
            if not policy.kept and policy.recomputed:
                self._remark(memory.MATCHES_NOTHING, name, f"it was asked about {asked}")
            if policy.kept and not policy.recomputed:
                self._remark(memory.MATCHES_ALL, name, f"it was asked about {asked}")
        if isinstance(target.function, nn.Module) and self._variant.own and on.checkpointed:
            self._parts(target.function)

    def _parts(self, model: nn.Module) -> None:
        """Remarks on blocks that are not recomputed, or only in part. A block that records no graph, such as a frozen
        one, or that this batch does not reach, such as a tower for images, does not count against the switch."""
        on = self._on
        blocks = [name for name in repeated_children(model) if name in on.called]
        missed = [name for name in blocks if not on.recomputes(name) and name in on.recorded]
        if missed:
            others = [name for name in blocks if name not in missed] or on.checkpointed
            what = f"only {listed(others)} {'are' if len(others) > 1 else 'is'} checkpointed"
            held = self._outside(missed)
            self._remark(
                memory.NOT_CHECKPOINTED, listed(missed), what + (f"; {held:,} B are held there" if held else "")
            )
        parted = [name for name in blocks if on.recomputes(name) and name not in on.within]
        if parted and 2 * self._outside(parted) > on.held:
            parts = dict.fromkeys(one.rpartition(".")[2] for one in on.checkpointed)
            what = f"only {listed([*parts])}; {self._outside(parted):,} B of {on.held:,} B are held outside these"
            self._remark(memory.PART_IS_KEPT, listed(parted), what)

    def _outside(self, names: Sequence[str]) -> int:
        """Returns the held bytes that modules called `names`, or modules within them, made outside of regions."""
        outside = self._on.outside.items()
        return sum(held for module, held in outside if any(f"{module}.".startswith(f"{name}.") for name in names))

    def _wrong(self, cause: Cause, what: str, before: int, after: int) -> None:
        change = Change(cause.name, "memory", before, after, what)
        if not self._accepts(change):
            findings.add(self._verdict.findings, Diagnosis(cause, "", (change,)), self._variant, FIRST)

    def _remark(self, cause: Cause, about: str, what: str) -> None:
        findings.remark(self._verdict.findings, cause, about, what, FIRST, self._variant)


def listed(names: Sequence[str]) -> str:
    """Returns the first six names as a text, and how many more there are."""
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
