"""Scripts that show what goes wrong between ranks, run by an interpreter with PyTorch alone."""

import pytest
from cases import TRAINABLE, chain, plan, segment

from rematch.frameworks.pytorch.setup import OPTIONS
from rematch.frameworks.pytorch.test_data_parallel import FOUR, MODES, OWN, READY_TWICE, TIED, TWICE, of
from rematch.frameworks.pytorch.test_export import agrees, answered, ask, finding

ATTENTION = OWN["multihead_attention"]
MARKED = "RuntimeError: Expected to mark a variable ready only once. This error is caused by"
DIFFER = "RanksDiffer: parameter_gradient 0, step 0, microbatch 0: rank 0 has [0.], rank 1 has [1.]"


def shown(subject, case, found, **rest):
    """The script of a finding, and the last line that it prints, which must be the finding."""
    script, status, out = answered(subject, case, found, **rest)
    last = out.splitlines()[-1]
    assert status == 1 and last.startswith("DIFFERENT"), out
    return script, out, last


def why(subject, case, found, **rest):
    return ask(subject, case, found, **rest)["unsupported"]


def test_a_weight_that_is_marked_ready_twice_shows_by_the_error_of_each_rank(ddp):
    script, out, last = shown(ddp, READY_TWICE, finding("errors", "no error", MARKED))
    assert last == "DIFFERENT: error of rank 0, error of rank 1"
    assert out.count(MARKED) == 2
    assert script.startswith("# errors: ") and "rematch" not in script


def test_a_gradient_that_stays_on_its_rank_shows_by_the_numbers_of_each(ddp):
    case = of("ddp", TWICE, "default", buckets="shared")
    _, _, last = shown(ddp, case, finding("errors", "no error", DIFFER))
    assert "weight0.grad differs between ranks" in last


@pytest.mark.parametrize(("variant", "ranks"), [("non_reentrant", 4), ("reentrant", 2)])
def test_what_agrees_on_all_ranks_is_said_to_be_the_same(parallel, variant, ranks):
    kind, subject = parallel
    protocol = {**TRAINABLE, "steps": 2, "microbatches": 2, "optimizer": "adam", "clip": 0.1}
    layers = [FOUR, "tanh", "dropout", {"kind": "split", "features": 2}, FOUR]
    whole = plan(segment(0, 2, variant), segment(2, 5, variant))
    case = chain(*layers, input=(5, 4), plan=whole, protocol={**protocol, "prior_gradients": True})
    for mode in MODES[kind]:
        if variant == "reentrant" and mode == "find_unused_parameters":
            continue  # It refuses what it finds in no graph.
        script = agrees(subject, of(kind, case, mode, ranks))
        within = {"checkpoint within": "segment0(checkpoint, ", "checkpoint around": "partial(segment0, "}
        assert within.get(mode, "model(") in script


@pytest.mark.parametrize("reshard", OPTIONS["fsdp2"]["reshard"])
def test_a_script_shards_as_the_case_does_and_waits_with_backwards(fsdp2, reshard):
    protocol = {**TRAINABLE, "steps": 2, "microbatches": 2, "forwards_first": True, "backwards": 2}
    layers = [ATTENTION, "tanh", FOUR]
    case = chain(*layers, input=(4, 4), plan=plan(segment(0, 2), segment(2, 3)), protocol=protocol)
    case = of("fsdp2", case, "checkpoint within")
    case["options"] |= {"reshard": reshard, "precision": "bfloat16" if reshard == "in turns" else "float32"}
    case["options"] |= {"prefetch": {"always": "forward", "never": "backward"}.get(reshard, "implicit")}
    case["options"] |= {"ranks": "4" if reshard == "to two ranks" else "2"}
    script = agrees(fsdp2, case)
    of_one_run = script[script.index("def run(") :].split("\n\n\n")[0]
    assert len(of_one_run.splitlines()) < 80


