"""Collects the findings of a verdict: one for each cause, whichever scenarios show it."""

from rematch.safe.causes import OF_COMPUTATIONS, UNDECIDED, Cause, Diagnosis
from rematch.safe.causes.computations import GRAD_MODE, SIDE_OUTPUT
from rematch.safe.causes.states import whole
from rematch.safe.compare import Change
from rematch.safe.scenarios import OWN, Scenario, Variant
from rematch.safe.verdict import Finding


def add(findings: list[Finding], diagnosis: Diagnosis, variant: Variant, scenario: Scenario) -> Finding:
    """Adds a diagnosis of a run to `findings`, and returns the finding that has its cause."""
    cause, about = diagnosis.cause, diagnosis.about
    first, *rest = diagnosis.explains
    for finding in findings:
        # Each scenario words differently what a computation is about.
        same = cause in OF_COMPUTATIONS or "{name}" not in cause.says
        if finding.cause is cause and (same or whole(about) in map(whole, (finding.about, *finding.more))):
            break
    else:
        names = dict.fromkeys(c.name for c in rest if c.name != first.name)
        finding = Finding(cause, about, diagnosis.says, diagnosis.advice, more=list(names))
        findings.append(finding)
    finding.note(variant.name, first, diagnosis.detail, scenario)
    if (variant, scenario) not in finding.shown:
        finding.shown.append((variant, scenario))
    return finding


def remark(
    findings: list[Finding], cause: Cause, about: str, what: str, scenario: Scenario, variant: Variant = OWN
) -> None:
    """Adds a remark: nothing is wrong, but `what` was seen of `about`. It is told once for all scenarios."""
    for old in findings:
        if old.cause is cause and old.about == about:
            old.shown.append((variant, scenario))
            return
    says, advice = cause.says.format(name=about), cause.advice
    finding = Finding(cause, about, says, advice, [(variant, scenario)], remark=True)
    finding.note(variant.name, Change(about, "remark", None, None, what), "", scenario)
    findings.append(finding)


def merge(findings: list[Finding]) -> None:
    """Merges findings that are undecided, or say only that gradients were off, into that of a state that is known to
    change: it shows differently in other scenarios. So is a state without a gradient, if another forward left it."""
    states = [f for f in findings if f.cause not in OF_COMPUTATIONS and f.cause is not UNDECIDED]
    for vague in [f for f in findings if f.cause in (UNDECIDED, GRAD_MODE, SIDE_OUTPUT)]:
        owners = states
        if vague.cause is SIDE_OUTPUT:
            owners = [f for f in findings if f.computed and f is not vague and whole(f.about) == whole(vague.about)]
        elif all(scenario.steps > 1 for _, scenario in vague.shown):
            # A second step computes with what the first one left.
            owners = [f for f in findings if f is not vague and not f.remark]
        owner = next((f for f in owners if set(vague.variants) <= set(f.variants)), None)
        if owner is not None:
            owner.shown += [shown for shown in vague.shown if shown not in owner.shown]
            for name, symptom in vague.symptoms.items():
                owner.note(name, *symptom)
            findings.remove(vague)
