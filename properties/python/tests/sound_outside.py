"""Sound modules that move what lies outside of them, or read what hangs on what they hold."""

import concurrent.futures
import functools
import time

import torch
import torch.nn.functional as F
from modules import Inner, given, linear, sound
from torch import nn
from torch.utils.checkpoint import checkpoint


@sound()
def seeds_pytorch(self, x):
    """PyTorch's generator is put back after a recomputation."""
    torch.manual_seed(5)
    return F.dropout(self.inner(x), 0.5)


@sound()
def hooks_and_cleans_up(self, x):
    """Early stop unwinds the finally block."""
    handle = self.inner.register_forward_hook(lambda module, taken, y: y + 1)
    try:
        return self.inner(x).sin()
    finally:
        handle.remove()


@sound(ramp=lambda: functools.lru_cache(lambda n: torch.linspace(0, 1, n)))
def caches_constants(self, x):
    """The recomputation finds the cache filled, with what has no graph anyway."""
    return (self.inner(x) * self.ramp(4)).tanh()


@sound()
class ReadsTagOfWeight(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.inner.weight.scale = 2.0  # type: ignore[assignment]

    def forward(self, x):
        return (self.inner(x) * self.inner.weight.scale).tanh()


@sound(outer=lambda: nn.Linear(4, 4).requires_grad_(False))
def frozen_inside(self, x):
    """Safe, but not with use_reentrant=True behind frozen weights, which fails no assertion."""
    return self.inner(self.outer(x).tanh())


ROWS = [torch.ones(2, 4), torch.full((3, 4), 0.5)]


@sound(lambda: given(torch.nested.nested_tensor(ROWS, layout=torch.jagged)))
def takes_nested_rows(self, rows):
    return self.inner(rows).tanh()


@sound(norm=lambda: nn.Buffer(torch.zeros(())))
def records_gradients(self, x):
    """A hook of the backward changes what no forward reads."""
    y = self.inner(x).tanh()
    if y.requires_grad:
        y.register_hook(lambda gradient: setattr(self, "norm", gradient.detach().norm()))
    return y


@sound(weight=lambda: nn.Parameter(torch.eye(4)))
def calls_within_region(self, x):
    """functional_call() exchanges the weights in the forward and in the recomputation."""
    call = torch.func.functional_call
    return checkpoint(lambda y: call(self.inner, {"weight": self.weight * 2}, (y,)).tanh(), x, use_reentrant=False)


@sound(depth=0)
def counts_depth_and_cleans_up(self, x):
    self.depth += 1
    try:
        return (self.inner(x) * self.depth).tanh()
    finally:
        self.depth -= 1


@sound()
def halves_within(self, x):
    """Hooks that lose digits see the same tensors where they lie within a region."""
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.half(), lambda t: t.float()):
        return self.inner(self.inner(x).tanh()).tanh()


@sound()
class ReadsOwnGradient(Inner):
    """A gradient that is there before the forward, of a weight that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)
        self.frozen.grad = torch.full((4,), 2.0)

    def forward(self, x):
        return (self.inner(x) * self.frozen.grad).tanh()


@sound(reentrant=False)
def collects_per_forward(self, x):
    """What is closed over begins empty in each call of the function."""

    def block(y):
        kept = [y]
        kept.append(self.inner(y))
        return torch.stack(kept).sum(0).tanh()

    return checkpoint(block, x, use_reentrant=False)


@sound(last=linear, gradient_checkpointing=True)
def detaches_in_both(self, x):
    """The graph is cut with the switch and without."""
    x = self.inner(x) + x.detach()
    return checkpoint(self.last, x, use_reentrant=False) if self.gradient_checkpointing else self.last(x)


@sound()
def threads_in_any_order(self, x):
    """The order in which threads end is noise."""
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        waits = [pool.submit(time.sleep, 0.0001 * (i % 2)) for i in range(32)]
        self.ended = [waits.index(wait) for wait in concurrent.futures.as_completed(waits)]
    return self.inner(x).tanh()
