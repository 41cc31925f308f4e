"""plan_model() keeps its promises: bytes are measured, the choice is the cheapest, the model is left as it was."""

from __future__ import annotations

import copy
import json
import pickle
import random
from itertools import product

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from rematch.journal.operators import Operators  # noqa: E402
from rematch.journal.storages import StorageMeter  # noqa: E402
from rematch.plan import apply, plan_model  # noqa: E402
from rematch.plan.choose import NONE, Chain, Walk, cheapest, frontier, peak_of  # noqa: E402
from rematch.plan.planner import bytes_of  # noqa: E402
from rematch.plan.table import designs  # noqa: E402
from rematch.safe import judge_model  # noqa: E402


def mlp(blocks=3, width=16):
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(blocks)]
    return nn.Sequential(nn.Linear(8, width), nn.Sequential(*layers), nn.Linear(width, 2))


def random_model(draw):
    """Blocks of several kinds, and what is called with them."""
    width = draw.choice([16, 24])

    def block():
        inner = draw.choice([width, 4 * width])
        return draw.choice(
            [
                lambda: nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Dropout(0.2), nn.Linear(inner, width)),
                lambda: nn.TransformerEncoderLayer(width, 2, inner, 0.1, batch_first=True),
                lambda: nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.ReLU(inplace=True)),
                lambda: nn.Sequential(nn.Dropout(0.1), nn.Linear(width, width), nn.Tanh()),
            ]
        )()

    layers = [block() for _ in range(draw.randint(3, 8))]
    rest = nn.Linear(width, draw.choice([4, 500]))
    return nn.Sequential(nn.Linear(8, width), nn.Sequential(*layers), rest), torch.randn(8, draw.choice([8, 32]), 8)


def random_chain(draw, blocks, options):
    def pairs(low, high):
        keys = [(before, o) for before in (NONE, *range(options)) for o in range(options)]
        return [{key: draw.randint(low, high) for key in keys} for _ in range(blocks)]

    forward, backward = (Walk(draw.randint(0, 9), pairs(-3, 20), pairs(0, 40)) for _ in range(2))
    tail = {ends: draw.randint(0, 30) for ends in product(range(options), repeat=2)}
    cost = [[draw.randint(0, 9) for _ in range(options)] for _ in range(blocks)]
    return Chain(forward, backward, draw.randint(0, 40), tail, cost)


@pytest.mark.parametrize("seed", [random.randrange(1 << 32) for _ in range(30)])
def test_no_choice_within_the_budget_is_cheaper(seed):
    draw = random.Random(seed)
    blocks, options = draw.randint(1, 6), draw.randint(2, 3)
    chain = random_chain(draw, blocks, options)
    every = {c: peak_of(chain, c) for c in product(range(options), repeat=blocks)}
    cost = {c: sum(costs[o] for costs, o in zip(chain.cost, c, strict=True)) for c in every}
    for budget in sorted(set(every.values()))[:20]:
        expected = min(cost[c] for c, peak in every.items() if peak <= budget)
        found = cheapest(chain, budget)
        assert (found.cost, found.peak <= budget) == (expected, True), f"seed {seed}, budget {budget}"
    assert cheapest(chain, min(every.values()) - 1) is None
    points = frontier(lambda budget: cheapest(chain, budget))
    expected = {
        (p, cost[c])
        for c, p in every.items()
        if not any((q <= p and cost[d] < cost[c]) or (q < p and cost[d] <= cost[c]) for d, q in every.items())
    }
    assert {(c.peak, c.cost) for c in points} == expected, f"seed {seed}"


@pytest.mark.parametrize(("blocks", "options"), [(2, 2), (5, 2), (5, 3), (7, 4)])
def test_every_two_choices_of_neighbours_are_measured(blocks, options):
    steps = list(designs(blocks, options))
    for i in range(blocks - 1):
        assert {(s[i], s[i + 1]) for s in steps} == set(product(range(options), repeat=2))


@pytest.mark.parametrize("blocks", [2, 7])
def test_what_is_promised_is_what_is_measured(blocks):
    """Two blocks: all choices are measured; seven: peaks follow from pairs of neighbours."""
    plan = plan_model(mlp(blocks), torch.randn(64, 8), budget="90%", optimizer="adamw", repeats=1)
    assert plan.measured == plan.promised <= plan.budget < plan.plain_peak
    assert (plan.notes, plan.differs) == ([], [])


