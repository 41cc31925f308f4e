"""watch() runs all operators of a step twice in a rotation, says what differences come from, and changes nothing."""

import random
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import rematch
from rematch.cli.judge import main as judge
from rematch.finding import OTHERWISE, RANDOM, WRITTEN
from rematch.journal.twice import ONCE, RECURS, UNORDERED, Twice
from rematch.watching import RecomputationDiffers

CHECKPOINTED = pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.router = nn.LayerNorm(16), nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(4))

    def forward(self, x):
        h = self.norm(x)
        weights, chosen = self.router(h).softmax(-1).topk(2)
        for e, expert in enumerate(self.experts):
            rows = (chosen == e).any(-1).nonzero().flatten()
            share = (weights * (chosen == e)).sum(-1)[rows, None]
            x = x.index_add(0, rows, (share * expert(h[rows])).to(x.dtype))
        return x


class Model(nn.Module):
    def __init__(self, first, layers, head, checkpointed):
        super().__init__()
        self.first, self.layers, self.head, self.checkpointed = first, nn.ModuleList(layers), head, checkpointed

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x)
        return self.head(x)


def convolution():
    return nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8, track_running_stats=False), nn.ReLU())


def encoder():
    return nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)


def model_of(kind, checkpointed):
    if kind == "convolutions":
        head = nn.Sequential(nn.Flatten(), nn.Linear(128, 10))
        return Model(nn.Conv2d(3, 8, 3, padding=1), (convolution(), convolution()), head, checkpointed)
    layers = [encoder() if kind == "encoder" else Experts() for _ in range(2)]
    return Model(nn.Embedding(50, 16), layers, nn.Linear(16, 10), checkpointed)


class Job:
    """Trains a model."""

    def __init__(self, model, kind="encoder", autocast=False, **options):
        self.model, self.autocast = model, autocast
        self.optimizer = torch.optim.AdamW(model.parameters(), **options)
        batch = {"encoder": (4, 8), "experts": (32,), "convolutions": (4, 3, 4, 4)}[kind]
        self.x = torch.randn(batch) if kind == "convolutions" else torch.randint(0, 50, batch)
        self.y = torch.randint(0, 10, (4 if kind == "convolutions" else 32,))
        self.losses = []

    def step(self, before_backward=None):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            loss = cross_entropy(self.model(self.x).flatten(0, -2).float(), self.y)
        if before_backward is not None:
            before_backward(self.model)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(loss.item())


COMPUTES = ("mm", "addmm", "bmm", "convolution", "native_layer_norm", "native_batch_norm", "_softmax", "_log_softmax")
COMPUTES += ("embedding", "embedding_dense", "index_add", "addcdiv_", "_softmax", "native_batch_norm_legit")


def computes(func):
    return str(func).split(".")[1].replace("_data", "").removesuffix("_backward") in COMPUTES


class Device(TorchDispatchMode):
    """A device that flips a bit of the first element of a result, whenever `when` says so, called with the operator."""

    def __init__(self, when):
        super().__init__()
        self.when = when

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if self.when(func):
            first = next(t for t in (result if isinstance(result, tuple) else (result,)) if t is not None)
            with torch._C._DisableTorchDispatch():
                word = first.detach().as_strided((1,), (1,), first.storage_offset())
                word = word.view({2: torch.int16, 4: torch.int32}[word.element_size()])
                word ^= 1 << 5
        return result


def nth(number):
    """Whether an operator is the one that computes with this number."""
    left = iter(range(number + 1))
    return lambda func: computes(func) and next(left, None) == number


def rotated(job, device=nullcontext, most=60):
    """The watch over one rotation, or until it finds something."""
    with rematch.watch(job.model, 1, on_difference=lambda finding: None) as watch:
        for _ in range(most):
            with device():
                job.step()
            if watch.findings or watch.rotation.completed:
                break
    return watch


@CHECKPOINTED
@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize("kind", ["encoder", "convolutions", "experts"])
def test_a_bit_that_flips_in_any_product_norm_softmax_embedding_or_update_is_found(kind, autocast, checkpointed):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    torch.manual_seed(seed)
    job = Job(model_of(kind, checkpointed), kind, autocast)
    job.step()
    count = 0

    def counts(func):
        nonlocal count
        count += computes(func)
        return False

    with Device(counts):
        job.step()
    for number in random.Random(seed).sample(range(count), 5):
        watch = rotated(job, lambda number=number: Device(nth(number)))
        assert watch.findings, number
        finding = watch.findings[0]
        assert computes(finding.operator + ".default"), finding
        assert finding.module or "softmax" in finding.operator or "nll" in finding.operator, finding


