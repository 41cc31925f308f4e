"""Each known bug of a framework has a script of its own, which shows it in that framework alone."""

import ast
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from rematch.cli.report import bugs, dates, entries, read, run, verdict

FOLDER = Path(__file__).resolve().parents[3] / "golden/conformance/bugs"
SCRIPTS = bugs(FOLDER)
MODULES = {
    "pytorch": ["torch"],
    "nnx": ["flax"],
    "keras": ["keras", "tensorflow"],
    "keras/recurrent_mask": ["keras", "torch"],
}
LINES = 30
"""Of code, so that a maintainer reads it at once; several ranks, or a table of shapes, take more."""
LONGER = {"pytorch/ddp_shared_layer", "pytorch/unwritten_conv2d_weights", "pytorch/fsdp2_counts_of_a_policy"}
LONGER |= {"pytorch/fsdp2_forward_prefetch", "pytorch/fsdp2_gathered_after_its_backward"}

MENDED = {"pytorch:cast-without-a-graph", "pytorch:cast-without-a-graph-in-a-recomputation"}
MENDED |= {"pytorch:hooks-while-an-error-is-handled"}
"""Those of releases before the one that is judged."""

LOUD = {"jax:static-by-keyword-or-default", "nnx:linen-static-by-keyword-or-default"}
LOUD |= {"keras:activations-of-recurrent-layers", "keras:promise-mixed-precision", "keras:promise-mode-is-traced"}
LOUD |= {"keras:promise-trains-in-fit", "mindspore:early-stop-within-an-operator"}
LOUD |= {"mlx:no-integer-arguments", "mlx:no-vmap"}
LOUD |= {"paddle:nested-in-non-reentrant", "paddle:returns-one-tensor-twice", "paddle:promise-list-of-tensors"}
LOUD |= {"paddle:retained-graph-with-unused-output", "paddle:promise-hook-inside", "paddle:promise-backward-inside"}
LOUD |= {"pytorch:backward-within-a-segment", "pytorch:debug-several-backwards", "pytorch:composable-debug"}
LOUD |= {"pytorch:composable-hooks-recomputed"}
LOUD |= {"tensorflow:promise-none-argument", "tensorflow:promise-second-derivative-by-variable"}
LOUD |= {"tensorflow:promise-stopped-inside", "tensorflow:promise-in-condition"}
"""Those that raise an error wherever they show."""

RIGHT = {"jax:merged-on-cpu", "tensorflow:promise-sparse-gradient", "tensorflow:promise-only-inputs-kept"}
RIGHT |= {"paddle:promise-detached-stays-detached", "nnx:linen-renames"}
"""Those that cost memory alone, set a flag that no number depends on, or draw other weights by design."""

SOURCES = {"recomputed", "detached", "gradient", "forward", "unwritten", "compiled", "stream", "state", "failure"}
LAWS = {"agrees-with-reference", "outputs", "absent-gradients", "injected-failures", "promises"}


def silent_entries():
    """The known bugs of current releases whose sources change numbers, or leave them out, and those that failures or
    promises show, but for what is loud or right."""
    for name, entry in entries():
        is_silent = SOURCES & {*entry.get("wrong", [])} or LAWS & {*entry.get("laws", [])}
        if entry.get("promised", True) and is_silent and name not in MENDED | LOUD | RIGHT:
            yield name, entry


def test_each_silent_bug_of_a_profile_has_a_script():
    assert not [name for name, entry in silent_entries() if "script" not in entry]
    assert {entry["script"] for _, entry in entries() if "script" in entry} <= {*SCRIPTS}


def test_an_entry_that_only_promises_show_says_of_gradients_what_its_script_says():
    for name, entry in entries():
        laws = {*entry.get("laws", [])}
        if laws and laws <= {"promises", "injected-failures"} and "wrong" not in entry and "script" in entry:
            severity = " ".join(read(SCRIPTS[entry["script"]]).facts["severity"])
            assert entry.get("moves_gradients", False) == ("silent" in severity and "gradient" in severity), name


def test_what_needs_no_script_is_known_and_has_none():
    assert {name for name, entry in entries() if "script" not in entry} >= MENDED | LOUD | RIGHT


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_what_was_promised_where_the_cause_is_and_what_trackers_know(name):
    bug = read(SCRIPTS[name])
    assert bug.title.endswith(".") and "\n" not in bug.title
    words = ("reported", "known", "near", "documented", "by", "no", "trackers")
    assert bug.state and all(state.split()[0] in words for state in bug.state.split("; "))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_short_and_has_a_control(name):
    text = SCRIPTS[name].read_text()
    code = text.splitlines()[ast.parse(text).body[0].end_lineno :]
    assert name in LONGER or sum(bool(line.strip()) for line in code) <= LINES
    assert any("control" in line for line in code)


def test_a_table_of_releases_says_when_a_bug_began_and_whether_it_ended():
    assert dates({"2.10.0": "wrong", "2.9.1": "wrong"}) == "since 2.9.1 or earlier, still in 2.10.0"
    assert dates({"2.10.0": "wrong", "2.9.1": "right"}) == "since 2.10.0"
    assert dates({"2.10.0": "wrong", "2.9.1": "TypeError: no"}) == "since 2.10.0, undecided before"
    assert dates({"2.10.0": "wrong", "2.9.1": "TypeError: no"}, True) == "since 2.10.0; 2.9.1 raised TypeError: no"
    assert dates({"2.9.1": "right", "2.10.0": "wrong", "2.11.0": "right"}) == "from 2.10.0 to 2.10.0"
    assert dates({"2.9.1": "wrong", "2.10.0": "TypeError"}) == "since 2.9.1 or earlier"
    assert dates({"2.9.1": "right"}) == "in none"
    assert dates({"2.9.1": "TypeError"}) == ""


def test_a_script_without_its_facts_is_refused_with_the_line_that_is_missing(tmp_path):
    (tmp_path / "bug.py").write_text('"""A title.\n\nseverity: silent\npromise: "so",\n  twice\n"""\n')
    with pytest.raises(ValueError, match="no line 'cause'"):
        read(tmp_path / "bug.py")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_bug_still_shows(name):
    framework = name.partition("/")[0]
    modules = MODULES.get(name, MODULES.get(framework, [framework]))
    if absent := [module for module in modules if find_spec(module) is None]:
        pytest.skip(f"not installed: {', '.join(absent)}")
    shown, output = run(sys.executable, SCRIPTS[name])
    if shown == "this CPU has no AMX":
        pytest.skip(shown)
    assert shown == "wrong", f"{shown}; if it is mended, close the entry of {name}\n{output}"


def test_a_script_that_fails_or_whose_control_is_wrong_says_nothing():
    assert verdict(1, "control: right\nbug: WRONG\n", "") == "wrong"
    assert verdict(0, "control: right\nbug: right\n", "") == "right"
    assert verdict(1, "control: right\nbug: right\n", "False\n") == "False"
    assert verdict(1, "bug: WRONG\n", "") == "exit status 1"
    assert verdict(1, "", "no display\n") == "no display"
    assert verdict(1, "control: WRONG\nbug: WRONG\n", "") == "control: WRONG"
    assert verdict(0, "bug: WRONG\n", "") == "exit status 0"
    assert verdict(1, "bug: WRONG\n", "Traceback\nos.Error: none\n  more\n") == "os.Error: none"
