"""Collectives of the subjects on ranks are noted with their unit and their phase, planted troubles show, and ranks that
split layers show together what one process shows."""

import sys

import numpy as np
import pytest
from cases import assert_same_arrays, chain, differing, observed, run_of, segment
from harness import Harness, planted

from rematch.frameworks.pytorch.setup import MODES, OPTIONS
from rematch.frameworks.pytorch.test_data_parallel import FOUR, OWN, TIED
from rematch.subjects.records import encode

FIVE = {"kind": "linear", "features": 5}
SIX = {"kind": "linear", "features": 6}
WORDS = {"kind": "embedding", "features": 4, "vocabulary": 6}
UNITS = [FOUR, "tanh", FOUR], [segment(0, 2), segment(2, 3)]
REENTRANT = [segment(0, 2, "reentrant"), segment(2, 3, "reentrant")]
SMALL = {"data": "small_integers"}
BETWEEN = pytest.mark.parametrize("between", OPTIONS["tp"]["between"])


def sharded(layers, segments, mode, options=None, **protocol):
    """A case for DDP and FSDP2."""
    case = chain(*layers, input=(4, 4), plan={"segments": segments})
    case["protocol"] = {"input_requires_grad": True, **protocol}
    return {**case, "options": {"mode": mode, "no_sync": "yes", **(options or {})}}


def of(layers, mode, *segments, input=(2, 4), between="tensors", **protocol):
    """A case for layers that ranks split."""
    case = chain(*layers, input=input, plan={"segments": list(segments)})
    case["protocol"] = {"input_requires_grad": "embedding" not in str(layers), **protocol}
    return {**case, "options": {"mode": mode, "between": between}}


def both(layers, *segments, mode="checkpoint within", input=(4, 4), protocol=None, **options):
    """A case for layers that two ranks split, within units that two others share."""
    case = of(layers, mode, *segments, input=input, **(protocol or {}))
    return {**case, "options": {"mode": mode, "rows": "shared", **options}}


def records(subject, case, **plain_run):
    """The records of the plain run and the checkpointed one, which have the same bits."""
    found = subject.agreed(case, **plain_run)
    assert differing(found[1]) == set()
    return found


def told(record):
    """Kind, phase, unit and bytes of each in short."""
    return " ".join(
        f"{c['kind'][:2]}{c['phase'][0]}{c['unit']}" + (f".{c['bytes']}" if "bytes" in c else "")
        for c in record.get("collectives", [])
    )


def in_turn(record):
    """Kind, phase, unit and microbatch of each in short."""
    return " ".join(f"{c['kind'][0]}{c['phase'][0]}{c['unit']}.{c.get('microbatch', 0)}" for c in record["collectives"])


# Layers 0 and 2 have parameters; the model itself has none.
@pytest.mark.parametrize(
    ("options", "protocol", "expected"),
    [
        ({}, {}, "gf1.0 gf2.0 gb2.0 gb1.0 rb2.0 rb1.0"),
        ({"mode": "checkpoint around"}, {}, "gf1.0 gf2.0 gb2.0 gb1.0 rb2.0 rb1.0"),
        ({"reshard": "never"}, {}, "gf1.0 gf2.0 rb2.0 rb1.0"),
        ({"reshard": "in turns"}, {}, "gf1.0 gf2.0 gb2.0 rb2.0 rb1.0"),
        ({"units": "layers"}, {}, "gf1.0 gf2.0 gb2.0 gb1.0 rb2.0 rb1.0"),
        ({"units": "both"}, {}, "gf3.0 gf4.0 gb4.0 gb3.0 rb4.0 rb3.0"),
        ({"reshard": "to two ranks", "ranks": "4"}, {}, "gf1.0 gf2.0 gb2.0 gb1.0 rb2.0 rb1.0"),
        ({"prefetch": "forward"}, {}, "gf1.0 gf2.0 gb2.0 gb1.0 rb2.0 rb1.0"),
        ({"prefetch": "backward"}, {}, "gf1.0 gf2.0 gb2.0 gb1.0 rb2.0 rb1.0"),
        # With one forward waiting, the backward of the other one prefetches for it.
        (
            {},
            {"microbatches": 2, "forwards_first": True},
            "gf1.0 gf2.0 gf1.1 gf2.1 gb2.1 gb1.1 gb2.1 gb1.0 rb2.0 rb1.0",
        ),
        ({}, {"backwards": 2}, "gf1.0 gf2.0 gb2.0 gb1.0 rb2.0 rb1.0 gb2.0 rb2.0 gb1.0 rb1.0"),
    ],
)
def test_units_of_fsdp2_are_gathered_as_often_as_they_stay_whole_wait_or_run_again(fsdp2, options, protocol, expected):
    runs = records(fsdp2, sharded(*UNITS, "checkpoint within", options, **protocol))
    assert [in_turn(run) for run in runs] == [expected] * 2
    if not options.keys() - {"mode"} and not protocol:
        # A weight of four rows and a bias of four, by four bytes.
        assert {c["bytes"] for c in runs[1]["collectives"]} == {80}
        assert runs[1]["units"][1] == {"unit": 1, "end": 2}