@pytest.mark.parametrize("mode", MODES["fsdp2"])
@pytest.mark.parametrize("units", ["layers", "both"])
def test_layers_with_parameters_of_their_own_are_units_of_a_script_too(fsdp2, units, mode):
    layers = [ATTENTION, "duplicate", FOUR, {**FOUR, "tied_to": 2}, FOUR]
    nested = plan(segment(0, 3, nested=[segment(1, 3)]), segment(4, 5))
    case = of("fsdp2", chain(*layers, input=(4, 4), plan=nested, protocol=TRAINABLE), mode)
    case["options"] |= {"reshard": "in turns", "units": units}
    script = agrees(fsdp2, case)
    assert ("segment0 = model.segment0 = Call()" in script) == (units == "both")
    root = "segment0" if units == "both" else "model"
    assert f"layer0 = {root}.layer0 = Call()" in script and "layer0(run0, x)" in script
    # One that is tied belongs to what is around all its uses.
    assert "layer2" not in script and "layer3" not in script


def test_a_module_of_the_subject_s_own_and_a_tied_layer_belong_to_what_is_parallel(parallel):
    kind, subject = parallel
    tied = chain(FOUR, "tanh", TIED, input=(4, 4), protocol=TRAINABLE, plan=plan(segment(0, 1), segment(2, 3)))
    module = chain(ATTENTION, "tanh", input=(4, 4), plan=plan(segment(0, 1)), protocol=TRAINABLE)
    for case in (module, tied):
        agrees(subject, of(kind, case, MODES[kind][-1]))


def test_the_hook_of_a_script_and_its_batch_are_those_of_the_case(ddp):
    case = chain(ATTENTION, "tanh", input=(3, 4), plan=plan(segment(0, 1)), protocol=TRAINABLE)
    for hook, rows in (("allreduce", "shared"), ("bf16_compress", "whole")):
        given = of("ddp", case, "default")
        given["options"] |= {"hook": hook, "rows": rows}
        script = agrees(ddp, given)
        assert f"register_comm_hook(None, {hook}_hook)" in script and ("rows(" in script) == (rows == "shared")


def test_a_finding_that_ranks_do_not_show_is_unsupported(ddp):
    healthy = chain(FOUR, "tanh", input=(4, 4), plan=plan(segment(0, 2)), protocol=TRAINABLE)
    case = of("ddp", healthy, "static_graph")
    for law, got in (("errors", MARKED), ("errors", DIFFER), ("parameter-gradients", "2")):
        assert "no script was found" in why(ddp, case, finding(law, "1", got))


@pytest.mark.parametrize(
    ("law", "got", "reason"),
    [
        ("hooks", "2", "no script counts on several ranks what hooks compares"),
        ("errors", "RanksDiffer: collectives of rank 0: a; of rank 1: b", "collectives of rank 0"),
        ("repeatable", "2", "two equal runs differ"),
    ],
)
def test_what_no_script_of_ranks_can_show_is_unsupported_and_says_why(ddp, law, got, reason):
    case = chain(FOUR, "tanh", input=(4, 4), plan=plan(segment(0, 2)), protocol=TRAINABLE)
    assert reason in why(ddp, of("ddp", case, "default"), finding(law, "1", got))


def test_another_error_than_that_of_the_finding_is_not_taken_for_it(ddp):
    other = finding("errors", "no error", "RuntimeError: something else")
    assert "no script was found" in why(ddp, READY_TWICE, other)
    assert "no script was found" in why(ddp, READY_TWICE, finding("errors", "no error", DIFFER))
    assert "no script was found" in why(ddp, READY_TWICE, finding("parameter-gradients"))


def test_a_hang_shows_by_the_error_of_the_rank_for_which_others_wait(ddp):
    hang = "Hang: of its ranks, 1 does not answer within 30 s\nrank 0: {}\nrank 1: step (run.py:1)"
    shown(ddp, READY_TWICE, finding("errors", "no error", hang.format(MARKED)))
    for where in ("ValueError: something else", "wait (run.py:1)"):
        assert "no script was found" in why(ddp, READY_TWICE, finding("errors", "no error", hang.format(where)))


def test_a_checkpoint_of_the_user_s_own_exports_nothing_on_ranks(start_python):
    subject = start_python(
        "from rematch import serve\n"
        "from rematch.frameworks.pytorch.data_parallel import DataParallelSubject\n"
        "serve(DataParallelSubject('ddp', checkpoint=lambda f, *a, **o: f(*a)))\n"
    )
    assert subject.hello()["exports"] is False
