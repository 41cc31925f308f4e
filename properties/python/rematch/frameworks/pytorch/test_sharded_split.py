"""Layers that two ranks split, within units whose parameters and rows two others share: what is sent for both."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from cases import assert_same_arrays, run_of, segment

pytest.importorskip("torch")
if sys.platform != "linux":
    pytest.skip("ranks are copies of a process", allow_module_level=True)

from rematch.frameworks.pytorch.setup import OPTIONS  # noqa: E402
from rematch.frameworks.pytorch.test_tensor_parallel import (  # noqa: E402
    FIVE,
    FOUR,
    TIED,
    WORDS,
    differing,
    of,
    records,
    told,
    told_with,
)
from rematch.subjects.arrays import encode  # noqa: E402

OF_BOTH = OPTIONS["fsdp2_tp"]


def both(layers, *segments, mode="checkpoint within", input=(4, 4), protocol=None, **options):
    case = of(layers, mode, *segments, input=input, **(protocol or {}))
    return {**case, "options": {"mode": mode, "rows": "shared", **options}}


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
@pytest.mark.parametrize("between", OF_BOTH["between"])
@pytest.mark.parametrize("mode", OF_BOTH["mode"])
def test_units_are_gathered_and_split_layers_send_in_a_recomputation(fsdp2_tp, mode, split, expected, between):
    case = both([FOUR, "tanh", FOUR, "tanh"], segment(0, 4), split=split, mode=mode, between=between)
    plain, checkpointed = records(fsdp2_tp, case)
    assert told(checkpointed) == expected
    assert told(plain) == " ".join(word for word in expected.split() if word[2] != "r")
    assert differing((plain, checkpointed)) == set()


# A norm's weight of four, and its bias, are added up by the ranks that have its rows, in each backward that reduces.
@pytest.mark.parametrize("between", OF_BOTH["between"])
def test_gradients_of_norms_on_some_rows_are_added_up_ahead_of_their_reduction(fsdp2_tp, between):
    layers = [FOUR, "layer_norm", "tanh", FOUR, "relu", FOUR, "tanh"]
    protocol = {"microbatches": 2, "prior_gradients": True}
    case = both(
        layers, segment(0, 7), input=(4, 4, 4), protocol=protocol, split="sequence", between=between, no_sync="yes"
    )
    runs = records(fsdp2_tp, case)
    forward = "gaf1.168 ref2.128 raf2 raf3 gaf4.128 raf4 ref5.128 raf5 gab1.168 "
    again = forward.replace("f", "r").replace("gar1.168 ", "", 1).replace("gab1.168 ", "")
    backward = "reb4.128 gab2.128 gab2.128"
    assert told(runs[1]) == f"{forward}{again}{backward} {forward}{again}{backward} reb1.16 reb1.16 reb1.168"
    assert [s.get("added") for s in runs[1]["shards"]] == [None, None, 16, 16, None, None, None, None]
    assert differing(runs) == set()


def test_rows_that_two_batches_have_not_alike_are_no_sequence(fsdp2_tp):
    for rows in (8, 7, 2):
        case = both([FOUR, "layer_norm"], segment(0, 2), input=(rows, 4), split="sequence", units="segments")
        runs = records(fsdp2_tp, case)
        assert sum("gathers_gradient" in unit for unit in runs[0]["units"]) == (rows == 8)
        assert differing(runs) == set()


@pytest.mark.parametrize("variant", ["non_reentrant", "reentrant"])
@pytest.mark.parametrize("units", OF_BOTH["units"])
@pytest.mark.parametrize("split", OF_BOTH["split"])
def test_a_checkpointed_run_has_the_bits_of_the_plain_one(fsdp2_tp, split, units, variant):
    protocol = {"steps": 2, "microbatches": 2, "optimizer": "adam", "prior_gradients": True}
    segments = segment(0, 2, variant), segment(2, 5, variant, nested=[segment(3, 5, variant)])
    for mode, rows, reshard in (("checkpoint within", 4, "never"), ("checkpoint around", 5, "in turns")):
        case = both(
            [FOUR, "tanh", FOUR, "layer_norm", FOUR],
            *segments,
            mode=mode,
            input=(rows, 4),
            protocol=protocol,
            split=split,
            units=units,
            reshard=reshard,
            no_sync="yes",
        )
        assert differing(records(fsdp2_tp, case)) == set()


@pytest.mark.parametrize("split", OF_BOTH["split"])
def test_what_ranks_show_together_is_what_one_process_shows(fsdp2_tp, torch_subject, split):
    # Sums of small integers are exact in every order.
    protocol = {"learning_rate": 2**-4, "reevaluate": True}
    case = both([FOUR, "relu", FOUR], segment(0, 2), protocol=protocol, split=split)
    case["data"] = "small_integers"
    run = run_of(case)
    run["arrays"]["targets"] = [encode(np.ones((4, 4), np.float32))]
    assert_same_arrays(fsdp2_tp.record(**run), torch_subject.record(**run))


@pytest.mark.parametrize("layers", [[FIVE], [FOUR, "tanh", TIED]], ids=["unequal parts", "of two layers"])
def test_weights_that_cannot_be_sharded_twice_are_whole_for_ranks_that_split(fsdp2_tp, layers):
    plain, _ = records(fsdp2_tp, both(layers, segment(0, 1), split="columns"))
    assert len(plain["units"]) == 2


def test_an_embedding_is_split_and_sharded(fsdp2_tp):
    for split in ("columns", "rows"):
        case = both([WORDS, "tanh"], segment(0, 2), split=split, input=(2, 2))
        got = records(fsdp2_tp, case)
        assert "f2." in told(got[0]) and differing(got) == set()


def test_planted_troubles_of_either_dimension_are_noted():
    within = both([FOUR, "tanh"], segment(0, 2), split="columns", mode="checkpoint around")
    doubled = told_with("double", within, "fsdp2_tp")
    assert doubled.count("gar1.40") == 1 and "gab1.40" in doubled
    assert told_with("twice", within, "fsdp2_tp").count("gar2.32") == 2
    waits = both([FOUR, "tanh"], segment(0, 2), split="columns", no_sync="yes", protocol={"microbatches": 2})
    # Half of the weight, and of its bias.
    assert "keb1.40" in told_with("kept", waits, "fsdp2_tp")
    case = both([FOUR, "layer_norm", FOUR], segment(0, 3), input=(4, 4, 4), split="sequence")
    assert told_with("unadded", case, "fsdp2_tp").startswith("parameter_gradient 2, step 0, microbatch 0: rank 0 has ")
