"""May a module be checkpointed? Runs it plain and under both variants of PyTorch's checkpoint()."""

from typing import Any

from rematch.safe.judge import VARIANTS, judge
from rematch.safe.model import ModelVerdict, judge_model
from rematch.safe.verdict import Finding, Verdict

__all__ = [
    "VARIANTS",
    "Finding",
    "ModelVerdict",
    "Verdict",
    "assert_checkpoint_safe",
    "findings",
    "judge",
    "judge_model",
]


def findings(target: Any, *args: Any, **options: Any) -> list[Finding]:
    """Returns the differences that judge() finds, one Finding for each cause; an empty list where it finds none."""
    return judge(target, *args, **options).findings


def assert_checkpoint_safe(target: Any = None, *args: Any, saves: float | None = None, **options: Any) -> Verdict:
    """Raises AssertionError with a report if judge() finds that checkpointing changes what `target` computes, or if a
    checkpointed step holds more for its backward than the fraction `saves` of the plain bytes (0.5: half of them).

    Takes the arguments of judge(), raises its errors, and returns its verdict.
    """
    __tracebackhide__ = True
    verdict = judge(target, *args, **options)
    if not verdict.safe:
        raise AssertionError(str(verdict))
    for variant in verdict.tried if saves is not None else ():
        if not {"plain", variant} <= verdict.saved.keys():
            raise AssertionError(f"{verdict.name}: what {variant} saves was not measured\n\n{verdict}")
        kept, most = verdict.saved[variant], saves * verdict.saved["plain"]
        if kept > most:
            what = f"{variant} holds {kept:,} of {verdict.saved['plain']:,} B for the backward"
            raise AssertionError(f"{verdict.name}: {what}; at most {most:,.0f} were promised\n\n{verdict}")
    return verdict
