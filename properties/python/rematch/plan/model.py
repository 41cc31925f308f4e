"""Finds which blocks of a model to checkpoint, so that a step fits into a number of bytes."""

import gc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rematch.journal.journal import hooked
from rematch.journal.regions import told
from rematch.plan.options import CHECKPOINTED, STORED, Contexts, known_options
from rematch.plan.planner import Planner, bytes_of
from rematch.plan.report import Plan
from rematch.plan.step import MakeOptimizer, Step
from rematch.safe.blocks import Wrapped, chosen_blocks
from rematch.safe.generators import seed_all
from rematch.safe.state import State
from rematch.safe.switch import known_switch
from rematch.safe.target import Target

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
}


def plan_model(
    model: nn.Module,
    *args: Any,
    budget: int | float | str | None = None,
    kwargs: Mapping[str, Any] | None = None,
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: MakeOptimizer | str | None = None,
    blocks: str | nn.Module | Sequence[str | nn.Module] | None = None,
    policies: Mapping[str, Contexts] | None = None,
    switch: Callable[[Any, bool], None] | None = None,
    seed: int = 0,
    seconds: float = 10.0,
    progress: bool = False,
    compared: bool = False,
) -> Plan:
    """Chooses which blocks to checkpoint: the least recomputation whose peak is within `budget`.

    Bytes and times are measured in training steps of the model, for each block as it is, checkpointed, and checkpointed
    with some results kept: those of matrix products, and those that take longest to recompute for their bytes. Each is
    tried next to each choice for the block before it; neighbours in an nn.Sequential may be one segment. The peaks of
    all choices follow; the best choice is found exactly, and then measured. On the CPU the storages of tensors are
    counted. So they are on fake tensors, where costs are floating-point operations. On CUDA the allocator is asked. The
    model is left as it was.

    Args:
        args, kwargs: a batch.
        budget: the most bytes of a step, with parameters, gradients and optimizer: a number, "8GB", "500MiB", or "60%"
            of the plain peak; None: the least possible.
        loss: makes a scalar of what the model returns; by default its attribute `loss`, or the sum of what it returns.
        optimizer: "adamw", "adam", "sgd", or a function of the parameters; without one a step ends after the backward.
        blocks: one or several patterns of names, such as "layers.*", or submodules; by default the blocks that the
            model's own switch wraps, or repeated children.
        policies: functions for checkpoint(context_fn=), by name, to try instead of the one that keeps products.
        switch: called with the model and True or False, turns the model's own checkpointing on or off.
        seconds: the most that each of three rounds of times takes: steps of all options, of the plan, and of the other
            choices in its table. A round ends sooner if each time is known to 3 points. On the CPU all seconds are
            those that the process computed, so that other load takes none of them.
        compared: measure what people do without a plan as well, and the plans within the same bytes: every block, each
            second, third and fourth one, checkpoint_sequential(), products kept, torch.compile() with an
            activation_memory_budget. It takes two more rounds of times.

    Raises ValueError if no choice is within the budget or no block is found, and RuntimeError if a plain step fails.
    """
    if not isinstance(model, nn.Module) or hasattr(model, "_orig_mod"):
        raise ValueError(
            f"[plan_model] a module is planned as it is before torch.compile(); got {type(model).__name__}"
        )
    if budget is not None:
        # A wrong budget is refused before anything runs.
        bytes_of(budget, 1 << 62)
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZERS:
            raise ValueError(
                f"[plan_model] optimizer is one of {', '.join(OPTIMIZERS)}, or a function; got {optimizer}"
            )
        optimizer = OPTIMIZERS[optimizer]
    options = known_options()
    if policies is not None:
        options = {STORED: None, CHECKPOINTED: None, **policies}
    turn = switch or _own_switch(model)
    target = Target(model, args, kwargs or {}, loss=loss, switch=turn)
    target.is_model = True
    # Each step begins with a collection: it need not look at what was there before, which takes it half a second.
    gc.collect()
    frozen = gc.get_freeze_count()
    gc.freeze()
    try:
        names = _find_blocks(target, _patterns(model, blocks), seed)
        step = Step(target, names, options, optimizer, seed)
        return Planner(step, names, policies is None, seconds, progress).plan(budget, compared)
    finally:
        if not frozen:
            gc.unfreeze()
        target.end()


def _own_switch(model: nn.Module) -> Callable[[Any, bool], None] | None:
    """Returns what turns the model's own checkpointing on and off; None if it has no switch, or one that refuses."""
    known = known_switch(model)
    if known is None:
        return None
    state = State({"": model}).kept()
    try:
        known.turn(model, True)
        known.turn(model, False)
    except Exception:
        return None
    finally:
        state.restore()
    return known.turn


def _patterns(model: nn.Module, blocks: Any) -> list[str] | None:
    """Returns patterns of names; a submodule stands for its name. Raises ValueError for a module of another model."""
    if blocks is None:
        return None
    names = {module: name for name, module in model.named_modules()}
    found = []
    for block in [blocks] if isinstance(blocks, (str, nn.Module)) else blocks:
        if isinstance(block, nn.Module) and not names.get(block):
            raise ValueError(f"[plan_model] blocks holds a {type(block).__name__} that is no submodule of the model")
        found.append(block if isinstance(block, str) else names[block])
    return found


def _find_blocks(target: Target, patterns: Sequence[str] | None, seed: int) -> list[str]:
    """Returns the names of the blocks in the order in which they run; none lies within another."""
    model: nn.Module = target.function  # type: ignore[assignment]
    ran: dict[str, None] = {}
    names = {module: name for name, module in model.named_modules()}
    wrapped = Wrapped(model)
    target.begin(seed)

    def enters(module: nn.Module, _: Any) -> None:
        if not torch.compiler.is_compiling():
            ran.setdefault(names[module])
            wrapped.enters(names[module])

    hooks = [h for m in names for h in hooked(m.register_forward_pre_hook, enters)]
    try:
        if target.switch is not None:
            target.switch(model, True)
        args, kwargs, _ = target.inputs(target.asked, 0)
        seed_all(seed)
        with told(wrapped), target.within():
            model(*args, **kwargs)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise RuntimeError(f"[plan_model] the model fails in a plain step: {what}") from error
    finally:
        for hook in hooks:
            hook.remove()
        target.begin(seed)
    found = chosen_blocks(model, patterns, wrapped.names, ran)
    outer = [n for n in ran if n in found and not any(n.startswith(f"{other}.") for other in found)]
    if not outer:
        asked = ", ".join(map(repr, patterns or ()))
        what = f"no submodule that ran matches {asked}" if asked else "the model has no submodules with parameters"
        raise ValueError(f"[plan_model] {what}: name its blocks, as in blocks='layers.*'")
    return outer
