"""The PyTorch that is installed shows what the record says, and keeps what its documentation
promises, but where known; what does not is told."""

import builtins
import json
import runpy
import subprocess
import symtable
import sys
from pathlib import Path

import pytest
import torch
from cases import chain, run_of, segment
from torch.utils import checkpoint as api

from rematch.frameworks.pytorch import contract
from rematch.frameworks.pytorch.contract import PROMISES, broken, script_of
from rematch.frameworks.pytorch.contract import record as records
from rematch.frameworks.pytorch.contract.record import differences, facts
from rematch.subjects.protocol import Unsupported

PROFILE = Path(__file__).parent / "profile.json"
ENTRIES = json.loads(PROFILE.read_text())["known"]
KNOWN = [text for e in ENTRIES if "promises" in e.get("laws", []) for text in e["got"]]
RECORD = records.read()
NAMES = [probe["id"] for probe in RECORD["probes"]]
# They register an operator or a device, which a process can do once.
ONCE = {"SE11.effects", "DV.recomputation"}
real = api.checkpoint


def test_the_record_has_every_probe_and_rule_and_is_as_it_was_written():
    assert set(NAMES) == set(PROMISES)
    assert [*RECORD["rules"]] == [*dict.fromkeys(probe["rule"] for probe in RECORD["probes"])]
    tried = {probe.tried for probe in contract.probing.PROBES.values()}
    assert {probe["tried"] for probe in RECORD["probes"]} == tried
    text = records.PATH.read_text()
    assert records.written(RECORD) == text
    for probe in RECORD["probes"]:
        assert probe["tried"].endswith((".", "?")) and probe["rule"] == probe["id"].split(".")[0]
        assert probe.get("promised", {}).keys() <= probe["seen"].keys()


@pytest.mark.parametrize("name", NAMES)
def test_this_pytorch_keeps_what_is_recorded_and_promised_but_where_known(name):
    before = torch.get_rng_state()
    wrong = broken(name)
    assert not wrong or any(text in wrong for text in KNOWN), wrong
    assert torch.equal(torch.get_rng_state(), before)
    # Nothing that it leaves behind may break it the next time.
    assert broken(name) == wrong


def test_facts_of_older_releases_are_expected_of_them():
    entry = {"seen": {"a": 1, "b": 2, "c": 3}, "earlier": {"2.9.0": {"a": 0, "c": None}}}
    entry["promised"] = {"b": 5}
    new, old = {"a": 1, "b": 5, "c": 3}, {"a": 0, "b": 5}
    expected = lambda release, got: records.expected(entry, got, release, of="2.15.0")
    assert expected("2.15.1", old) == expected("3.0.0", old) == new
    assert expected("2.9.1", new) == expected("2.8.0", new) == old
    # Between the two a fact may be either.
    assert expected("2.10.0", new) == new
    assert expected("2.10.0", {"a": 0, "b": 5, "c": 3}) == {"a": 0, "b": 5, "c": 3}
    assert expected("2.10.0", {"a": 7, "b": 5, "c": 3}) == new
    # What an older release does not have is not expected, of a newer one it is.
    missing = {"not_available": "AttributeError"}
    assert expected("2.9.0", missing) == missing
    assert expected("2.15.0", missing) == new


def test_an_older_release_adds_the_facts_in_which_it_differs():
    fresh = lambda torch, seen: {"torch": torch, "probes": [{"id": "N1.x", "seen": seen}]}
    merged = records.with_earlier(fresh("2.15.0", {"a": 1, "b": 2}), fresh("2.9.0", {"a": 0}))
    assert merged["probes"][0]["earlier"] == {"2.9.0": {"a": 0, "b": None}}
    merged = records.with_earlier(merged, fresh("2.9.0", {"a": 1, "b": 2}))
    assert "earlier" not in merged["probes"][0]
    merged = records.with_earlier(merged, fresh("2.9.0", {"not_available": "TypeError"}))
    assert "earlier" not in merged["probes"][0]


