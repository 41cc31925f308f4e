"""What a plan may choose within a block, and how it tells how long a choice takes."""

import copy
import importlib
import random
from collections import Counter
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import torch
from test_plan import is_left_as_it_was, mlp, model_of, planned, tracked
from torch import nn

from rematch.journal.operators import Operators, Reader
from rematch.plan import apply, plan_model
from rematch.plan.options import CHECKPOINTED, JOINED, STORED
from rematch.plan.policies import Ran, ladder, written
from rematch.plan.table import Group, Table
from rematch.plan.times import compare, interval


@pytest.mark.parametrize(
    "text", ["keeps", "keeps aten.nothing.default 0", "keeps aten.mm.default x", "keeps aten.mm 0", "keeps aten 1"]
)
def test_a_policy_of_no_operator_is_refused(text):
    model = mlp(2)
    with pytest.raises(ValueError, match=r"\[apply\]"):
        apply(model, {"1.0": text})
    assert is_left_as_it_was(model)


def test_a_policy_keeps_the_executions_that_it_names():
    """A block has two products; one is kept, the other one and GELU run again."""
    model, x, ran = mlp(1), torch.randn(64, 8), []

    class Ran(Reader):
        def after(self, op):
            ran.append(op.name)

    for number in (0, 1):
        ran.clear()
        with apply(model, {"1.0": f"keeps aten.addmm.default {number}"}):
            loss = model(x).sum()
            with Operators(Ran()):
                loss.backward()
        # Recomputation stops with the last tensor that the backward needs: before the second product.
        assert (ran.count("aten.addmm.default"), ran.count("aten.gelu.default")) == (1 - (number == 0), 1)


@pytest.mark.parametrize("seed", [random.randrange(1 << 32) for _ in range(5)])
def test_policies_keep_what_takes_longest_for_its_bytes_and_nothing_drawn_or_written(seed):
    draw, aten = random.Random(seed), torch.ops.aten
    kept = [aten.mm.default, aten.gelu.default, aten.mul.Tensor]
    never = [aten.relu_.default, aten.bernoulli.default, aten.t.default, aten.empty.memory_format]
    counts, ran = Counter(), []
    for op in (*kept, *draw.choices(kept + never, k=12)):
        ran.append(Ran(op, counts[op], draw.randint(1, 9), draw.random(), written=draw.random() < 0.1))
        counts[op] += 1
    allowed = [one for one in ran if one.op in kept and not one.written]
    by_value = sorted(allowed, key=lambda one: -one.seconds / one.bytes)
    total = sum(one.seconds for one in allowed)

    def fewest(share):
        """The shortest beginning of `by_value` that saves this share of the time."""
        lengths = range(1, len(by_value) + 1)
        return next(by_value[:n] for n in lengths if sum(one.seconds for one in by_value[:n]) >= share * total)

    expected = [written(fewest(0.5)), written(fewest(0.8))] if allowed else []
    assert ladder(ran) == list(dict.fromkeys(expected)), f"seed {seed}"


@pytest.mark.parametrize("seed", [random.randrange(1 << 32) for _ in range(3)])
@pytest.mark.parametrize("pairs", [7, 8, 15, 40])
def test_an_interval_holds_the_true_median_as_often_as_it_says(seed, pairs):
    """2,000 samples of a skewed distribution with the median 1: at 98 %, fewer than 1,930 has a chance below 1e-6."""
    draw = random.Random(seed)
    found = [interval([2 ** draw.gauss(0, 1) for _ in range(pairs)], 0.02) for _ in range(2000)]
    assert sum(of.low <= 0 <= of.high for of in found) >= 1930, f"seed {seed}"
    assert all(of.low <= of.middle <= of.high and of.pairs == pairs for of in found)


def test_steps_are_timed_in_turn_until_the_interval_is_narrow_or_time_is_spent():
    ran, noise = [], iter(range(1, 1000))

    def step(name, seconds):
        return lambda: ran.append(name) or seconds()

    steady, noisy = (lambda: 1.5), (lambda: float(next(noise)))
    (found,) = compare(step("plain", lambda: 1.0), [step("plan", steady)], lambda: False)
    assert (found.low, found.middle, found.high, found.pairs) == (0.5, 0.5, 0.5, 8)
    assert ran == ["plain", "plan", "plan", "plain"] * 4, "each comes first as often"
    (found,) = compare(step("plain", lambda: 1.0), [step("plan", noisy)], lambda: True)
    assert found.pairs == 1 and not found.is_sure


