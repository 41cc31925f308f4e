"""PyTorch's data parallelism as subjects: ranks show together what one process shows, and what goes
wrong between them is told, also where nobody answers."""

import os
import signal
import sys
import time
from itertools import product

import numpy as np
import pytest
from cases import TRAINABLE, assert_same_arrays, chain, differing, observed, plan, run_of, segment
from harness import Harness
from torch.distributed.device_mesh import DeviceMesh

from rematch.frameworks.pytorch.adapter import subject as subject_of
from rematch.frameworks.pytorch.agreement import Answer, difference, strayed
from rematch.frameworks.pytorch.arguments import FORM
from rematch.frameworks.pytorch.data_parallel import LAYERS
from rematch.frameworks.pytorch.ranks import Lost, Ranks
from rematch.frameworks.pytorch.setup import MODES, OPTIONS, setup_of
from rematch.subjects.case import case_from_json
from rematch.subjects.protocol import Unsupported
from rematch.subjects.records import decode, encode

KINDS = tuple(MODES)
VARIANTS = ("non_reentrant", "reentrant")
FOUR = {"kind": "linear", "features": 4}
TIED = {**FOUR, "tied_to": 0}
OWN = {layer.name: {"kind": "custom", "layer": layer.declaration} for layer in LAYERS}


def of(kind, case, mode, ranks=2, buckets="single"):
    """The case under that setup."""
    options = {"mode": mode, "ranks": str(ranks), "no_sync": "yes", "rows": "shared"}
    return {**case, "options": {**options, **({"buckets": buckets} if kind == "ddp" else {})}}


def error_of(subject, case):
    """The error of the checkpointed run, as one text."""
    assert "error" not in subject.record(**run_of(case))
    error = subject.record(checkpointed=True).get("error", {"kind": "none", "message": ""})
    return f"{error['kind']}: {error['message']}"


MODELS = {
    "dropout": (["linear", "tanh", "dropout", "linear"], plan(segment(0, 3))),
    "nested": (["linear", "tanh", "linear", "tanh"], plan(segment(0, 4, nested=[segment(1, 2)]))),
    "tied": ([FOUR, "tanh", {**FOUR, "features": 4}, TIED], plan(segment(2, 4))),
}


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("model", MODELS)
def test_a_checkpointed_run_on_ranks_has_the_bits_of_the_plain_one(parallel, model, ranks):
    kind, subject = parallel
    protocol = {**TRAINABLE, "steps": 2, "microbatches": 2, "optimizer": "adam", "clip": 0.1}
    layers, plan = MODELS[model]
    for mode in MODES[kind]:
        case = chain(*layers, input=(5, 4), plan=plan, protocol=protocol)
        assert differing(subject.agreed(of(kind, case, mode, ranks))[1]) == set()


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_ranks_show_together_is_what_one_process_shows(parallel, torch_subject, variant):
    kind, subject = parallel
    # Sums of small integers are exact in every order, and so are means of 16 numbers and products
    # with a sixteenth.
    case = chain(FOUR, input=(4, 4), data="small_integers", plan=plan(segment(0, 1, variant)))
    case["protocol"] = {**TRAINABLE, "microbatches": 2, "learning_rate": 2**-4, "reevaluate": True}
    mode = {"ddp": "static_graph", "fsdp2": "checkpoint around"}[kind]
    for ranks in (2, 4):
        run = run_of(of(kind, case, mode, ranks))
        run["arrays"]["targets"] = [encode(np.ones((4, 4), np.float32))] * 2
        assert_same_arrays(subject.record(**run), torch_subject.record(**run))


def test_rows_may_be_shared_unevenly(parallel, torch_subject):
    kind, subject = parallel
    case = chain(FOUR, "tanh", input=(3, 4), plan=plan(segment(0, 1)), protocol=TRAINABLE)
    run = run_of(of(kind, case, MODES[kind][0]))
    together, alone = observed(subject.record(**run)), observed(torch_subject.record(**run))
    for place, got in together.items():
        # With three rows and four features, gradients are sums of few numbers, each below 4: rounding
        # takes less than 2^-18 from them.
        np.testing.assert_allclose(decode(got), decode(alone[place]), rtol=0, atol=2**-18)