def test_differences_are_told_fact_by_fact():
    assert [*facts({"a": 1}, {"a": True})] == ["a: 1 recorded, yes now"]
    assert [*facts({"a": [1, False]}, {"b_c": 2})] == ["a: [1, no] recorded, not seen now", "b c: not recorded, 2 now"]
    assert [*facts({"a": 1}, {"not_available": "TypeError: x"})] == ["not available (TypeError: x)"]
    other = json.loads(json.dumps(RECORD))
    assert [*differences(RECORD, other)] == []
    gone = other["probes"].pop(0)["id"]
    other["probes"][0]["seen"]["more"] = 1
    other["errors"].pop("walked twice")
    name = other["probes"][0]["id"]
    assert [*differences(RECORD, other)] == [
        f"{gone}: recorded, not tried now",
        f"{name}: more: not recorded, 1 now",
        "error 'walked twice': recorded, not met now",
    ]
    assert len([*differences(RECORD, other, older=True)]) == 2
    assert [*differences(RECORD, {**other, "format": 9})] == ["format: 2 recorded, 9 now"]


def without(option):
    def wrong(function=None, *args, **options):
        options.pop(option, None)
        return real(function, *args, **options)

    return wrong


def tells_nobody(function=None, *args, use_reentrant=None, **options):
    return real(function, *args, use_reentrant=use_reentrant is not False, **options)


def loses_keywords(function=None, *args, use_reentrant=None, **options):
    known = {k: v for k, v in options.items() if k not in ("scale", "power")}
    more = {k: v for k, v in options.items() if k not in known}
    calls = []

    def run(*args):
        calls.append(0)
        return function(*args, **(more if len(calls) == 1 else {**more, "power": 1}))

    return real(run, *args, use_reentrant=use_reentrant, **known)


def wraps_errors(function=None, *args, **options):
    try:
        return real(function, *args, **options)
    except ValueError as error:
        raise RuntimeError(str(error)) from error


def has_one_random_state(function=None, *args, **options):
    """Draws, in all recomputations, what the latest forward of any function drew."""
    calls = []

    def run(*args):
        with torch.random.fork_rng(devices=[], enabled=bool(calls)):
            if calls:
                torch.set_rng_state(LATEST["state"])
            else:
                LATEST["state"] = torch.get_rng_state()
            calls.append(0)
            return function(*args)

    return real(run, *args, **options, preserve_rng_state=False)


LATEST = {}


def keeps_the_latest(function=None, *args, **options):
    """Recomputes what the latest forward was given."""
    calls = []

    def run(x, *others):
        if calls:
            x = x + (LATEST["input"] - x).detach()
        else:
            LATEST["input"] = x.detach()
        calls.append(0)
        return function(x, *others)

    return real(run, *args, **options)


def drops_in_decorators(function=None, *args, **options):
    if function is None:
        options.pop("early_stop", None)
    return real(function, *args, **options)


WRONG = [
    ("N3.stop", without("early_stop"), "without: 2 expected, 1 now"),
    ("AM1.not_preserved", without("preserve_rng_state"), "gradient right: no expected, yes now"),
    ("N7.none", without("determinism_check"), "none: right expected, error: other metadata now"),
    ("N8.report", without("debug"), "parts: 4 expected, 0 now"),
    ("N18.order", without("context_fn"), "[asked, first, runs, end of first] expected, [runs] now"),
    ("RE7.variant_not_chosen", tells_nobody, "left out: "),
    ("N9.keywords", loses_keywords, "powers: [3, 3] expected, [3, 1] now"),
    ("N7.unknown_check", wraps_errors, "error 'unknown check': not expected, RuntimeError now"),
    ("N2.several_forwards", has_one_random_state, "silently wrong"),
    ("N2.several_forwards", keeps_the_latest, "silently wrong"),
    ("N2.several_forwards", without("early_stop"), "without early stop nested: "),
    ("DE.options", drops_in_decorators, "tail runs by early stop: [1, 2] expected, [1, 1] now"),
]


