"""Compiled PyTorch as subjects: what is judged is compiled, and is recomputed."""

import sys
from contextlib import ExitStack
from functools import cache

import cases
import pytest
from cases import TRAINABLE, chain, plan, run_of, segment
from harness import Harness

AVERAGE = {"kind": "custom", "layer": "moving_average_in_place: N C -> N C; state"}


MODEL = chain("linear", "dropout", "tanh", "linear", plan=plan(segment(0, 3)), protocol=TRAINABLE)

NARROW = {"kind": "linear", "features": 4}
RAGGED = chain("linear", NARROW, "stochastic_depth", "linear", plan=plan(segment(0, 1), segment(1, 2)))


@pytest.fixture(scope="module")
def compiled():
    """Starts a subject by the words after `pytorch`, once for all tests."""

    def begin(words="--compile aot_eager"):
        return running.enter_context(Harness(sys.executable, "-m", "rematch", "pytorch", *words.split()))

    with ExitStack() as running:
        yield cache(begin)


def differing(subject, case):
    """Quantities of which the checkpointed run has other bits than the plain run."""
    plain, checkpointed = subject.agreed(case)
    differs = cases.differing(checkpointed)
    return differs | ({"random state"} if plain["streams"] != checkpointed["streams"] else set())


@pytest.mark.parametrize(
    "case",
    [
        MODEL,
        chain("dropout", "tanh", "dropout", plan=plan(segment(0, 3)), protocol=TRAINABLE),
        chain("linear", "batch_norm", "tanh", plan=plan(segment(0, 3)), protocol={"steps": 2}),
        chain("linear", "tanh", plan=plan(segment(0, 2)), protocol={"autocast": "both"}),
        chain("tanh", "linear", plan=plan(segment(0, 2, nested=[segment(1, 2)]))),
        chain("linear", "tanh", "dropout", plan=plan(segment(0, 3, keep=[{"op": "dropout"}]))),
        {**MODEL, "options": {"graphs": "several"}},
        {**MODEL, "options": {"graphs": "several, and within segments", "inference": "no_grad"}},
        # Linear layers of two shapes around what would break a graph: compiled code of one must not run for the other.
        {**RAGGED, "options": {"graphs": "several"}},
        {**MODEL, "options": {"policy": "every second product", "inference": "inference_mode"}},
        {**MODEL, "options": {"policy": "everything"}},
        {**MODEL, "options": {"shapes": "symbols"}},
        {**MODEL, "options": {"hooks": "on outputs of segments"}},
    ],
    ids=lambda case: "-".join([*(layer["kind"] for layer in case["layers"]), *case.get("options", {})]),
)
def test_a_checkpointed_run_within_a_compiled_function_has_the_bits_of_the_plain_one(compiled, case):
    assert differing(compiled(), case) == set()


def test_running_statistics_are_updated_once_in_a_graph_and_twice_around_one(compiled):
    case = chain("linear", "batch_norm", "tanh", plan=plan(segment(0, 3)))
    assert differing(compiled(), case) == set()
    assert differing(compiled("--compile aot_eager --around"), case) == {"buffer"}


def test_a_segment_that_reads_state_that_it_wrote_has_another_gradient(compiled):
    case = chain(AVERAGE, "tanh", plan=plan(segment(0, 2)), protocol=TRAINABLE)
    assert differing(compiled(), case) == {"input_gradient"}


def test_with_a_budget_the_backward_draws_another_mask(compiled):
    case = chain("dropout", "tanh", "linear", input=(9, 9), protocol=TRAINABLE)
    found = differing(compiled("--compile aot_eager --budget 0"), case)
    assert {"input_gradient", "random state"} <= found


def saved_after_forward(records):
    return [next(b["saved"] for b in r["bytes"] if b["moment"] == "after_forward") for r in records]


def test_the_random_state_in_a_graph_is_no_saved_tensor(compiled):
    records = compiled().both(run_of(chain("dropout", input=(2, 3), plan=plan(segment(0, 1)), protocol=TRAINABLE)))
    plain, checkpointed = saved_after_forward(records)
    # The input of the segment is six floats.
    assert checkpointed <= plain + 24


