"""The answer of judge(): what differs and why, what was tried, what was not, and what checkpointing saves."""

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rematch.safe.causes import COMPUTED, Cause
from rematch.safe.causes.computations import NO_INPUT
from rematch.safe.causes.states import IN_BACKWARD, unnumbered
from rematch.safe.compare import Change
from rematch.safe.scenarios import BEHIND_FROZEN, Scenario, Variant

UNSEEN = (
    "what another device does: kernels and random states of a GPU differ from those of the CPU",
    "what a forward writes outside of Python and PyTorch: files, sockets, memory of extensions",
    "branches that a counter, a value or chance decides in libraries and in code that is not Python",
    "checkpoint functions that are not built on torch.utils.checkpoint, unless switch= turns them off",
)
"""What no run of judge() can see."""


@dataclass
class Finding:
    """One cause of differences: what differs, from which operator on, what to do, and which runs show it."""

    cause: Cause
    about: str
    says: str
    advice: str
    shown: list[tuple[Variant, Scenario]] = field(default_factory=list)
    more: list[str] = field(default_factory=list)
    """Further differences of the same cause."""
    remark: bool = False
    """Whether nothing is wrong, but less is saved than one would think."""
    symptoms: dict[str, tuple[Change, str, Scenario]] = field(default_factory=dict)
    """For each variant, what differs, from which operator on, and in which scenario."""

    def note(self, variant: str, change: Change, since: str, scenario: Scenario) -> None:
        """Notes what shows the finding in a variant. A wrong gradient says more than the state that it comes from."""
        told = self.symptoms.get(variant)
        if told is None or (change.kind in COMPUTED and told[0].kind not in COMPUTED):
            self.symptoms[variant] = change, since, scenario
            if told is not None and told[0].text not in self.more:
                self.more.insert(0, told[0].text)

    @property
    def computed(self) -> bool:
        """Whether outputs or gradients differ."""
        return any(change.kind in COMPUTED for change, _, _ in self.symptoms.values())

    @property
    def what(self) -> str:
        """What differs in the first variant; variants whose outputs or gradients differ come first."""
        return self._first[0].text

    @property
    def since(self) -> str:
        """The operator from which on it differs."""
        return self._first[1]

    @property
    def _first(self) -> tuple[Change, str, Scenario]:
        return min(self.symptoms.values(), key=lambda symptom: symptom[0].kind not in COMPUTED)

    @property
    def scenario(self) -> Scenario:
        """The first scenario that shows it."""
        return self.shown[0][1]

    @property
    def reentrant(self) -> bool:
        """Whether the first variant that shows it is the reentrant one."""
        return self.shown[0][0].reentrant

    @property
    def variants(self) -> list[str]:
        return list(dict.fromkeys(variant.name for variant, _ in self.shown))

    @property
    def only_with(self) -> str:
        """The selective policies and other uses without which it does not show; empty if it shows without any."""
        texts = [self._excuse(variant, scenario) for variant, scenario in self.shown]
        return ", ".join(dict.fromkeys(texts)) if all(texts) else ""

    def _excuse(self, variant: Variant, scenario: Scenario) -> str:
        if scenario.forwards > 1 and (not self.computed or self.cause is IN_BACKWARD):
            # Outputs and gradients are right, or a hook of the backward, such as an optimizer's, is misused.
            return scenario.name
        if variant.own and scenario.frozen and self.cause is NO_INPUT:
            return BEHIND_FROZEN.documented
        return scenario.excuse

    def text(self, verbose: bool = False) -> str:
        """Returns a paragraph about the finding; `verbose` writes lists in full."""
        scenarios = list(dict.fromkeys(scenario.name for _, scenario in self.shown))
        first: dict[str, list[str]] = {}
        for variant in self.variants:
            scenario = next(scenario.name for by, scenario in self.shown if by.name == variant)
            first.setdefault(scenario, []).append(variant)
        own = self._by_variant(first)
        parts = [("seen" if self.remark else "differs", f"{at}: {what}" if at else what) for at, what, _ in own]
        parts.append(("as well", _some(self.more, ", ", verbose)))
        parts += [("since", text) for text in dict.fromkeys(text for _, _, text in own)]
        parts += [("cause", f"{self.cause.name}: {self.says}"), ("what to do", self.advice)]
        parts.append(("also with", _some([name for name in scenarios if name not in first], "; ", verbose)))
        lines = [_wrapped(f"  {label:<11}", text) for label, text in parts if text]
        return "\n".join(["; ".join(f"{_use(names)}, {name}" for name, names in first.items()), *lines])

    def _by_variant(self, first: dict[str, list[str]]) -> list[tuple[str, str, str]]:
        """Returns where something differs (empty if the first line says it), what differs, and from which operator on.
        Variants are told together if the same value differs, or the same error was raised, in one scenario."""
        alike: dict[tuple[str, str, str], list[str]] = {}
        for variant, (change, _, scenario) in self.symptoms.items():
            error = change.text if change.kind == "error" else ""
            alike.setdefault((unnumbered(change.name), error, scenario.name), []).append(variant)
        found = []
        failed = any(change.kind == "error" for change, _, _ in self.symptoms.values())
        for (_, _, scenario), names in alike.items():
            change, since, _ = self.symptoms[names[0]]
            what = f"no error, but {change.text}" if failed and change.kind != "error" else change.text
            where = [_use(names)] if len(alike) > 1 else []
            where += [] if set(names) <= set(first.get(scenario, ())) else [scenario]
            found.append((", ".join(where), what, since))
        return found

    def to_json(self) -> dict[str, Any]:
        """Returns the finding as data for JSON."""
        return {
            "cause": self.cause.name,
            "remark": self.remark,
            "says": self.says,
            "differs": self.what,
            "differs_by_variant": {variant: change.text for variant, (change, _, _) in self.symptoms.items()},
            "more": self.more,
            "since": self.since,
            "advice": self.advice,
            "variants": self.variants,
            "scenarios": list(dict.fromkeys(scenario.name for _, scenario in self.shown)),
        }


