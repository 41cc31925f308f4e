"""Modules whose recomputation computes something else, or whose region gets no gradient."""

from __future__ import annotations

import functools
import time
import uuid
from typing import Any

import torch
from planted import INPUTS, Inner, planted
from sound import Lora
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


@planted("cache-filled")
class Remembers(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.known = None

    def forward(self, x):
        if self.known is None:
            self.known = self.inner(x).detach().exp()
        return self.inner(x).tanh() * self.known


@planted("no-input-requires-grad")
def embedding() -> Any:
    return nn.Embedding(5, 3)


INPUTS["embedding"] = lambda: ((torch.tensor([1, 2, 4]),), {})


@planted("nested-output")
class ReturnsDict(Inner):
    def forward(self, x):
        return {"hidden": self.inner(x).tanh()}


@planted("nested-output")
class ReturnsList(Inner):
    def forward(self, x):
        return [self.inner(x).tanh()]


@planted("nested-output")
class ReturnsMixed(Inner):
    def forward(self, x):
        y = self.inner(x)
        return y, {"aux": y.square().mean()}


@planted("nested-input")
class TakesDict(Inner):
    def forward(self, x, more):
        return self.inner(x) + more["bias"].sin()


INPUTS["TakesDict"] = lambda: ((torch.randn(3, 4), {"bias": torch.randn(3, 4, requires_grad=True)}), {})


@planted("side-output")
class AuxiliaryLoss(Inner):
    def forward(self, x):
        y = self.inner(x)
        self.loss = y.square().mean()
        return y


@planted("grad-mode")
class AsksGradMode(Inner):
    def forward(self, x):
        y = self.inner(x)
        return y.tanh() if torch.is_grad_enabled() else y.bfloat16().tanh().float()


@planted("fast-path")
def fast_path() -> Any:
    """Where gradients are off, it leaves out what is padded."""
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()


INPUTS["fast_path"] = lambda: (
    (torch.randn(2, 5, 8),),
    {"src_key_padding_mask": torch.tensor([[False] * 5, [False] * 3 + [True] * 2])},
)


@planted("context-closed")
def default_dtype() -> Any:
    layer = nn.Linear(4, 4)

    def block(x):
        return layer(x) * torch.full((4,), 0.1)

    def model(x):
        torch.set_default_dtype(torch.bfloat16)
        try:
            return checkpoint(block, x, use_reentrant=False)
        finally:
            torch.set_default_dtype(torch.float32)

    return model


@planted("rng-not-preserved")
def not_preserved() -> Any:
    layer = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh())
    return lambda x: checkpoint(layer, x, use_reentrant=False, preserve_rng_state=False)


@planted("saved-before-filled")
def rrelu() -> Any:
    return nn.Sequential(nn.Linear(4, 64), nn.RReLU())