def test_a_lower_budget_saves_fewer_bytes(compiled):
    case = chain("relu", "layer_norm", "linear", "sigmoid", "linear", "relu", input=(9, 8), protocol=TRAINABLE)

    def saved(budget):
        subject = compiled("--compile aot_eager --budget 0")
        return saved_after_forward(subject.both(run_of({**case, "options": {"budget": budget}})))

    plain, all_kept = saved("1")
    assert plain == all_kept
    some, none = saved("0.5")[1], saved("0")[1]
    assert none < some < plain


def test_a_case_of_a_known_structure_has_its_own_numbers(compiled):
    records = [compiled().record(**run_of({**MODEL, "seed": seed})) for seed in (1, 2)]
    with Harness(sys.executable, "-m", "rematch", "pytorch", "--compile", "aot_eager") as fresh:
        assert fresh.record(**run_of({**MODEL, "seed": 2})) == records[1] != records[0]


PROGRAM = """
import sys
from torch import SymInt
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from rematch import serve
from rematch.frameworks.pytorch.compiled import CompiledSubject, Compilation

def told(name):
    def compile(graph, inputs):
        ops = [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]
        print(name, *ops, *("symbol" for i in inputs if isinstance(i, SymInt)), file=sys.stderr)
        return make_boxed_func(graph.forward)
    return compile

partition = min_cut_rematerialization_partition
backend = aot_autograd(fw_compiler=told("forward"), bw_compiler=told("backward"),
                       partition_fn=partition)
serve(CompiledSubject(Compilation(backend)))
"""


def test_a_model_is_compiled_once_and_its_backward_recomputes_what_the_segment_drops(start_python):
    subject = start_python(PROGRAM)
    for seed in (1, 2):
        more = {"steps": seed, "microbatches": seed, "optimizer": ("sgd", "adam")[seed - 1]}
        given = {**MODEL, "seed": seed, "protocol": {**MODEL.get("protocol", {}), **more}}
        subject.record(**run_of(given), checkpointed=True)
    _, _, printed = subject.close()
    graphs = [line.split() for line in printed.splitlines() if line.startswith(("forw", "backw"))]
    assert [name for name, *_ in graphs] == ["forward", "backward"]
    assert {"aten.tanh.default", "run_with_rng_state"} <= set(graphs[1])


def test_what_is_compiled_under_autocast_does_not_run_without_it(compiled):
    reentrant = segment(1, 2, variant="reentrant")
    protocol = {"train": False, "autocast": "forward"}
    case = chain("relu", "linear", plan=plan(reentrant), protocol=protocol)
    checkpointed = compiled("--compile aot_eager --around").record(
        **run_of({**case, "options": {"inference": "no_grad"}}), checkpointed=True
    )
    assert checkpointed["promises"] == [{"name": "partition"}, {"name": "inference"}]


@pytest.mark.parametrize("options", [{}, {"shapes": "symbols"}])
def test_sizes_are_symbols_where_a_case_says_so_whatever_was_compiled_before(start_python, options):
    subject = start_python(PROGRAM)
    for rows in (3, 5, 7):
        subject.record(**run_of({**MODEL, "input": [rows, 4], "options": options}))
    _, _, printed = subject.close()
    forwards = [line for line in printed.splitlines() if line.startswith("forward")]
    assert ["symbol" in line for line in forwards] == [bool(options)] * 3


@pytest.mark.parametrize(
    ("graphs", "plain", "checkpointed"), [("one", 1, 1), ("several", 2, 2), ("several, and within segments", 3, 1)]
)
def test_graph_breaks_are_the_same_in_both_runs_and_a_checkpoint_around_one_runs_eagerly(
    start_python, graphs, plain, checkpointed
):
    options = {} if graphs == "one" else {"graphs": graphs}
    for whether, expected in ((False, plain), (True, checkpointed)):
        subject = start_python(PROGRAM)
        assert "error" not in subject.record(**run_of({**MODEL, "options": options}), checkpointed=whether)
        _, _, printed = subject.close()
        assert sum(line.startswith("forward") for line in printed.splitlines()) == expected


