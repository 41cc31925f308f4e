"""Promises of modules that checkpoint other modules. `checkpoint(module, **options)` returns such a module."""

import pickle
from contextlib import contextmanager
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
    offload_wrapper,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from rematch.subjects.promises import plain, promises_in


class Counted(nn.Module):
    """Counts how often it runs, and how often what it saves last is followed by more. It may fail, or draw."""

    runs = tails = 0
    fails = False

    def __init__(self):
        super().__init__()
        weight = torch.linspace(-1, 1, 9, dtype=torch.float64).reshape(3, 3)
        self.linear = nn.Linear(3, 3, dtype=torch.float64)
        self.linear.weight = nn.Parameter(weight)
        nn.init.ones_(self.linear.bias)

    def forward(self, x, scale=1.0, other=None, p=0.0, fails=False):
        self.runs += 1
        y = F.dropout(torch.tanh(self.linear(x)) * scale, p)
        if fails:
            raise KeyError("the module gave up")
        y = y if other is None else y * other["by"]
        self.tails += 1
        return y


def ones(*shape):
    return torch.ones(*shape, dtype=torch.float64, requires_grad=True)


def gradients(module, *given, **keywords):
    """Of the sum of squares of what the module returns, by its parameters, and the sum itself."""
    for p in module.parameters():
        p.grad = None
    loss = module(*given, **keywords).pow(2).sum()
    loss.backward()
    return [loss.item(), *(x for p in module.parameters() for x in p.grad.flatten().tolist())]


def error_of(action):
    try:
        action()
    except Exception as error:
        return type(error).__name__
    return "none"


def names_of_parameters_and_state(checkpoint):
    """A module has the names of parameters and state that it has without a checkpoint, within a model, too."""
    model = nn.Sequential(checkpoint(nn.Sequential(checkpoint(Counted()), nn.BatchNorm1d(3))))
    return [*model.state_dict(), *(name for name, _ in model[0].named_parameters())]


def state_is_loaded(checkpoint):
    """State of a module without a checkpoint can be loaded into one that has it, and back, within a model, too."""
    saved, loaded = nn.Sequential(Counted(), Counted()), nn.Sequential(checkpoint(Counted()), Counted())
    for p in saved.parameters():
        nn.init.constant_(p, 3.0)
    missing = loaded.load_state_dict(saved.state_dict())
    back = nn.Sequential(Counted(), Counted())
    back.load_state_dict(loaded.state_dict())
    return [len(missing.missing_keys), *(p.sum().item() for m in (loaded, back) for p in m.parameters())]


def attributes_are_those_of_the_module(checkpoint):
    """Attributes and items of a module can be read where it is checkpointed, and what it lacks is an AttributeError."""
    module = checkpoint(nn.Sequential(Counted(), nn.Tanh()))
    return [type(module[1]).__name__, module[0].runs, len(list(module.children())) > 0, hasattr(module, "absent")]


def tensors_by_keyword(checkpoint):
    """Tensors and others that a module takes by keyword, containers among them, reach it and get their gradients."""
    module, scale, by = checkpoint(Counted()), ones(3), ones(3)
    found = gradients(module, ones(2, 3), scale=scale, other={"by": by, "unused": None})
    return [*found, *scale.grad.tolist(), *by.grad.tolist()]


def several_calls_in_a_forward(checkpoint):
    """A module may be called twice in a forward, with other arguments, and for two forwards ahead of both backwards."""
    module = checkpoint(Counted())
    found = gradients(nn.Sequential(module, module), ones(2, 3))
    first, second = module(ones(2, 3)), module(ones(2, 3), 2.0)
    first.sum().backward()
    second.sum().backward()
    return [*found, *(p.grad.sum().item() for p in module.parameters())]


def shared_by_two_parents(checkpoint):
    """A module that two others share, one of them checkpointed itself, has the gradients that it has without."""
    shared = checkpoint(Counted())
    return gradients(nn.Sequential(checkpoint(nn.Sequential(shared, nn.Tanh())), nn.Sequential(shared)), ones(2, 3))


def masks_are_those_of_the_forward(checkpoint):
    """Dropout has the masks of the forward, and the random state afterwards is that of a plain run."""
    torch.manual_seed(3)
    return [*gradients(checkpoint(Counted()), ones(4, 3), p=0.5), torch.rand(1).item()]