@planted("switch-makes-leaf")
class WritesToEmbedding(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.last = nn.Linear(4, 4)
        self.gradient_checkpointing = True

    def forward(self, ids):
        x = self.embedding(ids)
        if self.gradient_checkpointing:
            x.requires_grad_()
        x += 1
        return self.last(
            checkpoint(self.inner, x, use_reentrant=False) if self.gradient_checkpointing else self.inner(x)
        )


INPUTS["WritesToEmbedding"] = lambda: ((torch.tensor([1, 2, 4]),), {})


@planted("offloaded-strides")
def sliced() -> Any:
    layer = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    return lambda x: checkpoint(layer, torch.stack([x, x])[:, :2], use_reentrant=False)


@planted("switch-changes-more")
class SwitchesPrefix(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.gradient_checkpointing = True

    def forward(self, x):
        if self.gradient_checkpointing:
            return checkpoint(self.inner, x * 1.5, use_reentrant=False)
        return self.inner(x)


@planted("not-checkpointed")
class OnlyInTraining(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.gradient_checkpointing = True

    def forward(self, x):
        if self.gradient_checkpointing and self.training:
            return checkpoint(self.inner, x, use_reentrant=False)
        return self.inner(x)


@planted("switch-drops-output")
class DropsCache(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.gradient_checkpointing = True

    def forward(self, x):
        if self.gradient_checkpointing:
            return {"y": checkpoint(self.inner, x, use_reentrant=False)}
        return {"y": self.inner(x), "cache": x.detach() * 2}


class Tagged(torch.Tensor):
    """Doubles every product that one of its kind takes part in."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        if func in (torch.mul, torch.Tensor.mul, torch.Tensor.__mul__):
            with torch._C.DisableTorchFunctionSubclass():
                out = (out + out).as_subclass(cls)
        return out


@planted("subclass")
class Multiplies(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, -2.0]))

    def forward(self, x):
        return (x * self.w).sin()


INPUTS["Multiplies"] = lambda: ((torch.tensor([0.3, 0.5]).as_subclass(Tagged),), {})


@planted("kept-then-written")
def recurrent() -> Any:
    return nn.GRU(8, 4)


INPUTS["recurrent"] = lambda: ((torch.randn(2, 5, 8),), {})


@planted("graph-shared")
class ClosesOverHidden(Inner):
    def forward(self, x):
        x = self.inner(x)
        hidden = x.exp()
        for _ in range(2):
            x = checkpoint(lambda y: (y * hidden).tanh(), x, use_reentrant=True)
        return x


@planted("grad-mode")
class HooksTensor(Inner):
    def forward(self, x):
        y = self.inner(x)
        y.register_hook(lambda gradient: gradient * 2)
        return y.tanh()


@planted("written-in-place")
class WritesAfterwards(Inner):
    def forward(self, x):
        x = self.inner(x)
        y = checkpoint(lambda z: z.tanh().exp(), x, use_reentrant=False)
        x.add_(1)
        return y


@planted("view-written")
class WritesToView(Inner):
    def forward(self, x):
        y = checkpoint(lambda z: z.view(-1), self.inner(x), use_reentrant=True)
        return y.mul_(2)


@planted("policy")
class KeepsWhatIsWritten(Inner):
    def forward(self, x):
        def policy(context, op, *args, **kwargs):
            return CheckpointPolicy.MUST_SAVE

        contexts = functools.partial(create_selective_checkpoint_contexts, policy)
        return checkpoint(lambda y: self.inner(y).sin().relu_(), x, use_reentrant=False, context_fn=contexts)


@planted("detached-output")
class ReturnsDetached(Inner):
    def forward(self, x):
        y = self.inner(x)
        return y, y.detach().exp()


@planted("backward-within")
class Force(Inner):
    def forward(self, x):
        energy = self.inner(x).square().sum()
        (force,) = torch.autograd.grad(energy, x, create_graph=True)
        return force


@planted("clock-or-entropy")
class ReadsClock(Inner):
    def forward(self, x):
        return (self.inner(x) * time.perf_counter()).sin()


@planted("clock-or-entropy")
class ReadsEntropy(Inner):
    def forward(self, x):
        return (self.inner(x) * (uuid.uuid4().int % 97)).sin()


@planted("names-changed")
def renamed() -> Any:
    return nn.Sequential(*(checkpoint_wrapper(nn.Sequential(nn.Linear(4, 4), nn.Tanh())) for _ in range(2)))


@planted("cache-filled")
class CachesCall(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.table = functools.lru_cache(lambda n: self.weight[:n].exp())

    def forward(self, x):
        return (x @ self.table(4)).tanh()


@planted("cache-filled")
class RemembersOutput(Inner):
    """The output that is kept from the forward has no graph in a reentrant recomputation."""

    key = None
    value = None

    def forward(self, x):
        key = x.detach().tolist()
        if self.key != key:
            self.key, self.value = key, self.inner(x).tanh()
        return self.value * 1.0


@planted("nested-output")
class ReturnsDictInside(Inner):
    def forward(self, x):
        found = checkpoint(self.both, self.inner(x), use_reentrant=True)
        return found["y"] + found["auxiliary"]

    def both(self, x):
        y = self.inner(x).tanh()
        return {"y": y, "auxiliary": y.square().mean()}


@planted("grad-mode")
class OtherArgument(Inner):
    """The same operator of the same tensors, with another argument."""

    def forward(self, x):
        return nn.functional.gelu(self.inner(x), approximate="none" if torch.is_grad_enabled() else "tanh")


@planted("context-closed")
def cached_parametrization() -> Any:
    """Within cached(), the second use of the weight costs nothing; the backward is outside."""
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))

    def model(x):
        with nn.utils.parametrize.cached():
            return checkpoint(lambda y: layer(layer(y).tanh()), x, use_reentrant=False)

    return model


@planted("flag")
class DetachesFirst(Inner):
    """The same operators of the same values, of which the first forward detaches one."""

    warm = True

    def forward(self, x):
        y = self.inner(x)
        if self.warm:
            self.warm, y = False, y.detach()
        return (y + x).tanh()


@planted("does-not-end")
class ReturnsItsParameter(Inner):
    """The reentrant variant makes the region the history of the parameter, and its backward needs itself."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        return self.inner(x), self.scale


# Safe elsewhere, but not where what comes before it is frozen, too.
planted("no-input-requires-grad")(Lora)
