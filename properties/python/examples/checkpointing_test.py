"""Does gradient checkpointing change anything but memory? A check to paste into the common tests of a library.

It needs PyTorch alone and no GPU, and compares to the bit what tests usually compare loosely, or leave out.
"""

import copy
import inspect
import math
import random
import sys
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from types import ModuleType

import torch
from torch import nn

STEPS = "one step", "two forwards", "input gradients", "autocast", "frozen embeddings", "evaluation"


def check_gradient_checkpointing(make_model, batch, turn_on, *, second=None, without=(), plain_blocks=()):
    """Trains new models from the same seeds, plain and with the switch on, and compares every number to the bit.

    make_model()                    returns a small model, with dropouts above 0
    batch, second                   its arguments by name; the second batch is by default the first, rows in reverse
    turn_on(model)                  turns the switch on; turn_on(model, use_reentrant) is tried with False and True
    without=("autocast",)           which of STEPS are not supported; PyTorch documents that reentrant checkpoints give
                                    no gradients behind "frozen embeddings"
    plain_blocks=("model.heads",)   lists of blocks that are not checkpointed on purpose
    """
    reverse = {n: v.flip(0) if isinstance(v, torch.Tensor) and v.dim() else v for n, v in batch.items()}
    setting = make_model, [batch, second or reverse], without
    plain, saved = train(*setting)
    problems = {}

    def report(name, sentence, switch=""):
        problems.setdefault((switch, name[0]), []).append(switch + " ".join(name).strip() + sentence)

    for step in STEPS:
        loss = plain.get((f"{step}: loss", ""))
        if loss is not None and not loss.isfinite():
            report((step,), " was not tried, since its loss is not finite")
        elif loss is None and step not in without and step not in ("input gradients", "evaluation"):
            report((step,), " was not tried, since no output requires grad: name it in `without`")
    if all(torch.equal(state, plain["one step: random state", str(i)]) for i, state in enumerate(seed())):
        warnings.warn("not tried: dropout, since the model in training draws no random numbers", stacklevel=2)
    if not any(distance(a, b) for a, b in zip(*(dict(tensors_in(b)).values() for b in setting[1]), strict=True)):
        warnings.warn("not tried: two forwards of different batches; pass `second`", stacklevel=2)

    required = [p for p in inspect.signature(turn_on).parameters.values() if p.default is p.empty]
    for arguments in ((False,), (True,)) if len(required) > 1 else ((),):
        switch = "with use_reentrant={}, ".format(*arguments) if arguments else "with the switch on, "
        values, kept = train(*setting, lambda model, arguments=arguments: turn_on(model, *arguments), plain)
        noise = None
        for name in plain | values:
            if name not in values or name not in plain:
                report(name, " is missing" if name in plain else " is there, and not without", switch)
            elif off := distance(plain[name], values[name]):
                noise = noise or noise_of(plain, train(*setting)[0], arguments != (False,) and others(plain, *setting))
                if off > noise[name]:
                    report(name, f" differs by {off:.3g}, where rounding explains {noise[name]:.3g}", switch)
        for block, before in saved.items():
            if not block and not before or 0 < before <= kept[block] and not block.startswith(plain_blocks):
                where = f"{block} is not checkpointed" if block else "nothing is checkpointed"
                report((where,), f": {kept[block]:,} bytes are saved for the backward, {before:,} without", switch)
    if problems:
        shown = [first + (f" ({len(more)} more like this)" if more else "") for first, *more in problems.values()]
        raise AssertionError("\n  ".join(["gradient checkpointing changes more than memory:", *shown]))


def others(plain, make_model, batches, without):
    """Whether the first forward rounds otherwise without gradients, where a reentrant checkpoint runs it."""
    seed()
    model = make_model().train()
    seed()
    with torch.no_grad():
        outputs = dict(tensors_in([model(**copy.deepcopy(batches[0]))]))
    return any(distance(tensor, plain.get(("one step: output", name), tensor)) for name, tensor in outputs.items())


