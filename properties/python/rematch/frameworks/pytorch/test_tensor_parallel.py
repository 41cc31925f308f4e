"""Layers that ranks share: what they send for each, and what goes wrong with that in recomputations."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from cases import assert_same_arrays, chain, observed, run_of, segment
from harness import planted

pytest.importorskip("torch")
if sys.platform != "linux":
    pytest.skip("ranks are copies of a process", allow_module_level=True)

from rematch.frameworks.pytorch.setup import MODES, OPTIONS  # noqa: E402
from rematch.subjects.arrays import encode  # noqa: E402

FOUR = {"kind": "linear", "features": 4}
FIVE = {"kind": "linear", "features": 5}
SIX = {"kind": "linear", "features": 6}
TIED = {**FOUR, "tied_to": 0}
WORDS = {"kind": "embedding", "features": 4, "vocabulary": 6}


def of(layers, mode, *segments, input=(2, 4), between="tensors", **protocol):
    case = chain(*layers, input=input, plan={"segments": list(segments)})
    case["protocol"] = {"input_requires_grad": "embedding" not in str(layers), **protocol}
    return {**case, "options": {"mode": mode, "between": between}}


def records(subject, case, **plain_run):
    """The records of the plain run and the checkpointed one."""
    both = subject.record(**run_of(case), **plain_run), subject.record(checkpointed=True)
    assert "error" not in both[0] and "error" not in both[1], [r.get("error") for r in both]
    return both


def told(record):
    """Kind, phase, unit and bytes of each in short."""
    return " ".join(
        f"{c['kind'][:2]}{c['phase'][0]}{c['unit']}" + (f".{c['bytes']}" if "bytes" in c else "")
        for c in record.get("collectives", [])
    )


def differing(both):
    """Quantities of which the checkpointed run has other bits than the plain run."""
    found = observed(both[1]).values()
    return {o["quantity"] for o in found if o.get("present", True) and not o.get("as")}


# Two rows of four or five features, by four bytes; five are padded to six.
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
    ],
)
@pytest.mark.parametrize("between", OPTIONS["tp"]["between"])
def test_a_recomputation_sends_what_the_forward_sent(tp, layers, mode, expected, between):
    plain, checkpointed = records(tp, of(layers, mode, segment(0, len(layers)), between=between))
    assert told(checkpointed) == expected
    assert told(plain) == " ".join(word for word in expected.split() if word[2] != "r")
    assert differing((plain, checkpointed)) == set()


# Two sequences of four rows, of which each rank has two.
@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (
            [FOUR, "layer_norm", "tanh", SIX, "relu", FOUR, "rms_norm", "softmax", FOUR, "tanh"],
            "ref1.128 raf1 raf2 gaf3.128 raf3 ref4.128 raf4 raf5 gaf6.128 gaf6.128 raf6 "
            "rer1.128 rar1 rar2 gar3.128 rar3 rer4.128 rar4 rar5 gar6.128 gar6.128 rar6 "
            "reb6.128 gab4.128 reb3.128 gab1.128 gab1.128",
        ),
        # What is whole is cut without sending, and its gradient is put together.
        (["rms_norm", FOUR, "softmax"], "raf1 gaf2.128 gaf2.128 raf2 rar1 gar2.128 gar2.128 rar2 reb2.128 gab1.128"),
        # Early stop ends the recomputation between both of what it sends.
        (["rms_norm", FOUR], "raf1 gaf2.128 gaf2.128 raf2 rar1 gar2.128 str2 reb2.128 gab1.128"),
        ([FOUR, "layer_norm", "softmax"], "ref1.128 raf1 gaf2.128 raf2 rer1.128 rar1 gar2.128 rar2 gab1.128 gab1.128"),
        ([FOUR, "tanh", "dropout"], "gaf1.128 raf1 gar1.128 rar1 reb1.128"),
    ],
)
@pytest.mark.parametrize("between", OPTIONS["tp"]["between"])
def test_between_layers_that_are_split_norms_have_some_rows_of_each_sequence(tp, layers, expected, between):
    both = records(tp, of(layers, "sequence", segment(0, len(layers)), input=(2, 4, 4), between=between))
    assert told(both[1]) == expected
    assert told(both[0]) == " ".join(word for word in expected.split() if word[2] != "r")
    assert differing(both) == set()


def test_rows_that_ranks_cannot_share_equally_are_dtensors_or_whole(tp):
    case = of([WORDS, "layer_norm", "tanh"], "sequence", segment(0, 3), input=(2, 3), between="shards")
    # Three rows are padded to four.
    assert told(records(tp, case)[0]) == "ref1.128 raf1 gaf2.128 raf2 gab1.128"
    case["options"]["between"] = "tensors"
    assert told(records(tp, case)[0]) == "gaf1.96 raf1"


def test_a_frozen_norm_stays_frozen_where_ranks_share_rows(tp):
    layers = [FOUR, {"kind": "layer_norm", "frozen": True}, FOUR]
    both = records(tp, of(layers, "sequence", segment(0, 3), steps=2))
    assert differing(both) == set()
    assert observed(both[0])["parameter_gradient", 0, 0, 2]["present"] is False


def test_an_embedding_is_split_too_and_a_weight_that_it_lends_in_one_way(tp):
    layers = [WORDS, {"kind": "linear", "features": 6, "bias": False, "tied_to": 0}, "tanh"]
    for mode, first, second in (("columns", "gaf1.64 raf1", "ref2.96 raf2"), ("rows", "ref1.64 raf1", "gaf2.96 raf2")):
        both = records(tp, of(layers, mode, segment(0, 3), input=(2, 2)))
        assert told(both[0]).startswith(f"{first} {second}") and differing(both) == set()


@pytest.mark.parametrize("variant", ["non_reentrant", "reentrant"])
@pytest.mark.parametrize("mode", MODES["tp"])
def test_segments_may_begin_and_end_between_the_layers_of_a_pair(tp, variant, mode):
    protocol = {"steps": 2, "microbatches": 2, "optimizer": "adam"}
    segments = segment(0, 1, variant), segment(1, 3, variant), segment(3, 5, variant, nested=[segment(4, 5, variant)])
    # Reentrant segments add up the gradient of a weight that they share in another order.
    last = TIED if variant == "non_reentrant" else FOUR
    for between in ("tensors", "shards"):
        case = of([FOUR, "tanh", FOUR, "dropout", last], mode, *segments, between=between, **protocol)
        assert differing(records(tp, case)) == set()


@pytest.mark.parametrize("mode", MODES["tp"])
def test_what_ranks_show_together_is_what_one_process_shows(tp, torch_subject, mode):
    # Sums of small integers are exact in every order.
    case = of([FOUR, "relu", FOUR], mode, segment(0, 2), data="small_integers", learning_rate=2**-4, reevaluate=True)
    case["data"] = case["protocol"].pop("data")
    run = run_of(case)
    run["arrays"]["targets"] = [encode(np.ones((2, 4), np.float32))]
    assert_same_arrays(tp.record(**run), torch_subject.record(**run))


def test_a_policy_keeps_what_was_sent(tp):
    kept = segment(0, 2, keep=[{"op": "linear"}])
    for mode in ("columns", "rows"):
        both = records(tp, of([FOUR, "tanh"], mode, kept))
        assert " rar1" in told(both[1]) and "gar" not in told(both[1]) and "rer" not in told(both[1])
        assert differing(both) == set()


def test_a_layer_that_a_reentrant_segment_freezes_takes_part_as_a_constant(tp):
    case = of([FOUR, "tanh", FOUR], "pairs", segment(0, 3, "reentrant"), input_requires_grad=False)
    both = records(tp, case, detached_layers=[0, 2])
    assert differing(both) == set()
    assert observed(both[0])["parameter_gradient", 0, 0, 0]["present"] is False


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


def told_with(trouble, case, kind="tp", *arguments):
    """As told(), or the error, of the checkpointed run, in a process that has the trouble from its start."""
    with planted(trouble, kind, *arguments) as subject:
        subject.record(**run_of(case))
        record = subject.record(checkpointed=True)
        return record["error"]["message"] if "error" in record else told(record)


def test_a_planted_gap_in_the_sums_of_a_recomputation_is_noted():
    # No gradient depends on what the recomputation makes last.
    found = told_with("unsummed", of([FOUR], "rows", segment(0, 1, early_stop=False)))
    assert found == "ref1.32 raf1 rar1 gab1.32"


def test_a_planted_second_gather_of_a_recomputation_is_noted():
    found = told_with("twice", of([FOUR, "tanh"], "columns", segment(0, 2)))
    assert found == "gaf1.32 raf1 gar1.32 gar1.32 rar1 reb1.32"


def test_a_planted_gather_of_rows_in_a_recomputation_is_noted():
    found = told_with("regathered", of([FOUR, "layer_norm", FOUR, "tanh"], "sequence", segment(0, 4)))
    assert "raf1 raf2 gaf3" in found and "rar1 gar2.32 rar2 gar3.32" in found


def test_a_planted_gap_in_the_backward_is_noted():
    found = told_with("one_sided", of([FOUR, "tanh"], "columns", segment(0, 2)))
    assert "input_gradient 0, step 0" in found or found == "gaf1.32 raf1 gar1.32 rar1"


def test_a_hang_names_the_collective_the_unit_and_the_segment():
    found = told_with("alone", of([FOUR, "tanh"], "rows", segment(0, 2)), "tp", "--rank-limit", "6")
    where = "in the recomputation of step 0, microbatch 0, in or after layers 0 to 1"
    assert f"rank 0 calls all_reduce of unit 1 (layers 0 to 0) {where}; rank 1 calls all_gather" in found
