"""Scripts of findings in layers of the subject's own."""

import sys

import pytest
import torch
from cases import chain, run_of, segment
from harness import Harness

from rematch.frameworks.pytorch.modules import MODULES
from rematch.frameworks.pytorch.test_export import TRAINABLE, agrees, finding, one, run
from rematch.frameworks.pytorch.test_export import ask as ask_plainly
from rematch.frameworks.pytorch.test_export import shown as shown_plainly
from rematch.subjects.records import encode

DECLARED = {layer.name: layer.declaration for layer in MODULES}


def own(name, **rest):
    return {"kind": "custom", "layer": DECLARED.get(name, name), **rest}


def model_of(case, operands=None):
    """The model of a case. `operands`: the shapes that custom layers take where they are not that of the input."""
    model = run_of(case)["model"]
    for custom in model["custom_operands"]:
        custom["shape"] = (operands or {}).get(custom["layer"], custom["shape"])
    return {"model": model}


def ask(subject, case, found, operands=None, **rest):
    return ask_plainly(subject, case, found, **model_of(case, operands), **rest)


def shown(subject, case, found):
    return shown_plainly(subject, case, found, **model_of(case))


def test_other_gradients_of_a_spectral_norm_show(torch_subject):
    case = one(own("spectral_norm"), input=(2, 3), protocol=TRAINABLE)
    _, out = shown(torch_subject, case, finding("parameter-gradients"))
    assert "m0.parametrizations.weight.original.grad" in out.splitlines()[-1]


def test_other_bits_of_an_lstm_in_a_reentrant_segment_show(torch_subject):
    case = one(own("lstm"), variant="reentrant", input=(3, 5), protocol=TRAINABLE)
    answer = ask(torch_subject, case, finding("outputs"))
    if "unsupported" in answer:
        assert "no script was found" in answer["unsupported"]
        pytest.skip("this PyTorch rounds both runs alike")
    status, out = run(answer["script"])
    assert status == 1 and "DIFFERENT: output" in out


def test_a_weight_that_max_norm_rescales_again_shows(torch_subject):
    # One seed of a hundred leaves a row that is too long.
    case = one(own("embedding_max_norm"), input=(4, 8), protocol=TRAINABLE) | {"seed": 88}
    _, out = shown(torch_subject, case, finding("parameters-after-step"))
    assert out.splitlines()[-1] == "DIFFERENT: m0.weight"


@pytest.mark.parametrize("name", ["numpy_noise", "python_noise"])
def test_noise_that_is_drawn_elsewhere_is_seeded_in_both_runs(torch_subject, name):
    case = one(own(name), "tanh", protocol=TRAINABLE)
    shown(torch_subject, case, finding("input-gradients"))


@pytest.mark.parametrize(("name", "changed"), [("moving_average", "m0.mean"), ("warmup", "m0.calls")])
def test_state_that_is_updated_twice_shows(torch_subject, name, changed):
    # Tanh keeps its result, so both layers run in the recomputation.
    case = one(own(name), "tanh", input=(2, 3), protocol=TRAINABLE)
    _, out = shown(torch_subject, case, finding("buffers-after-step"))
    assert out.splitlines()[-1] == f"DIFFERENT: {changed}"


def test_a_backward_within_a_forward_runs_a_layer_too_often(torch_subject):
    case = one(own("inner_backward"), protocol={})
    found = "executions: s\nat: step 0, microbatch 0, layer 0 (custom)\nexpected: 2\ngot: 3"
    script, out = shown(torch_subject, case, found)
    # No more of the setup than the layer needs.
    assert "def slope" in script and "class Round" not in script


def test_several_layers_of_a_kind_share_their_setup(torch_subject):
    plan = {"segments": [segment(0, 3, nested=[segment(1, 2)])]}
    layers = [own("moving_average"), own("moving_average"), own("spectral_norm", frozen=True)]
    case = chain(*layers, input=(2, 3), plan=plan, protocol=TRAINABLE)
    script, out = shown(torch_subject, case, finding("buffers-after-step"))
    assert script.count("class Average") == 1
    assert "DIFFERENT: m0.mean, m1.mean" in out


@pytest.mark.parametrize("layer", MODULES, ids=lambda layer: layer.name)
def test_a_script_of_each_module_runs(torch_subject, layer):
    shape = (2, 2, 4, 4) if " H " in layer.shapes else (2, 4)
    case = one(own(layer.name), input=shape, protocol=TRAINABLE)
    target = layer.run(layer.module(shape), torch.ones(shape)).detach().flatten(1)
    arrays = {"arrays": run_of(case)["arrays"] | {"targets": [encode(target.numpy())]}}
    out = run(ask(torch_subject, case, "all laws are kept", **arrays)["script"])[1]
    assert out.splitlines()[-1].startswith(("same", "DIFFERENT")) and "error" not in out


LAYERS = """\
import torch
from rematch.pytorch import CustomLayer

BLOCK = '''class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen = self.seen + self.training
        return self.linear(x) * self.seen
'''
LAYERS = [
    CustomLayer("function", "N C -> N C", lambda C: torch.nn.Linear(C, C)),
    CustomLayer("block", "N C -> N C", "Block(C)", setup=BLOCK),
    CustomLayer("other", "N C -> N C", "Block(C)", setup=BLOCK.replace("* self.", "/ self.")),
    CustomLayer("run", "N C -> N C", "run(C)", setup=BLOCK.replace("class Block", "class run")),
    CustomLayer("x", "N C -> N C", "Block(C)", "m(x) * x0", setup=BLOCK + "\\n\\nx0 = 2\\n"),
    CustomLayer("own", "N C -> N C", "nn.Identity()", "x * float(g.random())", elsewhere=True,
                setup="import numpy\\n\\ng = numpy.random.default_rng(0)"),
]
"""


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """A subject with LAYERS, which it has declared."""
    script = tmp_path_factory.mktemp("layers") / "mine.py"
    script.write_text(LAYERS)
    options = ("pytorch", "--no-modules", "--layers", f"{script}:LAYERS")
    with Harness(sys.executable, "-m", "rematch", *options) as subject:
        declared = {d.partition(":")[0]: d for d in subject.hello()["layers"]}
        yield subject, lambda name, **rest: {"kind": "custom", "layer": declared[name], **rest}


def test_a_layer_that_is_a_function_is_unsupported(mine):
    subject, own = mine
    answer = ask(subject, one(own("function")), finding("parameter-gradients"))
    assert "made or called by a function" in answer["unsupported"]


def test_a_layer_with_a_setup_of_its_own_shows(mine):
    subject, own = mine
    case = one(own("block"), protocol=TRAINABLE)
    script, out = shown(subject, case, finding("input-gradients"))
    assert "class Block" in script and "x.grad" in out.splitlines()[-1]


def test_names_that_mean_two_things_are_unsupported(mine):
    subject, own = mine
    answer = ask(subject, one(own("block"), own("other"), protocol=TRAINABLE), finding("parameter-gradients"))
    assert "two custom layers mean different things by a name" in answer.get("unsupported", ""), answer


def test_a_difference_that_two_plain_runs_have_too_is_no_script(mine):
    subject, own = mine
    answer = ask(subject, one(own("own"), protocol=TRAINABLE), finding("input-gradients"))
    assert "two plain runs differ" in answer.get("unsupported", ""), answer


def test_parameters_that_the_reentrant_variant_detaches_are_constants(torch_subject):
    case = one(own("spectral_norm"), variant="reentrant", input=(2, 3))
    case["layers"].append({"kind": "linear", "features": 2})
    agrees(torch_subject, case, detached_layers=[0])