@pytest.mark.parametrize(("name", "wrong", "says"), WRONG, ids=[name for name, _, _ in WRONG])
def test_a_broken_promise_is_told_by_what_is_tried_and_what_came(monkeypatch, name, wrong, says):
    monkeypatch.setattr(api, "checkpoint", wrong)
    told = broken(name)
    assert contract.probing.PROBES[name].tried in told
    assert f"Not so ({name}): " in told
    assert says in told


def test_settings_that_a_call_leaves_behind_break_any_promise(monkeypatch):
    def leaves_a_hook(function=None, *args, **options):
        torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t).__enter__()
        return real(function, *args, **options)

    monkeypatch.setattr(api, "checkpoint", leaves_a_hook)
    assert "left behind: not expected, hooks on saved tensors now" in broken("N2.one_recomputation")
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None


def trying(promise):
    case = chain("linear", plan={"segments": [segment(0, 1)]}, protocol={"input_requires_grad": True})
    return {**case, "options": {"promise": promise}}


@pytest.mark.parametrize("known", (True, False))
def test_a_promise_that_is_tried_stands_in_the_record_of_a_checkpointed_run(torch_subject, known):
    name = "N8.two_backwards" if known else "N9.keywords"
    plain, checkpointed = torch_subject.both(run_of(trying(name)))
    told = broken(name)
    assert bool(told) == known
    assert checkpointed["promises"] == [{"name": name, **({"broken": told} if told else {})}]
    assert "promises" not in plain
    # All else is judged beside it.
    assert "error" not in checkpointed
    assert len(checkpointed["observations"]) == len(plain["observations"])


def test_every_promise_is_an_option_that_cases_choose(start_python):
    for observe, share in (("all", 0.4), ("cheap", 0.1)):
        subject = start_python(
            "from rematch import serve\nfrom rematch.pytorch import TorchSubject\n"
            f"serve(TorchSubject(observe={observe!r}))\n"
        )
        hello = subject.hello()
        assert hello["options"]["promise"] == ["none", *PROMISES]
        assert hello["shares"]["promise"] == share


def test_a_checkpoint_function_of_the_users_promises_none_of_this(start_python):
    subject = start_python(
        "from rematch import serve\nfrom rematch.pytorch import TorchSubject\n"
        "def mine(function, *inputs, **options):\n    return function(*inputs)\n"
        "serve(TorchSubject('mine', checkpoint=mine))\n"
    )
    assert "promise" not in subject.hello()["options"]


def test_a_script_tells_whether_a_promise_is_kept(tmp_path):
    """In an interpreter of its own: of those that are not, and of some that are."""
    wrong = {name: told for name in PROMISES if (told := broken(name))}
    for name in ONCE | wrong.keys():
        script = tmp_path / f"{name}.py"
        script.write_text(script_of(wrong.get(name, f"({name})")))
        done = subprocess.run([sys.executable, "-I", script], capture_output=True, text=True)
        says = "DIFFERENT" if name in wrong else "same"
        assert done.stdout.endswith(f"{says}\n"), (name, done.stdout, done.stderr)
        assert done.returncode == (name in wrong)


@pytest.mark.parametrize("name", sorted({*NAMES} - ONCE))
def test_every_promise_has_a_script_that_is_whole_and_tells_the_same(name, tmp_path):
    script, path = script_of(f"({name})"), tmp_path / "script.py"
    path.write_text(script)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    assert ended.value.code == bool(broken(name))
    assert "rematch" not in script.replace("rematch_contract", "")
    # Names that only a failure would need are there, too.
    definitions = script.rpartition("\n\n\nexpected, got =")[0]
    scope = {"__file__": str(path)}
    exec(compile(definitions, name, "exec"), scope)
    inner = [symtable.symtable(definitions, name, "exec")]
    for table in inner:
        inner += table.get_children()
        used = (s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced())
        assert set(used) <= scope.keys() | vars(builtins).keys()


def test_a_finding_that_names_no_promise_has_no_script():
    with pytest.raises(Unsupported, match="no promise that is known"):
        script_of("(unheard_of)")
