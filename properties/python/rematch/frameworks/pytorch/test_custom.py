"""Layers of the subject's own."""

import re

import pytest
import torch
from cases import chain, run_of, segment

from rematch.frameworks.pytorch.modules import MODULES

ALL = {layer.name: layer for layer in MODULES}


def shapes_of(layer, **extents):
    """The operand's and the result's shape where the letters mean `extents`."""

    def side(text):
        shape = []
        for word in text.split():
            factor, letter = re.match(r"(\d*)([A-Z]?)$", word).groups()
            shape.append(int(factor or 1) * (extents[letter] if letter else 1))
        return shape

    operand, _, result = layer.shapes.partition("->")
    return side(operand), side(result)


@pytest.mark.parametrize("layer", MODULES, ids=lambda layer: layer.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_module_maps_shapes_as_it_declares(layer, dtype):
    for extents in ({"N": 1, "C": 1, "H": 3, "W": 3}, {"N": 5, "C": 6, "H": 4, "W": 7}):
        operand, result = shapes_of(layer, **extents)
        module = layer.module(operand).to(dtype)
        for train in (False, True):
            x = torch.randn(operand, dtype=dtype, requires_grad=True)
            y = layer.run(module.train(train), x)
            assert list(y.shape) == result
            assert y.dtype == dtype
            assert y.requires_grad


def test_names_of_modules_are_unique():
    assert len(ALL) == len(MODULES)


def test_a_sample_shows_what_a_layer_does():
    assert ALL["gru_dropout"].declaration == "gru_dropout: N C -> N C; parameters, draws"
    assert ALL["spectral_norm"].declaration.endswith("; parameters, state")
    assert ALL["warmup"].declaration.endswith("; parameters, state")
    assert ALL["numpy_noise"].declaration.endswith("; draws elsewhere")
    assert ALL["glu"].declaration == "glu: N 2C -> N C"


def test_a_cached_weight_is_computed_once_for_two_uses():
    layer = ALL["cached_weight_norm"]
    module = layer.module([2, 3])
    computed = []
    module.parametrizations.weight[0].register_forward_hook(lambda *_: computed.append(1))
    layer.run(module, torch.ones(2, 3))
    assert len(computed) == 1
    layer.run(module, torch.ones(2, 3))
    assert len(computed) == 2


ON_ROWS = [layer for layer in MODULES if layer.shapes in ("N C -> N C", "N 2C -> N 2C")]


@pytest.mark.parametrize("layer", ON_ROWS, ids=lambda layer: layer.name)
def test_equal_runs_of_a_case_with_the_layer_are_equal(torch_subject, layer):
    own = {"kind": "custom", "layer": layer.declaration}
    linear = {"kind": "linear", "features": 4}
    run = run_of(chain(linear, own, {**own, "eval": True}, input=(3, 4)))
    first, second = torch_subject.record(**run), torch_subject.record(**run)
    assert "error" not in first
    assert first == second


def test_copies_that_autograd_makes_are_no_results(torch_subject):
    """clamp_min_() copies its operand where gradients are recorded, and a reentrant forward does not record."""
    own = {"kind": "custom", "layer": "nn.HingeEmbeddingLoss.0: N ... -> N ..."}
    reentrant = {"segments": [segment(0, 1, "reentrant")]}
    case = chain(own, input=(1, 6, 2), plan=reentrant, protocol={"input_requires_grad": True})
    _, record = torch_subject.agreed(case)
    results = [{v["op"] for v in record["values"] if v.get("execution", 0) == n and not v.get("saved")} for n in (0, 1)]
    assert "aten::clamp_min_" in results[0] and results[0] == results[1] and "aten::clone" not in results[0]


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="takes N C"):
        ALL["gru_dropout"].module([1, 2, 3, 4])