def test_no_segment_of_inductor_has_breaks_within_as_it_would_run_eagerly_and_round_otherwise():
    from rematch.frameworks.pytorch.compiled import BROKEN, GRAPHS, Compilation, CompiledSubject

    assert BROKEN in CompiledSubject(Compilation()).options[GRAPHS]
    assert BROKEN not in CompiledSubject(Compilation("inductor")).options[GRAPHS]


def marked(node):
    return node.meta.get("recompute") is not None


WRONG = {
    "nothing": ("", {}),
    "saves": ("aten.tanh.default (layer unknown), which only its region uses", {"must_recompute": lambda node: False}),
    "recomputes": ("aten.mm.default (layer unknown), which must be saved", {"must_recompute": marked}),
    "borders": ("aten.relu.default (layer unknown), the input", {"cleanup_recompute_tags": lambda joint, **_: joint}),
    "draws": ("aten.native_dropout.default (layer unknown), a draw", {"functionalize_rng_ops": lambda _, *on: on[:2]}),
}


@pytest.mark.parametrize(
    ("backend", "name"), [*(("aot_eager", name) for name in WRONG), ("inductor", "nothing"), ("inductor", "borders")]
)
def test_what_a_graph_saves_and_computes_again_is_what_its_checkpoints_say(monkeypatch, backend, name):
    import torch
    from torch._functorch import partitioners
    from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

    from rematch.frameworks.pytorch.compiled import Compilation, CompiledSubject

    CompiledSubject(Compilation(backend))
    told, wrong = WRONG[name]
    for replaced, function in wrong.items():
        monkeypatch.setattr(partitioners, replaced, function)
    keeps = lambda: create_selective_checkpoint_contexts([torch.ops.aten.mm.default])  # noqa: E731
    first = lambda x: torch.relu(x @ x)  # noqa: E731
    second = lambda x: torch.nn.functional.dropout(torch.tanh(x).sin())  # noqa: E731

    def run(x):
        return (checkpoint(second, checkpoint(first, x, use_reentrant=False, context_fn=keeps), use_reentrant=False),)

    seen = []
    Compilation(backend).compile(run, True, True, False, seen)(torch.ones(3, 3, requires_grad=True))
    assert len(seen) == 1 and seen[0].startswith(told) and bool(seen[0]) == bool(told)


@pytest.mark.parametrize("kept", [True, False])
def test_what_a_region_returns_with_a_hook_on_it_is_not_computed_again(monkeypatch, kept):
    import torch
    from torch._dynamo import compiled_autograd
    from torch._functorch import partitioners

    from rematch.frameworks.pytorch.compiled import Compilation, CompiledSubject

    CompiledSubject(Compilation())
    if not kept:
        monkeypatch.setattr(partitioners, "cleanup_recompute_tags", lambda joint, **_: joint)

    def segment(x):
        output = x @ x
        output.register_hook(lambda gradient: gradient)
        return output

    seen, run = [], lambda x: (torch.sin(torch.utils.checkpoint.checkpoint(segment, x, use_reentrant=False)),)
    with compiled_autograd._enable(lambda graph: graph):
        Compilation().compile(run, True, True, False, seen)(torch.ones(3, 3, requires_grad=True))
    assert ["hooked" in wrong for wrong in seen] == [not kept]


@pytest.mark.parametrize("preserved", [True, False])
def test_masks_that_a_backward_draws_anew_are_told(monkeypatch, preserved):
    import torch

    from rematch.frameworks.pytorch import compiled_draws

    def checkpoint(run, **options):
        options = {"use_reentrant": False, "preserve_rng_state": preserved, **options}
        return lambda x: torch.utils.checkpoint.checkpoint(run, x, **options)

    monkeypatch.setattr(torch, "compile", lambda run, **_: run)
    for promise in compiled_draws.PROMISES:
        assert promise(checkpoint) == ([True], [preserved]), promise.__name__
