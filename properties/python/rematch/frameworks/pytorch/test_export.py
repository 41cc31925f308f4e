"""Scripts that show a finding in PyTorch alone, run by an interpreter that knows only PyTorch."""

import subprocess
import sys
from functools import cache, partial

import pytest
from cases import TRAINABLE, chain, regressions, run_of, segment

from rematch.frameworks.pytorch.export import Interpreter

LONGEST = 85
"""How many lines a script may have beside the function of a layer; 60 if it shows a gradient."""


def finding(law, expected="1", got="2", at="step 0"):
    return f"{law}: a sentence\nat: {at}\nexpected: {expected}\ngot: {got}"


def ask(subject, case, found, **rest):
    answer = subject.export(run_of(case), found, **{"detached_layers": [], **rest})
    assert answer.pop("id") == 3
    return answer


def answered(subject, case, found, **rest):
    """The script of a finding, and what it prints with its exit status."""
    answer = ask(subject, case, found, **rest)
    assert "script" in answer, answer
    return answer["script"], *run(answer["script"])


isolated = cache(partial(Interpreter, "-I"))


def run(script):
    """The exit status and the output of a script."""
    status, out, err = isolated().run(script, 60)
    assert "Traceback" not in err, err
    return status, out


def shown(subject, case, found, **rest):
    """Runs the script of a finding, which must show it, stand alone and be short. Returns it, and what it prints."""
    script, status, out = answered(subject, case, found, **rest)
    assert status == 1 and out.splitlines()[-1].startswith("DIFFERENT"), out
    assert script.startswith(f"# {found.splitlines()[0]}\n") and "rematch" not in script
    assert len(script.splitlines()) <= LONGEST
    return script, out


def agrees(subject, case, **rest):
    """The script of a case that has no finding, which must print that both runs are the same."""
    script, status, out = answered(subject, case, "all laws are kept", **rest)
    assert (status, out.splitlines()[-1]) == (0, "same"), out
    return script


def one(*layers, protocol=None, variant="non_reentrant", input=(2, 1), **options):
    """All layers in one checkpoint."""
    plan = {"segments": [segment(0, len(layers), variant, **options)]}
    return chain(*layers, input=input, plan=plan, protocol=protocol or {})


def trial(case):
    arrays = run_of(case)["arrays"]
    return {"arrays": arrays | {"trial_input": arrays["inputs"][0], "trial_target": arrays["targets"][0]}}


def test_pytorch_says_that_it_exports_and_a_function_without_a_place_does_not(torch_subject, start, tmp_path):
    assert torch_subject.hello()["exports"] is True
    (tmp_path / "mine.py").write_text(
        "from rematch import serve\n"
        "from rematch.pytorch import TorchSubject\n"
        "serve(TorchSubject('mine', checkpoint=lambda f, *a, **o: f(*a)))\n"
    )
    mine = start(sys.executable, str(tmp_path / "mine.py"))
    assert mine.hello()["exports"] is False
    assert "unsupported" in ask(mine, one("batch_norm"), finding("buffers-after-step"))


def test_running_statistics_that_are_updated_twice_show(torch_subject, tmp_path):
    script, out = shown(torch_subject, one("batch_norm"), finding("buffers-after-step"))
    assert out.splitlines()[-1] == "DIFFERENT: running_mean_0"
    # As a reader of the issue would start it.
    file = tmp_path / "this_file.py"
    file.write_text(script)
    fresh = subprocess.run([sys.executable, "-I", str(file)], capture_output=True, text=True)
    assert (fresh.returncode, fresh.stdout) == (1, out)


LINEAR = {"kind": "linear", "features": 1}
TIED = [{"kind": "linear", "features": 6}, {"kind": "linear", "features": 6, "tied_to": 0}]
SUM = {"kind": "add", "from": [1, 1]}
AGAIN = {"preserve_rng": False}
TWICE = {**TRAINABLE, "microbatches": 2}
EMBED = {"kind": "embedding", "vocabulary": 3, "features": 2}
HEAD = {"kind": "linear", "features": 3, "bias": False, "tied_to": 0}
SIDES = [{"kind": "add", "from": [-1, 1]}, {"kind": "mul", "from": [-1, 2]}, "dropout"]
FURTHER = {**TWICE, "further_inputs_with_grad": 1, "steps": 2, "forwards_first": True}
SCALE = {"kind": "delayed_scaling"}
SCALED = {**TWICE, "clip": 0.5, "loss_scale": 1024.0}
KEEPS = {"keep": [{"op": "dropout", "index": 0}], "protocol": TRAINABLE}
OWN = [{"kind": "rotary", "features": 2, "heads": 1}, {"kind": "hooked", "p": 0.5}, SCALE, LINEAR]