@pytest.mark.parametrize(
    ("checkpointed", "says"),
    [
        ("1111", 'activation_checkpoint.mode = "full"; in transformers: model.gradient_checkpointing_enable()'),
        ("0101", 'mode = "selective", selective_ac_option = "2"'),
        ("1010", "in transformers: model.activation_checkpointing_enable(every_n_layers=2)"),
        ("1000", "every_n_layers=4"),
        ("0110", ""),
        ("0000", ""),
    ],
)
def test_a_plan_that_others_can_be_told_is_written_in_their_words(checkpointed, says):
    plan = planned(mlp(4), optimizer="sgd")
    texts = ["stored", "checkpointed"]
    plan.choices = {name: texts[int(c)] for name, c in zip(plan.choices, checkpointed, strict=True)}
    written = plan.to_json()["written"]
    assert says in written and bool(says) == bool(written)


def test_what_people_do_without_a_plan_is_measured_beside_it_and_the_plan_within_its_bytes():
    blocks = [nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)) for _ in range(4)]
    plan = plan_model(nn.Sequential(*blocks), torch.randn(64, 8), seconds=0, compared=True)
    found = {one.name: one for one in plan.usual}
    assert list(found)[:4] == ["every block", "each second block", "checkpoint_sequential(2)", "products kept"]
    # The inputs of three blocks; that of the first is the batch.
    assert found["every block"].held == 3 * 64 * 8 * 4 < found["each second block"].held
    budgets = [one for one in plan.usual if one.name.startswith("activation_memory_budget")]
    assert len(budgets) == 3 and all(one.peak is None and one.planned is not None for one in budgets)
    assert sorted((one.held for one in budgets), reverse=True) == [one.held for one in budgets]
    assert "plan within the same bytes" in str(plan)
    assert [one["name"] for one in plan.to_json()["usual"]] == list(found)


def test_a_model_that_cannot_be_compiled_is_compared_without_that(monkeypatch):
    def refuses(*_, **__):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", refuses)
    plan = plan_model(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), torch.randn(2, 4), seconds=0, compared=True)
    assert [one.name for one in plan.usual] == ["every block", "products kept"]
    assert "not compared compiled: no compiler" in str(plan)


def test_the_greedy_solver_keeps_its_budget_and_an_exact_one_reaches_the_best_and_exceeds_it(monkeypatch, capsys):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "examples")
    planners = importlib.import_module("planners")
    monkeypatch.setattr(planners, "KNAPSACKS", 50)
    planners.knapsacks(random.Random(1), ("greedy_knapsack", "dp_knapsack_sliding_hirschberg"))
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows[0][:2] == ["greedy_knapsack", "0"]
    assert int(rows[1][1]) > 0 and rows[1][-1] == "100%"


def thin(count, make=nn.Sequential):
    """Blocks that keep no more than their inputs."""
    torch.manual_seed(0)
    return make(*(nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(count)))


def in_turn(self, x):
    for layer in self.layers:
        x = layer(x)
    return x


