"""Hooks on saved tensors around a checkpoint: what they see of it, and how long it keeps them."""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import checkpoint as api

from rematch.frameworks.pytorch.contract import promise as p
from rematch.frameworks.pytorch.contract.policies import selective, three_steps

promises: list[p.Promise] = []
_ATEN = torch.ops.aten
_SIN, _EXP = _ATEN.sin.default, _ATEN.exp.default
_RESPECT = "respect_saved_tensors_hooks"


@p.promise(promises, when=p.RECENT)
def hooks_outside() -> None:
    """Hooks on saved tensors around a checkpoint see its inputs, not what function saves, and are
    not kept alive by it."""
    x = p.leaf().exp()
    packed, unpacked = [], []

    def pack(t: Tensor) -> Tensor:
        packed.append(t.detach().clone())
        return t * 2

    def unpack(t: Tensor) -> Tensor:
        unpacked.append(t)
        return t / 2

    for reentrant in p.BOTH:
        packed.clear(), unpacked.clear()
        x = x.detach().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            out = api.checkpoint(lambda x: (x.sin().cos() * 3).tanh(), x, use_reentrant=reentrant)
        p.equal(len(packed), 1, "tensors that hooks saw")
        p.equal(packed[0], x.detach(), "what a hook saw")
        out.sum().backward()
        p.equal(x.grad, p.gradient((x.sin().cos() * 3).tanh(), x), "gradient")
        p.equal(len(unpacked), 1, "tensors that were unpacked")
    # Without tensors among its inputs there is nothing that hooks could see.
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        out = api.checkpoint(lambda n: (x * n).sin(), 3, use_reentrant=False)
    hooks = weakref.ref(pack), weakref.ref(unpack)
    del pack, unpack
    p.expect(hooks[0]() is None and hooks[1]() is None, "hooks are kept alive by a graph")
    p.equal(p.gradient(out, x), p.gradient((x * 3).sin(), x), "gradient")


def _hooked(policy: Any, *warned: Any, **options: Any) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """What hooks around a checkpoint packed and unpacked, and the gradient."""
    x = p.leaf().exp().detach().requires_grad_()
    packed, unpacked = [], []

    def pack(t: Tensor) -> Tensor:
        packed.append(t.detach().clone())
        return t.detach().clone()

    def unpack(t: Tensor) -> Tensor:
        unpacked.append(t)
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack), p.warns(*warned):
        out = selective(policy, three_steps, x, **options)
    return packed[1:], unpacked, p.gradient(out, x)


@p.promise(promises, when=_RESPECT in p.OPTIONS)
def hooks_around_policies() -> None:
    """With respect_saved_tensors_hooks=True, what a policy saves goes through the surrounding hooks
    on saved tensors. With False it does not, nor by default, and then a FutureWarning says so."""
    soon = FutureWarning, "respect_saved_tensors_hooks=True|False"
    x = p.leaf().exp().detach().requires_grad_()
    wanted = p.gradient(three_steps(x), x)
    for options, seen, warned in (
        ({_RESPECT: True}, 1, ()),
        ({_RESPECT: False}, 0, ()),
        ({}, 0, (soon,)),
        ({_RESPECT: None}, 0, (soon,)),
    ):
        packed, unpacked, got = _hooked([_SIN], *warned, **options)
        p.equal(len(packed), seen, f"saved tensors that hooks saw with {options}")
        p.equal(got, wanted, "gradient")
        if seen:
            p.equal(packed[0], x.sin().detach(), "what a hook saw")
        # The input is unpacked as well.
        p.equal(len(unpacked), 1 + seen, f"tensors that were unpacked with {options}")
        # Where nothing is saved there is nothing to warn of.
        packed, unpacked, got = _hooked([], **options)
        p.equal((len(packed), len(unpacked)), (0, 1), "tensors that hooks saw without any saved")
    with p.warns():
        out = selective([_SIN], three_steps, x)
    p.equal(p.gradient(out, x), wanted, "gradient without hooks")
    # Results that are no tensors are no concern of hooks.
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        function = lambda x: (x * x.sum().item()).sin()  # noqa: E731
        out = selective([_ATEN._local_scalar_dense.default], function, x, **{_RESPECT: True})
    p.equal(p.gradient(out, x), p.gradient(function(x), x), "gradient by a number that was saved")


@p.promise(promises, when=_RESPECT in p.OPTIONS)
def hooks_around_nested_checkpoints() -> None:
    """The hooks that see what a policy saves are the user's, also if the checkpoint is within
    another one."""
    x = p.leaf()
    seen: list[Tensor] = []

    def pack(t: Tensor) -> Tensor:
        seen.append(t.detach().clone())
        return t

    options = {_RESPECT: True}
    inner = partial(selective, [_EXP], lambda x: (x.sin().exp() * 2).cos(), **options)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = api.checkpoint(lambda x: inner(x.tanh()), x, use_reentrant=False)
    kept = x.tanh().sin().exp().detach()
    p.equal(sum(t.equal(kept) for t in seen), 1, "times that hooks saw what the policy saves")
    p.equal(p.gradient(out, x), p.gradient((x.tanh().sin().exp() * 2).cos(), x), "gradient")
