"""Architectures of libraries are built small, and judged each in a process of its own."""

import json
import os
import signal
import time

import pytest
import torch
from harness import run_module
from torch import nn

from rematch import zoo
from rematch.cli import zoo as cli_zoo
from rematch.safe import judge_model
from rematch.zoo import runner
from rematch.zoo.page import page

LLAMA = "LlamaForCausalLM"
TINY = {"transformers": LLAMA, "timm": "test_vit", "torchvision": "squeezenet1_1", "diffusers": "UNet2DModel"}


@pytest.mark.parametrize("library", zoo.LIBRARIES)
def test_a_library_lists_its_models_and_one_is_judged(library):
    pytest.importorskip(library)
    assert TINY[library] in zoo.names(library)
    record = runner.record_of(f"{library}:{TINY[library]}")
    assert record["answer"] in (runner.SAFE, runner.NO_SWITCH), record
    assert record["parameters"] < 2_000_000 and record["blocks"]


def test_a_model_is_the_same_at_every_call_and_has_dropout():
    pytest.importorskip("transformers")
    models = [zoo.build(f"transformers:{LLAMA}") for _ in range(2)]
    first, second = (dict(made.model.named_parameters()) for made in models)
    assert all(first[name].equal(second[name]) for name in first)
    assert models[0].model.training and models[0].model.config.attention_dropout > 0


def test_a_switch_that_refuses_is_no_switch():
    class Model(nn.Sequential):
        def set_grad_checkpointing(self, enable=True):
            assert not enable, "gradient checkpointing not supported"

    verdict = judge_model(Model(nn.Linear(2, 2), nn.Linear(2, 2)), torch.ones(3, 2))
    assert verdict.own is None and "refuses: gradient checkpointing not supported" in verdict.why_not


def test_a_crash_or_a_hang_costs_one_row(monkeypatch):
    def record_of(place):
        if place == "hang":
            time.sleep(60)
        if place == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if place == "raise":
            raise KeyError("what")
        return {"model": place, "answer": runner.SAFE}

    monkeypatch.setattr(runner, "record_of", record_of)
    places = ["hang", "crash", "raise", "good"]
    records = {record["model"]: record for record in runner.judged(places, limit=3, jobs=2)}
    assert records["good"]["answer"] == runner.SAFE
    assert records["hang"]["why"] == "it was not done after 3 s"
    assert records["crash"]["why"] == "its process died of signal 9"
    assert records["raise"]["why"] == "KeyError: 'what'"


def test_the_command_goes_on_where_it_was(tmp_path):
    pytest.importorskip("transformers")
    first = run_module(tmp_path, "rematch", "zoo", f"transformers:{LLAMA}")
    assert first.returncode == 0, first.stderr
    assert "1 of 1" in first.stderr and LLAMA in (tmp_path / "rematch-zoo/ZOO.md").read_text()
    header, line = (tmp_path / "rematch-zoo/zoo.jsonl").read_text().splitlines()
    assert json.loads(header)["format"] == 1 and json.loads(line)["answer"] == "safe"
    again = run_module(tmp_path, "rematch", "zoo", f"transformers:{LLAMA}")
    assert again.returncode == 0 and " of " not in again.stderr


def test_a_wrong_name_is_refused(tmp_path):
    refused = run_module(tmp_path, "rematch", "zoo", "nowhere:Model")
    assert refused.returncode == 2 and "library:name expected" in refused.stderr


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("transformers:LlamaForCausLM", "transformers has no model LlamaForCausLM; did you mean LlamaForCausalLM?"),
        ("timm:test_vitt", "did you mean test_vit?"),
        ("timm:nowhere*", "timm has no model nowhere*"),
        ("torchvision:nothing", "torchvision has no model nothing"),
        ("diffusers:UNet2DModell", "did you mean UNet2DModel?"),
    ],
)
def test_a_model_that_there_is_not_is_refused(tmp_path, place, says):
    pytest.importorskip(place.partition(":")[0])
    refused = run_module(tmp_path, "rematch", "zoo", place)
    assert refused.returncode == 2 and says in refused.stderr and "Traceback" not in refused.stderr
    assert not (tmp_path / "rematch-zoo").exists()


def test_where_no_model_was_judged_that_is_no_success(tmp_path, monkeypatch, capsys):
    def judged(places, limit, jobs):
        rest = {"why": "it died", "findings": [], "blocks": []}
        yield from ({"model": place, "answer": answers.pop(), **rest} for place in places)

    monkeypatch.setattr(cli_zoo, "judged", judged)
    monkeypatch.setattr(cli_zoo, "_places", lambda *_: ["timm:a", "timm:b"])
    monkeypatch.setattr(cli_zoo, "version", lambda _: "1")
    monkeypatch.setattr(cli_zoo, "_prepare", lambda _: None)
    answers = ["not judged", "not built"]
    with pytest.raises(SystemExit) as ended:
        cli_zoo.main(["--out", str(tmp_path / "none")])
    assert ended.value.code == 2 and "not built: it died" in capsys.readouterr().err
    answers = ["safe", "not judged"]
    cli_zoo.main(["--out", str(tmp_path / "one")])


def test_pytest_judges_a_model_of_a_library(tmp_path):
    pytest.importorskip("timm")
    plugin = ("pytest", "-p", "rematch.pytest_plugin", "-p", "no:cacheprovider", "--rematch-model")
    assert "1 passed" in run_module(tmp_path, *plugin, "timm:test_vit").stdout
    missing = run_module(tmp_path, *plugin, "timm:nothing")
    assert missing.returncode == 1 and "timm has no model nothing" in missing.stdout


def test_the_page_tells_of_every_answer():
    finding = {"cause": "batch-norm", "remark": False, "differs": "buffer x", "scenarios": ["one training step"]}
    records = [
        {"model": "timm:a", "answer": "safe", "findings": [], "blocks": []},
        {"model": "timm:b", "answer": "not safe", "findings": [finding], "blocks": []},
        {"model": "timm:c", "answer": "no switch", "why": "none was found", "blocks": []},
        {"model": "timm:d", "answer": "not judged", "why": "it died"},
        {"model": "timm:e", "answer": "not built", "why": "its constructor: ValueError"},
    ]
    text = page(records, {"timm": "1.0"})
    assert text.startswith("# Models of timm: 3 judged") and "| timm | 5 | 1 | 1 | 1 | 1 | 1 |" in text
    assert "| batch-norm | `b` | buffer x |" in text and "| its constructor | `e` |" in text