def test_ddp_reduces_every_parameter_once_where_it_reduces(ddp):
    _, record = records(ddp, sharded(*UNITS, "default", microbatches=2))
    assert set(in_turn(record).split()) == {"rb0.1"}
    assert sum(c["bytes"] for c in record["collectives"]) == 160
    assert record["units"] == [{"end": 3, "replicated": True}]


def test_a_recomputation_that_prefetches_forward_gathers_a_unit_whose_backward_is_over(fsdp2):
    options = {"units": "layers", "prefetch": "forward"}
    layers = [FOUR, "tanh", FOUR, "tanh"], [segment(0, 2), segment(2, 4)]
    _, record = records(fsdp2, sharded(*layers, "checkpoint within", options))
    assert in_turn(record).count("gr2.0") == 2


@pytest.mark.parametrize(("hook", "item"), [("none", 4), ("allreduce", 4), ("bf16_compress", 2)])
def test_a_hook_of_ddp_sends_each_gradient_once_in_the_width_that_it_has(ddp, hook, item):
    layers = [OWN["multihead_attention"], "tanh", FOUR], [segment(0, 2), segment(2, 3)]
    _, record = ddp.agreed(sharded(*layers, "default", {"hook": hook}))
    assert set(in_turn(record).split()) == {"rb0.0"}
    assert sum(c["bytes"] for c in record["collectives"]) == 100 * item


@pytest.mark.parametrize("mode", MODES["ddp"])
def test_ddp_reduces_nothing_where_no_parameter_gets_a_gradient_but_to_learn_a_static_graph(ddp, mode):
    record = ddp.record(**run_of(sharded(*UNITS, mode, microbatches=2)), detached_layers=[0, 2])
    assert "error" not in record
    learned = [{"kind": "reduce", "phase": "backward", "unit": 0, "bytes": 160}]
    assert record.get("collectives", []) == (learned if mode == "static_graph" else [])


def without_recomputation(expected):
    return " ".join(word for word in expected.split() if word[2] != "r")


