"""Each cause of the catalogue is named where it is planted, and modules that are sound are not accused."""

import random

import planted_between  # noqa: F401
import planted_computations  # noqa: F401
import planted_outside  # noqa: F401
import planted_phases  # noqa: F401
import planted_states  # noqa: F401
import pytest
import sound_outside  # noqa: F401
from modules import ONLY_NON_REENTRANT, PLANTED, SOUND, arguments_of, causes

from rematch.safe import judge, judging
from rematch.safe.causes import CAUSES, Cause, computations, diagnose, memory, states

PLANTED_ELSEWHERE = {"kernel-by-grad-mode", "compiler"} | {
    cause.name for cause in vars(memory).values() if isinstance(cause, Cause)
}
"""No operator is known that has another kernel without gradients on the CPU and differs by more than rounding;
test_verdict.py has a compiler that is wrong, and test_memory.py what concerns memory."""


@pytest.fixture
def evidences(monkeypatch):
    """All evidence from which the judge names causes."""
    seen = []
    monkeypatch.setattr(judging, "diagnose", lambda evidence: seen.append(evidence) or diagnose(evidence))
    return seen


def causes_of(evidence):
    return [(diagnosis.cause.name, diagnosis.about) for diagnosis in diagnose(evidence)]


@pytest.mark.parametrize(("cause", "make"), PLANTED, ids=[f"{cause}:{make.__name__}" for cause, make in PLANTED])
def test_the_cause_is_named_and_no_other_in_any_order_of_the_rules(cause, make, evidences, monkeypatch):
    args, kwargs = arguments_of(make)
    verdict = judge(make(), *args, kwargs=kwargs)
    assert causes(verdict) == [cause], verdict.report()
    known = [causes_of(evidence) for evidence in evidences]
    shuffle = random.Random(0).sample
    for place, name in ((states, "RULES"), (computations, "RULES"), (computations, "WITHOUT_STATES")):
        rules = getattr(place, name)
        for other in (rules[::-1], shuffle(rules, len(rules))):
            monkeypatch.setattr(place, name, other)
            assert [causes_of(evidence) for evidence in evidences] == known


@pytest.mark.parametrize("make", SOUND, ids=lambda make: make.__name__)
def test_a_sound_module_is_not_accused(make):
    args, kwargs = arguments_of(make)
    variants = ["non_reentrant"] if make.__name__ in ONLY_NON_REENTRANT else None
    verdict = judge(make(), *args, kwargs=kwargs, variants=variants)
    assert verdict.safe and not {"set-by-callers", "switch-hands-others"} & {*causes(verdict)}, verdict.report()


def test_every_cause_is_planted_somewhere():
    assert {cause for cause, _ in PLANTED} | PLANTED_ELSEWHERE == set(CAUSES)


def test_there_are_sentences_for_every_cause():
    for cause in CAUSES.values():
        assert cause.says and cause.advice.endswith((".", ")")), cause.name