WHOLE = {
    "one row": chain(FOUR, "tanh", input=(1, 4)),
    "a state for each row": chain({"kind": "kv_cache", "kept": 2}, {**FOUR, "features": 3}, input=(2, 3, 4)),
    "rows that are normalized together": chain(FOUR, "batch_norm", {**FOUR, "features": 2}, input=(3, 4)),
}


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("model", WHOLE)
def test_a_batch_that_is_whole_on_each_rank_gives_the_bits_of_one_process(parallel, torch_subject, model, ranks):
    kind, subject = parallel
    case = of(kind, {**WHOLE[model], "protocol": TRAINABLE}, MODES[kind][0], ranks)
    case["options"]["rows"] = "whole"
    run = run_of(case)
    # A mean of equal numbers is one of them, as their number is a power of two.
    assert_same_arrays(subject.record(**run), torch_subject.record(**run))


def test_weights_that_are_gathered_are_not_counted_as_saved(fsdp2, torch_subject):
    case = chain(FOUR, "tanh", FOUR, input=(2, 4), plan=plan(segment(0, 2)), protocol=TRAINABLE)
    for options in ({}, {"units": "layers", "reshard": "never"}):
        run = run_of({**case, "options": options})
        for checkpointed in (False, True):
            readings = [s.record(**run, checkpointed=checkpointed)["bytes"] for s in (fsdp2, torch_subject)]
            shown = [[b["saved"] for b in reading if b["moment"] == "after_forward"] for reading in readings]
            assert shown[0] == shown[1] and shown[0][0] > 0


def test_cases_that_cannot_run_on_ranks_are_not_asked_for():
    features = ["one_row", "nothing_trains", "linear", "fresh_draws", "injected_failure"]
    assert subject_of(["--parallel", "ddp"]).implements(features) == ["one_row", "linear", "injected_failure"]
    asked = ["one_row", "nothing_trains", "linear", "injected_failure"]
    assert subject_of(["--parallel", "fsdp2"]).implements(features) == asked


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("failure", ["forward_throws", "recomputation_throws", "input_changed", "weight_changed"])
def test_after_a_failure_training_goes_on_as_if_there_had_been_none(parallel, variant, failure):
    kind, subject = parallel
    layers = [FOUR, "tanh", {**FOUR, "features": 3}]
    case = chain(*layers, input=(4, 4), plan=plan(segment(0, 2, variant)), protocol={**TRAINABLE, "steps": 2})
    for mode in MODES[kind]:
        if variant == "reentrant" and mode == "find_unused_parameters":
            continue  # It refuses what it finds in no graph.
        shown = []
        for inject in ({}, {"inject": failure, "inject_layer": 0}):
            run = run_of(of(kind, {**case, "protocol": case["protocol"] | inject}, mode))
            run["arrays"] |= {"trial_input": run["arrays"]["inputs"][0], "trial_target": run["arrays"]["targets"][0]}
            subject.record(**run)
            record = subject.record(checkpointed=True)
            assert "error" not in record, record["error"]
            shown.append(observed(record))
        assert shown[0] == shown[1]


def test_the_options_of_a_case_are_every_way_to_run_it(parallel):
    kind, subject = parallel
    told = {name: tuple(values) for name, values in subject.hello()["options"].items() if name != FORM}
    assert told == OPTIONS[kind]
    case = chain("tanh", input=(4, 2))
    chosen = [dict(zip(OPTIONS[kind], values, strict=True)) for values in product(*OPTIONS[kind].values())]
    setups = {setup_of(kind, case_from_json({**case, "options": options})) for options in chosen}
    # Buckets are shared on two ranks alone, nothing is low without a layer of the subject's own, and of two ranks two
    # are all.
    places = {"ddp": 3 * 2, "fsdp2": 2 * len(OPTIONS["fsdp2"]["reshard"]) - 1}
    ways = {"ddp": 1, "fsdp2": len(OPTIONS["fsdp2"]["units"]) * len(OPTIONS["fsdp2"]["prefetch"])}
    assert len(setups) == len(MODES[kind]) * 2 * 2 * places[kind] * ways[kind]
    assert setup_of(kind, case_from_json(case)).mode == MODES[kind][0]


