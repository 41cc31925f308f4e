"""The plugin of pytest judges a model without a test file."""

import pytest
import torch
from harness import run_module

MODELS = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Model(nn.Module):
    def __init__(self, *block):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(4, 4), *block)
    def forward(self, x, scale=1.0):
        return checkpoint(self.block, x, use_reentrant=False) * scale

def sound():
    return Model(nn.Dropout(0.5)), (torch.ones(3, 4),), {"scale": 2.0}

class Hidden(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.save_memory = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), False
    def forward(self, x):
        if self.save_memory:
            return checkpoint(self.block, x, use_reentrant=False, preserve_rng_state=False)
        return self.block(x)

def hidden():
    return Hidden(), torch.ones(3, 4)

def wrong():
    return Model(), torch.ones(3, 4), 3

def unsound():
    return Model(nn.BatchNorm1d(4)), (torch.randn(3, 4),), {}
"""


def run(folder, *arguments):
    (folder / "models.py").write_text(MODELS, encoding="utf-8")
    return run_module(folder, "pytest", "-p", "rematch.pytest_plugin", "-p", "no:cacheprovider", *arguments)


SWITCH = "--rematch-switch"


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["sound"], 0, "1 passed"),
        (["hidden"], 1, f"not judged: no switch was found; name it: {SWITCH}"),
        (["hidden", SWITCH, "save_memory"], 1, "unsafe: rng-not-preserved"),
        (["wrong"], 1, "a model, (model, batch) or (model, args, kwargs) expected, got (Model, Tensor, int)"),
        (["missing"], 1, "models has no missing"),
    ],
)
def test_a_sound_model_passes_and_what_else_a_function_returns_is_told(tmp_path, words, status, says):
    done = run(tmp_path, "--rematch-model", f"models:{words[0]}", *words[1:])
    assert done.returncode == status and says in done.stdout, done.stdout


def test_an_unsound_model_fails_with_the_report_and_nothing_of_our_source(tmp_path):
    done = run(tmp_path, "--rematch-model", "models:unsound")
    assert done.returncode == 1, done.stdout
    assert "batch-norm: BatchNorm updates its running statistics once more" in done.stdout
    assert "def runtest" not in done.stdout
    (summary,) = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert "batch-norm" in summary


def test_what_a_function_returns_is_understood():
    from rematch.loading import model_of

    x, kwargs = torch.ones(1), {"scale": 2.0}
    for made in (("m", x), ("m", (x,)), ("m", [x]), ("m", (x,), {}), ("m", ((x,), {}))):
        assert model_of("f", made) == ("m", (x,), {})
    assert model_of("f", "m") == ("m", (), {}) and model_of("f", ("m", kwargs)) == ("m", (), kwargs)


def test_the_fixture_asserts(tmp_path):
    test = "def test_block(checkpoint_safe):\n    checkpoint_safe(torch.nn.Linear(4, 4), torch.ones(3, 4))\n"
    (tmp_path / "test_mine.py").write_text(f"import torch\n\n{test}", encoding="utf-8")
    assert "1 passed" in run(tmp_path, "test_mine.py").stdout