@pytest.mark.parametrize("seed", [random.randrange(1 << 32) for _ in range(3)])
def test_what_is_promised_of_random_chains_is_what_is_measured(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    model, x = random_model(draw)
    optimizer = draw.choice([None, "adamw", "sgd"])
    least = plan_model(model, x, optimizer=optimizer, blocks="1.*", repeats=1)
    budget = draw.randint(least.measured, least.plain_peak)
    plan = plan_model(model, x, budget=budget, optimizer=optimizer, blocks="1.*", repeats=1)
    assert plan.measured == plan.promised <= budget, f"seed {seed}"
    assert (plan.notes, plan.differs) == ([], []), f"seed {seed}"


def test_a_plan_is_measured_alike_by_a_meter_of_ones_own():
    """The meter counts what is live: the model, its batch and gradients are there after the step."""
    model, x = mlp(3), torch.randn(64, 8)
    plan = plan_model(model, x, repeats=1)
    meter = StorageMeter()
    with apply(model, plan), Operators(meter):
        meter.belongs("model", [*model.parameters(), x])
        model(x).sum().backward()
    model.zero_grad()
    assert meter.curve.peak == plan.measured
    assert plan.measured < plan.plain_peak


def test_what_is_live_at_the_peak_adds_up_to_it():
    """Three Linear(4, 4) without bias on one row: weights have 64 B each, the input 16 B."""
    model = nn.Sequential(nn.Sequential(*[nn.Linear(4, 4, bias=False) for _ in range(3)]))
    plan = plan_model(model, torch.randn(1, 4), repeats=1, blocks="0.*")
    parts = dict(plan.to_json()["peak"]["composition"])
    assert parts["parameters"] == 3 * 64 and parts["the batch"] == 16
    assert sum(parts.values()) == plan.measured


def test_a_plan_is_safe_by_all_that_judge_model_tries():
    model, x = mlp(3), torch.randn(64, 8)
    plan = plan_model(model, x, repeats=1)
    verdict = judge_model(model, x, switch=plan.switch)
    assert verdict.own is not None and verdict.safe, str(verdict)


def test_the_model_is_left_as_it_was():
    model, x = mlp(2), torch.randn(8, 8)
    before = copy.deepcopy(model.state_dict())
    state = torch.get_rng_state()
    plan_model(model, x, optimizer="sgd", repeats=1)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert all(p.grad is None for p in model.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks or "forward" in m.__dict__ for m in model.modules())


def test_apply_keeps_names_and_can_be_copied_and_ended():
    model, x = mlp(2), torch.randn(8, 8)
    names = list(model.state_dict())
    applied = apply(model, {"1.0": "checkpointed", "1.1": "products kept"})
    assert list(model.state_dict()) == names
    twin = copy.deepcopy(model)
    twin(x).sum().backward()
    assert model[0].weight.grad is None and twin[0].weight.grad is not None
    model(x).sum().backward()
    assert torch.equal(model[0].weight.grad, twin[0].weight.grad)
    applied.remove()
    assert not any("forward" in m.__dict__ for m in model.modules())


@pytest.mark.parametrize(
    ("choices", "message"),
    [({"1.7": "checkpointed"}, "no submodule '1.7'"), ({"1.0": "sometimes"}, "one of stored, checkpointed")],
)
def test_a_plan_for_another_model_is_refused(choices, message):
    model = mlp(2)
    with pytest.raises(ValueError, match=message):
        apply(model, choices)
    assert not any("forward" in m.__dict__ for m in model.modules())


def test_a_plan_is_not_applied_twice():
    model = mlp(2)
    with apply(model, {"1.0": "checkpointed"}), pytest.raises(ValueError, match="by a plan already"):
        apply(model, {"1.0": "checkpointed"})


def test_a_block_that_may_not_be_checkpointed_is_said_first():
    model = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)) for _ in range(2)])
    plan = plan_model(model, torch.randn(4, 8), repeats=1)
    assert "buffer 0.1.running_mean" in plan.differs
    assert str(plan).splitlines()[1].startswith("NOT SAFE")


def test_blocks_that_run_several_times_have_one_choice():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))])

        def forward(self, x):
            for _ in range(4):
                x = self.layers[0](x)
            return x

    plan = plan_model(Shared(), torch.randn(64, 8), blocks="layers.*", repeats=1)
    assert len(plan.plain.executions) == 4 and list(plan.choices) == ["layers.0"]
    assert plan.measured == plan.promised < plan.plain_peak


def test_nothing_fits_is_an_error_that_says_the_least():
    with pytest.raises(ValueError, match="the least peak is"):
        plan_model(mlp(2), torch.randn(8, 8), budget=100, repeats=1)


@pytest.mark.parametrize(
    ("text", "count"), [(7, 7), ("7", 7), ("8GB", 8 * 10**9), ("1.5 MiB", 3 << 19), ("2kb", 2000), ("60%", 600)]
)
def test_budgets(text, count):
    assert bytes_of(text, 1000) == count


@pytest.mark.parametrize("text", ["many", "8 apples", ""])
def test_wrong_budgets(text):
    with pytest.raises(ValueError, match="budget is bytes"):
        bytes_of(text, 1000)


def test_a_model_on_fake_tensors_is_planned_without_its_memory():
    """256 GiB of activations in a block, on any machine."""
    with FakeTensorMode():
        layers = [nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(3)]
        plan = plan_model(nn.Sequential(*layers), torch.randn(1 << 23, 1024), repeats=1)
    assert plan.plain_peak > 3 << 38
    assert plan.measured == plan.promised < plan.plain_peak
    assert plan.seconds is None and plan.cost > 0