def test_a_script_decorates_where_the_case_does(torch_subject):
    if "checkpoint" not in torch_subject.hello()["options"]:
        pytest.skip("the checkpoint() of this PyTorch makes no decorators")
    case = one("batch_norm") | {"options": {"checkpoint": "decorator"}}
    script, _ = shown(torch_subject, case, finding("buffers-after-step"))
    assert "checkpoint(use_reentrant=False)(" in script


RESTING = [{"kind": "dropout", "p": 0.25, "eval": True}, {"kind": "batch_norm", "eval": True}, "linear", "dropout"]
GRU = {"kind": "gru", "features": 2, "bias": False}
MOE = {"kind": "moe", "experts": 2, "top": 1, "p": 0.25}
DEPTH = {"kind": "stochastic_depth", "p": 0.25}
OTHER_VALUES = "CheckpointError: torch.utils.checkpoint: Recomputed values for the following tensors"


def cut(*layers, at=(), input=(2, 2), **protocol):
    return chain(*layers, input=input, plan={"segments": list(at)}, protocol=protocol)


def emptied(variant):
    at = [segment(0, 3, variant, nested=[segment(1, 3, arguments="emptied")])]
    return cut("duplicate", "tanh", {"kind": "add", "from": [0, 1]}, at=at, input=(2, 1), **TRAINABLE)


HALVES = [segment(0, 1, "reentrant"), segment(1, 2, "reentrant")]
MISSES = [segment(1, 2, keep=[{"op": "dropout"}])]
BY_KEYWORD = [segment(0, 2, arguments="keywords"), segment(2, 5, arguments="keywords")]
SHOWN = [
    ("dropout-masks", "nan", one("rrelu", protocol=TRAINABLE)),
    ("dropout-masks", "", one("dropout", "dropout", "relu", **KEEPS)),
    ("dropout-masks", "", one("dropout", {"kind": "gaussian_noise", "p": 0.5}, "relu", **KEEPS)),
    ("parameter-gradients", "weight0.grad", cut(*TIED, at=HALVES, input=(2, 6), **TRAINABLE, autocast="both")),
    ("buffers-after-step", "", one({"kind": "linear", "features": 8}, "batch_norm", input=(4, 8))),
    ("parameter-gradients", "weight0.grad", one(EMBED, "dropout", HEAD, input=(2, 2), **AGAIN)),
    (
        "input-gradients",
        "x",
        cut("tanh", "linear", at=[segment(0, 1, "reentrant", arguments="dictionary")], **TRAINABLE),
    ),
    (
        *("input-gradients", "x.grad"),
        cut("tanh", "duplicate", SUM, "linear", at=[segment(0, 2, "reentrant", nested_outputs=True)], **TRAINABLE),
    ),
    (
        *("buffers-after-step", "running_mean"),
        cut("tanh", "duplicate", "tanh", SUM, "batch_norm", at=BY_KEYWORD, **TRAINABLE),
    ),
    ("parameter-gradients", "weight0", one("linear", "dropout", protocol={**TRAINABLE, "partial": True}, **AGAIN)),
    ("input-gradients", "x.grad", one(*SIDES, protocol=FURTHER, **AGAIN) | {"further_inputs": 2}),
    ("parameters-after-step", "weight1", one(SCALE, LINEAR, protocol=SCALED)),
    ("parameter-gradients", "", one(*RESTING, input=(2, 2), **AGAIN)),
    ("buffers-after-step", "scale_2", one(*OWN, protocol=TWICE, input=[1, 2, 3])),
    ("parameter-gradients", "weight_ih1", one("dropout", GRU, input=(2, 3, 2), **AGAIN)),
    ("parameter-gradients", "weight_ih1", one("dropout", {"kind": "lstm", "features": 2}, input=(2, 3, 2), **AGAIN)),
    (
        "buffers-after-step",
        "u_0",
        one({"kind": "spectral_norm", "features": 2}, "linear", input=(2, 3), protocol=TWICE),
    ),
    ("buffers-after-step", "cache_0", one({"kind": "kv_cache", "kept": 2}, "tanh", input=(1, 1, 2), protocol=TWICE)),
    ("buffers-after-step", "load_0", one(MOE, LINEAR, protocol=TRAINABLE)),
    ("buffers-after-step", "history_0", one({**SCALE, "fp8": True}, LINEAR, protocol=TWICE)),
    ("buffers-after-step", "scale_0", one(SCALE, LINEAR, protocol={**TWICE, "autocast": "forward"})),
    ("reevaluation", "evaluation", one(SCALE, LINEAR, protocol={**TWICE, "reevaluate": True})),
    ("errors", "IndexError: pop from empty list", emptied("non_reentrant")),
    ("errors", "IndexError: pop from empty list", emptied("reentrant")),
    ("errors", OTHER_VALUES, one(DEPTH, LINEAR, input=(8, 2), protocol=TRAINABLE, **AGAIN)),
    ("errors", OTHER_VALUES, one("dropout", "early_exit", LINEAR, input=(8, 2), protocol=TRAINABLE, **AGAIN)),
    (
        *("errors", "RuntimeError: aten._to_copy.default encountered"),
        cut(LINEAR, {**LINEAR, "tied_to": 0}, at=MISSES, input=(1, 1), autocast="forward"),
    ),
]
"""Laws that PyTorch breaks, what a script prints, and cases."""


