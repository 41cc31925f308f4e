"""Scripts of models whose layers are split among ranks, run by an interpreter with PyTorch alone."""

import re
from itertools import product

import pytest
from cases import segment

from rematch.frameworks.pytorch.setup import MODES, OPTIONS
from rematch.frameworks.pytorch.test_collectives import FIVE, FOUR, TIED, WORDS, both, of
from rematch.frameworks.pytorch.test_export import agrees, finding
from rematch.frameworks.pytorch.test_export_parallel import ATTENTION, shown, why

MANY = {"steps": 2, "microbatches": 2, "optimizer": "adam", "prior_gradients": True}


@pytest.mark.parametrize("between", OPTIONS["tp"]["between"])
@pytest.mark.parametrize("mode", MODES["tp"])
def test_a_script_splits_as_the_case_does(tp, mode, between):
    case = of([FOUR, "tanh", FIVE, "softmax"], mode, segment(0, 4), between=between)
    script = agrees(tp, case)
    assert "v0 = linear0(x)" in script and "v2 = linear2(v1)" in script
    in_pairs = {"tensors": "ColwiseParallel(), ", "shards": "ColwiseParallel(use_local_output=False), "}
    split = {"pairs": in_pairs[between], "rows": "RowwiseParallel(", "sequence": "RowwiseParallel("}
    split = split.get(mode, "ColwiseParallel(output_layouts=")
    assert f"parallelize_module(linear0, mesh, {split}" in script


@pytest.mark.parametrize("variant", ["non_reentrant", "reentrant"])
def test_steps_nested_segments_and_tied_weights_are_those_of_the_case(tp, variant):
    last = TIED if variant == "non_reentrant" else FOUR
    segments = segment(0, 1, variant), segment(1, 3, variant), segment(3, 5, variant, nested=[segment(4, 5, variant)])
    script = agrees(tp, of([FOUR, "tanh", FOUR, "dropout", last], "pairs", *segments, **MANY))
    assert ("linear4.weight = linear0.weight" in script) == (variant == "non_reentrant")
    lent = {"kind": "linear", "features": 6, "bias": False, "tied_to": 0}
    case = of([WORDS, lent, "tanh"], "columns", segment(0, 3), input=(2, 2), **MANY)
    assert "linear1.weight = embedding0.weight" in agrees(tp, case)


def test_norms_of_a_script_have_some_rows_of_each_sequence_and_stay_frozen(tp):
    frozen = {"kind": "layer_norm", "frozen": True}
    case = of([frozen, FOUR, "tanh", FOUR, "rms_norm", FOUR], "sequence", segment(0, 6), input=(2, 4, 4), **MANY)
    script = agrees(tp, case)
    assert "parallelize_module(layer_norm0, mesh, SequenceParallel(" in script
    assert "layer_norm0.requires_grad_(False)" in script and "rms_norm4.requires_grad_" not in script


def test_what_a_reentrant_segment_freezes_is_a_constant_of_the_plain_run(tp):
    case = of([FOUR, "tanh", FOUR], "pairs", segment(0, 3, "reentrant"), input_requires_grad=False)
    script = agrees(tp, case, detached_layers=[0, 2])
    assert "linear0(x) if checkpointed else functional_call(linear0, " in script


def test_modules_of_the_subject_s_own_stay_whole(tp):
    case = of([FOUR, ATTENTION], "rows", segment(0, 2), **MANY)
    assert "parallelize_module(m1" not in agrees(tp, case)


def test_a_difference_of_the_case_is_one_of_the_script_on_each_rank(tp):
    case = of([FOUR, "batch_norm", "tanh"], "columns", segment(0, 3))
    script, _, last = shown(tp, case, finding("buffers-after-step", "1", "2"))
    assert "running_mean_1 of rank 0" in last and "running_mean_1 of rank 1" in last
    assert "rematch" not in script
    assert len(re.findall(r"^ *[^#\s]", script, re.MULTILINE)) <= 80


def test_what_ranks_send_shows_in_no_results(tp):
    case = of([FOUR, "tanh"], "columns", segment(0, 2))
    assert "what collectives compares does not show" in why(tp, case, finding("collectives", "1", "2"))
    assert "no script was found" in why(tp, case, finding("parameter-gradients", "1", "2"))


WAYS = [
    ("checkpoint within", 4, {"reshard": "never"}),
    ("checkpoint around", 5, {"reshard": "in turns"}),
    ("checkpoint within", 5, {"reshard": "always", "rows": "whole"}),
]


# Each script runs for seconds: every split of every kind of units has one of the ways, in turns.
@pytest.mark.parametrize(
    ("split", "units", "way"),
    [
        (*of_units, WAYS[(turn + turn // 3) % 3])
        for turn, of_units in enumerate(product(OPTIONS["fsdp2_tp"]["split"], OPTIONS["fsdp2_tp"]["units"]))
    ],
)
def test_a_script_shards_what_it_splits(fsdp2_tp, split, units, way):
    layers, segments = [FOUR, "tanh", FOUR, "layer_norm", FIVE], (segment(0, 3), segment(3, 5))
    mode, count, rest = way
    options = {"protocol": MANY, "split": split, "units": units, **rest}
    script = agrees(fsdp2_tp, both(layers, *segments, mode=mode, input=(count, 4), **options))
    place = "segment0" if units == "segments" else "layer0"
    assert f"{place}.linear0 = linear0" in script and 'parallelize_module(linear0, mesh["layers"], ' in script
    assert 'fully_shard(unit, mesh=mesh["rows"], ' in script and "parallelize_module(linear4" not in script
    assert ("SequenceParallel(" in script) == (split == "sequence" and count == 4)
    assert ("def rows(" in script) == ("rows" not in rest)