def goes_on_after_an_error(checkpoint):
    """After an error in its forward a module runs, and is recomputed, as before."""
    inner = Counted()
    module, once = checkpoint(inner), 1 if checkpoint is plain else 2
    found = [error_of(lambda: module(ones(2, 3), fails=True)), *gradients(module, ones(2, 3))]
    return [*map(str, found), str((inner.runs - 1) / once)]


def recomputed_once(checkpoint):
    """Each backward runs a module again, once, up to what it saves last, and a forward without gradients never does."""
    inner = Counted()
    module, more = checkpoint(inner), 0 if checkpoint is plain else 1
    for _ in range(3):
        gradients(module, ones(2, 3))
        with torch.no_grad():
            module(ones(2, 3))
    return [6, 6], [inner.runs - 3 * more, inner.tails]


def copies_stand_alone(checkpoint):
    """A deep copy trains as the module does, is recomputed, and does not touch the original."""
    module = checkpoint(Counted())
    copied = deepcopy(module)
    found = gradients(copied, ones(2, 3))
    [inner] = [m for m in copied.modules() if isinstance(m, Counted)]
    [original] = [m for m in module.modules() if isinstance(m, Counted)]
    runs = inner.runs - (0 if checkpoint is plain else 1)
    return [*found, runs, original.runs, sum(p.grad is not None for p in module.parameters())]


def random_state_is_preserved_if_asked(checkpoint):
    """preserve_rng_state reaches the checkpoint: without it, a recomputation draws on."""
    drawn = []
    for keeps in (True, False):
        torch.manual_seed(3)
        gradients(checkpoint(Counted(), preserve_rng_state=keeps), ones(4, 3), p=0.5)
        drawn.append(torch.rand(1).item())
    return [False], [checkpoint is not plain and drawn[0] == drawn[1]]


def early_stop_is_an_option(checkpoint):
    """early_stop=False reaches the checkpoint: a recomputation then runs to the end."""
    inner = Counted()
    gradients(checkpoint(inner, early_stop=False), ones(2, 3))
    return [1 if checkpoint is plain else 2], [inner.tails]


class Fewer(nn.Module):
    """Saves fewer tensors when it runs again; in other shapes, if it is to change these."""

    def __init__(self, shapes):
        super().__init__()
        self.runs, self.shapes = 0, shapes

    def forward(self, x):
        self.runs += 1
        again = self.runs > 1
        if self.shapes:
            return (x.repeat(1 + again, 1).exp() if again else x.exp()).sum()
        return x.sin() if again else x.sin().cos()


def determinism_check_is_an_option(checkpoint):
    """A recomputation in another shape is an error, unless determinism_check="none" says otherwise."""
    seen = [
        error_of(lambda o=o: checkpoint(Fewer(True), **o)(ones(2, 3)).backward())
        for o in ({}, {"determinism_check": "none"})
    ]
    return (["none"] * 2 if checkpoint is plain else ["CheckpointError", "RuntimeError"]), seen


def debug_is_an_option(checkpoint):
    """With debug=True an error of a recomputation lists the operators of both runs."""
    try:
        checkpoint(Fewer(False), debug=True)(ones(2, 3)).sum().backward()
        error = None
    except Exception as e:
        error = e
    expected = ("NoneType", False) if checkpoint is plain else ("CheckpointError", True)
    return list(map(str, expected)), [type(error).__name__, str("aten::" in str(error) or "aten." in str(error))]


class Noting(nn.Module):
    """Notes that it runs, and has a result that is saved."""

    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def forward(self, x):
        self.seen.append("runs")
        return x.tanh()


@contextmanager
def noted(name, seen):
    seen.append(f"{name} begins")
    yield
    seen.append(f"{name} is over")


def contexts_surround_both_runs(checkpoint):
    """Of the pair of contexts that context_fn makes, the first surrounds the forward, the second the recomputation."""
    seen = []
    contexts = lambda: (noted("forward", seen), noted("recomputation", seen))  # noqa: E731
    checkpoint(Noting(seen), context_fn=contexts, early_stop=False)(ones(2)).sum().backward()
    surrounded = [[f"{name} begins", "runs", f"{name} is over"] for name in ("forward", "recomputation")]
    return (["runs"] if checkpoint is plain else sum(surrounded, [])), seen


_COMMON = promises_in(globals())


