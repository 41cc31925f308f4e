"""The layers that PyTorch's own databases make."""

import re

import torch
from cases import chain, run_of, segment
from torch import nn

from rematch.frameworks.pytorch.databases import Writer, classes
from rematch.frameworks.pytorch.library import SETUP, found, library
from rematch.frameworks.pytorch.modules import MODULES

BY_NAME = {layer.name: layer for layer in library()}
FAMILIES = {name.rpartition(".")[0] for name in BY_NAME}


def test_each_class_of_torch_nn_is_tried_or_says_why_not():
    for kind in classes():
        name = f"nn.{kind.__name__}"
        assert (name in FAMILIES) != bool(found()["not tried"].get(name)), name


def test_names_are_unique_and_no_others():
    assert len(BY_NAME) == len(library())
    assert not set(BY_NAME) & {layer.name for layer in MODULES}


def test_attention_and_recurrent_layers_are_tried_with_a_batch_and_masks():
    for name in ("nn.MultiheadAttention", "nn.TransformerEncoderLayer", "nn.GRU"):
        texts = [f"{layer.make} {layer.call}" for layer in library() if layer.name.startswith(f"{name}.")]
        assert any(re.search(r"batch_first=True.*fit\(x, 2, 3, ", text) for text in texts), name
        assert any(re.search(r"fit\(x, 3, .\)", text) for text in texts), name
    assert any("mask=torch.tensor" in layer.call for layer in library() if "Encoder" in layer.name)


def test_text_is_what_a_person_writes():
    text = Writer({}).call("nn.Conv2d", nn.Conv2d, (3, 4, (2, 2)), {"stride": 1, "padding_mode": "reflect"})
    assert text == "nn.Conv2d(3, 4, (2, 2), padding_mode='reflect')"
    assert Writer({}).text(torch.tensor([True, False])) == "torch.tensor([True, False])"


def test_fit_depends_on_each_number():
    names = {"torch": torch, "F": nn.functional}
    exec(SETUP, names)
    for shape in ((2, 2), (3, 5), (7,), ()):
        x = torch.randn(3, 2, requires_grad=True)
        names["fit"]((x, None, [x.long()]), *shape).sum().backward()
        assert names["fit"](x, *shape).shape == shape
        assert len(x) == 1 or (x.grad != 0).any()


def test_equal_runs_of_a_case_are_equal_and_one_in_evaluation_draws_nothing(torch_subject):
    for name in ("nn.TransformerEncoderLayer.1", "nn.BatchNorm2d.0", "torch.nn.functional.rrelu.0", "torch.cumsum.0"):
        own = {"kind": "custom", "layer": BY_NAME[name].declaration}
        plan = {"segments": [segment(1, 3)]}
        run = run_of(chain({"kind": "linear", "features": 4}, own, {**own, "eval": True}, input=(3, 4), plan=plan))
        first, second = torch_subject.record(**run), torch_subject.record(**run)
        assert "error" not in first
        assert first == second
