"""The command line, `rematch` and `python -m rematch`: what it does itself, and what it leaves to the program."""

import json
import os
import re
import subprocess
import sys

import pytest

import rematch.__main__ as command
import rematch.program as program

CHOICES = ("REMATCH_PYTHON", "REMATCH_PYTHON_PYTORCH", "REMATCH_PYTHON_MLX")
PACKAGE = program.PACKAGE


@pytest.fixture
def package(monkeypatch, tmp_path):
    """A package that knows two frameworks, in a checkout where nothing was built."""
    here = tmp_path / "properties" / "python" / "rematch"
    for name, module in ("pytorch", "torch"), ("mlx", "mlx.core"):
        (here / "frameworks" / name).mkdir(parents=True)
        environments = {name: {"module": module}}
        (here / "frameworks" / name / "framework.json").write_text(json.dumps({"environments": environments}))
    add(tmp_path / "ci" / "build")
    monkeypatch.setattr(program, "PACKAGE", here)
    for name in CHOICES:
        monkeypatch.delenv(name, raising=False)
    return here


def add(file):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    return file


@pytest.fixture
def started(package, monkeypatch):
    """Collects what main() becomes: the program, its arguments, and the Pythons that it is told to use."""
    seen = []

    def become(found, words, environment):
        seen.append((found, words[1:], {name: environment[name] for name in CHOICES if name in environment}))

    monkeypatch.setattr(os, "execve", become)
    add(package / "_program" / "bin" / "rematch")
    return seen


def installed(monkeypatch, *modules):
    def find(name):
        there = name.split(".")[0] in modules
        if "." in name and not there:
            raise ModuleNotFoundError(name)
        return name if there else None

    monkeypatch.setattr(program, "find_spec", find)


def refused(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("modules", "chosen", "told"),
    [
        ([], {}, {}),
        (["torch"], {}, {"REMATCH_PYTHON_PYTORCH": sys.executable}),
        (["torch", "mlx"], {"REMATCH_PYTHON_MLX": "/chosen"}, {"REMATCH_PYTHON_PYTORCH": sys.executable}),
        (["torch", "mlx"], {"REMATCH_PYTHON": "/for/all"}, {}),
    ],
)
def test_a_framework_is_judged_in_this_interpreter_or_in_one_that_was_chosen(
    started, monkeypatch, package, modules, chosen, told
):
    installed(monkeypatch, *modules)
    for name, python in chosen.items():
        monkeypatch.setenv(name, python)
    command.main(["laws", "--json"])
    assert started == [(package / "_program" / "bin" / "rematch", ["laws", "--json"], chosen | told)]


def test_a_slip_is_left_to_the_program_which_knows_all_its_commands(started):
    command.main(["chekc"])
    command.main(["--version"])
    assert [words for _, words, _ in started] == [["chekc"], ["--version"]]


def test_the_program_of_the_package_goes_before_the_one_that_was_built(package, tmp_path):
    assert program.program() is None
    built = add(tmp_path / "build" / "program" / "bin" / "rematch")
    assert program.program() == built
    carried = add(package / "_program" / "bin" / "rematch")
    assert program.program() == carried


def test_an_installed_package_finds_what_was_built_in_the_sources_that_it_came_from(monkeypatch, tmp_path, package):
    class Installed:
        def read_text(self, name):
            assert name == "direct_url.json"
            return json.dumps({"url": (tmp_path / "my sources").as_uri(), "dir_info": {}})

    monkeypatch.setattr(program, "PACKAGE", tmp_path / "environment" / "lib" / "site-packages" / "rematch")
    monkeypatch.setattr(program, "distribution", lambda name: Installed())
    assert program.checkout() is None
    add(tmp_path / "my sources" / "ci" / "build")
    assert program.program() is None and str(tmp_path / "my sources") in program.how_to_get_it()
    built = add(tmp_path / "my sources" / "build" / "release" / "bin" / "rematch")
    assert program.program() == built