def refused(checkpoint):
    """The composable checkpoint() refuses reentrance, options that it does not know, and a module that has one."""
    given = {"use_reentrant": True}, {"unheard_of": 1}, {}
    module = checkpoint(nn.Tanh())
    came = [error_of(lambda o=o: checkpoint(nn.Tanh() if o else module, **o)) for o in given]
    return ["NotImplementedError", "ValueError", "AssertionError"], came


def hooked(checkpoint, **options):
    """Gradients of a module with a hook that was there before its checkpoint, and how often the hook ran."""
    module, runs = Counted(), []
    module.register_forward_hook(lambda m, given, y: runs.append(1) or y.sin())
    return [*gradients(checkpoint(module, **options), ones(2, 3)), len(runs)]


def hooks_of_a_module(checkpoint):
    """A hook on the module runs once, behind its checkpoint."""
    return hooked(checkpoint)


def hooks_of_a_module_without_early_stop(checkpoint):
    """A hook on the module that saves tensors leaves gradients as they are, without early stop, too."""
    return hooked(checkpoint, early_stop=False)[:-1]


COMPOSABLE = promises_in(globals())


def variants(checkpoint):
    """checkpoint_wrapper() takes the variant without reentrance, unless it is told otherwise."""
    chosen = {}, {"checkpoint_impl": CheckpointImpl.NO_REENTRANT}, {"checkpoint_impl": CheckpointImpl.REENTRANT}
    came = [checkpoint_wrapper(nn.Tanh(), **o)(ones(2)).grad_fn.name() for o in chosen]
    return ["TanhBackward0", "TanhBackward0", "CheckpointFunctionBackward"], came


def reentrant_tensors_by_keyword(checkpoint):
    """With CheckpointImpl.REENTRANT tensors by keyword get their gradients as well, and others reach the module."""
    wrap = (lambda m: m) if checkpoint is plain else lambda m: checkpoint_wrapper(m, CheckpointImpl.REENTRANT)
    scale, x = ones(3), ones(2, 3)
    found = gradients(wrap(Counted()), x, scale=scale, other={"by": 2.0})
    return [*found, *x.grad.flatten().tolist(), *scale.grad.tolist()]


def function_of_its_own(checkpoint):
    """checkpoint_fn is called in the place of checkpoint(), with the module, its arguments and the options given."""
    seen = []

    def mine(module, *given, **options):
        seen.extend([type(module).__name__, len(given), *sorted(options)])
        return module(*given)

    checkpoint_wrapper(nn.Tanh(), checkpoint_fn=mine, debug=True)(ones(2))
    return ["Tanh", "1", "debug"], [str(s) for s in seen]


def wrapped_modules_are_pickled(checkpoint):
    """A wrapped module is pickled with its options, and trains as before."""
    return gradients(pickle.loads(pickle.dumps(checkpoint(Counted()))), ones(1, 3))


def where_checkpoints_are_applied(checkpoint):
    """apply_activation_checkpointing() wraps all modules that check_fn or the policy names, nested ones too, but not
    the model itself."""
    found = []
    for chosen in (
        {"check_fn": lambda m: isinstance(m, nn.Linear)},
        {"check_fn": lambda m: isinstance(m, nn.Sequential)},
        {"auto_wrap_policy": ModuleWrapPolicy({nn.Linear, nn.Sequential})},
        {"auto_wrap_policy": lambda m, recurse, nonwrapped_numel: recurse or isinstance(m, nn.Tanh)},
    ):
        model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Tanh()))
        apply_activation_checkpointing(model, **chosen)
        found.append("".join("w" if "checkpoint_fn" in vars(m) else "." for m in model.modules()))
    return [".w..w..", "..w...", ".w.w.w..", "....w."], found


def offloaded_modules(checkpoint):
    """offload_wrapper() packs all that is saved, so that hooks around see nothing; gradients, names and attributes are
    as without."""
    seen = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(1) or t, lambda t: t):
        model = nn.Sequential(offload_wrapper(Counted()))
        found = [*map(str, gradients(model, ones(2, 3))), *model.state_dict(), str(model[0].tails), len(seen)]
    bare = nn.Sequential(Counted())
    # What the square of the loss saves is outside.
    return [*map(str, gradients(bare, ones(2, 3))), *bare.state_dict(), str(bare[0].tails), 1], found


FSDP = tuple(p for p in promises_in(globals()) if p in _COMMON or p not in COMPOSABLE)
