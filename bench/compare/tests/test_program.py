"""rematch-compare as its users meet it: files in, text and exit status out."""

import json
import os
import subprocess

import pytest
from conftest import COMPARE, compared, run, run_compare, write, write_pairs, write_recorded


def test_the_exit_status_is_1_with_a_regression_and_3_where_a_time_is_unsure(tmp_path):
    for i, (expected, factor, pairs, peak, cpu, options) in enumerate(
        (
            (0, 1, 12, 1000, "A", ""),
            (0, 0.9, 12, 1000, "A", ""),
            (1, 1.05, 12, 1000, "A", ""),
            # Too few pairs to be certain, and the whole interval beyond.
            (1, 1.05, 7, 1000, "A", "--looks 3"),
            (3, 1.02, 12, 1000, "A", ""),
            (3, 1.05, 4, 1000, "A", ""),
            (1, 1, 1, 1004, "A", ""),
            (0, 1, 1, 1000, "A", "--no-time"),
            (3, 1, 12, 1000, "B", ""),
            (1, 1, 12, 1004, "B", ""),
            (0, 1.05, 12, 1000, "A", "--min-effect 10%"),
        )
    ):
        base, new = write_pairs(tmp_path / str(i), factor, pairs, peak, cpu)
        assert compared(base, new, *options.split()).exit_status == expected


def test_aggregates_may_hold_what_is_no_number(tmp_path):
    good = write(tmp_path / "good.json", {"a": {}})
    content = json.loads(good.read_text())
    content["benchmarks"].append({"name": "a_cv", "run_type": "aggregate", "peak_bytes": float("nan")})
    (tmp_path / "repeated.json").write_text(json.dumps(content))
    status, _, errors = run_compare(good, tmp_path / "repeated.json")
    assert status == run_compare(good, good)[0], errors


def test_wrong_usage_and_unreadable_input_are_refused_with_the_option_or_the_place(tmp_path):
    good = write(tmp_path / "good.json", {"a": {}})
    text = good.read_text()
    files = {
        "cut": (text[:100], "Invalid JSON: EOF"),
        "foreign": ('{"a": 1}', "context: Field required"),
        "newer": (text.replace('format": "1"', 'format": "7"'), "rematch_format: Input should be"),
        "slow": (text.replace('real_time": 1', 'real_time": -1'), "benchmarks[0].real_time"),
        "odd": (text.replace('"a"', r'"\u001b[31m"'), "benchmarks[0].name"),
    }
    for name, (content, message) in files.items():
        (tmp_path / name).write_text(content)
        status, _, errors = run_compare(good, tmp_path / name)
        assert status == 2 and f"{name}: " in errors and message in errors, errors
    for arguments, message in {
        f"{good}": "expected BASE NEW",
        f"{good} none.json": "none.json: cannot be read: No such file",
        f"--base {good} {good} --new {good}": "as many files",
        f"{good} {good} --min-effect x": "--min-effect: expected a number",
        f"{good} {good} --filter (": "--filter: not a regular expression",
        f"{good} {good} --filter zebra": "--filter: no benchmark's name",
        f"{good} {good} --json --markdown": "--json and --markdown exclude",
        f"{good} {good} --looks 0": "--looks: expected a whole number from 1",
        f"{good} {good} --min-eff 3": "--min-eff: no such option",
    }.items():
        status, out, errors = run_compare(*arguments.split())
        assert (status, out) == (2, "") and message in errors, errors


def test_help_answers_at_once_and_touches_nothing(tmp_path):
    for script in (COMPARE / "rematch-compare", COMPARE.parent.parent / "ci" / "compare"):
        status, out, _ = run([script, "--help"], tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"))
        assert status == 0 and "--min-effect" in out and "Exit status" in out
    assert not list(tmp_path.iterdir())


def test_lists_are_paired_in_their_order_and_folders_by_name(tmp_path):
    base, new = write_pairs(tmp_path, 1.05, 12)
    lists = ["--base", *sorted(base.iterdir()), "--new", *sorted(new.iterdir())]
    status, out, _ = run_compare(*lists, "--json")
    assert (status, out) == run_compare(base, new, "--json")[:2] and status == 1
    # One without a partner counts for its bytes alone, and so does a file of counts.
    (new / "05.json").unlink()
    for side in (base, new):
        write(side / "counts.json", {"b": {"flops": 1}}, rematch_times="no")
    benchmarks = compared(base, new).benchmarks
    assert [(b.verdict, b.time.pairs) for b in benchmarks] == [("SLOWER", 11), ("EQUAL", 0)]


def test_the_clock_is_that_of_the_cpu_when_both_sides_waited_for_a_core(tmp_path):
    cases = ((0.5, 0.6, "cpu", "cpu"), (1, 0.5, "cpu", "real"), (0.5, 0.6, "cuda", "real"))
    for base, new, device, clock in cases:
        context = {"rematch_threads": "1", "rematch_device": device}
        for name, share in (("base", base), ("new", new)):
            write(tmp_path / name, {"a": {"cpu_time": share}}, **context)
        c = compared(tmp_path / "base", tmp_path / "new")
        assert c.clock == clock and ("CPU times are compared" in str(c.notes)) == (clock == "cpu")


def test_a_full_disk_is_an_error_and_a_reader_that_went_away_is_none(tmp_path):
    base, _ = write_recorded(tmp_path)
    inputs = [COMPARE / "rematch-compare", base, base]
    with open("/dev/full", "w") as full:
        assert subprocess.run(inputs, stdout=full, stderr=subprocess.DEVNULL).returncode == 2
    read, write_end = os.pipe()
    os.close(read)
    assert subprocess.run(inputs, stdout=write_end).returncode == 0


@pytest.mark.skipif("REMATCH_PROGRAM" not in os.environ, reason="only ctest knows the program")
def test_rematch_compare_is_rematch_compare(tmp_path):
    sides = write_recorded(tmp_path)
    assert run([os.environ["REMATCH_PROGRAM"], "compare", *sides]) == run_compare(*sides)
