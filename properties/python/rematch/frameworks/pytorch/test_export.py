"""Scripts that show a finding in PyTorch alone, run by an interpreter that knows only PyTorch."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest
from cases import chain, regressions, run_of, segment

torch = pytest.importorskip("torch")
from rematch.frameworks.pytorch.interpreter import Interpreter  # noqa: E402

TRAINABLE = {"input_requires_grad": True}
LONGEST = 60
TIED = [{"kind": "linear", "features": 6}, {"kind": "linear", "features": 6, "tied_to": 0}]


def finding(law, expected="1", got="2"):
    return f"{law}: a sentence\nat: step 0\nexpected: {expected}\ngot: {got}"


def ask(subject, case, found, **rest):
    answer = subject.export(run_of(case), found, **{"detached_layers": [], **rest})
    assert answer.pop("id") == 3
    return answer


@cache
def isolated():
    return Interpreter("-I")


def run(script):
    """The exit status and the output of a script."""
    status, out, err = isolated().run(script, 60)
    assert "Traceback" not in err, err
    return status, out


def shown(subject, case, found, **rest):
    """Runs the script of a finding, which must show it, and returns what it prints."""
    answer = ask(subject, case, found, **rest)
    assert "script" in answer, answer
    status, out = run(answer["script"])
    assert status == 1 and out.splitlines()[-1].startswith("DIFFERENT"), out
    return answer["script"], out


def one(*layers, protocol=None, variant="non_reentrant", input=(2, 1), **options):
    """All layers in one checkpoint."""
    plan = {"segments": [segment(0, len(layers), variant, **options)]}
    return chain(*layers, input=input, plan=plan, protocol=protocol or {})


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
    assert len(script.splitlines()) <= LONGEST
    assert out.splitlines()[-1] == "DIFFERENT: running_mean, running_var"
    # As a reader of the issue would start it.
    file = tmp_path / "this_file.py"
    file.write_text(script)
    fresh = subprocess.run([sys.executable, "-I", str(file)], capture_output=True, text=True)
    assert (fresh.returncode, fresh.stdout) == (1, out)


def test_the_gradient_that_rrelu_gets_from_unwritten_noise_shows(torch_subject):
    case = one("rrelu", protocol=TRAINABLE)
    script, out = shown(torch_subject, case, finding("dropout-masks", "2", "1"))
    assert len(script.splitlines()) <= LONGEST
    assert "nan" in out


@pytest.mark.parametrize("second", ["dropout", {"kind": "gaussian_noise", "p": 0.5}])
def test_a_draw_that_follows_a_kept_one_shows(torch_subject, second):
    # With a layer after it, early stop comes when the second draw is over.
    case = one("dropout", second, "relu", protocol=TRAINABLE, keep=[{"op": "dropout", "index": 0}])
    script, _ = shown(torch_subject, case, finding("dropout-masks"))
    assert len(script.splitlines()) <= LONGEST


@pytest.mark.parametrize(
    ("kind", "inject"), [("linear", "weight_changed"), ("tanh", "op_exchanged"), ("relu", "input_changed")]
)
def test_a_change_that_raises_no_error_gives_a_wrong_gradient(torch_subject, kind, inject):
    case = one(kind, protocol={**TRAINABLE, "inject": inject})
    # Tensors that wait on the host are copies, which nobody writes to.
    case["plan"]["offload"] = inject == "input_changed"
    arrays = run_of(case)["arrays"]
    arrays |= {"trial_input": arrays["inputs"][0], "trial_target": arrays["targets"][0]}
    found = finding("injected-failures", "an error", "none")
    script, out = shown(torch_subject, case, found, arrays=arrays)
    assert len(script.splitlines()) <= LONGEST
    assert "x.grad is wrong" in out.splitlines()[-1]


def test_zeros_of_another_sign_show(torch_subject):
    layers = [{"kind": "linear", "features": 2}, "duplicate", "dropout"]
    case = chain(*layers, input=(1, 2), plan={"segments": [segment(1, 2, "reentrant")]})
    script, out = shown(torch_subject, case, finding("parameter-gradients", "0", "-0"))
    assert len(script.splitlines()) <= LONGEST
    assert "-0." in out


def test_a_tied_weight_that_is_summed_in_another_order_under_autocast_shows(torch_subject):
    plan = {"segments": [segment(0, 1, "reentrant"), segment(1, 2, "reentrant")]}
    case = chain(*TIED, plan=plan, protocol={**TRAINABLE, "autocast": "both"})
    shown(torch_subject, case, finding("parameter-gradients"))


def test_a_policy_that_misses_a_cast_shows_by_its_error(torch_subject):
    layers = [{"kind": "linear", "features": 1}, {"kind": "linear", "features": 1, "tied_to": 0}]
    plan = {"segments": [segment(1, 2, keep=[{"op": "dropout"}])]}
    case = chain(*layers, input=(1, 1), plan=plan, protocol={"autocast": "forward"})
    found = finding("errors", "no error", "RuntimeError: aten._to_copy.default encountered")
    script, out = shown(torch_subject, case, found)
    assert len(script.splitlines()) <= LONGEST
    assert "aten._to_copy.default encountered" in out


def test_what_agrees_is_said_to_be_the_same(torch_subject):
    case = one("linear", "dropout", "tanh", protocol={**TRAINABLE, "steps": 2, "microbatches": 2})
    status, out = run(ask(torch_subject, case, "all laws are kept")["script"])
    assert (status, out.splitlines()[-1]) == (0, "same")


def test_many_numbers_are_drawn_by_a_seed(torch_subject):
    layers = [{"kind": "linear", "features": 8}, "batch_norm"]
    case = one(*layers, input=(4, 8))
    script, _ = shown(torch_subject, case, finding("buffers-after-step"))
    assert "torch.manual_seed(0)" in script and "nn.Linear(8, 8)" in script
    assert len(script.splitlines()) <= LONGEST


def test_both_runs_of_a_model_too_large_to_be_written_out_draw_the_same(torch_subject):
    case = one({"kind": "linear", "features": 80}, "dropout", input=(2, 80), protocol=TRAINABLE)
    script = ask(torch_subject, case, "all laws are kept")["script"]
    status, out = run(script)
    assert "torch.randn(" in script
    assert (status, out.splitlines()[-1]) == (0, "same")


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


# Each script takes some seconds: every fourth of the cases that PyTorch can run.
SAVED = [
    name for name, case in regressions().items() if case.get("plan", {}).get("sequential", {}).get("last_stored", True)
][::4]


@pytest.mark.parametrize("name", SAVED)
def test_scripts_of_saved_cases_run(torch_subject, name):
    case = regressions()[name]
    if case.get("protocol", {}).get("inject", "none") != "none":
        pytest.skip("the harness draws the arrays of a trial")
    answer = ask(torch_subject, case, "all laws are kept")
    assert "script" in answer, answer
    status, out = run(answer["script"])
    last = out.splitlines()[-1]
    assert (status == 0) == (last.split(":")[0] == "same") and (status == 1) == (last.startswith("DIFFERENT"))


def test_a_model_of_tokens_is_written_with_its_tied_head(torch_subject):
    embed = {"kind": "embedding", "vocabulary": 3, "features": 2}
    head = {"kind": "linear", "features": 3, "bias": False, "tied_to": 0}
    case = one(embed, "dropout", head, input=(2, 2), preserve_rng=False)
    script, _ = shown(torch_subject, case, finding("parameter-gradients"))
    assert "nn.Embedding(3, 2)" in script
    assert "x = torch.randint(" in script
    assert "F.linear(" in script
    assert "x.grad" not in script


def test_a_reentrant_segment_loses_what_it_is_handed_in_a_dictionary(torch_subject):
    plan = {"segments": [segment(0, 1, "reentrant", arguments="dictionary")]}
    case = chain("tanh", "linear", input=(2, 2), plan=plan, protocol=TRAINABLE)
    script, out = shown(torch_subject, case, finding("input-gradients"))
    assert 'x = given["first"]' in script
    assert 'checkpoint(block, {"first": x, "rest": []}, use_reentrant=True)' in script
    assert "DIFFERENT: x.grad" in out


def test_partial_backwards_name_their_tensors_in_a_script(torch_subject):
    layers = ["linear", "dropout"]
    protocol = {"partial": True, "input_requires_grad": True}
    case = one(*layers, protocol=protocol, preserve_rng=False)
    script, _ = shown(torch_subject, case, finding("parameter-gradients"))
    assert "loss.backward(inputs=[linear.weight, x], retain_graph=True)" in script
    assert "loss.backward(inputs=[linear.bias])" in script


def test_further_inputs_have_names_and_gradients_of_their_own_in_a_script(torch_subject):
    layers = [{"kind": "add", "from": [-1, 1]}, {"kind": "mul", "from": [-1, 2]}, "dropout"]
    protocol = {"further_inputs_with_grad": 1, "input_requires_grad": True}
    for more in ({}, {"steps": 2, "microbatches": 2, "forwards_first": True}):
        case = one(*layers, protocol=protocol | more, preserve_rng=False)
        found = finding("input-gradients")
        script, out = shown(torch_subject, case | {"further_inputs": 2}, found)
        assert "checkpoint(block, x, u1, u2, " in script
        assert "in1.grad" in script and "in2.grad" not in script
        assert "in1.grad" in out


def test_clipping_and_a_scaler_stand_where_the_optimizer_does_in_a_script(torch_subject):
    layers = [{"kind": "delayed_scaling"}, {"kind": "linear", "features": 1}]
    protocol = {**TRAINABLE, "microbatches": 2, "clip": 0.5, "loss_scale": 1024.0}
    script, out = shown(torch_subject, one(*layers, protocol=protocol), finding("parameters-after-step"))
    lines = [line.strip() for line in script.splitlines()]
    at = lines.index("scaler.unscale_(optimizer)")
    assert lines[at + 1].startswith("torch.nn.utils.clip_grad_norm_([")
    assert lines[at + 2 : at + 4] == ["scaler.step(optimizer)", "scaler.update()"]
    assert "scaler.scale(loss).backward()" in script
    assert "DIFFERENT" in out


def test_a_reentrant_segment_loses_what_it_returns_in_a_dictionary(torch_subject):
    plan = {"segments": [segment(0, 2, "reentrant", nested_outputs=True)]}
    layers = ["tanh", "duplicate", {"kind": "add", "from": [1, 1]}, "linear"]
    case = chain(*layers, input=(2, 2), plan=plan, protocol=TRAINABLE)
    script, out = shown(torch_subject, case, finding("input-gradients"))
    assert 'return {"first": x, "rest": [b1]}' in script
    assert 'y, b1 = returned["first"], *returned["rest"]' in script
    assert "DIFFERENT: x.grad" in out


@pytest.mark.parametrize("variant", ["reentrant", "non_reentrant"])
def test_a_list_that_a_segment_empties_shows_by_an_error(torch_subject, variant):
    case = one("duplicate", "tanh", {"kind": "add", "from": [0, 1]}, protocol=TRAINABLE)
    inner = segment(1, 3, arguments="emptied")
    case["plan"] = {"segments": [segment(0, 3, variant, nested=[inner])]}
    found = finding("errors", "no error", "IndexError: pop from empty list")
    script, out = shown(torch_subject, case, found)
    assert "x = given.pop(0)" in script and "b0 = given.pop(0)" in script
    assert "call(block0, [x, b0], use_reentrant=False)" in script
    assert "pop from empty list" in out
    assert len(script.splitlines()) <= LONGEST


def test_a_keyword_argument_that_changes_gives_a_wrong_gradient(torch_subject):
    protocol = {**TRAINABLE, "inject": "input_changed"}
    case = one("relu", protocol=protocol, arguments="keywords")
    arrays = run_of(case)["arrays"]
    arrays |= {"trial_input": arrays["inputs"][0], "trial_target": arrays["targets"][0]}
    found = finding("injected-failures", "an error", "none")
    script, out = shown(torch_subject, case, found, arrays=arrays)
    assert "checkpoint(block, x=x, use_reentrant=False)" in script
    assert "x.grad is wrong" in out.splitlines()[-1]


def test_of_several_tensors_a_script_hands_over_the_first_by_position(torch_subject):
    layers = ["duplicate", "tanh", {"kind": "add", "from": [0, 1]}, "batch_norm"]
    plan = {"segments": [segment(1, 4, arguments="keywords")]}
    case = chain(*layers, input=(2, 2), plan=plan, protocol=TRAINABLE)
    script, _ = shown(torch_subject, case, finding("buffers-after-step"))
    assert "def block(x, b0):" in script
    assert "checkpoint(block, y, b0=b0, use_reentrant=False)" in script


def test_several_segments_are_handed_tensors_by_keyword(torch_subject):
    layers = ["tanh", "duplicate", "tanh", {"kind": "add", "from": [1, 1]}, "batch_norm"]
    segments = [segment(0, 2, arguments="keywords"), segment(2, 5, arguments="keywords")]
    case = chain(*layers, input=(2, 2), plan={"segments": segments}, protocol=TRAINABLE)
    script, _ = shown(torch_subject, case, finding("buffers-after-step"))
    assert "call(block0, keywords=dict(x=x), use_reentrant=False)" in script
    assert "call(block1, y, keywords=dict(b1=b1), use_reentrant=False)" in script


def test_a_layer_in_eval_mode_is_written_so(torch_subject):
    layers = [{"kind": "dropout", "p": 0.25, "eval": True}, {"kind": "batch_norm", "eval": True}]
    case = one(*layers, "linear", "dropout", input=(2, 2), preserve_rng=False)
    script, _ = shown(torch_subject, case, finding("parameter-gradients"))
    assert "0.25" not in script
    assert "nn.BatchNorm1d(2).eval()" in script


def test_layers_that_are_functions_of_their_own_are_shown_with_them(torch_subject):
    layers = [
        {"kind": "rotary", "features": 2, "heads": 1},
        {"kind": "hooked", "p": 0.5},
        # Known divergences of PyTorch.
        {"kind": "delayed_scaling"},
        {"kind": "linear", "features": 1},
    ]
    case = one(*layers, protocol={**TRAINABLE, "microbatches": 2}, input=[1, 2, 3])
    script, _ = shown(torch_subject, case, finding("buffers-after-step"))
    assert "def rotary(x, features, heads):" in script
    assert "rotary(x, 2, 1)" in script
    assert "def hooked(x, factor):" in script
    assert "0.5)" in script


def runs_in_bfloat16(kind):
    """Whether this CPU has the layer under autocast: oneDNN has an LSTM in bfloat16 only for some CPUs."""
    try:
        with torch.autocast("cpu", torch.bfloat16):
            getattr(torch.nn, kind.upper())(2, 2, bias=False, batch_first=True)(torch.ones(2, 3, 2))
    except RuntimeError as error:
        assert "primitive" in str(error)
        return False
    return True


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_a_recurrent_layer_is_shown_as_a_module_or_with_its_function(torch_subject, kind):
    layers = ["dropout", {"kind": kind, "features": 2, "bias": False}]
    given = {"input": (2, 3, 2), "preserve_rng": False}
    found = finding("parameter-gradients")
    script, _ = shown(torch_subject, one(*layers, **given), found)
    assert f"rnn = nn.{kind.upper()}(2, 2, bias=False, batch_first=True)" in script
    assert "rnn(x)[0]" in script
    assert "rnn.weight_ih_l0.grad" in script
    assert f"def {kind}(" not in script
    if runs_in_bfloat16(kind):
        half = one(*layers, **given, protocol={"autocast": "forward"})
        assert "rnn(x.float())[0]" in shown(torch_subject, half, found)[0]
    cut = one(*layers[1:], input=(2, 3, 2), variant="reentrant")
    script = ask(torch_subject, cut, "all laws are kept", detached_layers=[0])["script"]
    assert f"def {kind}(x, weights, training=True):" in script
    assert f"{kind}(x, [weight_ih_used, weight_hh_used])" in script
    run(script)


def test_a_normalised_weight_is_shown_with_its_function(torch_subject):
    layers = [{"kind": "spectral_norm", "features": 2}, "linear"]
    protocol = {**TRAINABLE, "microbatches": 2}
    found = finding("buffers-after-step")
    script, out = shown(torch_subject, one(*layers, input=(2, 3), protocol=protocol), found)
    assert "def spectral_norm(x, u, v, weight, bias=None, training=True):" in script
    assert "spectral_norm(x, u, v, weight0, bias0)" in script
    assert "DIFFERENT" in out
    evaluated = one(*layers, input=(2, 3), protocol={**protocol, "reevaluate": True})
    script, _ = shown(torch_subject, evaluated, finding("reevaluation"))
    assert "spectral_norm(x, u, v, weight0, bias0, training=False)" in script


def test_a_cache_is_shown_with_its_function(torch_subject):
    layers = [{"kind": "kv_cache", "kept": 2}, "tanh"]
    protocol = {**TRAINABLE, "microbatches": 2}
    case = one(*layers, input=(1, 1, 2), protocol=protocol)
    script, out = shown(torch_subject, case, finding("buffers-after-step"))
    assert "def kv_cache(x, cache, training=True):" in script
    assert "kv_cache(x, cache)" in script
    assert "DIFFERENT" in out
    evaluated = one(*layers, input=(1, 1, 2), protocol={**protocol, "reevaluate": True})
    script, _ = shown(torch_subject, evaluated, finding("reevaluation"))
    assert "kv_cache(x, cache, training=False)" in script


def test_a_mixture_of_experts_is_shown_with_its_function(torch_subject):
    layers = [{"kind": "moe", "experts": 2, "top": 1, "p": 0.25}, {"kind": "linear", "features": 1}]
    found = finding("buffers-after-step")
    script, out = shown(torch_subject, one(*layers, protocol=TRAINABLE), found)
    assert "def moe(x, router, experts, load, top=1, jitter=0.0, training=True):" in script
    assert "moe(x, router0, experts0, load, top=1, jitter=0.25)" in script
    assert "DIFFERENT: load" in out
    resting = {**layers[0], "top": 2, "eval": True}
    script, _ = shown(torch_subject, one(resting, *layers, protocol=TRAINABLE), found)
    assert "top=2, training=False)" in script


def test_a_branch_that_samples_skip_is_shown_with_its_function(torch_subject):
    layers = [{"kind": "stochastic_depth", "p": 0.25}, {"kind": "linear", "features": 1}]
    case = one(*layers, input=(8, 2), protocol=TRAINABLE, preserve_rng=False)
    script, out = shown(torch_subject, case, finding("errors"))
    assert "def stochastic_depth(x, weight, p=0.5, training=True):" in script
    assert "stochastic_depth(x, weight0, p=0.25)" in script
    assert "Recomputed values for the following tensors" in out
    resting = {**layers[0], "eval": True}
    case = one(resting, *layers, input=(8, 2), protocol=TRAINABLE, preserve_rng=False)
    script, _ = shown(torch_subject, case, finding("errors"))
    assert "training=False)" in script


def test_a_branch_that_samples_leave_is_shown_with_its_function(torch_subject):
    layers = ["dropout", "early_exit", {"kind": "linear", "features": 1}]
    case = one(*layers, input=(8, 2), protocol=TRAINABLE, preserve_rng=False)
    script, out = shown(torch_subject, case, finding("errors"))
    assert "def early_exit(x, weight):" in script
    assert "early_exit(x, weight1)" in script
    assert "Recomputed values for the following tensors" in out


def test_rounding_to_float8_is_shown_with_its_class_and_its_function(torch_subject):
    layers = [{"kind": "delayed_scaling", "fp8": True}, {"kind": "linear", "features": 1}]
    case = one(*layers, protocol={**TRAINABLE, "microbatches": 2})
    script, out = shown(torch_subject, case, finding("buffers-after-step"))
    assert script.index("class Float8(torch.autograd.Function):") < script.index(
        "def delayed_float8(x, history, training=True):"
    )
    assert "delayed_float8(x, history)" in script
    assert "def delayed_scaling(" not in script
    assert "latest = x.abs().nan_to_num(posinf=torch.inf).max()" in script
    assert "DIFFERENT" in out


def test_a_scale_that_moves_on_is_shown_with_its_function(torch_subject):
    layers = [{"kind": "delayed_scaling"}, {"kind": "linear", "features": 1}]
    protocol = {**TRAINABLE, "microbatches": 2}
    found = finding("buffers-after-step")
    script, out = shown(torch_subject, one(*layers, protocol=protocol), found)
    assert "def delayed_scaling(x, scale, training=True):" in script
    half = one(*layers, protocol={**protocol, "autocast": "forward"})
    assert "delayed_scaling(x.float(), scale)" in shown(torch_subject, half, found)[0]
    evaluated = one(*layers, protocol={**protocol, "reevaluate": True})
    script, _ = shown(torch_subject, evaluated, finding("reevaluation"))
    assert "delayed_scaling(x, scale, training=False)" in script