@dataclass
class Verdict:
    """The answer for one target."""

    name: str
    findings: list[Finding]
    tried: dict[str, list[str]]
    """The scenarios that ran, by variant."""
    not_tried: list[tuple[str, str]]
    """What was left out, each with a reason."""
    notes: list[str] = field(default_factory=list)
    saved: dict[str, int] = field(default_factory=dict)
    """Bytes that a step holds for its backward, whoever keeps them, without parameters, buffers and a model's batch:
    under "plain", and by variant."""
    peak: dict[str, int] = field(default_factory=dict)
    """The most bytes that are live at a time in a step, counted in the same way; they include gradients."""
    regions: int = 0
    """The most calls of checkpoint() in a run."""
    seconds: float = 0.0

    @property
    def safe(self) -> bool:
        """Whether no difference was found in what was tried, apart from selective policies, which have findings of
        their own; False if nothing was tried."""
        harmless = all(finding.remark or finding.only_with for finding in self.findings)
        return harmless and self.judged

    @property
    def saves(self) -> bool:
        """Whether a checkpointed step holds another number of bytes than a plain one."""
        return any(n != self.saved["plain"] for n in self.saved.values())

    @property
    def judged(self) -> bool:
        """Whether anything could be tried."""
        return any(self.tried.values())

    def __str__(self) -> str:
        return self.text()

    def text(self, verbose: bool = False) -> str:
        """Returns the report; `verbose` also lists everything that "and 7 more" stands for."""
        return f"{self.report(verbose)}\n\n{self._rests_on()}"

    def headline(self) -> str:
        """Returns the answer in one line."""
        if self.safe:
            but = reservations(self.findings)
            return f"{self.name} is safe to checkpoint as far as it was tried: {', '.join(self.tried)}{but}"
        if not self.judged:
            return f"{self.name} was not judged: nothing could be tried"
        wrong = [finding for finding in self.findings if not (finding.remark or finding.only_with)]
        causes = ", ".join(dict.fromkeys(finding.cause.name for finding in wrong))
        return f"{self.name} is not safe to checkpoint ({causes})"

    def report(self, verbose: bool = False) -> str:
        """Returns the answer and the findings, without what was tried, what was not, and what held."""
        return "\n\n".join([self.headline(), *(finding.text(verbose) for finding in self.findings)])

    def to_json(self) -> dict[str, Any]:
        """Returns the verdict as data for JSON."""
        return {
            "name": self.name,
            "safe": self.safe,
            "findings": [finding.to_json() for finding in self.findings],
            "tried": self.tried,
            "not_tried": [{"what": what, "why": why} for what, why in self.not_tried],
            "notes": self.notes,
            "saved_bytes": self.saved,
            "peak_bytes": self.peak,
            "seconds": round(self.seconds, 2),
        }

    def json(self) -> str:
        """Returns the verdict as JSON text."""
        return json.dumps(self.to_json(), indent=2)

    def _rests_on(self) -> str:
        runs = sum(len(scenarios) for scenarios in self.tried.values())
        scenarios = list(dict.fromkeys(s for names in self.tried.values() for s in names))
        parts = [("tried", f"{runs} checkpointed runs in {self.seconds:.1f} s: {'; '.join(scenarios)}")]
        parts += [("not tried", f"{what}: {why}") for what, why in self.not_tried]
        parts += [("note", note) for note in self.notes]
        lines = [_wrapped(f"{label:<11}", text) for label, text in parts]
        if self.saved:
            plain = self.saved["plain"]
            saves = [f"{n:,} B {name}" for name, n in self.saved.items() if name != "plain"]
            checkpointed = f"; {', '.join(saves)}" if saves else ""
            lines.append(f"held        {plain:,} B for the backward, plain{checkpointed}")
            if saves and all(n >= plain for n in self.saved.values()):
                lines.append(" " * 12 + "checkpointing frees no memory: its steps hold no less than the plain step")
            peaks = ", ".join(f"{n:,} B {name}" for name, n in self.peak.items())
            lines.append(f"peak        {peaks}, without parameters and buffers; rematch plan counts a whole step")
        lines += [_wrapped("not seen   ", text) for text in UNSEEN]
        return "\n".join(lines)


def reservations(findings: Sequence[Finding]) -> str:
    """Returns what the first line adds to "safe"; empty if nothing."""
    uses = dict.fromkeys(finding.only_with for finding in findings if finding.only_with)
    but = f"; but NOT with {' or '.join(uses)}" if uses else ""
    remarks = dict.fromkeys(finding.cause.name for finding in findings if finding.remark)
    return but + (f"; see the remarks ({', '.join(remarks)})" if remarks else "")


def _use(variants: list[str]) -> str:
    names = {"reentrant": "True", "non_reentrant": "False"}
    known = [names[v] for v in variants if v in names]
    parts = [f"use_reentrant={' and '.join(known)}"] if known else []
    if "own" in variants:
        parts.append("as it checkpoints itself")
    return ", ".join(parts)


def _wrapped(label: str, text: str) -> str:
    return textwrap.fill(
        text, 118, initial_indent=f"{label} ", subsequent_indent=" " * (len(label) + 1), break_long_words=False
    )


def _some(texts: list[str], comma: str, verbose: bool) -> str:
    rest = f" and {len(texts) - 3} more" if len(texts) > 4 and not verbose else ""
    return comma.join(texts[:3] if rest else texts) + rest