def test_a_rank_has_rows_of_its_own_only_where_there_is_more_than_one():
    for rows, layer in ((1, FOUR), (4, {"kind": "kv_cache", "kept": 2})):
        case = chain(layer, input=(rows, 3, 4))
        assert setup_of("ddp", case_from_json({**case, "options": {"rows": "shared"}})).whole
    assert not setup_of("ddp", case_from_json({**chain("tanh", input=(2, 2)), "options": {"rows": "shared"}})).whole


TWICE = chain(FOUR, "tanh", TIED, input=(4, 4), protocol=TRAINABLE)
TWICE["plan"] = plan(segment(0, 2, "reentrant"), segment(2, 3, "reentrant"))
READY_TWICE = of("ddp", {**TWICE, "plan": plan(segment(0, 3, "reentrant"))}, "find_unused_parameters")


def test_a_weight_that_reentrant_segments_share_is_marked_ready_twice_unless_the_graph_is_static(ddp):
    text = error_of(ddp, READY_TWICE)
    assert "RuntimeError: Expected to mark a variable ready only once" in text
    assert differing(ddp.agreed(of("ddp", TWICE, "static_graph"))[1]) == set()


def test_a_layer_that_reentrant_segments_share_is_reduced_too_early_silently(ddp):
    text = error_of(ddp, of("ddp", TWICE, "default", buckets="shared"))
    assert text.startswith("RanksDiffer: parameter_gradient 0")
    assert "rank 0 has" in text and "rank 1 has" in text


def test_where_a_parameter_has_no_gradient_ddp_is_told_to_look_for_it(ddp):
    frozen = chain(FOUR, "tanh", FOUR, input=(4, 4), plan=plan(segment(0, 1, "reentrant")))
    for prior in (False, True):
        protocol = {"steps": 2, "prior_gradients": prior}
        case = of("ddp", {**frozen, "protocol": protocol}, "default")
        assert differing(ddp.agreed(case, detached_layers=[0])[1]) == set()


def test_a_module_that_a_reentrant_segment_freezes_takes_part_as_a_constant(parallel):
    kind, subject = parallel
    layers = [OWN["gru_cell"], "tanh", {**FOUR, "features": 3}]
    case = chain(*layers, input=(4, 4), plan=plan(segment(0, 1, "reentrant")))
    case["protocol"] = {"steps": 2, "microbatches": 2, "reevaluate": True}
    for mode in MODES[kind]:
        run = run_of(of(kind, case, mode))
        # The module returns three features.
        run["arrays"]["parameters"][1] = encode(np.ones((3, 3), np.float32))
        run["arrays"]["targets"] = [encode(np.ones((4, 3), np.float32))] * 4
        plain = observed(subject.record(**run, detached_layers=[0]))
        assert plain["parameter_gradient", 0, 0, 0]["present"] is False
        assert differing(subject.record(checkpointed=True)) == set()


def test_a_trial_that_only_one_rank_may_fail_is_not_run(parallel):
    kind, subject = parallel
    case = chain(
        FOUR, {"kind": "early_exit"}, input=(4, 4), plan=plan(segment(0, 2)), protocol={"inject": "weight_changed"}
    )
    answer = subject.ask(**run_of(of(kind, case, MODES[kind][0])))
    assert answer == {"unsupported": "a trial after which ranks may go different ways"}


