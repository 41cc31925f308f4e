"""plan_model() keeps its promises: bytes are measured, the choice is the cheapest, the model is left as it was."""

import copy
import gc
import json
import pickle
import random
from functools import partial
from itertools import product

import pytest
import torch
from harness import peak_and_rest
from modules import maker
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from rematch.__main__ import main
from rematch.plan import apply, plan_model
from rematch.plan.choose import NONE, Chain, Walk, cheapest, frontier, peak_of
from rematch.plan.code import code_of
from rematch.plan.planner import bytes_of
from rematch.plan.table import designs
from rematch.safe import judge_model


def planned(model, x=None, **options):
    return plan_model(model, torch.randn(64, 8) if x is None else x, seconds=0, **options)


def gelu_blocks(count, width=8):
    return [nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(count)]


def mlp(count=3, width=16):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, width), nn.Sequential(*gelu_blocks(count, width)), nn.Linear(width, 2))


def model_of(forward, *layers):
    return maker(forward, None, nn.Module, layers=lambda: nn.ModuleList(layers))()


def is_left_as_it_was(model):
    return not any(m._forward_hooks or m._forward_pre_hooks or "forward" in m.__dict__ for m in model.modules())


def random_model(draw):
    """Blocks of several kinds, and what is called with them."""
    width = draw.choice([16, 24])

    def block():
        inner = draw.choice([width, 4 * width])
        kinds = [
            lambda: nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Dropout(0.2), nn.Linear(inner, width)),
            lambda: nn.TransformerEncoderLayer(width, 2, inner, 0.1, batch_first=True),
            lambda: nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.ReLU(inplace=True)),
            lambda: nn.Sequential(nn.Dropout(0.1), nn.Linear(width, width), nn.Tanh()),
        ]
        return draw.choice(kinds)()

    layers = [block() for _ in range(draw.randint(2, 8))]
    if draw.random() < 0.4:
        # What a block keeps is hardly more than its input: segments have several blocks.
        layers = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(draw.randint(9, 16))]
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
    points = frontier(partial(cheapest, chain))
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


def test_what_is_live_at_the_peak_adds_up_to_it():
    """Three Linear(4, 4) without bias on one row: weights have 64 B each, the input 16 B."""
    model = nn.Sequential(nn.Sequential(*[nn.Linear(4, 4, bias=False) for _ in range(3)]))
    plan = planned(model, torch.randn(1, 4), blocks="0.*")
    parts = dict(plan.to_json()["peak"]["composition"])
    assert parts["parameters"] == 3 * 64 and parts["the batch"] == 16
    assert sum(parts.values()) == plan.measured


def test_what_is_recomputed_at_the_peak_is_called_so():
    """What goes into GELU and what comes out of it: 64 rows of 64 floats each."""
    parts = dict(planned(mlp(3)).to_json()["peak"]["composition"])
    assert parts["activations, recomputed"] == 2 * 64 * 64 * 4


def test_a_plan_is_safe_by_all_that_judge_model_tries():
    model, x = mlp(3), torch.randn(64, 8)
    plan = planned(model, x)
    verdict = judge_model(model, x, switch=plan.switch)
    assert verdict.own is not None and verdict.safe, str(verdict)


def test_the_model_is_left_as_it_was():
    model, x = mlp(2), torch.randn(8, 8)
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    planned(model, x, optimizer="sgd")
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert all(p.grad is None for p in model.parameters()) and is_left_as_it_was(model)


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
    assert is_left_as_it_was(model)


class Ran(TorchDispatchMode):
    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        self.names = [*getattr(self, "names", ()), str(op)]
        return op(*args, **(kwargs or {}))


@pytest.mark.parametrize("choice", ("checkpointed", "products kept", "keeps aten.addmm.default 0, aten.gelu.default 0"))
def test_a_plan_written_for_pytorch_alone_runs_the_operators_that_apply_runs(choice):
    def operators(put):
        model = mlp()
        put(model)
        with Ran() as ran:
            model(torch.ones(2, 8)).sum().backward()
        return ran.names

    choices, names = {"1.0": "stored", "1.1": choice, "1.2": choice}, {}
    exec(code_of(mlp(), choices, "A plan"), names)
    assert operators(names["apply"]) == operators(lambda model: apply(model, choices)) != operators(lambda _: None)