@pytest.mark.parametrize(("law", "printed", "case"), SHOWN)
def test_a_finding_shows(torch_subject, law, printed, case):
    if law != "errors":
        script, out = shown(torch_subject, case, finding(law))
        assert printed in out and ("gradients" not in law or len(script.splitlines()) <= 60)
        return
    _, out = shown(torch_subject, case, finding(law, "no error", printed))
    assert out.splitlines()[-1] == "DIFFERENT: error" and printed in out
    other = ask(torch_subject, case, finding(law, "no error", "RuntimeError: something else"))
    assert "no script was found" in other["unsupported"]


@pytest.mark.parametrize(
    ("kind", "inject", "arguments", "offload"),
    [
        ("linear", "weight_changed", "tensors", False),
        ("tanh", "op_exchanged", "tensors", False),
        # Tensors that wait on the host are copies, which nobody writes to.
        ("relu", "input_changed", "tensors", True),
        ("relu", "input_changed", "keywords", False),
    ],
)
def test_a_change_that_raises_no_error_gives_a_wrong_gradient(torch_subject, kind, inject, arguments, offload):
    case = one(kind, protocol={**TRAINABLE, "inject": inject}, arguments=arguments)
    case["plan"]["offload"] = offload
    _, out = shown(torch_subject, case, finding("injected-failures", "an error", "none"), **trial(case))
    assert out.splitlines()[-1] == "DIFFERENT: an error is raised, x.grad"


def test_zeros_of_another_sign_show(torch_subject):
    layers = [{"kind": "linear", "features": 2}, "duplicate", "dropout"]
    case = chain(*layers, input=(1, 2), plan={"segments": [segment(1, 2, "reentrant")]})
    _, out = shown(torch_subject, case, finding("parameter-gradients", "0", "-0"))
    assert "-0." in out


def test_what_agrees_is_said_to_be_the_same(torch_subject):
    case = one("linear", "dropout", "tanh", protocol={**TRAINABLE, "steps": 2, "microbatches": 2})
    agrees(torch_subject, case)


def test_both_runs_of_a_model_too_large_to_be_written_out_draw_the_same(torch_subject):
    case = one({"kind": "linear", "features": 80}, "dropout", input=(2, 80), protocol=TRAINABLE)
    agrees(torch_subject, case)


def test_a_finding_that_this_pytorch_does_not_show_is_unsupported(torch_subject):
    answer = ask(torch_subject, one("tanh", protocol=TRAINABLE), finding("outputs"))
    assert "script" not in answer and "no script was found" in answer["unsupported"]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (finding("recomputation-order"), "what recomputation-order compares"),
        (finding("repeatable"), "two equal runs differ"),
        (finding("promises", "kept", "no"), "names no promise that is known"),
    ],
)
def test_what_two_runs_cannot_show_is_unsupported(torch_subject, found, why):
    answer = ask(torch_subject, one("tanh", protocol=TRAINABLE), found)
    assert why in answer["unsupported"]


def test_a_plan_that_checkpoints_nothing_is_unsupported(torch_subject):
    answer = ask(torch_subject, chain("tanh"), finding("outputs"))
    assert "the plan checkpoints nothing" in answer["unsupported"]


@pytest.mark.parametrize(
    ("script", "status", "out", "err"),
    [
        ("print(__name__)", 0, "__main__\n", ""),
        ("import sys; print(1); sys.exit(True)", 1, "1\n", ""),
        ("import sys; sys.exit()", 0, "", ""),
        ("print(nothing)", 1, "", "NameError"),
        ("import signal; signal.pause()", -14, "", ""),
        ("import sys; print('rematch' in sys.modules)", 0, "False\n", ""),
    ],
)
def test_an_interpreter_runs_scripts_as_by_themselves(script, status, out, err):
    ended = isolated().run(script, 0.1 if status < 0 else 60)
    assert ended[:2] == (status, out) and err in ended[2]


# Each script takes some seconds: every fourth of the cases.
@pytest.mark.parametrize("name", [*regressions()][::4])
def test_scripts_of_saved_cases_run(torch_subject, name):
    case = regressions()[name]
    if case.get("protocol", {}).get("inject", "none") != "none":
        pytest.skip("the harness draws the arrays of a trial")
    _, status, out = answered(torch_subject, case, "all laws are kept")
    last = out.splitlines()[-1]
    assert (status == 0) == (last.split(":")[0] == "same") and (status == 1) == (last.startswith("DIFFERENT"))