def test_a_forward_without_a_backward_does_not_hide_an_update_of_shards(parallel, torch_subject):
    kind, subject = parallel
    # Nothing requires a gradient, and the prior ones, a sixteenth of which is exact, are applied.
    case = chain(FOUR, input=(4, 4), data="small_integers")
    case["protocol"] = {"prior_gradients": True, "learning_rate": 2**-4, "reevaluate": True}
    run = {**run_of(of(kind, case, MODES[kind][-1])), "detached_layers": [0]}
    together, alone = (observed(s.record(**run)) for s in (subject, torch_subject))
    place = "reevaluation", 0, 0, 0
    np.testing.assert_array_equal(decode(together[place]), decode(alone[place]))


PROGRAM = """
import os
import torch
import torch.distributed as dist
from rematch import serve
from rematch.frameworks.pytorch import data_parallel as parallel

own = []

def more(model):
    # All ranks make the groups, and one of them has one more collective in its own.
    own[:] = own or [dist.new_group([rank]) for rank in range(4)]
    if dist.get_rank() == 1:
        dist.all_reduce(torch.ones(3), group=own[1])

def raises(model):
    raise ValueError("no such row")

def on_one(fault):
    return lambda model: fault(model) if dist.get_rank() == 1 else None

FAULTS = {
    2: on_one(lambda model: model._root.no_sync()),
    3: lambda model: model._root.no_sync(),
    4: on_one(lambda model: os._exit(3)),
    5: on_one(raises),
    6: more,
    7: lambda model: model._root.no_sync(),
    9: on_one(lambda model: os._exit(3)),
    10: lambda model: raises(model) if dist.get_rank() == 1 else model._root.no_sync(),
}
real = parallel.DdpModel.microbatch

def microbatch(model, last):
    layers = len(model.request.case.layers)
    wrong = layers in FAULTS and (model.request.checkpointed or layers in (7, 9, 10))
    return (FAULTS[layers](model) if wrong else None) or real(model, last)

parallel.DdpModel.microbatch = microbatch
serve(parallel.DataParallelSubject("ddp", limit=8))
"""


@pytest.fixture(scope="module")
def faulty():
    """Ranks that go wrong in checkpointed runs, by the number of layers in which way; with seven
    layers, nine or ten in plain runs, too."""
    with Harness(sys.executable, "-c", PROGRAM) as harness:
        yield harness


@pytest.mark.parametrize(
    ("layers", "told"),
    [
        (2, ["Hang: of its ranks, 0 does not answer", "rank 0: ", "backward (run.py:"]),
        (3, ["RanksDiffer: parameter_gradient 0, step 0"]),
        (4, ["Hang: of its ranks, 1 died", "rank 0: ", "rank 1: exit status 3"]),
        (5, ["rank 0: ", "(run.py:", "rank 1: ValueError: no such row"]),
        (6, ["RanksDiffer: collectives of rank 0", "allreduce float32[3]"]),
        (7, ["RanksDiffer: parameter_gradient 0, step 0"]),
    ],
    ids=["hangs", "never reduces", "dies", "raises", "one collective more", "plain, too"],
)
def test_what_goes_wrong_between_ranks_is_told_and_the_next_case_runs(faulty, layers, told):
    def case(layers):
        layers = [FOUR, *[{"kind": "tanh"}] * (layers - 1)]
        made = chain(*layers, input=(4, 4), plan=plan(segment(0, 2)), protocol=TRAINABLE)
        return of("ddp", made, "find_unused_parameters", buckets="shared")

    text = error_of(faulty, case(layers))
    assert all(words in text for words in told), text
    assert differing(faulty.agreed(case(8))[1]) == set()
    assert faulty.record(**run_of(case(10)))["error"] == {"kind": "ValueError", "message": "no such row"}
    died = faulty.ask(**run_of(case(9)))["unsupported"]
    assert died.startswith("the plain run: of its ranks, 1 died; rank 0: ") and "rank 1: exit status 3" in died


