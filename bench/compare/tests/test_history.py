"""Histories: where a level changed, and ci/maintain/history, which keeps one."""

import json
import math

import numpy as np
from conftest import COMPARE, GOLDEN, assert_approved, run, run_compare, write

from rematch_compare.history import level_changes

# 1 % over 30 series.
THRESHOLD = 0.01 / 30


def scatter(draw, n):
    """Scatter of a nightly measurement: 0.7 %, with a bad night now and then."""
    return 0.007 * draw.normal(size=n) + 0.15 * (draw.random(n) < 0.03)


def test_a_history_without_a_change_has_one_in_at_most_one_of_a_hundred():
    print("seed 4")
    draw = np.random.default_rng(4)
    alarms = [
        any(level_changes(scatter(draw, 30), THRESHOLD) for _ in range(30)) for _ in range(60)
    ]
    assert sum(alarms) <= 2


def test_a_step_is_found_where_it_is_and_a_rise_that_is_undone_twice():
    draw, found = np.random.default_rng(5), 0
    for _ in range(50):
        changes = level_changes(
            scatter(draw, 40) + math.log(1.04) * (np.arange(40) >= 25), THRESHOLD
        )
        found += len(changes) == 1 and abs(changes[0][0] - 25) <= 1
    assert found >= 40
    at = np.arange(60)
    changes = level_changes(scatter(draw, 60) + 0.06 * ((at >= 20) & (at < 40)), THRESHOLD)
    assert [after > before for _, before, after in changes] == [True, False]
    assert not level_changes([3.0] * 50, THRESHOLD) and not level_changes([0, 1] * 3, 0.5)


def test_a_history_is_judged_as_it_was_approved():
    history = GOLDEN / "inputs" / "history.jsonl"
    status, out, _ = run_compare("--history", history)
    assert status == 1
    assert_approved("history.txt", out)
    # Earlier changes are accepted.
    assert run_compare("--history", history, "--since", f"{0xABC00000 + 36 * 7919:x}")[0] == 0


def history(folder, *arguments):
    return run([COMPARE.parent.parent / "ci" / "maintain" / "history", *arguments], folder)


def test_a_commit_is_appended_once_for_each_machine(tmp_path):
    commits = [("a", 1, "A"), ("b", 1, "A"), ("a", 1, "A"), ("a", 2, "B")]
    folders = []
    for i, (c, ms, cpu) in enumerate(commits):
        a = {"real_time": ms, "flops": 7}
        folders.append(write(tmp_path / str(i) / "r.json", {"a": a}, commit=c * 40, cpu=cpu).parent)
    status, out, errors = history(tmp_path, "append", *folders)
    assert status == 0 and "already; left alone" in out, errors
    text = (tmp_path / "bench-history.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [x["commit"][0] for x in lines] == ["a", "b", "a"]
    assert lines[0]["benchmarks"] == {"a": {"real_ns": 1e6, "cpu_ns": 1e6, "flops": 7}}
    assert history(tmp_path, "show")[1].startswith("NO REGRESSION over 1 commit")


def test_a_history_is_left_alone_when_something_is_wrong(tmp_path):
    good, file = write(tmp_path / "good.json", {"a": {}}), tmp_path / "bench-history.jsonl"
    write(tmp_path / "dirty.json", {"a": {}}, rematch_dirty="1")
    for results in (["none.json"], [good, "dirty.json"], []):
        assert history(tmp_path, "append", *results)[0] == 2
    assert history(tmp_path, "forget")[0] == 2 and not file.exists()
    file.write_text("not a line\n")
    status, _, errors = history(tmp_path, "append", good)
    assert status == 2 and "bench-history.jsonl:1: Invalid JSON" in errors
    assert file.read_text() == "not a line\n"