def test_a_plan_whose_step_differed_says_so_first_and_is_refused_unless_told():
    model = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)) for _ in range(2)])
    plan = planned(model, torch.randn(4, 8))
    assert "buffer 0.1.running_mean" in plan.differs
    assert str(plan).splitlines()[1].startswith("NOT SAFE")
    with pytest.raises(ValueError, match=r"0\.1\.running_mean differs .* even_if_it_differs=True"):
        apply(model, plan)
    with pytest.raises(ValueError, match=r"\[code\] .* even_if_it_differs=True"):
        plan.code()
    assert is_left_as_it_was(model) and plan.code(even_if_it_differs=True)
    apply(model, plan, even_if_it_differs=True).remove()
    with pytest.raises(ValueError, match="a policy of your own"):
        code_of(model, {"0": "mine"}, "A plan")


def test_what_is_not_searched_is_said():
    """A lone block in the middle keeps 64 rows of 64 floats twice; its input is another layer's result."""

    def forward(self, x):
        blocks, wider, middle = self.layers
        for block in blocks:
            x = block(x)
        return middle(wider(x))

    model = model_of(forward, nn.ModuleList(gelu_blocks(2)), nn.Linear(8, 16), gelu_blocks(1, 16)[0])
    plan = planned(model)
    assert plan.not_searched == [("layers.2", 2 * 64 * 64 * 4), ("layers.1", 64 * 16 * 4)]
    assert "not searched, though they keep bytes for the backward: layers.2 (32.8 kB)" in str(plan)
    everything = planned(model, blocks=["layers.0.*", model.layers[2]])
    assert list(everything.choices) == ["layers.0.0", "layers.0.1", "layers.2"]
    assert everything.not_searched == plan.not_searched[1:]


def tracked(model, x, plan):
    """The peak of a step with a plan, as PyTorch's MemTracker counts it. The optimizer has its states already."""
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    tracker = MemTracker()
    tracker.track_external(model, optimizer, x)
    gc.collect()
    gc.disable()
    with apply(model, plan), tracker:
        model(x).sum().backward()
        optimizer.step()
    gc.enable()
    return sum(of["Total"] for of in tracker.get_tracker_snapshot("peak").values())