def noise_of(plain, again, other_order):
    """How far two runs may differ: not at all where two plain ones agree in everything and no sum has another order."""
    floors = {name: distance(value, again.get(name)) for name, value in plain.items()}
    if not any(floors.values()) and not other_order:
        return floors
    # The device adds in another order each time, or a kernel without gradients does. A sum of n terms is then off by
    # about sqrt(n) roundings, and by n at most, so a third run may be off by sqrt(n) times as much as these two. No sum
    # has more terms than the largest tensor has elements. What is rounded is at most the largest value of a kind (all
    # gradients of a step, say).
    floats = {name: value for name, value in plain.items() if value.is_floating_point() and value.numel()}
    terms, rounding = max(value.numel() for value in floats.values()), {}
    for (kind, _), value in floats.items():
        epsilon = torch.finfo(torch.bfloat16 if kind.startswith("autocast") else value.dtype).eps
        largest = (
            value.abs().where(value.abs() < torch.finfo(value.dtype).max / 4, 0).max().item()
        )  # See "two forwards".
        rounding[kind] = max(rounding.get(kind, 0.0), epsilon * largest)
    for name, floor in floors.items():
        if floor > terms * rounding.get(name[0], 0.0):
            raise AssertionError(f"{' '.join(name)} differs by {floor:.3g} between two plain runs from the same seeds")
    return {name: math.sqrt(terms) * max(floor, rounding.get(name[0], 0.0)) for name, floor in floors.items()}


def train(make_model, batches, without, turn_on=None, plain=None):
    """Returns all values by kind and name, and the bytes saved for a backward, by block and in all ("")."""
    seed()
    model, frames, values, flags = make_model().train(), [""], {}, set()
    blocks, parameters = blocks_of(model), dict(model.named_parameters())
    own = {t.untyped_storage().data_ptr() for t in [*parameters.values(), *model.buffers()]}
    saved = {name: {} for name in ["", *blocks]}
    if turn_on:
        before = dict(tensors_in(state_of(model)))
        turn_on(model)
        flags = dict(tensors_in(state_of(model))).keys() - before.keys()

    def pack(tensor):
        storage = tensor.untyped_storage()
        for frame in frames if storage.data_ptr() not in own else ():
            saved[frame][storage.data_ptr()] = storage  # Held, so that no other storage gets its address.
        return tensor

    def enter(block, args, kwargs, name):
        frames.append(name)
        # A reentrant checkpoint adds up the gradients of an argument before it adds them to others. So do views.
        return tuple(map(view, args)), {key: view(value) for key, value in kwargs.items()}

    def keep(kind, value, but=()):
        values.update(((kind, n), tensor.detach().clone()) for n, tensor in tensors_in(value) if n not in but)

    for name, block in blocks.items():
        block.register_forward_pre_hook(lambda *given, name=name: enter(*given, name), with_kwargs=True)
        block.register_forward_hook(lambda *_: frames.pop() and None)
    seed()
    for step in STEPS:
        given = copy.deepcopy(batches if step == "two forwards" else batches[:1])
        floats = {n: v for n, v in given[0].items() if isinstance(v, torch.Tensor) and v.is_floating_point()}
        if step in without or step == "input gradients" and not floats:
            continue
        model.zero_grad()
        leaves, context = parameters, nullcontext()
        if step == "one step":
            context = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
        elif step == "two forwards":  # Before one backward, whose gradients are added to those that are there:
            # to 0, or to a number next to which none counts. So the order does not, either.
            for leaf in (leaf for leaf in leaves.values() if leaf.requires_grad):
                odd = torch.arange(leaf.numel(), device=leaf.device).view(leaf.shape) % 2
                leaf.grad = torch.finfo(leaf.dtype).max / 2 * odd.to(leaf.dtype)
        elif step == "input gradients":
            leaves = parameters | {f"argument {name}": value.requires_grad_() for name, value in floats.items()}
        elif step == "autocast":  # Gradients of cached casts would add up in bfloat16.
            context = torch.autocast(next(model.parameters()).device.type, torch.bfloat16, cache_enabled=False)
        elif step == "frozen embeddings":
            for name, leaf in leaves.items():
                leaf.requires_grad_(leaf.requires_grad and name.startswith(tuple(f"{block}." for block in blocks)))
        elif step == "evaluation":
            context = torch.no_grad()
            model.eval()
        with context:
            outputs = [model(**batch) for batch in given]
        keep(f"{step}: output", outputs)
        losses = []
        for name, tensor in tensors_in(outputs):
            flag = f"{step}: requires_grad of output", name
            if tensor.requires_grad and (not plain or flag in plain):  # A reentrant checkpoint sets it of all outputs.
                values[flag] = torch.tensor(True)
                # The plain sum of what a LayerNorm returns has no gradient.
                weights = torch.arange(tensor.numel(), device=tensor.device).cos().view(tensor.shape)
                losses.append((tensor.float() * weights).sum())
        if losses:
            values[f"{step}: loss", ""] = sum(losses).detach()
            sum(losses).backward()
        keep(f"{step}: gradient of", {name: leaf.grad for name, leaf in leaves.items()})
        # A recomputation may write once more: to caches in arguments and outputs; below, to buffers and attributes.
        keep(f"{step}: after the backward,", {"argument": given, "output": outputs})
        keep(f"{step}: random state", random_states())
    keep("after all steps: state of", state_of(model), flags)
    return values, {name: sum(storage.nbytes() for storage in held.values()) for name, held in saved.items()}