# Two rows of four or five features, by four bytes; five are padded to six. Then two sequences of four rows, of which
# each rank has two.
@pytest.mark.parametrize(
    ("layers", "mode", "expected"),
    [
        ([FOUR, "tanh"], "columns", "gaf1.32 raf1 gar1.32 rar1 reb1.32"),
        ([FIVE, "tanh"], "columns", "gaf1.48 raf1 gar1.48 rar1 reb1.32"),
        ([FIVE, "tanh"], "rows", "ref1.40 raf1 rer1.40 rar1 gab1.32"),
        ([FOUR, "tanh", FOUR, "tanh"], "pairs", "raf1 ref2.32 raf2 rar1 rer2.32 rar2 reb1.32"),
        # Nothing that follows is saved: early stop ends the recomputation before it sends.
        ([FOUR, "tanh", FOUR], "pairs", "raf1 ref2.32 raf2 rar1 str2 reb1.32"),
        # A layer that looks at whole rows is no part of a pair.
        (
            [FOUR, "softmax", FOUR, "tanh"],
            "pairs",
            "gaf1.32 raf1 gaf2.32 raf2 gar1.32 rar1 gar2.32 rar2 reb2.32 reb1.32",
        ),
        ([FOUR, FOUR, "tanh"], "in turns", "gaf1.32 raf1 ref2.32 raf2 gar1.32 rar1 rer2.32 rar2 gab2.32 reb1.32"),
        (
            [FOUR, "layer_norm", "tanh", SIX, "relu", FOUR, "rms_norm", "softmax", FOUR, "tanh"],
            "sequence",
            "ref1.128 raf1 raf2 gaf3.128 raf3 ref4.128 raf4 raf5 gaf6.128 gaf6.128 raf6 "
            "rer1.128 rar1 rar2 gar3.128 rar3 rer4.128 rar4 rar5 gar6.128 gar6.128 rar6 "
            "reb6.128 gab4.128 reb3.128 gab1.128 gab1.128",
        ),
        # What is whole is cut without sending, and its gradient is put together.
        (
            ["rms_norm", FOUR, "softmax"],
            "sequence",
            "raf1 gaf2.128 gaf2.128 raf2 rar1 gar2.128 gar2.128 rar2 reb2.128 gab1.128",
        ),
        (
            [FOUR, "layer_norm", "softmax"],
            "sequence",
            "ref1.128 raf1 gaf2.128 raf2 rer1.128 rar1 gar2.128 rar2 gab1.128 gab1.128",
        ),
        # Early stop ends the recomputation between both of what it sends.
        (["rms_norm", FOUR], "sequence", "raf1 gaf2.128 gaf2.128 raf2 rar1 gar2.128 str2 reb2.128 gab1.128"),
        ([FOUR, "tanh", "dropout"], "sequence", "gaf1.128 raf1 gar1.128 rar1 reb1.128"),
    ],
)
@BETWEEN
def test_a_recomputation_sends_what_the_forward_sent(tp, layers, mode, expected, between):
    input = (2, 4, 4) if mode == "sequence" else (2, 4)
    plain, checkpointed = records(tp, of(layers, mode, segment(0, len(layers)), input=input, between=between))
    assert told(checkpointed) == expected and told(plain) == without_recomputation(expected)


def test_rows_that_ranks_cannot_share_equally_are_dtensors_or_whole(tp):
    case = of([WORDS, "layer_norm", "tanh"], "sequence", segment(0, 3), input=(2, 3), between="shards")
    # Three rows are padded to four.
    assert told(records(tp, case)[0]) == "ref1.128 raf1 gaf2.128 raf2 gab1.128"
    case["options"]["between"] = "tensors"
    assert told(records(tp, case)[0]) == "gaf1.96 raf1"


def test_an_embedding_is_split_too_and_a_weight_that_it_lends_in_one_way(tp):
    layers = [WORDS, {"kind": "linear", "features": 6, "bias": False, "tied_to": 0}, "tanh"]
    for mode, first, second in (("columns", "gaf1.64 raf1", "ref2.96 raf2"), ("rows", "ref1.64 raf1", "gaf2.96 raf2")):
        assert told(records(tp, of(layers, mode, segment(0, 3), input=(2, 2)))[0]).startswith(f"{first} {second}")


def test_a_policy_keeps_what_was_sent(tp):
    for mode in ("columns", "rows"):
        sent = told(records(tp, of([FOUR, "tanh"], mode, segment(0, 2, keep=[{"op": "linear"}])))[1])
        assert " rar1" in sent and "gar" not in sent and "rer" not in sent


@pytest.mark.parametrize("variant", ["non_reentrant", "reentrant"])
@pytest.mark.parametrize("mode", MODES["tp"])
def test_segments_may_begin_and_end_between_the_layers_of_a_pair(tp, variant, mode):
    segments = segment(0, 1, variant), segment(1, 3, variant), segment(3, 5, variant, nested=[segment(4, 5, variant)])
    # Reentrant segments add up the gradient of a weight that they share in another order.
    layers = [FOUR, "tanh", FOUR, "dropout", TIED if variant == "non_reentrant" else FOUR]
    for between in ("tensors", "shards"):
        records(tp, of(layers, mode, *segments, between=between, steps=2, microbatches=2, optimizer="adam"))