def test_neighbours_in_a_sequential_are_one_segment_where_that_takes_fewer_bytes():
    """Checkpointed one by one they keep as much as before."""
    model, x = nn.Sequential(nn.Linear(8, 16), thin(12), nn.Linear(16, 2)), torch.randn(64, 8)
    plan = planned(model, x, blocks="1.*", optimizer="adamw")
    assert JOINED in plan.choices.values() and not plan.notes and not plan.differs
    assert tracked(model, x, plan) == plan.measured == plan.promised
    assert plan.step.bytes_of(dict.fromkeys(plan.choices, CHECKPOINTED)).curve.peak >= plan.plain_peak > plan.measured
    assert is_left_as_it_was(model)
    code = {}
    exec(compile(plan.code(), "plan", "exec"), code)
    gradients = []
    for put in (lambda m: None, partial(apply, plan=plan), code["apply"]):
        changed = copy.deepcopy(model)
        put(changed)
        changed = copy.deepcopy(changed)
        changed(x).sum().backward()
        gradients.append([p.grad for p in changed.parameters()])
    assert all(torch.equal(a, b) for other in gradients[1:] for a, b in zip(gradients[0], other, strict=True))


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(8, 16), thin(12, lambda *blocks: model_of(in_turn, *blocks)), nn.Linear(16, 2)),
        nn.Sequential(nn.Linear(8, 16), *(m for b in thin(6) for m in (b, nn.Tanh())), nn.Linear(16, 2)),
    ],
    ids=["no Sequential", "no neighbours"],
)
def test_other_blocks_are_segments_of_one(model):
    names = [name for name, m in model.named_modules() if type(m) is nn.Sequential and len(m) == 2]
    assert JOINED not in planned(model, blocks=names).choices.values()
    with pytest.raises(ValueError, match="cannot be joined to"):
        apply(model, {names[0]: CHECKPOINTED, names[1]: JOINED})
    assert is_left_as_it_was(model)


def test_a_segment_runs_the_children_that_its_sequential_has_now_and_takes_its_argument_by_name():
    model, x = thin(3), torch.randn(4, 16)
    apply(model, {"0": CHECKPOINTED, "1": JOINED})
    model[0] = nn.Linear(16, 16)
    model.append(nn.Linear(16, 2))
    assert model(input=x).shape == (4, 2)
    model(x).sum().backward()
    assert model[0].weight.grad is not None


def test_blocks_with_hooks_are_segments_of_one_since_their_hooks_would_run_twice():
    model = nn.Sequential(nn.Linear(8, 16), thin(12), nn.Linear(16, 2))
    for block in model[1]:
        block.register_forward_hook(lambda *_: None)
    assert JOINED not in planned(model, blocks="1.*").choices.values()


def test_an_own_forward_and_a_second_name_are_refused():
    model = thin(3)
    model.forward = model.forward
    with pytest.raises(ValueError, match="has a forward of its own: none of its children can be joined"):
        apply(model, {"0": CHECKPOINTED, "1": JOINED})
    twice = nn.Sequential(model[0], model[0])
    with pytest.raises(ValueError, match="1 is checkpointed by a plan already"):
        apply(twice, {"0": CHECKPOINTED, "1": CHECKPOINTED})
    assert is_left_as_it_was(twice)


def test_a_segment_begins_with_a_block_that_is_checkpointed():
    for choices in ({"0": STORED, "1": JOINED}, {"1": JOINED}, {"0": CHECKPOINTED, "2": JOINED}):
        with pytest.raises(ValueError, match="cannot be joined to"):
            apply(thin(3), choices)


@pytest.mark.parametrize("seed", [random.randrange(1 << 32) for _ in range(3)])
def test_the_peak_of_every_choice_for_groups_is_computed_from_a_few_of_them(seed):
    """Groups of two blocks: as they are, one segment, two segments."""
    draw = random.Random(seed)
    model, x = thin(draw.choice([5, 6])), torch.randn(64, 16)
    blocks = len(model)
    step = plan_model(model, x, blocks="*", seconds=0).step
    texts = [STORED, CHECKPOINTED, JOINED]
    ways = [[(0,) * n, (1,) + (2,) * (n - 1), (1,) * n] for n in [2] * (blocks // 2) + [1] * (blocks % 2)]
    table = Table([Group(2 * i, of) for i, of in enumerate(ways)])

    def measured(options):
        return step.bytes_of({name: texts[o] for name, o in zip(step.blocks, options, strict=True)})

    for options in table.designs():
        table.note(options, measured(options))
    cost = [[draw.randint(0, 9) for _ in texts] for _ in range(blocks)]
    every = {options: measured(options).curve.peak for options in (sum(of, ()) for of in product(*ways))}
    for budget in sorted(set(every.values())):
        fit = [sum(of[o] for of, o in zip(cost, c, strict=True)) for c, peak in every.items() if peak <= budget]
        found = table.cheapest(cost, budget)
        assert (found.cost, found.peak) == (min(fit), every[found.options]), f"seed {seed}, budget {budget}"
    assert table.cheapest(cost, min(every.values()) - 1) is None
