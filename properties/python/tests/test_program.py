"""The command of an installation that carries the program."""

from __future__ import annotations

import json
import os
import sys

import pytest

import rematch.program as command

CHOICES = ("REMATCH_PYTHON", "REMATCH_PYTHON_PYTORCH", "REMATCH_PYTHON_MLX")


@pytest.fixture
def started(monkeypatch, tmp_path):
    """Collects what main() becomes: the program, its arguments, and the Pythons that it is told to use."""
    seen = []
    program = tmp_path / "bin" / "rematch"
    program.parent.mkdir()
    program.touch()
    for name, module in ("pytorch", "torch"), ("mlx", "mlx.core"):
        (tmp_path / name).mkdir()
        environments = {name: {"module": module}}
        (tmp_path / name / "framework.json").write_text(json.dumps({"environments": environments}))
    monkeypatch.setattr(command, "PROGRAM", program)
    monkeypatch.setattr(command, "FRAMEWORKS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["rematch", "laws"])
    for name in CHOICES:
        # Set first, so that what main() sets is taken back.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)

    def become(*given):
        seen.append((*given, {name: os.environ[name] for name in CHOICES if name in os.environ}))

    monkeypatch.setattr(os, "execv", become)
    return seen


def installed(monkeypatch, *modules):
    def find(name):
        if name.split(".")[0] not in modules:
            if "." in name:
                raise ModuleNotFoundError(name)
            return None
        return name

    monkeypatch.setattr(command, "find_spec", find)


def test_a_framework_beside_the_package_is_judged_in_this_interpreter(started, monkeypatch):
    installed(monkeypatch, "torch")
    command.main()
    expected = {"REMATCH_PYTHON_PYTORCH": sys.executable}
    assert started == [(command.PROGRAM, ["rematch", "laws"], expected)]


def test_a_python_that_was_chosen_is_left_alone(started, monkeypatch):
    installed(monkeypatch, "torch", "mlx")
    monkeypatch.setenv("REMATCH_PYTHON_MLX", "/chosen/python")
    command.main()
    monkeypatch.setenv("REMATCH_PYTHON", "/for/all")
    for name in CHOICES[1:]:
        monkeypatch.delenv(name)
    command.main()
    mine = {"REMATCH_PYTHON_PYTORCH": sys.executable, "REMATCH_PYTHON_MLX": "/chosen/python"}
    assert [told for _, _, told in started] == [mine, {"REMATCH_PYTHON": "/for/all"}]


def test_without_frameworks_the_program_looks_elsewhere(started, monkeypatch):
    installed(monkeypatch)
    command.main()
    assert started == [(command.PROGRAM, ["rematch", "laws"], {})]


def test_the_package_alone_says_how_to_get_the_program(started):
    command.PROGRAM.unlink()
    with pytest.raises(SystemExit, match=r"pip install \.`"):
        command.main()
    assert not started
