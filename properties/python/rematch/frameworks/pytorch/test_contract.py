"""The PyTorch that is installed keeps what its documentation promises, but where known, and what
does not keep it is told."""

from __future__ import annotations

import builtins
import json
import subprocess
import symtable
import sys
from collections import Counter
from pathlib import Path

import pytest
from cases import chain, run_of, segment

pytest.importorskip("torch")
import torch  # noqa: E402
from torch.utils import checkpoint as api  # noqa: E402

from rematch.frameworks.pytorch import contract  # noqa: E402
from rematch.frameworks.pytorch.contract.promise import (  # noqa: E402
    BOTH,
    DECORATES,
    Broken,
    equal,
    raises,
    said,
    warns,
)
from rematch.frameworks.pytorch.script_promise import script_of  # noqa: E402
from rematch.protocol import Unsupported  # noqa: E402

PROFILE = Path(__file__).parent / "profile.json"
KNOWN = [text for e in json.loads(PROFILE.read_text())["known"] for text in e.get("got", [])]
BY_NAME = {promise.__name__: promise for promise in contract.PROMISES}
real = api.checkpoint


def test_every_promise_has_a_sentence_and_a_name_of_its_own():
    assert len(BY_NAME) == len(contract.PROMISES)
    for promise in contract.PROMISES:
        assert promise.__doc__ and promise.__doc__.rstrip().endswith(".")


@pytest.mark.parametrize("name", BY_NAME)
def test_this_pytorch_keeps_what_is_promised_but_where_known(name):
    wrong = contract.broken(BY_NAME[name])
    assert not wrong or any(text in wrong for text in KNOWN), wrong
    # Nothing that it leaves behind may break it the next time.
    assert contract.broken(BY_NAME[name]) == wrong


def test_promises_leave_the_random_state_as_it_was():
    before = torch.get_rng_state()
    for promise in contract.PROMISES:
        contract.broken(promise)
        assert torch.equal(torch.get_rng_state(), before), promise.__name__


@pytest.mark.parametrize(("often", "cases"), [(True, 2500), (False, 10000)])
def test_every_promise_is_tried_about_as_often_by_the_seeds_of_cases(often, cases):
    seeds = [(i * 2654435761 + 12345) % 2**32 for i in range(cases)]
    tried = Counter(contract.promise_of(seed, often) for seed in seeds)
    del tried[None]
    assert len(tried) == len(contract.PROMISES)
    assert min(tried.values()) >= 4
    assert contract.promise_of(17) is contract.promise_of(17)


def without(option):
    def wrong(function=None, *args, **options):
        options.pop(option, None)
        return real(function, *args, **options)

    return wrong


def tells_nobody(function=None, *args, use_reentrant=True, **options):
    return real(function, *args, use_reentrant=use_reentrant, **options)


def loses_keywords(function=None, *args, use_reentrant=None, **options):
    known = {k: v for k, v in options.items() if k not in ("scale", "power", "a", "b")}
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
    """That of the latest forward of a function is what all its recomputations draw from."""
    calls = []

    def run(*args):
        with torch.random.fork_rng(devices=[], enabled=bool(calls)):
            if calls:
                torch.set_rng_state(LATEST[function])
            else:
                LATEST[function] = torch.get_rng_state()
            calls.append(0)
            return function(*args)

    return real(run, *args, **options, preserve_rng_state=False)


LATEST = {}


def keeps_the_latest(function=None, *args, **options):
    """Recomputes what the latest forward of a function was given."""
    calls = []

    def run(x, *others):
        if calls:
            x = x + (LATEST[function] - x).detach()
        else:
            LATEST[function] = x.detach()
        calls.append(0)
        return function(x, *others)

    return real(run, *args, **options)


def leaves_a_hook(function=None, *args, **options):
    torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t).__enter__()
    return real(function, *args, **options)


WRONG = [
    ("early_stop", without("early_stop"), "executions of the rest"),
    ("random_state", without("preserve_rng_state"), "equal draws with"),
    ("no_check", without("determinism_check"), "CheckpointError"),
    ("debug_shows_operators", without("debug"), "four parts expected"),
    ("contexts", without("context_fn"), "order of events in the forward"),
    ("variant_left_unsaid", tells_nobody, "warnings [], kinds"),
    ("keywords", loses_keywords, "[3, 3] expected, got [3, 1]"),
    ("determinism_checks", wraps_errors, "ValueError expected, got RuntimeError"),
    ("several_forwards_under_one_backward", has_one_random_state, "mask of "),
    ("several_forwards_under_one_backward", keeps_the_latest, "gradient 0"),
    ("several_forwards_under_one_backward", without("early_stop"), "executions of second, forward"),
]


