"""Jobs that do odd things compute the same under a watch, which says nothing of them and leaves nothing behind."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.utils._python_dispatch as python_dispatch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

import rematch

STEPS = 24
"""More than a rotation."""

JOBS: dict[str, Callable[..., Iterator[Any]]] = {}
"""Of each job, what makes its steps, given a function that watches a model: each step yields what it computed."""


def job(make: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    JOBS[make.__name__.replace("_", " ")] = make
    return make


def chain() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))


def trained(model: nn.Module, x: Tensor, loss: Callable[[Any], Tensor]) -> Iterator[Any]:
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    while True:
        optimizer.zero_grad()
        value = loss(model(x))
        value.backward()
        optimizer.step()
        yield [value.detach(), *model.parameters()]


@torch.library.custom_op("rematch_test::half", mutates_args=())
def half(x: Tensor) -> Tensor:
    return x * (torch.rand_like(x) > 0.5)


half.register_autograd(lambda context, g: g)


@job
def a_custom_operator_that_draws_and_does_not_say_so(watch):
    yield from trained(watch(chain()), torch.randn(4, 8), lambda y: half(y).pow(2).mean())


@job
def a_generator_of_its_own_that_comes_as_a_positional_argument(watch):
    generator = torch.Generator().manual_seed(1)
    drawn = lambda y: (y * torch.poisson(torch.ones(8), generator=generator)).pow(2).mean()  # noqa: E731
    for made in trained(watch(chain()), torch.randn(4, 8), drawn):
        yield [*made, generator.get_state()]


@job
def statistics_of_a_batch_norm(watch):
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    for made in trained(watch(model), torch.randn(4, 8), lambda y: y.pow(2).mean()):
        yield [*made, *model.buffers()]


@job
def a_recurrent_layer_that_works_on_parts_of_one_tensor_in_place(watch):
    yield from trained(watch(nn.GRU(8, 8, 2)), torch.randn(5, 5, 8), lambda y: y[0].pow(2).mean())


@job
def a_loss_whose_operator_leaves_memory_unwritten(watch):
    x, y, lengths = torch.randn(50, 4, 8), torch.randint(1, 20, (4, 30)), torch.randint(5, 30, (4,))
    loss = lambda out: F.ctc_loss(out.log_softmax(-1), y, torch.full((4,), 50), lengths)  # noqa: E731
    yield from trained(watch(nn.Linear(8, 20)), x, loss)


@job
def a_policy_around_the_whole_model(watch):
    model = watch(chain())
    policy = partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    while True:
        checkpoint(model, torch.ones(4, 8), use_reentrant=False, context_fn=policy).mean().backward()
        optimizer.step()
        yield list(model.parameters())


@job
def a_counter_of_operations(watch):
    model = watch(chain())
    while True:
        with FlopCounterMode(display=False) as counter:
            model(torch.ones(4, 8)).mean().backward()
        torch.optim.SGD(model.parameters(), 0.1).step()
        yield [counter.get_total_flops(), *model.parameters()]


@job
def a_validation_without_gradients_and_no_optimizer(watch):
    model = watch(chain())
    while True:
        model(torch.ones(4, 8)).mean().backward()
        model.eval()
        with torch.inference_mode():
            value = model(torch.ones(4, 8))
        model.train()
        yield [value, torch.ones(2), *(p.grad for p in model.parameters())]


@job
def an_optimizer_of_each_parameter_that_steps_within_the_backward(watch):
    model = watch(chain())
    optimizers = {p: torch.optim.SGD([p], 0.1) for p in model.parameters()}

    def update(p: Tensor) -> None:
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in optimizers:
        p.register_post_accumulate_grad_hook(update)
    while True:
        model(torch.ones(4, 8)).mean().backward()
        yield list(model.parameters())


@job
def a_compiled_optimizer(watch):
    model = watch(chain())
    optimizer = torch.optim.AdamW(model.parameters())
    step = torch.compile(lambda: optimizer.step(), backend="eager")
    while True:
        model(torch.ones(4, 8)).mean().backward()
        step()
        yield list(model.parameters())


@job
def a_gradient_of_a_function_of_the_parameters(watch):
    model = watch(chain())
    named = {name: p.detach().clone() for name, p in model.named_parameters()}
    loss = lambda p: torch.func.functional_call(model, p, (torch.ones(4, 8),)).mean()  # noqa: E731
    while True:
        model(torch.ones(4, 8)).mean().backward()
        yield list(torch.func.grad(loss)(named).values())


@job
def derivatives_in_forward_mode(watch):
    model = watch(chain())
    while True:
        with forward_ad.dual_level():
            dual = model(forward_ad.make_dual(torch.ones(4, 8), torch.ones(4, 8)))
            tangent = forward_ad.unpack_dual(dual).tangent
        tangent.pow(2).mean().backward()
        torch.optim.SGD(model.parameters(), 0.1).step()
        yield [tangent.detach(), *model.parameters()]


@job
def quantized_and_nested_tensors(watch):
    def loss(y: Tensor) -> Tensor:
        quantized = torch.quantize_per_tensor(y.detach(), 0.1, 3, torch.quint8)
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        return y.mean() + quantized.dequantize().mean() + nested.to_padded_tensor(0.0).mean()

    yield from trained(watch(chain()), torch.randn(4, 8), loss)


@job
def results_that_are_written_where_they_are_read(watch):
    made = trained(watch(chain()), torch.randn(4, 8), lambda y: y.pow(2).mean())
    for step in made:
        t = torch.ones(3) * 2
        torch.add(t.mul_(t), 1, out=t)
        rows = torch.arange(8.0).view(2, 4)
        torch._foreach_mul_([rows[0], rows[0], rows.t()], 2.0)
        yield [*step, t, rows, torch.add(t, 1, out=torch.empty(0))]


@job
def two_models_that_are_both_watched(watch):
    first, second = watch(chain()), watch(chain())
    both = nn.Sequential(first, second)
    yield from trained(both, torch.randn(4, 8), lambda y: y.pow(2).mean())


@job
def functions_that_a_mode_of_the_job_counts(watch):
    class Counted(TorchFunctionMode):
        seen = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen += 1
            return func(*args, **(kwargs or {}))

    model, mode = chain(), Counted()
    model[1].forward = partial(checkpoint, model[1].forward, use_reentrant=False)
    watch(model)
    while True:
        with mode:
            model(torch.ones(4, 8)).mean().backward()
        yield [mode.seen]


@job
def arrays_and_lists_that_share_memory(watch):
    array, both = np.ones(4, "f"), [torch.ones(3), torch.ones(3) * 2]

    def loss(y: Tensor) -> Tensor:
        torch.from_numpy(array).add_(torch.from_numpy(array)).clamp_(max=8.0)
        torch._foreach_add_(both, both[::-1])
        return y.mean() + float(array[0])

    for made in trained(watch(chain()), torch.randn(4, 8), loss):
        yield [*made, torch.from_numpy(array), *both]


@job
def a_watch_within_an_except_block(watch):
    try:
        raise KeyError
    except KeyError:
        yield from trained(watch(chain()), torch.randn(4, 8), lambda y: y.pow(2).mean())


def run(make: Callable[..., Iterator[Any]], watch: Callable[[nn.Module], nn.Module]) -> list[Any]:
    torch.manual_seed(0)
    steps = make(watch)
    made = [[t.detach().clone() if isinstance(t, Tensor) else t for t in next(steps)] for _ in range(STEPS)]
    return [*made, [torch.get_rng_state()]]


@pytest.mark.parametrize("name", JOBS)
def test_it_computes_the_same_and_nothing_is_said_nor_left_behind(name):
    watches = []

    def watched(model: nn.Module) -> nn.Module:
        watches.append(rematch.watch(model, 1, on_difference=lambda finding: None))
        return model

    plain, made = run(JOBS[name], lambda model: model), run(JOBS[name], watched)
    for watch in watches:
        watch.remove()
        assert not watch.findings and watch.steps_watched >= STEPS
    assert not _get_current_dispatch_mode_stack()
    for step, (expected, came) in enumerate(zip(plain, made, strict=True)):
        for a, b in zip(expected, came, strict=True):
            assert torch.equal(a, b) if isinstance(a, Tensor) else a == b, f"step {step}"


def test_a_watch_can_be_removed_by_a_hook_of_the_backward():
    model = chain()
    watch = rematch.watch(model, 1)
    model[0].weight.register_hook(lambda g: watch.remove())
    model(torch.ones(4, 8)).mean().backward()
    assert not _get_current_dispatch_mode_stack()


class Wrong(TorchDispatchMode):
    """The first operator of a name that runs within has a wrong result, or writes one."""

    def __init__(self, name: str, result: int = 0) -> None:
        super().__init__()
        self.name, self.result, self.was_wrong = name, result, False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if self.was_wrong or not str(func).startswith(f"aten.{self.name}"):
            return made
        self.was_wrong = True
        if self.name == "nonzero":
            return made[:-1]
        wrong = args[0][0] if "fused" in self.name else made[self.result] if isinstance(made, tuple) else made
        wrong.detach().view(-1)[0] += 1
        return made


def stepped(model, x, optimizer):
    y = model(x)
    (y[1][0] if isinstance(y, tuple) else y).pow(2).mean().backward()
    optimizer.step()


def taught(model, x, optimizer):
    y = model(x)
    with torch.no_grad():
        target = model(x + 1)
    (y - target).pow(2).mean().backward()
    optimizer.step()


def handled(*given):
    try:
        raise KeyError
    except KeyError:
        stepped(*given)


def accumulated(model, x, optimizer):
    """40 microbatches and an odd one, where every second is watched."""
    for _ in range(41):
        model(x).pow(2).mean().backward()
    optimizer.step()


def counted(model, x, optimizer):
    (model(x).pow(2).mean() * len(torch.ones(5).nonzero())).backward()


ADAMW, SGD = partial(torch.optim.AdamW, fused=True), partial(torch.optim.SGD, lr=0.1, momentum=0.9)
ERRORS = {
    "a fused optimizer": (chain, stepped, "_fused_adamw_", 0, ADAMW),
    "the backward, behind another forward": (chain, taught, "mm", 0, SGD),
    "the backward, within an except block": (chain, handled, "mm", 0, SGD),
    "the optimizer, after many microbatches": (chain, accumulated, "mul_", 0, SGD),
    "the state of an LSTM": (partial(nn.LSTM, 8, 8), stepped, "mkldnn_rnn_layer", 1, SGD),
    "a mean that the backward takes": (partial(nn.BatchNorm1d, 8), stepped, "native_batch_norm", 1, SGD),
    "how many there are": (chain, counted, "nonzero", 0, SGD),
}


@pytest.mark.parametrize("where", ERRORS)
def test_a_wrong_execution_is_found_in(where):
    make, step, name, result, optimizer = ERRORS[where]
    torch.manual_seed(0)
    model = make()
    watch = rematch.watch(model, 2, on_difference=lambda finding: None)
    updates = optimizer(model.parameters())
    with watch:
        while not watch.findings and watch.rotation.completed < 6:
            with Wrong(name, result):
                step(model, torch.randn(4, 8), updates)
    assert watch.findings and watch.findings[0].operator.startswith(f"aten.{name}")


@pytest.mark.parametrize("removes", [torch.ops.aten.addmm.default, torch.ops.aten.mm.default], ids=str)
def test_a_watch_can_be_removed_by_what_is_told_of_a_finding(removes):
    model = chain()
    watch = rematch.watch(model, 1, on_difference=lambda finding: watch.remove())
    for _ in range(STEPS):
        with Wrong(str(removes)[len("aten.") :]):
            model(torch.randn(4, 8)).pow(2).mean().backward()
    assert watch.findings and not _get_current_dispatch_mode_stack()


def test_a_watch_that_sees_no_forward_says_so():
    model = chain()
    compiled, optimizer = torch.compile(model, backend="eager"), torch.optim.SGD(model.parameters(), 0.1)
    with rematch.watch(model, 1), pytest.warns(UserWarning, match="any forward of the model"):
        compiled(torch.ones(4, 8)).mean().backward()
        optimizer.step()


def test_steps_that_begin_in_a_thread_leave_nothing_behind():
    model, real = chain(), python_dispatch._pop_mode
    watch = rematch.watch(model, 1)
    thread = threading.Thread(target=lambda: model(torch.ones(4, 8)).mean().backward())
    thread.start()
    thread.join()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(STEPS):
        model(torch.ones(4, 8)).mean().backward()
        optimizer.step()
    watch.remove()
    assert watch.rotation.ran and python_dispatch._pop_mode is real