def test_what_is_frozen_stays_frozen_and_what_a_reentrant_segment_freezes_is_a_constant(tp):
    norm = of([FOUR, {"kind": "layer_norm", "frozen": True}, FOUR], "sequence", segment(0, 3), steps=2)
    constants = of([FOUR, "tanh", FOUR], "pairs", segment(0, 3, "reentrant"), input_requires_grad=False)
    for case, parameter, detached in ((norm, 2, []), (constants, 0, [0, 2])):
        plain, _ = records(tp, case, detached_layers=detached)
        assert observed(plain)["parameter_gradient", 0, 0, parameter]["present"] is False


@pytest.mark.parametrize("kind", ["tp", "fsdp2_tp"])
@pytest.mark.parametrize("split", MODES["tp"])
def test_what_ranks_show_together_is_what_one_process_shows(request, torch_subject, kind, split):
    # Sums of small integers are exact in every order.
    layers, protocol = [FOUR, "relu", FOUR], {"learning_rate": 2**-4, "reevaluate": True}
    case = both(layers, segment(0, 2), protocol=protocol, split=split)
    run = run_of((case if kind == "fsdp2_tp" else of(layers, split, segment(0, 2), input=(4, 4), **protocol)) | SMALL)
    run["arrays"]["targets"] = [encode(np.ones((4, 4), np.float32))]
    assert_same_arrays(request.getfixturevalue(kind).record(**run), torch_subject.record(**run))


@pytest.mark.parametrize("variant", ["non_reentrant", "reentrant"])
@pytest.mark.parametrize("units", OPTIONS["fsdp2_tp"]["units"])
@pytest.mark.parametrize("split", MODES["tp"])
def test_a_checkpointed_run_has_the_bits_of_the_plain_one(fsdp2_tp, split, units, variant):
    layers = [FOUR, "tanh", FOUR, "layer_norm", FOUR]
    segments = segment(0, 2, variant), segment(2, 5, variant, nested=[segment(3, 5, variant)])
    options = {"split": split, "units": units, "no_sync": "yes"}
    options["protocol"] = {"steps": 2, "microbatches": 2, "optimizer": "adam", "prior_gradients": True}
    for mode, rows, reshard in (("checkpoint within", 4, "never"), ("checkpoint around", 5, "in turns")):
        records(fsdp2_tp, both(layers, *segments, mode=mode, input=(rows, 4), reshard=reshard, **options))


def test_a_unit_that_is_given_one_tensor_twice_adds_gradients_as_in_the_plain_run(fsdp2):
    """In evaluation a dropout returns what it is given."""
    dropout, sums = {"kind": "dropout", "p": 0.5, "eval": True}, [{"kind": "add", "from": [v, 0]} for v in (0, 1)]
    layers = [FOUR, dropout, "layer_norm", *sums, FOUR]
    records(fsdp2, both(layers, segment(0, 3, "reentrant"), units="both", input=(64, 4)))


def test_an_embedding_is_split_and_sharded(fsdp2_tp):
    for split in ("columns", "rows"):
        assert "f2." in told(records(fsdp2_tp, both([WORDS, "tanh"], segment(0, 2), split=split, input=(2, 2)))[0])


@pytest.mark.parametrize(
    ("layers", "input"),
    [
        ([FOUR, {"kind": "relu", "in_place": True}], (2, 4)),
        # A rank would have nothing of it.
        ([{"kind": "linear", "features": 1}], (2, 4)),
        ([FOUR], (2, 1)),
    ],
    ids=["written in place", "one feature", "of one feature"],
)
def test_what_pytorch_cannot_split_is_whole_on_every_rank(tp, layers, input):
    plain, _ = records(tp, of(layers, "columns", input=input))
    assert told(plain) == "" and len(plain["units"]) == 1