HALVES = """
import torch
from rematch import serve
from rematch.frameworks.pytorch.data_parallel import DataParallelSubject
from torch.utils.checkpoint import checkpoint

class Half(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        return gradient / 2

def halves(function, *values, **options):
    return checkpoint(function, *(Half.apply(v) for v in values), **options)

serve(DataParallelSubject("KIND", checkpoint=halves))
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_that_breaks_a_gradient_on_every_rank_is_seen(start_python, kind):
    subject = start_python(HALVES.replace("KIND", kind))
    case = chain(FOUR, "tanh", FOUR, input=(4, 4), plan=plan(segment(2, 3)), protocol=TRAINABLE)
    found = differing(subject.agreed(of(kind, case, MODES[kind][0]))[1])
    assert found == {"input_gradient", "parameter_gradient", "parameter"}


def answer(array=(1.0, 2.0), **rest):
    made = Answer(**rest)
    given = None if array is None else np.array(array, np.float32)
    made.shown.observe("parameter_gradient", given, step=1)
    return made


def test_ranks_agree_to_the_bit_in_arrays_errors_and_the_order_of_collectives():
    assert difference([answer(), answer()]) == ""
    assert "rank 1 has [1. 3.]" in difference([answer(), answer((1.0, 3.0))])
    assert "rank 1 has none" in difference([answer(), answer(None)])
    assert difference([answer((0.0,)), answer((-0.0,))])
    assert "ValueError: no" in difference([answer(), answer(error=("ValueError", "no"))])
    orders = [answer(collectives=list(names)) for names in ("ab", "ab", "ba")]
    assert difference(orders) == "collectives of rank 0: a, b; of rank 2: b, a"


def test_ranks_agree_in_which_arrays_there_are_and_in_what_is_said_of_them():
    one_more = answer()
    one_more.shown.observe("buffer", np.zeros(1, np.float32))
    assert "buffer 0" in difference([answer(), one_more])
    assert "rank 1 has nothing" in difference([one_more, answer()])
    marked = Answer()
    marked.shown.observe("parameter_gradient", np.float32([1, 2]), step=1, requires_grad=True)
    assert "rank 1 has [1. 2.] requires_grad=True" in difference([answer(), marked])


def test_each_rank_has_the_state_of_layers_that_its_own_plain_run_has():
    def seen(*values):
        ranks = [Answer() for _ in values]
        for rank, value in zip(ranks, values, strict=True):
            rank.shown.observe("buffer", np.float32([value]))
        return ranks

    assert difference(seen(1, 2)) == "" and strayed(seen(1, 2), seen(1, 2)) == ""
    assert strayed(seen(1, 2), seen(1, 3)) == "buffer 0 of rank 1: [2.] in the plain run, [3.]"
    more = seen(1, 2)
    more[1].shown.observe("buffer", np.float32([7]), index=1)
    assert strayed(seen(1, 2), more) == "buffer 1 of rank 1: nothing in the plain run, [7.]"
    assert strayed(more, seen(1, 2)) == "buffer 1 of rank 1: [7.] in the plain run, nothing"
    # Laws judge those of the first rank.
    assert strayed(seen(1, 2), seen(3, 2)) == ""


def test_ranks_agree_in_hooks_grad_flags_units_and_what_collectives_are_of_which_unit():
    say = {
        "hooks": lambda shown: shown.hooks([1]),
        "grad_flags": lambda shown: shown.add("grad_flags", requires_grad=True),
        "units": lambda shown: shown.add("units", end=1),
        "collectives": lambda shown: shown.add("collectives", kind="gather", phase="forward", unit=0, bytes=16),
    }
    for name, says in say.items():
        other = answer()
        says(other.shown)
        assert difference([answer(), other]).startswith(f"{name}: rank 0 has None, rank 1 has ")
        assert difference([other, answer()]).startswith(f"{name}: rank 0 has ")


DRAWS_ON_RANK_1 = HALVES.replace(
    "return gradient / 2", "return gradient + (0 * torch.rand(1) if torch.distributed.get_rank() else 0)"
)


def test_a_checkpoint_that_draws_on_one_rank_only_is_seen(start_python):
    subject = start_python(DRAWS_ON_RANK_1.replace("KIND", "ddp"))
    case = chain(FOUR, "tanh", FOUR, input=(3, 4), plan=plan(segment(2, 3)), protocol=TRAINABLE)
    text = error_of(subject, of("ddp", case, MODES["ddp"][0]))
    assert text.startswith("RanksDiffer: random state of rank 1")


def test_a_rank_that_died_between_two_jobs_is_told_and_leaves_no_files(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ranks = Ranks(lambda job, rank, group: Answer(), limit=20)
    try:
        ranks.ask("job", 2, seconds=20)
        assert not list(tmp_path.iterdir())
        os.kill(ranks._processes[1].pid, signal.SIGKILL)
        ranks._processes[1].join()
        with pytest.raises(Lost, match="1 died\nrank 0: .+\nrank 1: killed by signal 9"):
            ranks.ask("job", 2, seconds=20)
        assert len(ranks.ask("job", 2, seconds=20)) == 2
    finally:
        ranks.stop()


def test_groups_that_a_run_makes_and_their_threads_end_with_it():
    def work(job, rank, group):
        threads = len(os.listdir("/proc/self/task"))
        DeviceMesh("cpu", [[0], [1]], mesh_dim_names=("a", "b"))
        return Answer(rows=threads)

    ranks = Ranks(work, limit=20)
    try:
        threads = [[answer.rows for answer in ranks.ask("job", 2, seconds=20)] for _ in range(6)]
        assert threads[-1] == threads[2]
    finally:
        ranks.stop()


def test_a_rank_that_cannot_say_where_it_is_is_told_as_well(monkeypatch):
    monkeypatch.setattr("rematch.frameworks.pytorch.ranks.GRACE", 0.5)
    ranks = Ranks(lambda job, rank, group: Answer(), limit=20)
    try:
        ranks.ask("job", 2, seconds=20)
        os.kill(ranks._processes[1].pid, signal.SIGSTOP)
        with pytest.raises(Lost, match="1 does not answer.*\nrank 0: has answered\nrank 1: does not say"):
            ranks.ask("job", 2, seconds=1)
        assert len(ranks.ask("job", 2, seconds=20)) == 2
    finally:
        ranks.stop()


def test_a_rank_that_gets_no_time_of_a_busy_machine_is_waited_for_and_then_not_judged(monkeypatch):
    def work(job, rank, group):
        began = time.process_time()
        while time.process_time() < began + 0.3:
            pass
        return Answer()

    ranks = Ranks(work, limit=20)
    try:
        # As a rank seems that waits for another one, and then as one that is ready to run, and does not.
        monkeypatch.setattr(Ranks, "_times", lambda self, rank: (0.0, 0.0))
        with pytest.raises(Lost):
            ranks.ask("job", 2, seconds=0.02)
        monkeypatch.setattr(Ranks, "_times", lambda self, rank: (0.0, time.monotonic()))
        assert len(ranks.ask("job", 2, seconds=0.02)) == 2
        ranks._limit = 0.02
        with pytest.raises(Unsupported, match="the machine was busy"):
            ranks.ask("job", 2, seconds=0.02)
    finally:
        ranks.stop()


@pytest.mark.parametrize(
    "arguments",
    [
        "--parallel ddp --layers x.py:Y",
        "--parallel ddp --no-modules",
        "--parallel ddp --observe cheap",
        "--parallel fsdp2 --wrapper fsdp",
        "--parallel ddp --compile inductor",
        "--parallel ddp --around",
        "--parallel ddp --budget 0.5",
        "--rank-limit 5",
    ],
)
def test_options_that_mean_nothing_together_are_refused(arguments):
    with pytest.raises(SystemExit):
        subject_of(arguments.split())
