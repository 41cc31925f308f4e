"""Policies by operators of PyTorch: what they keep does not run again, and all else does."""

import pytest
from cases import chain, differing, run_of, segment

from rematch.frameworks.pytorch.operators import POLICIES
from rematch.frameworks.pytorch.test_export import finding, shown

SUBJECT = """
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from rematch import serve
from rematch.pytorch import CustomLayer, TorchSubject

NOISE = CustomLayer("noise", "N C -> N C", "nn.Identity()", "x + torch.rand_like(x)")
# A module that checkpoints its own part, as models do: what recomputes it does not enter the layer.
WITHIN = []
ITSELF = lambda m, x: checkpoint(m, x, use_reentrant=True) if WITHIN else m(x)
OWN = CustomLayer("own", "N C -> N C", "nn.Dropout()", ITSELF)

def calls(function, *inputs, **options):
    WITHIN.append(1)
    outputs = function(*inputs)
    WITHIN.clear()
    return outputs

def drops(function, *inputs, context_fn=None, **options):
    return checkpoint(function, *inputs, **options)

def keeps_all(function, *inputs, context_fn=None, **options):
    def contexts():
        caching, cached = context_fn()
        ask = caching.policy_fn
        caching.policy_fn = lambda *a, **k: ask(*a, **k) and True
        return caching, cached
    return checkpoint(function, *inputs, **options, **({"context_fn": contexts} if context_fn else {}))

def doubles_without_gradients(function, *inputs, **options):
    outputs = checkpoint(function, *inputs, **options)
    return outputs if torch.is_grad_enabled() else outputs * 2

serve(TorchSubject("mine", checkpoint={function}))
"""


def case_of(policy):
    plan = {"segments": [segment(0, 3)]}
    return chain(
        "linear", "tanh", "linear", plan=plan, protocol={"input_requires_grad": True}, options={"policy": policy}
    )


def again(record):
    return [v["op"] for v in record["values"] if v.get("execution") and v.get("op", "").startswith("aten::")]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_by_operators_changes_no_number_and_is_obeyed(torch_subject, policy):
    _, checkpointed = torch_subject.both(run_of(case_of(policy)))
    assert checkpointed["promises"] == [{"name": "policy"}]
    assert not differing(checkpointed)


def test_policies_are_told_apart_by_what_runs_again(torch_subject):
    ran = {
        policy: again(torch_subject.both(run_of(case_of(policy)))[1])
        for policy in ("nothing", "everything", "products", "every second product")
    }
    assert ran["nothing"] == ["aten::addmm", "aten::tanh", "aten::addmm"][: len(ran["nothing"])]
    assert ran["everything"] == [] and ran["products"] == ["aten::tanh"]
    assert set(ran["every second product"]) <= {"aten::tanh", "aten::addmm"} and "aten::tanh" in ran["nothing"]


@pytest.mark.parametrize(("function", "told"), [("drops", "asked of"), ("keeps_all", "to run again")])
def test_a_checkpoint_that_does_not_go_by_the_policy_breaks_its_promise(start_python, function, told):
    harness = start_python(SUBJECT.replace("{function}", function))
    assert told in harness.both(run_of(case_of("products")))[1]["promises"][0]["broken"]


@pytest.mark.parametrize("scope", ["no_grad", "inference_mode"])
@pytest.mark.parametrize(
    "function", ["checkpoint, layers=[NOISE]", "calls, layers=[OWN]"], ids=["draws", "checkpoints"]
)
def test_an_evaluation_between_forward_and_backward_changes_nothing(start_python, function, scope):
    """Though it draws, or runs a module that checkpoints its own part, which it leaves in training."""
    harness = start_python(SUBJECT.replace("{function}", function))
    own = {"kind": "custom", "layer": harness.hello()["layers"][0]}
    case = chain("linear", own, plan={"segments": [segment(0, 2)]}, options={"inference": scope})
    plain, checkpointed = harness.both(run_of(case))
    assert checkpointed["promises"] == [{"name": "inference"}]
    assert plain["streams"] == checkpointed["streams"]
    assert not differing(checkpointed)


def test_a_checkpoint_that_is_wrong_without_gradients_breaks_its_promise(start_python):
    harness = start_python(SUBJECT.replace("{function}", "doubles_without_gradients"))
    case = {**case_of("nothing"), "options": {"inference": "no_grad"}}
    assert "with it" in harness.both(run_of(case))[1]["promises"][0]["broken"]


@pytest.mark.parametrize("policy", ["products", "every second product", "products by shape", "every second call"])
def test_a_script_writes_the_policy_as_people_do(torch_subject, policy):
    """The gradients of a GRU are wrong under some, and in the script that is exported."""
    layers = [{"kind": "gru", "features": 3}, "linear", "linear"]
    case = chain(*layers, input=(4, 3, 2), plan={"segments": [segment(0, 3)]}, options={"policy": policy})
    law = "errors" if policy == "every second call" else "parameter-gradients"
    wrong = finding(
        law, "", "RuntimeError: Tensor cached" if law == "errors" else "", "step 0, gradient of parameter 0"
    )
    script, out = shown(torch_subject, case, wrong)
    assert "DIFFERENT" in out and "create_selective_checkpoint_contexts" in script and "rematch" not in script