# Two rows of four features for each rank, by four bytes. A rank has half of each weight of sixteen, and half a bias or,
# by rows, a whole one.
@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("pairs", "gaf1.88 raf2 ref3.32 raf3 gab1.88 rar2 rer3.32 rar3 reb2.32 reb1.88"),
        ("columns", "gaf1.80 gaf2.32 raf2 gaf3.32 raf3 gab1.80 gar2.32 rar2 gar3.32 rar3 reb3.32 reb2.32 reb1.80"),
        ("rows", "gaf1.96 ref2.32 raf2 ref3.32 raf3 gab1.96 rer2.32 rar2 rer3.32 rar3 gab3.32 gab2.32 reb1.96"),
        ("in turns", "gaf1.88 gaf2.32 raf2 ref3.32 raf3 gab1.88 gar2.32 rar2 rer3.32 rar3 gab3.32 reb2.32 reb1.88"),
    ],
)
@BETWEEN
def test_units_are_gathered_and_split_layers_send_in_a_recomputation(fsdp2_tp, split, expected, between):
    for mode in OPTIONS["fsdp2_tp"]["mode"]:
        case = both([FOUR, "tanh", FOUR, "tanh"], segment(0, 4), split=split, mode=mode, between=between)
        plain, checkpointed = records(fsdp2_tp, case)
        assert told(checkpointed) == expected and told(plain) == without_recomputation(expected)


# A norm's weight of four, and its bias, are added up by the ranks that have its rows, in each backward that reduces.
@BETWEEN
def test_gradients_of_norms_on_some_rows_are_added_up_ahead_of_their_reduction(fsdp2_tp, between):
    layers = [FOUR, "layer_norm", "tanh", FOUR, "relu", FOUR, "tanh"]
    protocol = {"microbatches": 2, "prior_gradients": True}
    options = {"split": "sequence", "between": between, "no_sync": "yes"}
    _, record = records(fsdp2_tp, both(layers, segment(0, 7), input=(4, 4, 4), protocol=protocol, **options))
    forward = "gaf1.168 ref2.128 raf2 raf3 gaf4.128 raf4 ref5.128 raf5 gab1.168 "
    again = forward.replace("f", "r").replace("gar1.168 ", "", 1).replace("gab1.168 ", "")
    backward = "reb4.128 gab2.128 gab2.128"
    assert told(record) == f"{forward}{again}{backward} {forward}{again}{backward} reb1.16 reb1.16 reb1.168"


def test_rows_that_two_batches_have_not_alike_are_no_sequence(fsdp2_tp):
    for rows in (8, 7, 2):
        case = both([FOUR, "layer_norm"], segment(0, 2), input=(rows, 4), split="sequence", units="segments")
        assert sum("split" in unit and unit.get("begin") == 1 for unit in records(fsdp2_tp, case)[0]["units"]) == (rows == 8)


@pytest.mark.parametrize("layers", [[FIVE], [FOUR, "tanh", TIED]], ids=["unequal parts", "of two layers"])
def test_weights_that_cannot_be_sharded_twice_are_whole_for_ranks_that_split(fsdp2_tp, layers):
    assert len(records(fsdp2_tp, both(layers, segment(0, 1), split="columns"))[0]["units"]) == 2


SKIPS = """
import torch.distributed as dist
from rematch import serve
from rematch.frameworks.pytorch import data_parallel as parallel

real = parallel.FsdpModel.begins_backward

def begins_backward(model, state):
    real(model, state)
    if model.request.checkpointed and dist.get_rank() == 1:
        model._modules[1].set_requires_gradient_sync(False)

parallel.FsdpModel.begins_backward = begins_backward
serve(parallel.DataParallelSubject("fsdp2", limit=12))
"""