@pytest.mark.parametrize("what", ["loss", "backward", "optimizer"])
def test_a_device_that_is_wrong_during_a_part_of_the_step_is_found(what):
    torch.manual_seed(0)
    job, flips = Job(model_of("encoder", True)), {"loss": "_log_softmax.", "backward": "mm.", "optimizer": "addcdiv_."}
    with rematch.watch(job.model, 1, on_difference=lambda finding: None) as watch:
        for _ in range(24):
            seen = []
            wrong = lambda func: flips[what] in str(func) and not seen.append(func) and len(seen) == 1  # noqa: E731, B023
            parts = {part: Device(wrong) if part == what else nullcontext() for part in flips}
            out = job.model(job.x).flatten(0, -2)
            with parts["loss"]:
                loss = cross_entropy(out, job.y)
            with parts["backward"]:
                loss.backward()
            with parts["optimizer"]:
                job.optimizer.step()
            job.optimizer.zero_grad()
    assert {f.kind for f in watch.findings} <= {ONCE, OTHERWISE} and watch.findings
    assert not _get_current_dispatch_mode_stack()


@CHECKPOINTED
def test_sound_jobs_have_no_findings_and_compute_what_they_do_without_a_watch(checkpointed):
    ended = []
    for watched in (False, True):
        torch.manual_seed(0)
        job = Job(model_of("encoder", checkpointed))
        with rematch.watch(job.model, 1) if watched else nullcontext() as watch:
            for _ in range(24):
                job.step()
        states = [t for state in job.optimizer.state.values() for t in state.values()]
        ended.append([torch.tensor(job.losses), torch.get_rng_state(), *job.model.state_dict().values(), *states])
    assert all(torch.equal(a, b) for a, b in zip(*ended, strict=True))
    assert watch.rotation.completed == 1 and not watch.findings
    assert watch.rotation.ran > 100
    assert not _get_current_dispatch_mode_stack()


def trained(block, steps=3, device=nullcontext, before_backward=None, **options):
    torch.manual_seed(0)
    job = Job(Model(nn.Embedding(50, 16), [block], nn.Linear(16, 10), False))
    job.model.forward = lambda x: job.model.head(
        checkpoint(block, job.model.first(x), **{"use_reentrant": False, **options})
    )
    with rematch.watch(job.model, 1, on_difference=lambda finding: None) as watch:
        for _ in range(steps):
            with device():
                job.step(before_backward)
    return watch