@pytest.mark.parametrize(("name", "wrong", "says"), WRONG, ids=[name for name, _, _ in WRONG])
def test_a_broken_promise_is_told_by_its_sentence_and_what_came(monkeypatch, name, wrong, says):
    monkeypatch.setattr(api, "checkpoint", wrong)
    told = contract.broken(BY_NAME[name])
    assert told.startswith(" ".join(BY_NAME[name].__doc__.split()))
    assert says in told


def test_settings_that_a_call_leaves_behind_break_any_promise(monkeypatch):
    monkeypatch.setattr(api, "checkpoint", leaves_a_hook)
    promise = BY_NAME["grad_mode"]
    try:
        assert "left behind: hooks on saved tensors" in contract.broken(promise)
    finally:
        while torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            torch._C._autograd._pop_saved_tensors_default_hooks()


def test_kinds_and_words_of_errors_and_warnings_are_compared():
    with raises(KeyError, "a", "b"):
        raise KeyError("a b")
    with pytest.raises(Broken, match="KeyError expected, got LookupError"), raises(KeyError):
        raise LookupError
    with pytest.raises(Broken, match="nothing was raised"), raises(KeyError):
        pass
    with pytest.raises(Broken, match="'a' expected in"), raises(KeyError, "b", "a"):
        raise KeyError("a b")
    with pytest.raises(Broken, match="warnings"), warns((UserWarning, "x")):
        pass
    with pytest.raises(Broken, match="'a' expected"):
        said("b", "a")
    for got, wanted in ((1, True), (torch.ones(2), torch.zeros(2)), (None, torch.ones(1))):
        with pytest.raises(Broken, match="it: "):
            equal(got, wanted, "it")


SEEDS = {p: next(s for s in range(9999) if contract.promise_of(s) is p) for p in contract.PROMISES}


@pytest.mark.parametrize("known", BOTH)
def test_a_broken_promise_stands_in_the_record_of_a_checkpointed_run(torch_subject, known):
    name = "debug_several_backwards" if known else "keywords"
    plan = {"segments": [segment(0, 1)]}
    case = chain("linear", plan=plan, protocol={"input_requires_grad": True})
    case["seed"] = SEEDS[BY_NAME[name]]
    plain = torch_subject.record(**run_of(case))
    checkpointed = torch_subject.record(checkpointed=True)
    assert "error" not in plain
    told = contract.broken(BY_NAME[name])
    wanted = {"kind": "BrokenPromise", "message": told} if told else None
    assert checkpointed.get("error") == wanted


def test_a_checkpoint_function_of_the_users_promises_none_of_this(start_python):
    subject = start_python(
        "from rematch import serve\nfrom rematch.pytorch import TorchSubject\n"
        "def mine(function, *inputs, **options):\n    return function(*inputs)\n"
        "serve(TorchSubject('mine', checkpoint=mine))\n"
    )
    subject.hello()
    case = chain("linear", plan={"segments": [segment(0, 1)]})
    for promise in ("debug_several_backwards", "early_stop"):
        case["seed"] = SEEDS[BY_NAME[promise]]
        subject.record(**run_of(case))
        assert "error" not in subject.record(checkpointed=True)


@pytest.mark.skipif(not DECORATES, reason="this PyTorch makes no decorators")
def test_a_decorator_that_drops_an_option_is_told(monkeypatch):
    def drops(function=None, *args, **options):
        if function is None:
            options.pop("early_stop", None)
        return real(function, *args, **options)

    monkeypatch.setattr(api, "checkpoint", drops)
    assert "executions of what nothing needs" in contract.broken(BY_NAME["decorator_keeps_options"])


def test_a_script_tells_whether_a_promise_is_kept(tmp_path):
    """Of those that are not, and of some that need most."""
    wrong = {name: contract.broken(promise) for name, promise in BY_NAME.items()}
    tried = {name for name, why in wrong.items() if why and "left behind" not in why}
    for name in tried | {"effects", "device_random_states", "hooks_around_policies"}:
        script = tmp_path / f"{name}.py"
        script.write_text(script_of(wrong[name] or f"({name})"))
        done = subprocess.run([sys.executable, script], capture_output=True, text=True)
        told = done.stdout == "kept\n" if not wrong[name] else done.stderr.startswith("NOT KEPT: ")
        assert told, (name, wrong[name], done.stdout, done.stderr)
        assert "rematch" not in script.read_text().replace("rematch_contract", "")


def test_every_promise_has_a_script_that_is_whole():
    for name in BY_NAME:
        definitions = script_of(f"({name})").rpartition("\n\n\nwarnings.")[0]
        scope = {}
        exec(compile(definitions, name, "exec"), scope)
        inner = [symtable.symtable(definitions, name, "exec")]
        for table in inner:
            inner += table.get_children()
            used = (s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced())
            assert set(used) <= scope.keys() | vars(builtins).keys() | {"__file__"}, name
    with pytest.raises(Unsupported, match="no promise that is known"):
        script_of("(unheard_of)")