def test_the_package_alone_says_how_to_get_the_program_and_what_was_meant(package, capsys):
    assert "ci/build release rematch" in refused(capsys, "laws")
    assert "did you mean check?" in refused(capsys, "chekc")
    assert "usage: rematch COMMAND" in refused(capsys)
    command.main(["--version"])
    assert "the Python package alone" in capsys.readouterr().out


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, timeout=120)


def run_after(prepare, *words):
    """The command line in a process in which `prepare` ran before."""
    text = f"import sys; {prepare}; import runpy; runpy.run_module('rematch', run_name='__main__')"
    return run(sys.executable, "-c", text, *words)


def test_help_lists_commands_of_both_without_numpy_or_a_framework():
    ran = run_after("sys.modules.update(numpy=None, torch=None)", "--help")
    assert ran.returncode == 0, ran.stderr
    for word in (*command.OURS, *program.COMMANDS, *command.FRAMEWORKS):
        assert word in ran.stdout


@pytest.mark.parametrize("name", command.OURS)
def test_help_of_a_command_loads_no_framework(name):
    loaded = "{'numpy', 'torch', 'transformers'} & sys.modules.keys()"
    ran = run_after(f"import atexit; atexit.register(lambda: print('loaded:', {loaded}))", name, "--help")
    assert ran.returncode == 0, ran.stderr
    assert f"usage: rematch {name} " in ran.stdout and ran.stdout.endswith("loaded: set()\n")


@pytest.mark.parametrize("name", ["safe", "plan"])
def test_a_command_says_that_it_lacks_pytorch(name):
    ran = run_after("sys.modules['torch'] = None", name, "torch.nn:ReLU", "--input", "2")
    assert ran.returncode == 2
    assert f"rematch: {name} needs PyTorch in this Python" in ran.stderr


def test_choices_that_help_lists_are_those_there_are():
    pytest.importorskip("torch")
    from rematch.cli import plan, safe
    from rematch.plan.model import OPTIMIZERS
    from rematch.safe import VARIANTS

    assert (tuple(VARIANTS), tuple(OPTIMIZERS)) == (safe.VARIANTS, plan.OPTIMIZERS)


def test_both_spellings_know_the_same_commands():
    listed = (PACKAGE.parents[2] / "properties" / "hunt" / "frameworks.cpp").read_text()
    words = listed.partition("kCommandsInPython{")[2].partition(";")[0]
    assert sorted(command.OURS) == re.findall(r'{"(\w+)"', words)
    if (found := program.program()) is None:
        pytest.skip("without the program its commands are not compared")
    told = run(found, "--help").stdout
    apart = {"scenario": "rematch-scenario"}
    there = [name for name in program.COMMANDS if name not in apart or found.with_name(apart[name]).is_file()]
    assert all(f"  {name} " in told or f"rematch {name}" in told for name in (*command.OURS, *there))


def test_a_command_that_fails_by_itself_is_no_verdict(monkeypatch, capsys):
    def main(words):
        raise KeyError("ours")

    monkeypatch.setattr(command, "import_module", lambda name: type("Failing", (), {"main": main}))
    told = refused(capsys, "safe")
    assert "KeyError: 'ours'" in told and "rematch: safe failed by itself" in told


def test_what_cannot_be_started_is_wrong_usage(capsys):
    assert "has no nothing" in refused(capsys, f"{__file__}:nothing")


def test_a_subject_that_nobody_talks_to_says_what_it_is():
    pytest.importorskip("torch")
    ran = run(sys.executable, "-m", "rematch", f"{__file__}:add")
    assert ran.returncode == 2
    assert "is a subject of the harness" in ran.stderr


def test_a_reader_that_has_seen_enough_is_no_error():
    """`rematch --help | head -0`: the pipe is closed before anything is written."""
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "wb") as pipe:
        words = [sys.executable, "-m", "rematch", "--help"]
        ended = subprocess.run(words, stdout=pipe, stderr=subprocess.PIPE)
    assert (ended.returncode, ended.stderr) == (128 + 13, b"")