@pytest.mark.parametrize("seed", [random.randrange(1 << 32) for _ in range(5)])
def test_what_is_promised_is_what_is_measured_here_and_by_the_tracker_of_pytorch(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    model, x = random_model(draw)
    least = planned(model, x, optimizer="adamw", blocks="1.*")
    budget = draw.randint(least.measured, least.plain_peak)
    plan = planned(model, x, budget=budget, optimizer="adamw", blocks="1.*")
    assert tracked(model, x, plan) == plan.measured == plan.promised <= budget, f"seed {seed}"
    assert (plan.notes, plan.differs) == ([], []), f"seed {seed}"


@pytest.mark.parametrize(
    ("choices", "message"),
    [({"1.7": "checkpointed"}, "no submodule '1.7'"), ({"1.0": "sometimes"}, "one of stored, checkpointed")],
)
def test_a_plan_for_another_model_is_refused_or_a_second_one(choices, message):
    model = mlp(2)
    with pytest.raises(ValueError, match=message):
        apply(model, choices)
    assert is_left_as_it_was(model)
    with apply(model, {"1.0": "checkpointed"}), pytest.raises(ValueError, match="by a plan already"):
        apply(model, {"1.0": "checkpointed"})


def test_blocks_that_run_several_times_have_one_choice():
    def shared(self, x):
        for _ in range(4):
            x = self.layers[0](x)
        return x

    plan = planned(model_of(shared, *gelu_blocks(1)), blocks="layers.*")
    assert len(plan.plain.executions) == 4 and list(plan.choices) == ["layers.0"]
    assert plan.measured == plan.promised < plan.plain_peak


def test_where_all_of_many_blocks_run_several_times_they_have_one_choice_together():
    def again(self, x):
        for _ in range(2):
            for layer in self.layers:
                x = layer(x)
        return x

    plan = planned(model_of(again, *gelu_blocks(6)), blocks="layers.*")
    assert len(set(plan.choices.values())) == 1 and len(plan.choices) == 6
    assert plan.measured == plan.promised < plan.plain_peak
    assert "layers.0 runs 2 times a step, and all other blocks several times" in str(plan)


@pytest.mark.parametrize(
    ("text", "count"), [(7, 7), ("7", 7), ("8GB", 8 * 10**9), ("1.5 MiB", 3 << 19), ("2kb", 2000), ("60%", 600)]
)
def test_budgets(text, count):
    assert bytes_of(text, 1000) == count


@pytest.mark.parametrize("text", ["many", "8 apples", "", "-1GB", "0", "inf", "nan%", 0.6, -3, 0])
def test_wrong_budgets(text):
    with pytest.raises(ValueError, match="budget is bytes"):
        bytes_of(text, 1000)


def test_a_block_that_does_not_run_again_is_told_in_a_sentence():
    class Pops(nn.Linear):
        def forward(self, x):
            return super().forward(x * held.pop())

    held = []

    def fills(self, x):
        for layer in self.layers:
            held.append(2.0)
            x = layer(x)
        return x

    with pytest.raises(
        RuntimeError, match=r"the step fails with blocks checkpointed \(IndexError: pop from empty list\)"
    ):
        planned(model_of(fills, Pops(8, 8), Pops(8, 8)), blocks="layers.*")


def test_a_model_on_fake_tensors_is_planned_without_its_memory():
    """256 GiB of activations in a block, on any machine."""
    with FakeTensorMode():
        plan = planned(nn.Sequential(*gelu_blocks(3, 1024)), torch.randn(1 << 23, 1024))
    assert plan.plain_peak > 3 << 38
    assert plan.measured == plan.promised < plan.plain_peak
    assert plan.seconds is None and plan.operations > 0


def test_a_snapshot_frees_what_it_allocates(tmp_path):
    from torch.cuda._memory_viz import trace

    plan = planned(mlp(2))
    plan.snapshot(str(tmp_path / "snapshot.pickle"))
    written = (tmp_path / "snapshot.pickle").read_bytes()
    assert 2 <= written[1] <= 4, "the protocols that the viewer reads"
    snapshot = pickle.loads(written)
    assert peak_and_rest(snapshot["device_traces"][0])[0] == plan.measured
    assert "entries" in trace(snapshot)


def test_the_command_line(capsys, tmp_path):
    with pytest.raises(SystemExit) as ended:
        main(["plan", "torch.nn:TransformerEncoder", "--input", "2x3x4"])
    assert ended.value.code == 2 and "--arg" in capsys.readouterr().err
    main(["plan", f"{__file__}:example", "--json", "--budget", "90%", "--seconds", "0"])
    told = json.loads(capsys.readouterr().out)
    assert told["measured"] == told["promised"] <= told["budget"]
    with pytest.raises(SystemExit) as ended:
        main(["plan", f"{__file__}:example", "--budget", "1B"])
    assert ended.value.code == 2 and "no choice fits" in capsys.readouterr().err
    code = tmp_path / "plan.py"
    main(["plan", f"{__file__}:example", "--json", *"--blocks 0 --blocks 2 --seconds 0 --code".split(), str(code)])
    assert list(json.loads(capsys.readouterr().out)["choices"]) == ["0", "2"]
    assert code.read_text().startswith('"""Checkpoints blocks of Sequential: peak ')


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (f"{__file__}:raises", "the model fails in a plain step: KeyError: 'who'"),
        (
            f"{__file__}:example --seconds 0 --snapshot /nowhere/it.pickle",
            "--snapshot: [Errno 2] No such file or directory",
        ),
        (f"{__file__}:example --blocks none", "no submodule that ran matches 'none'"),
        (f"{__file__}:example --budget 0.6", "budget is bytes"),
        (f"{__file__}:planned", "it raises TypeError"),
        ("torch.nn:Linear --arg 4 --arg 4 --input 99999999x99999999", "--input 99999999x99999999: "),
    ],
)
def test_what_cannot_be_planned_is_told_in_a_sentence(capsys, words, says):
    with pytest.raises(SystemExit) as ended:
        main(["plan", *words.split()])
    told = capsys.readouterr().err
    assert ended.value.code == 2 and says in told and "Traceback" not in told


def raises():
    def forward(self, x):
        raise KeyError("who")

    return maker(forward, None, nn.Module)(), (torch.randn(2),), {}


def test_a_wrong_budget_is_told_before_anything_runs():
    def fails(*_):
        raise AssertionError("it ran")

    model = mlp(2)
    model.register_forward_pre_hook(fails)
    with pytest.raises(ValueError, match="budget is bytes"):
        planned(model, budget=0.6)


