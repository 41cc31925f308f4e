"""Libraries on PyTorch. What is missing here is skipped."""

import sys
import textwrap

import pytest
from cases import WHOLE, chain, differing, run_of, segment

from rematch.frameworks.pytorch.test_export import TRAINABLE, finding, one, shown

OPTIONS = {"reentrant": {}, "non_reentrant": WHOLE}
"""By variant; those of the other one are what DeepSpeed's non-reentrant function has."""


def started(start, name):
    """The subject, and its layers by their names."""
    pytest.importorskip(name)
    subject = start(sys.executable, "-m", "rematch", name)
    declared = {d.partition(":")[0]: d for d in subject.hello()["layers"]}
    return subject, lambda layer: {"kind": "custom", "layer": declared[layer]}


@pytest.mark.parametrize("variant", OPTIONS)
def test_a_segment_runs_again_and_agrees_with_the_plain_run(start, variant):
    subject, own = started(start, "deepspeed")
    plan = {"segments": [segment(0, 3, variant, **OPTIONS[variant])]}
    layers = ("linear", own("gru_dropout"), "tanh", "dropout")
    plain, checkpointed = subject.agreed(chain(*layers, plan=plan, protocol=TRAINABLE))
    assert differing(checkpointed) <= {"output"}  # Whose flags differ, or bits of a kernel.
    assert [e["count"] for e in checkpointed["executions"]] == [2, 2, 2, 1]
    assert {d["hash"] for d in plain["draws"]} == {d["hash"] for d in checkpointed["draws"]}


@pytest.mark.parametrize("variant", OPTIONS)
def test_deepspeed_updates_statistics_twice_and_a_script_shows_it(start, variant):
    subject, _ = started(start, "deepspeed")
    case = one("batch_norm", variant=variant, protocol=TRAINABLE, **OPTIONS[variant])
    _, checkpointed = subject.agreed(case)
    assert differing(checkpointed) == {"buffer"}
    script, _ = shown(subject, case, finding("buffers-after-step"))
    assert "rematch" not in script and "import deepspeed" in script


FEW = """
    from rematch import serve
    from rematch.frameworks.transformers.adapter import LACKS, LAYERS, Transformers, PreTrainedModel
    {change}
    few = [layer for layer in LAYERS if layer.name in ("bert", "bart")]
    options = {{"observe": "cheap", "layers": few, "lacks": LACKS}}
    serve(Transformers({reentrant}, variant="non_reentrant", **options))
"""
DISABLED = "PreTrainedModel.activation_checkpointing_enable = lambda model, options: None"


def few(start_python, reentrant=False, change=""):
    pytest.importorskip("transformers")
    subject = start_python(textwrap.dedent(FEW.format(reentrant=reentrant, change=change)))
    layers = [{"kind": "custom", "layer": declared} for declared in subject.hello()["layers"]]
    plan = {"segments": [segment(0, 3)]}
    return subject, chain(layers[0], "linear", layers[1], plan=plan, protocol=TRAINABLE)


def test_blocks_of_transformers_run_again_and_agree_with_the_plain_run(start_python):
    subject, case = few(start_python)
    _, checkpointed = subject.agreed(case)
    assert differing(checkpointed) == set()


@pytest.mark.parametrize("reentrant", [True, False])
def test_blocks_that_do_not_run_again_are_an_error(start_python, reentrant):
    subject, case = few(start_python, reentrant, DISABLED)
    assert "error" not in subject.record(**run_of(case))
    error = subject.record(checkpointed=True)["error"]
    assert error["kind"] == "NotRecomputed"


@pytest.mark.parametrize("name", ["deepspeed", "transformers"])
def test_a_library_that_is_missing_is_a_sentence(start_python, name):
    program = f"import sys; sys.modules[{name!r}] = None\n"
    program += f"from rematch.__main__ import main; main([{name!r}])"
    status, _, err = start_python(program).close()
    assert status == 2 and "Traceback" not in err
    assert err.startswith(f"rematch: {name}: what it needs cannot be loaded: ")