class Block(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.inner, self.function, self.calls = nn.Linear(16, 16), function, 0

    def forward(self, x):
        self.calls += 1
        return self.function(self, self.inner(x))


SOFTWARE = {
    "a generator of its own": (lambda self, x: x * torch.rand(16, generator=GENERATOR), RANDOM),
    "a counter": (lambda self, x: (x * self.calls).tanh(), OTHERWISE),
    "Python's random numbers": (lambda self, x: (x * random.random()).tanh(), OTHERWISE),
    "another operator": (lambda self, x: (x.sin() if self.calls % 2 else x.cos()).tanh(), OTHERWISE),
}
GENERATOR = torch.Generator()


@pytest.mark.parametrize("name", SOFTWARE)
def test_a_recomputation_that_gets_something_else_is_told_from_hardware(name):
    function, kind = SOFTWARE[name]
    [finding] = trained(Block(function)).findings
    assert finding.kind == kind and finding.module == "layers.0"


def test_who_writes_a_state_between_forward_and_backward_is_named():
    def write(model):
        with torch.no_grad():
            model.layers[0].inner.weight.mul_(1.01)

    [finding] = trained(Block(lambda self, x: x.tanh()), before_backward=write).findings
    assert finding.kind == WRITTEN
    [writer] = finding.writers
    assert writer.startswith("aten.mul_.Tensor writes layers.0.inner.weight, in the forward, test_rotation.py:")
    assert f"in a later step {writer}" in str(finding)


class Unordered(TorchDispatchMode):
    """A device that adds in any order."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.index_add.default:
            order = torch.tensor(random.sample(range(len(args[2])), len(args[2])))
            args = (*args[:2], args[2][order], args[3][order], *args[4:])
        return func(*args, **(kwargs or {}))


PLACES = torch.arange(32) % 2


def gathers(self, x):
    return torch.zeros(2, 16).index_add(0, PLACES, x.flatten(0, 1)).tanh()[PLACES].view_as(x)


def test_an_operator_that_is_not_deterministic_is_told_with_its_bound():
    [finding] = trained(Block(gathers), device=Unordered).findings
    assert (finding.kind, finding.module, finding.operator) == (UNORDERED, "layers.0", "aten.index_add")
    assert 0 < finding.repeated.units < 32


def test_one_execution_that_was_wrong_is_told_from_one_that_recurs():
    left = iter([False] * 2 + [True])  # The third tanh is the recomputation's of the second step.
    once = lambda func: func is torch.ops.aten.tanh.default and next(left, False)  # noqa: E731
    [finding] = trained(Block(lambda self, x: x.tanh().sin()), device=lambda: Device(once)).findings
    assert finding.kind == ONCE
    draw = random.Random(1)
    often = lambda func: func is torch.ops.aten.tanh.default and draw.random() < 0.5  # noqa: E731
    kinds = {f.kind for f in trained(Block(lambda self, x: x.tanh()), device=lambda: Device(often)).findings}
    assert kinds == {RECURS}


def test_a_snapshot_of_an_operator_that_was_wrong_runs_again_anywhere(tmp_path, capsys):
    torch.manual_seed(0)
    job, path, seen = Job(model_of("encoder", False)), tmp_path / "operator.pt", []
    with rematch.watch(job.model, 1, lambda finding: None, snapshot=path) as watch:
        while not watch.findings:
            with Device(lambda func: str(func) == "aten.mm.default" and not seen.append(func) and len(seen) % 2):
                job.step()
    with pytest.raises(SystemExit) as ended:
        judge([str(path)])
    assert ended.value.code
    assert "aten.mm.default runs 16 times here: 0 times as in the step, 16 times as when it ran again there" in str(
        capsys.readouterr().out
    )


def test_what_is_raised_in_a_backward_comes_before_the_update():
    torch.manual_seed(0)
    job = Job(model_of("encoder", False))
    before = [p.detach().clone() for p in job.model.parameters()]
    seen = []
    with rematch.watch(job.model, 1, "raise"), pytest.raises(RecomputationDiffers) as raised:
        for _ in range(24):
            before = [p.detach().clone() for p in job.model.parameters()]
            with Device(lambda func: "_softmax_backward" in str(func) and not seen.append(func) and len(seen) % 2):
                job.step()
    assert raised.value.finding.phase == "backward"
    assert all(torch.equal(p, b) for p, b in zip(job.model.parameters(), before, strict=True))


@pytest.mark.parametrize("ends", ["in the forward", "before the backward", "after the step"])
def test_modes_of_the_job_end_as_they_would_without_a_watch(ends):
    torch.manual_seed(0)
    job = Job(model_of("encoder", True))
    with rematch.watch(job.model, 1) as watch:
        for _ in range(24):
            counter = FlopCounterMode(display=False)
            counter.__enter__()
            end = lambda *_: counter.__exit__(None, None, None)  # noqa: E731, B023
            hook = job.model.head.register_forward_pre_hook(end) if ends == "in the forward" else None
            job.step(end if ends == "before the backward" else None)
            if ends == "after the step":
                end()
            if hook is not None:
                hook.remove()
            assert not any(isinstance(mode, FlopCounterMode) for mode in _get_current_dispatch_mode_stack())
    assert watch.rotation.completed == 1 and not _get_current_dispatch_mode_stack()


def test_an_operator_runs_again_from_the_same_random_state_and_on_copies_of_what_it_writes():
    told = []
    twice = Twice(lambda *what: told.append(what), lambda op: False)
    twice.chosen, twice.listens = range(1000), True
    from rematch.journal.operators import Operators

    generator = torch.Generator().manual_seed(3)
    x = torch.randn(4, 4)
    torch.manual_seed(5)
    mean, variance = torch.zeros(4), torch.ones(4)
    with Operators(twice):
        made = [torch.rand(3), torch.rand(3, generator=generator), x.add_(1), x.t().bernoulli_(0.5), torch.randn(3)]
        made += [torch.add(x, 1, out=torch.empty(4, 4)), torch.tril(x, out=torch.empty(0)), x.add_(x)]
        nn.functional.batch_norm(torch.ones(2, 4), mean, variance, training=True)
    assert not told and twice.ran == 9
    # Written once: a tenth of the way from 0 to 1.
    assert torch.equal(mean, torch.full((4,), 0.1))
    torch.manual_seed(5)
    assert torch.equal(made[0], torch.rand(3))
    assert torch.equal(made[1], torch.rand(3, generator=torch.Generator().manual_seed(3)))


def test_turns_are_a_number_and_none_of_them_leaves_the_recomputations():
    with pytest.raises(ValueError, match="turns at least 0"):
        rematch.watch(nn.Linear(1, 1), turns=-1)
    job = Job(model_of("encoder", True))
    with rematch.watch(job.model, 1, turns=0) as watch:
        job.step()
    assert watch.rotation is None and watch.compared == 2


def test_an_optimizer_that_steps_after_every_second_forward_takes_its_turns():
    torch.manual_seed(0)
    job = Job(model_of("encoder", False))
    with rematch.watch(job.model, 1, on_difference=lambda finding: None) as watch:
        for _ in range(60):
            cross_entropy(job.model(job.x).flatten(0, -2), job.y).backward()
            job.step()
    assert not watch.findings
    assert any(phase == "optimizer" for phase, _ in watch.rotation.parts) and watch.rotation.completed > 0


def test_what_is_compiled_in_a_watched_step_leaves_no_mode_behind():
    torch.manual_seed(0)
    compiled = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.GELU()), backend="aot_eager")
    model = nn.Sequential(nn.Linear(4, 4), compiled, nn.Linear(4, 1))
    with rematch.watch(model, 1, on_difference=lambda finding: None) as watch:
        for _ in range(20):
            model(torch.randn(3, 4)).sum().backward()
    assert watch.rotation.completed == 1 and not watch.findings
    assert not _get_current_dispatch_mode_stack()