def example():
    return mlp(2), (torch.randn(64, 8),), {}


@pytest.mark.parametrize("seed", [random.randrange(1 << 32) for _ in range(20)])
def test_a_coarse_table_has_the_cheapest_and_the_least(seed):
    within = partial(cheapest, random_chain(random.Random(seed), 6, 3))
    every, some = ([(c.cost, c.peak) for c in frontier(within, apart)] for apart in (1, 7))
    assert set(some) <= set(every) and some[0] == every[0] and some[-1] == every[-1], f"seed {seed}"


def test_what_cannot_be_planned_says_what_to_do():
    with pytest.raises(ValueError, match="before torch.compile"):
        planned(torch.compile(mlp(2), backend="eager"))
    with pytest.raises(ValueError, match="no submodule that ran matches 'layers"):
        planned(mlp(2), blocks="layers.*")
    with pytest.raises(ValueError, match=r"matches 'layers.\*', 'heads.\*'"):
        planned(mlp(2), blocks=["layers.*", "heads.*"])
    with pytest.raises(ValueError, match="is no submodule of the model"):
        planned(mlp(2), blocks=[nn.Linear(2, 2)])
    with pytest.raises(ValueError, match="the least peak is"):
        planned(mlp(2), budget=100)


@pytest.mark.parametrize("compared", [False, True])
def test_a_policy_that_the_model_cannot_have_is_left_out(compared):
    """What is kept may not be written: ReLU writes into the results of the product before it."""
    blocks = (nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True)) for _ in range(3))
    plan = planned(nn.Sequential(*blocks), compared=compared)
    assert any(note.startswith("products kept is left out") for note in plan.notes)
    assert plan.measured == plan.promised


def test_blocks_that_run_often_among_many_are_left_as_they_are():
    def mixed(self, x):
        for layer in (*self.layers, self.layers[0]):
            x = layer(x)
        return x

    plan = planned(model_of(mixed, *gelu_blocks(6)), blocks="layers.*")
    assert list(plan.choices) == [f"layers.{i}" for i in range(1, 6)]
    assert "layers.0 runs 2 times a step" in plan.notes[0]
    assert plan.measured == plan.promised < plan.plain_peak


@pytest.mark.parametrize("holds_the_model", [False, True])
def test_blocks_that_one_function_runs_by_their_number_are_found(holds_the_model):
    blocks = nn.ModuleList(gelu_blocks(3))

    def forward(self, x):
        for i in range(3):
            of_blocks, of_self = (lambda y, i=i: blocks[i](y)), (lambda y, i=i: self.layers[i](y))
            run = of_self if holds_the_model else of_blocks
            x = checkpoint(run, x, use_reentrant=False) if self.checkpoints else run(x)
        return x

    model = model_of(forward, *blocks)
    plan = planned(model, switch=lambda model, on: setattr(model, "checkpoints", on))
    assert list(plan.choices) == ["layers.0", "layers.1", "layers.2"]


def test_a_switch_that_refuses_is_no_switch():
    class Refuses(nn.Sequential):
        def set_grad_checkpointing(self, enable=True):
            assert not enable, "not supported"

    assert planned(Refuses(mlp(2))).least_peak > 0


def skips(self, x):
    """As a U-Net: what early blocks got is used by late ones, so that blocks are no chain."""
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
    layers = (nn.Sequential(nn.Dropout(0.1), nn.Linear(16, 16), nn.Tanh()) for _ in range(6))
    model = nn.Sequential(nn.Linear(8, 16), model_of(skips, *layers), nn.Linear(16, 4))
    least = planned(model, blocks="1.layers.*")
    monkeypatch.setattr("rematch.plan.planner._REPAIRS", repairs)
    budget = int(least.measured + share * (least.plain_peak - least.measured))
    plan = planned(model, blocks="1.layers.*", budget=budget)
    assert plan.promised == plan.measured <= budget


def test_the_loss_is_compared_with_that_of_the_plain_step():
    def jumps(self, x):
        """Another loss, the same gradients, where checkpointed blocks save nothing."""
        for layer in self.layers:
            x = layer(x)
        return x + ("forward" in self.layers[0].__dict__)

    plan = planned(model_of(jumps, nn.Linear(8, 8), nn.Linear(8, 8)), blocks="layers.*")
    told = plan.differs + plan.notes
    assert any("the loss" in text for text in told), told
