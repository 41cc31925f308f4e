"""Collectives of the subjects in parallel are noted with their unit and their phase, and planted troubles show."""

from __future__ import annotations

import sys

import pytest
from cases import chain, run_of, segment
from harness import Harness, planted

pytest.importorskip("torch")
if sys.platform != "linux":
    pytest.skip("ranks are copies of a process", allow_module_level=True)

from rematch.frameworks.pytorch.data_parallel import LAYERS  # noqa: E402
from rematch.frameworks.pytorch.setup import MODES  # noqa: E402

FOUR = {"kind": "linear", "features": 4}
TIED = {**FOUR, "tied_to": 0}


def of(layers, segments, mode, **protocol):
    case = chain(*layers, input=(4, 4), plan={"segments": segments})
    case["protocol"] = {"input_requires_grad": True, **protocol}
    return {**case, "options": {"mode": mode, "no_sync": "yes"}}


def seen(subject, case, microbatch=0):
    """Kind, phase and unit of each collective of the checkpointed run."""
    subject.record(**run_of(case))
    record = subject.record(checkpointed=True)
    assert "error" not in record, record["error"]
    return [
        (c["kind"], c["phase"], c["unit"]) for c in record["collectives"] if c.get("microbatch", 0) == microbatch
    ], record


UNITS = [FOUR, "tanh", FOUR], [segment(0, 2), segment(2, 3)]
EXPECTED = [
    ("gather", "forward", 1),
    ("gather", "forward", 2),
    ("gather", "backward", 2),
    ("gather", "backward", 1),
    ("reduce", "backward", 2),
    ("reduce", "backward", 1),
]


@pytest.mark.parametrize("mode", ["checkpoint within", "checkpoint around"])
def test_each_unit_of_fsdp2_is_gathered_once_forward_and_once_backward(fsdp2, mode):
    found, record = seen(fsdp2, of(*UNITS, mode))
    assert sorted(found) == sorted(EXPECTED) and found[:4] == EXPECTED[:4]
    # A weight of four rows and a bias of four, by four bytes.
    assert [s["bytes"] for s in record["shards"]] == [64, 16, 64, 16]
    assert {c["bytes"] for c in record["collectives"]} == {80}
    assert record["units"][1] == {
        "unit": 1,
        "end": 2,
        "accumulates": True,
        **({"recomputed": True} if mode == "checkpoint around" else {}),
    }


def told(record):
    """Kind, phase, unit and microbatch of each in short."""
    return " ".join(f"{c['kind'][0]}{c['phase'][0]}{c['unit']}.{c.get('microbatch', 0)}" for c in record["collectives"])


# Layers 0 and 2 have parameters; the model itself has none.
@pytest.mark.parametrize(
    ("options", "protocol", "expected"),
    [
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
def test_what_stays_whole_waits_or_runs_again_is_gathered_as_often(fsdp2, options, protocol, expected):
    case = of(*UNITS, "checkpoint within", **protocol)
    case["options"] |= options
    plain = fsdp2.record(**run_of(case))
    checkpointed = fsdp2.record(checkpointed=True)
    assert (told(plain), told(checkpointed)) == (expected, expected)


def test_ddp_reduces_every_parameter_once_where_it_reduces(ddp):
    case = of(*UNITS, "default", microbatches=2)
    assert seen(ddp, case)[0] == []
    found, record = seen(ddp, case, microbatch=1)
    assert set(found) == {("reduce", "backward", 0)}
    assert sum(c["bytes"] for c in record["collectives"]) == 160
    assert record["units"] == [{"end": 3, "replicated": True, "stays": True, "accumulates": True}]


@pytest.mark.parametrize(("hook", "item"), [("none", 4), ("allreduce", 4), ("bf16_compress", 2)])
def test_a_hook_of_ddp_sends_each_gradient_once_in_the_width_that_it_has(ddp, hook, item):
    own = next(layer.declaration for layer in LAYERS if layer.name == "multihead_attention")
    case = of([{"kind": "custom", "layer": own}, "tanh", FOUR], [segment(0, 2), segment(2, 3)], "default")
    case["options"] |= {"hook": hook}
    found, record = seen(ddp, case)
    assert set(found) == {("reduce", "backward", 0)}
    elements = sum(s["bytes"] for s in record["shards"]) // item
    assert sum(c["bytes"] for c in record["collectives"]) == elements * item and elements == 100


def test_a_recomputation_that_prefetches_forward_gathers_a_unit_whose_backward_is_over(fsdp2):
    case = of([FOUR, "tanh", FOUR, "tanh"], [segment(0, 2), segment(2, 4)], "checkpoint within")
    case["options"] |= {"units": "layers", "prefetch": "forward"}
    found, _ = seen(fsdp2, case)
    assert [f for f in found if f[1] == "recomputation"].count(("gather", "recomputation", 2)) == 2


@pytest.mark.parametrize("mode", MODES["ddp"])
def test_ddp_reduces_nothing_where_no_parameter_gets_a_gradient_but_to_learn_a_static_graph(ddp, mode):
    record = ddp.record(**run_of(of(*UNITS, mode, microbatches=2)), detached_layers=[0, 2])
    assert "error" not in record
    learned = [{"kind": "reduce", "phase": "backward", "unit": 0, "bytes": 160}]
    assert record.get("collectives", []) == (learned if mode == "static_graph" else [])


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
        subject.hello()
        subject.record(**run_of(of(*UNITS, "checkpoint around")))
        error = subject.record(checkpointed=True)["error"]
    assert error["kind"] == "Hang"
    where = "in the backward of step 0, microbatch 0, in or after layers 0 to 1"
    reduction = f"reduce_scatter_base of unit 1 (layers 0 to 1) {where}"
    last = error["message"].splitlines()[-1]
    assert last.startswith("they part at collective ")
    assert f"rank 0 calls {reduction}; rank 1 calls none" in last, error["message"]


def seen_with(trouble, case):
    with planted(trouble, "fsdp2") as subject:
        return seen(subject, case)[0]


def test_a_planted_second_gather_of_a_recomputation_is_noted():
    found = seen_with("double", of(*UNITS, "checkpoint around"))
    assert found.count(("gather", "recomputation", 1)) == 1
    assert found.count(("gather", "backward", 1)) == 1


def test_a_planted_stray_prefetch_is_noted():
    reentrant = [segment(0, 2, "reentrant"), segment(2, 3, "reentrant")]
    found = seen_with("stray", of(UNITS[0], reentrant, "checkpoint around"))
    assert len([f for f in found if f[0] == "gather" and f[1] != "forward"]) > 2


def test_a_unit_that_is_left_gathered_by_a_planted_trouble_is_noted():
    found = seen_with("kept", of(*UNITS, "checkpoint within", microbatches=2))
    assert {("kept", "backward", 1), ("kept", "backward", 2)} <= set(found)


def test_a_planted_gap_in_reductions_of_a_shared_weight_is_noted():
    reentrant = [segment(0, 2, "reentrant"), segment(2, 3, "reentrant")]
    found = seen_with("skipped", of([FOUR, "tanh", TIED], reentrant, "checkpoint within"))
    assert ("reduce", "backward", 0) not in found
