"""The command of an installation that carries the program."""

from __future__ import annotations

import os
import sys

import pytest

import rematch.program as command


@pytest.fixture
def started(monkeypatch, tmp_path):
    """What main() becomes: the program, its arguments, and the Python that it is told to use."""
    seen = []
    monkeypatch.setattr(command, "PROGRAM", tmp_path / "rematch")
    monkeypatch.setattr(sys, "argv", ["rematch", "laws"])
    monkeypatch.setenv("REMATCH_PYTHON", "")
    monkeypatch.setattr(
        os, "execv", lambda *given: seen.append((*given, os.environ["REMATCH_PYTHON"]))
    )
    return seen


def test_pytorch_beside_the_package_is_judged_in_this_interpreter(started, monkeypatch):
    command.PROGRAM.touch()
    monkeypatch.setattr(command, "find_spec", lambda name: name)
    command.main()
    monkeypatch.setenv("REMATCH_PYTHON", "/chosen/python")
    command.main()
    program, arguments = command.PROGRAM, ["rematch", "laws"]
    assert started == [
        (program, arguments, sys.executable),
        (program, arguments, "/chosen/python"),
    ]


def test_without_pytorch_the_program_looks_elsewhere(started, monkeypatch):
    command.PROGRAM.touch()
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    command.main()
    assert started == [(command.PROGRAM, ["rematch", "laws"], "")]


def test_the_package_alone_says_how_to_get_the_program(started):
    with pytest.raises(SystemExit, match=r"pip install \.`"):
        command.main()
    assert not started
