"""Reports as they were approved, and what they must say of any input."""

import json
import re

import pytest
from conftest import assert_approved, compared, write, write_pairs, write_recorded

from rematch_compare.reports import json_report, markdown_report, text_report


@pytest.fixture
def recorded(tmp_path):
    return compared(*write_recorded(tmp_path))


def texts(c, kind="regression"):
    return [f.text for f in c.findings if f.kind == kind]


def test_the_report_is_the_one_that_was_approved(recorded):
    assert_approved("report.md", markdown_report(recorded))


def words_of(text):
    return " ".join(text.split())


def rows_of(markdown):
    """The lines of the table of times, by benchmark."""
    table = markdown.split("verdict\n", 1)[1].split("```")[0]
    return {line.split()[0]: words_of(line) for line in table.splitlines()}


def test_text_is_the_approved_report_without_markup(recorded):
    headline, body = text_report(recorded, 100).split("\n", 1)
    markdown = markdown_report(recorded)
    assert headline in markdown.splitlines()[0] and body.rstrip() in markdown


def test_json_has_the_findings_and_numbers_of_the_approved_report(recorded):
    report, markdown = json.loads(json_report(recorded)), markdown_report(recorded)
    assert report["format"] == 1 and report["exit_status"] == 1
    assert report["headline"] in markdown
    assert report["options"]["min_effect"] == 0.02 and report["base"]["files"] == 16
    kinds = [f["kind"] for f in report["findings"]]
    assert kinds.count("regression") == 5 and kinds.count("improvement") == 2
    for finding in report["findings"]:
        assert words_of(finding["text"]) in words_of(markdown)
        assert any(name in finding["text"] for name in finding["benchmarks"])
    rows = rows_of(markdown)
    assert {b["name"] for b in report["benchmarks"]} == set(rows)
    for benchmark in report["benchmarks"]:
        row, time = rows[benchmark["name"]], benchmark["time"]
        assert row.endswith(benchmark["verdict"])
        if time["ratio"] is not None:
            low, high = (f"{(x - 1) * 100:+.1f}" for x in time["interval"])
            change = f"{(time['ratio'] - 1) * 100:+.1f} %"
            assert f" {change} {low} .. {high} % {time['pairs']} " in row.replace("-0.0", "+0.0")
    rose = next(b for b in report["benchmarks"] if b["name"] == "cifar/plain/float32/cpu")
    assert rose["counters"]["saved_bytes"] == {"change": "rose", "base": 2359296, "new": 2359300}


def test_one_cause_is_one_finding_that_begins_with_its_largest_effect(tmp_path):
    base, new = {}, {}
    for i in range(35):
        name, more = f"{'cifar' if i % 2 else 'mlp'}/plan{i}/float32/cpu", 64 * (i * 8 % 35 + 1)
        peak = {"peak_bytes": 5000} if i % 3 else {}
        base[name] = {"saved_bytes": 1000, "allocations": 10} | peak
        new[name] = {"saved_bytes": 1000 + more, "allocations": 11} | peak
        if i % 3 == 1:
            new[name]["peak_bytes"] = 5000 + more
    base["gru/plain/x"], new["gru/plain/x"] = {"flops": 100}, {"flops": 101}
    files = [write(tmp_path / f"{n}.json", side) for n, side in (("base", base), ("new", new))]
    c = compared(*files, "--no-time")
    leak, flops = texts(c)
    largest = next(n for n, x in new.items() if x.get("saved_bytes") == 1000 + 64 * 35)
    assert re.match(r"\w+, \w+ and \w+ rose in 35 benchmarks of \w+ and \w+: ", leak)
    assert leak.split(": ", 1)[1].startswith(largest) and leak.endswith("and 32 more")
    assert flops == "flops of gru/plain/x rose by 1 (+1.0 %), from 100 to 101"
    assert [len(f.names) for f in c.findings] == [35, 1]


def test_findings_are_ordered_by_size_and_times_grouped_by_model(tmp_path):
    names = ("b/plain", "a/plain", "a/k2", "a/k4")
    for i in range(12):
        for side, of, flops in (("base", (1, 1, 1, 1), 100), ("new", (1.2, 1.1, 1.4, 1.3), 101)):
            times = {n: {"real_time": x + i / 1e4} for n, x in zip(names, of, strict=True)}
            times["b/plain"]["flops"] = flops
            write(tmp_path / side / f"{i:02}.json", times)
    slow_a, slow_b, flops = texts(compared(tmp_path / "base", tmp_path / "new"))
    assert slow_a.startswith("3 benchmarks of a are slower: a/k2 by 40.0 % (")
    assert slow_a.index("a/k4") < slow_a.index("a/plain") and slow_b.startswith("b/plain is slower")


def test_medians_never_contradict_the_paired_ratio_of_their_line(tmp_path):
    base = [10, 10, 10, 20, 20, 20, 20, 20, 5, 5, 5, 5]
    for i, ms in enumerate(base):
        after = ms * 1.05 if i > 2 else ms * 0.5
        write(tmp_path / "base" / f"{i:02}.json", {"a": {"real_time": ms}})
        write(tmp_path / "new" / f"{i:02}.json", {"a": {"real_time": after}})
    t = compared(tmp_path / "base", tmp_path / "new").benchmarks[0].time
    assert t.new_ns / t.base_ns == pytest.approx(t.ratio)


def test_missing_benchmarks_and_unsteady_counters_are_regressions_of_the_new_side(tmp_path):
    base, new = write_pairs(tmp_path, 1, 2)
    write(base / "00.json", {"a": {"peak_bytes": 1000, "flops": 5}, "b": {}})
    write(new / "01.json", {"a": {"peak_bytes": 996}})
    expected = {
        "b is missing on the new side",
        "flops of a is missing on the new side: the base has 5",
        "peak_bytes of a differs between repetitions of the new side: at most 1,000 B on the base, "
        "1,000 B on the new",
    }
    assert set(texts(compared(base, new, "--no-time"))) == expected
    assert len(texts(compared(base, new, "--no-time", "--allow-missing"))) == 1
    assert not texts(compared(new, base, "--no-time"))