def seed():
    random.seed(0)
    torch.manual_seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    return random_states()


def random_states():
    states = [torch.get_rng_state(), torch.tensor(random.getstate()[1])]
    if "numpy" in sys.modules:
        states.append(torch.tensor(sys.modules["numpy"].random.get_state()[1].tolist()))
    return states + (torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [])


def state_of(model):
    """Buffers and other attributes of all modules."""
    return {n: {k: v for k, v in vars(m).items() if not k.endswith("_hooks")} for n, m in model.named_modules()}


def blocks_of(model):
    """Entries of lists of modules that have modules of their own; in a Sequential, those whose class is repeated."""
    found = {}
    for name, group in model.named_modules():
        kinds = [type(entry) for entry in group] if isinstance(group, (nn.ModuleList, nn.Sequential)) else []
        for entry, block in group.named_children() if kinds else ():
            if any(block.children()) and (isinstance(group, nn.ModuleList) or kinds.count(type(block)) > 1):
                found[f"{name}.{entry}".strip(".")] = block
    return found


def tensors_in(value, name="", seen=None):
    """Names and tensors within containers and objects, outputs and caches for example; numbers as tensors."""
    seen = {} if seen is None else seen
    if type(value) in (int, float):
        value = torch.tensor(float(value))
    elif isinstance(value, torch.Generator):
        value = value.get_state()
    if isinstance(value, torch.Tensor):
        yield name, value
    elif id(value) not in seen and not isinstance(value, (str, nn.Module, type, ModuleType)):
        seen[id(value)] = value
        if isinstance(value, (list, tuple)):
            value = dict(enumerate(value))
        for key, part in (value if isinstance(value, Mapping) else getattr(value, "__dict__", {})).items():
            yield from tensors_in(part, f"{name}.{key}" if name else f"{key}", seen)


def distance(a, b):
    """0 where all bits are equal, infinity where shapes or types differ."""
    if b is None or a.shape != b.shape or a.dtype != b.dtype:
        return math.inf
    a, b = (t.contiguous().reshape(-1) for t in (a, b))
    if torch.equal(a.view(torch.uint8), b.view(torch.uint8)):
        return 0.0
    a, b = (torch.view_as_real(t) if t.is_complex() else t for t in (a, b))
    return (a.double() - b.double()).abs().nan_to_num(math.inf).max().item() or sys.float_info.min  # 0.0 and -0.0


def view(value):
    return value.view_as(value) if isinstance(value, torch.Tensor) and value.requires_grad else value