def test_a_snapshot_frees_what_it_allocates(tmp_path):
    from torch.cuda._memory_viz import trace

    plan = plan_model(mlp(2), torch.randn(8, 8), repeats=1)
    plan.snapshot(str(tmp_path / "snapshot.pickle"))
    written = (tmp_path / "snapshot.pickle").read_bytes()
    assert 2 <= written[1] <= 4, "the protocols that the viewer reads"
    snapshot = pickle.loads(written)
    live, most = 0, 0
    known = {}
    for entry in snapshot["device_traces"][0]:
        if entry["action"] == "alloc":
            assert entry["addr"] not in known
            known[entry["addr"]] = entry["size"]
            live += entry["size"]
            most = max(most, live)
        elif entry["action"] == "free_completed":
            live -= known.pop(entry["addr"])
    assert most == plan.measured
    assert "entries" in trace(snapshot)


def test_the_command_line(capsys):
    from rematch.__main__ import main

    given = ["plan", "torch.nn:TransformerEncoder", "--input", "2x3x4"]
    with pytest.raises(SystemExit) as ended:
        main(given)
    assert ended.value.code == 2 and "--arg" in capsys.readouterr().err
    main(["plan", f"{__file__}:example", "--json", "--budget", "90%"])
    told = json.loads(capsys.readouterr().out)
    assert told["measured"] == told["promised"] <= told["budget"]
    with pytest.raises(SystemExit) as ended:
        main(["plan", f"{__file__}:example", "--budget", "1B"])
    assert ended.value.code == 1


def example():
    return mlp(2), (torch.randn(64, 8),), {}


@pytest.mark.parametrize("seed", [random.randrange(1 << 32) for _ in range(20)])
def test_a_coarse_table_has_the_cheapest_and_the_least(seed):
    draw = random.Random(seed)
    chain = random_chain(draw, 6, 3)

    def within(budget):
        return cheapest(chain, budget)

    every, some = ([(c.cost, c.peak) for c in frontier(within, apart)] for apart in (1, 7))
    assert set(some) <= set(every) and some[0] == every[0] and some[-1] == every[-1], f"seed {seed}"


def test_what_cannot_be_planned_says_what_to_do():
    with pytest.raises(ValueError, match="before torch.compile"):
        plan_model(torch.compile(mlp(2), backend="eager"), torch.randn(8, 8))
    with pytest.raises(ValueError, match="no submodule that ran matches 'layers"):
        plan_model(mlp(2), torch.randn(8, 8), blocks="layers.*")


def test_a_policy_that_the_model_cannot_have_is_left_out():
    """What is kept may not be written: ReLU writes into the results of the product before it."""
    blocks = [nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True)) for _ in range(3)]
    plan = plan_model(nn.Sequential(*blocks), torch.randn(64, 8), repeats=1)
    assert any(note.startswith("products kept is left out") for note in plan.notes)
    assert plan.measured == plan.promised


def test_blocks_that_run_often_among_many_are_left_as_they_are():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(
                [nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)) for _ in range(6)]
            )

        def forward(self, x):
            for layer in (*self.layers, self.layers[0]):
                x = layer(x)
            return x

    plan = plan_model(Mixed(), torch.randn(64, 8), blocks="layers.*", repeats=1)
    assert list(plan.choices) == [f"layers.{i}" for i in range(1, 6)]
    assert "layers.0 runs 2 times a step" in plan.notes[0]
    assert plan.measured == plan.promised < plan.plain_peak


def test_a_switch_that_refuses_is_no_switch():
    class Refuses(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = mlp(2)

        def set_grad_checkpointing(self, enable=True):
            assert not enable, "not supported"

        def forward(self, x):
            return self.layers(x)

    assert plan_model(Refuses(), torch.randn(64, 8), repeats=1).least_peak > 0


class Skips(nn.Module):
    """As a U-Net: what early blocks got is used by late ones, so that blocks are no chain."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Dropout(0.1), nn.Linear(16, 16), nn.Tanh()) for _ in range(6)])

    def forward(self, x):
        kept = []
        for i, layer in enumerate(self.layers):
            kept += [x] if i < 3 else []
            x = layer(x)
            x = x * kept.pop() if i >= 3 else x
        return x


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("repairs", [0, 6])
def test_a_plan_never_measures_more_than_the_budget(monkeypatch, repairs, share):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 16), Skips(), nn.Linear(16, 4)), torch.randn(64, 8)
    least = plan_model(model, x, blocks="1.layers.*", repeats=1)
    monkeypatch.setattr("rematch.plan.planner._REPAIRS", repairs)
    budget = int(least.measured + share * (least.plain_peak - least.measured))
    plan = plan_model(model, x, blocks="1.layers.*", repeats=1, budget=budget)
    assert plan.promised == plan.measured <= budget


def test_the_loss_is_compared_with_that_of_the_plain_step():
    class Jumps(nn.Module):
        """Another loss, the same gradients, where checkpointed blocks save nothing."""

        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(2)])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x + ("forward" in self.layers[0].__dict__)

    plan = plan_model(Jumps(), torch.randn(64, 8), blocks="layers.*", repeats=1)
    told = plan.differs + plan.notes
    assert any("the loss" in text for text in told), told