def test_a_hang_names_the_first_collective_that_ranks_do_not_share_its_unit_and_segment():
    with Harness(sys.executable, "-c", SKIPS) as subject:
        subject.record(**run_of(sharded(*UNITS, "checkpoint around")))
        error = subject.record(checkpointed=True)["error"]
    assert error["kind"] == "Hang"
    where = "in the backward of step 0, microbatch 0, in or after layers 0 to 1"
    reduction = f"reduce_scatter_base of unit 1 (layers 0 to 1) {where}"
    last = error["message"].splitlines()[-1]
    assert last.startswith("they part at collective ")
    assert f"rank 0 calls {reduction}; rank 1 calls none" in last, error["message"]


ALONE = "rank 0 calls all_reduce of unit 1 (layers 0 to 0) in the recomputation of step 0, microbatch 0, in or after "
WHOLE = segment(0, 1, early_stop=False)
COLUMNS = of([FOUR, "tanh"], "columns", segment(0, 2))
UNITS_OF_COLUMNS = both([FOUR, "tanh"], segment(0, 2), split="columns", mode="checkpoint around")
PLANTED = [
    # The recomputation gathers again, and the backward does.
    ("fsdp2", "double", sharded(*UNITS, "checkpoint around"), lambda t: t.count("gar1.") == t.count("gab1.") == 1),
    (
        "fsdp2",
        "stray",
        sharded(UNITS[0], REENTRANT, "checkpoint around"),
        lambda t: t.count("gar") + t.count("gab") > 2,
    ),
    (*("fsdp2", "kept"), sharded(*UNITS, "checkpoint within", microbatches=2), lambda t: "keb1." in t and "keb2." in t),
    (
        *("fsdp2", "skipped"),
        sharded([FOUR, "tanh", TIED], REENTRANT, "checkpoint within"),
        lambda t: "gaf0." in t and "reb0." not in t,
    ),
    # No gradient depends on what the recomputation makes last.
    ("tp", "unsummed", of([FOUR], "rows", WHOLE), lambda t: t == "ref1.32 raf1 rar1 gab1.32"),
    ("tp", "twice", COLUMNS, lambda t: t == "gaf1.32 raf1 gar1.32 gar1.32 rar1 reb1.32"),
    (
        *("tp", "regathered"),
        of([FOUR, "layer_norm", FOUR, "tanh"], "sequence", segment(0, 4)),
        lambda t: "raf1 raf2 gaf3" in t and "rar1 gar2.32 rar2 gar3.32" in t,
    ),
    ("tp", "one_sided", COLUMNS, lambda t: "input_gradient 0, step 0" in t or t == "gaf1.32 raf1 gar1.32 rar1"),
    # A hang names the collective, the unit and the segment.
    (
        *("tp --rank-limit 6", "alone"),
        of([FOUR, "tanh"], "rows", segment(0, 2)),
        lambda t: f"{ALONE}layers 0 to 1; rank 1 calls all_gather" in t,
    ),
    ("fsdp2_tp", "double", UNITS_OF_COLUMNS, lambda t: t.count("gar1.40") == 1 and "gab1.40" in t),
    ("fsdp2_tp", "twice", UNITS_OF_COLUMNS, lambda t: t.count("gar2.32") == 2),
    # Half of the weight, and of its bias.
    (
        *("fsdp2_tp", "kept"),
        both([FOUR, "tanh"], segment(0, 2), split="columns", no_sync="yes", protocol={"microbatches": 2}),
        lambda t: "keb1.40" in t,
    ),
    (
        *("fsdp2_tp", "unadded"),
        both([FOUR, "layer_norm", FOUR], segment(0, 3), input=(4, 4, 4), split="sequence"),
        lambda t: t.startswith("parameter_gradient 2, step 0, microbatch 0: rank 0 has "),
    ),
]
"""The subject, a trouble that PyTorch has from the start of the process, a case, and what tells of it."""


@pytest.mark.parametrize(("kind", "trouble", "case", "tells"), PLANTED, ids=[" ".join(row[:2]) for row in PLANTED])
def test_a_planted_trouble_is_noted(kind, trouble, case, tells):
    with planted(trouble, *kind.split()) as subject:
        subject.record(**run_of(case))
        record = subject.record(checkpointed=True)
    found = record["error"]["message"] if "error" in record else told(record)
    assert tells(found), found
