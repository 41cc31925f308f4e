"""Causes of states that differ from those after the plain run: the forward ran once more than planned."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rematch.safe.causes.cause import Cause, StateRule
from rematch.safe.compare import Change
from rematch.safe.evidence import BACKWARD, CALLER, FORWARD, Digest, Evidence
from rematch.safe.state import (
    ARGUMENT,
    ATTRIBUTE,
    BUFFER,
    CLASS,
    CLOSURE,
    ENVIRONMENT,
    GENERATOR,
    GLOBAL,
    HOOKS,
    MODE,
    PARAMETER,
    RETURNED,
    TAG,
)
from rematch.safe.target_run import GRADIENT, OUTPUT
from rematch.safe.values import Extent, Identity, Position

GUARD = (
    "Guard the update with a flag, which context_fn can set for the recomputation (use_reentrant=False): "
    "checkpoint(f, x, use_reentrant=False, context_fn=lambda: (nullcontext(), Recomputing())), where Recomputing is a "
    "class with __enter__() and __exit__(), not a @contextmanager (each backward over a retained graph enters it "
    "again); or update it outside of the checkpoint."
)
_OUTSIDE = "Update it outside of the checkpoint, once a step, or return the value and store it there."
_PASS = "Change or decide it outside of the checkpoint, and pass the value in as an argument."

BATCH_NORM = Cause(
    "batch-norm",
    "BatchNorm updates its running statistics once more when it is recomputed",
    "Leave it out of the checkpoint, or use GroupNorm or LayerNorm.",
)
INSTANCE_NORM = Cause(
    "instance-norm",
    "InstanceNorm with track_running_stats updates its statistics once more when it is recomputed",
    "Leave it out of the checkpoint, or use track_running_stats=False.",
)
SPECTRAL_NORM = Cause(
    "spectral-norm",
    "Spectral norm takes another step of its power iteration ({name}) when it is recomputed, so that the "
    "recomputation uses another weight",
    "Leave the layer out of the checkpoint.",
)
OBSERVER = Cause(
    "observer",
    "An observer of quantization updates {name} once more when it is recomputed",
    "Disable observers in the recomputation (torch.ao.quantization.disable_observer), or leave them out of the "
    "checkpoint.",
)
BUFFER_COUNTER = Cause("buffer-counter", "The forward counts in the buffer {name}, and its recomputation again", GUARD)
BUFFER_AVERAGE = Cause(
    "buffer-average",
    "The forward updates the buffer {name} (an average, a codebook, statistics); its recomputation updates it again",
    GUARD,
)
BUFFER_REPLACED = Cause("buffer-cache", "The forward extends the buffer {name}, and its recomputation again", GUARD)
WEIGHT_WRITTEN = Cause(
    "parameter-written",
    "The forward writes to the parameter {name}; its recomputation writes again, and computes with changed weights",
    "Change weights between steps, not in the forward; or use torch.nn.utils.parametrize.",
)
COUNTER = Cause("counter", "The forward counts in {name}; its recomputation counts again", GUARD)
FLAG = Cause("flag", "The forward changes the flag {name}, so that the recomputation sees another value", _PASS)
COLLECTOR = Cause(
    "collected-twice",
    "The forward adds to {name}; its recomputation adds again",
    "Return what is collected, and collect it outside of the checkpoint; or clear the list before each forward "
    "and read it before the backward.",
)
ITERATOR = Cause(
    "iterator",
    "The forward takes an element of {name}, and the recomputation the one after it",
    "Take it outside of the checkpoint, and pass it in as an argument.",
)
STATISTIC = Cause(
    "tensor-attribute", "The forward updates the tensor {name}, which is no buffer, and its recomputation again", GUARD
)
LAZY = Cause(
    "created-in-forward",
    "The first forward creates or replaces {name}, so that the recomputation finds it there",
    "Create it in __init__(), or run one forward without checkpointing first.",
)
OTHER_STATE = Cause("attribute-changed", "The forward changes {name}, and the recomputation changes it again", _OUTSIDE)
GLOBAL_STATE = Cause("global-changed", "The forward changes {name}, which lies outside of the module", _PASS)
CLASS_STATE = Cause("class-attribute", "The forward changes {name}, which all objects of the class share", _OUTSIDE)
CLOSED_OVER = Cause("closure-changed", "{name} is a variable that the function closes over, and it changes", _PASS)
ARGUMENT_GROWS = Cause(
    "argument-cache",
    "The forward appends to {name}, a container that is passed in (such as a key-value cache), and appends twice",
    "Switch the cache off in training (use_cache=False), or return the new entries and append them outside.",
)
ARGUMENT_WRITTEN = Cause(
    "argument-written",
    "The forward writes to {name} in place; the recomputation starts from what the forward left",
    "Write to a copy: clone() it first, or use the out-of-place operator.",
)
ARGUMENT_CHANGED = Cause(
    "argument-changed",
    "The forward changes {name}, an object that is passed in, and changes it twice",
    "Return what changes, and apply it outside of the checkpoint.",
)
ARGUMENT_CONSUMED = Cause(
    "argument-consumed",
    "The forward takes elements out of {name}, a container that is passed in, and the recomputation finds them gone",
    "Read without taking: get() in place of pop(), or work on a copy, dict(options).",
)
RETURNED_CHANGED = Cause(
    "returned-then-changed",
    "The backward changes {name}: the recomputation writes to an object that the forward returned",
    "Return a copy of it, or make it outside of the checkpoint from what the region returns.",
)
TAG_LOST = Cause(
    "tag-lost",
    "{name}, a Python attribute of a tensor that is passed in, is missing in the recomputation, which gets a copy of "
    "the tensor: the reentrant variant detaches it, and hooks of saved tensors may replace it",
    "Pass the attribute as a separate argument.",
)
TAG_CHANGED = Cause(
    "tag-changed",
    "The forward sets {name}, a Python attribute of a tensor, and the recomputation finds it set",
    "Keep such marks outside of the checkpoint, or compute what depends on them before it.",
)
HOOKED = Cause(
    "hook-in-forward",
    "The forward adds to {name}, and adds again when it is recomputed",
    "Register hooks once, in __init__(), or remove() them before the forward returns.",
)
CARRIED = Cause(
    "carried-state",
    "The forward keeps {name} for its next call, but its recomputation gets it first",
    "Pass it in as an argument, return what the next call needs, and store it outside of the checkpoint.",
)
ENVIRONMENT_CHANGED = Cause("environment", "The forward changes the environment variable {name}", _PASS)
MODE_CHANGED = Cause(
    "mode-changed",
    "The mode of {name} (train or eval) changes between the forward and its recomputation",
    "Change modes after the backward: a recomputation runs in the mode that it finds.",
)
NUMPY_RANDOM, PYTHON_RANDOM = (
    Cause(
        f"{whose.lower()}-random",
        f"The forward draws from {what}, which checkpoint() does not preserve",
        f"checkpoint() preserves PyTorch's default generators only, not {whose}'s. Draw with torch.rand() and the like, "
        "or outside of the checkpoint, and pass the numbers in.",
    )
    for whose, what in (("NumPy", "NumPy's generator"), ("Python", "Python's random"))
)
OWN_GENERATOR = Cause(
    "own-generator",
    "The forward draws from {name}, a generator of its own, which checkpoint() does not preserve",
    "Draw from PyTorch's default generator, or outside of the checkpoint, and pass the numbers in; or save the "
    "generator's state and restore it in a context_fn.",
)
SEEDED = Cause(
    "seed-in-forward",
    "The forward sets a seed ({name}), and sets it again when it is recomputed: numbers drawn after the backward "
    "repeat earlier ones",
    "Draw from a generator made for it, random.Random(seed) or numpy.random.default_rng(seed).",
)
EARLY_STOP = Cause(
    "early-stop",
    "The forward puts {name} back at its end; the recomputation stops before that, as soon as it has what the "
    "backward needs",
    "Put it back in a finally block or a context manager; or run the forward within set_checkpoint_early_stop(False).",
)
IN_BACKWARD = Cause(
    "changed-in-backward",
    "{name} changes during the backward (by a hook, an optimizer, the accumulation of gradients): a recomputation "
    "reads the changed value, and in reentrant checkpoints hooks of parameters run once for each region",
    "Change it after backward() has returned, and pass in as an argument what a forward reads of it.",
)
BETWEEN = Cause(
    "changed-before-backward",
    "The caller of the checkpoint changes {name} between the forward and the backward, and the recomputation reads "
    "another value",
    "Pass it in as an argument, leave it unchanged until backward() has returned, or replace it, for instance with "
    "torch.func.functional_call(), within the function that is checkpointed.",
)
OVERTAKEN = Cause(
    "changed-by-later-forward",
    "A later forward changes {name} before the backward of an earlier one, whose recomputation reads the later value",
    "Run the backward of each forward before the next forward, or pass what depends on {name} in as an argument.",
)
LEFT_BY_EARLIER = Cause(
    "left-by-earlier-forward",
    "The forward sets {name}; the backward recomputes the last forward first, so {name} keeps the value of an earlier "
    "one",
    "Read it before the backward, or return it and store it outside of the checkpoint.",
)
LOSSY_HOOKS = Cause(
    "hooks-change-values",
    "Hooks of saved tensors return {name} with other values: gradients depend on which tensors are saved, and a "
    "checkpoint saves others than the plain run",
    "Use hooks that return the values that they got, such as torch.autograd.graph.save_on_cpu().",
)
TORCH_RANDOM = Cause(
    "random-state-moves",
    "PyTorch's generator ends in another state: the recomputation draws numbers, and does not restore the state",
    "Use preserve_rng_state=True, the default; set no seed within the forward.",
)


def whole(name: str) -> str:
    """Returns the name of the container of an element."""
    name = re.sub(r"^what (.*) holds$", r"\1", unnumbered(name))
    return re.sub(r"(\[[^\]]*\])+$", "", name)


def unnumbered(name: str) -> str:
    """Returns a name without its step, microbatch or forward."""
    return re.sub(r", (step|microbatch|forward) \d+$", "", name)


def _owner(change: Change, *words: str) -> bool:
    return any(word in change.owner for word in words)


def _is_batch_norm(change: Change, evidence: Evidence) -> bool:
    if _owner(change, "BatchNorm"):
        return True
    ops = evidence.again.ops if evidence.again is not None else ()
    return any("batch_norm" in op.name and change.name in op.writes for op in ops)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_tensor(value: Any) -> bool:
    """Whether a value was a tensor when it was looked at."""
    return isinstance(value, (Tensor, Digest))


def _counts(change: Change, evidence: Evidence) -> bool:
    """Whether a state is an integer tensor, or a single float that is whole before and after."""
    # Differences hold tensors, where what a region found holds digests.
    change = next((c for c in evidence.differences if c.name == change.name), change)
    before, after = change.before, change.after
    if is_tensor(before) and not before.dtype.is_floating_point:
        return True
    values = [float(t) for t in (before, after) if isinstance(t, Tensor) and t.numel() == 1]
    return len(values) == 2 and all(value.is_integer() for value in values)


def _counts_up(change: Change, evidence: Evidence) -> bool:
    """Whether a number changed, and none of the numbers in its container decreased."""
    if not (_number(change.before) and _number(change.after)):
        return False
    beside = [c for c in evidence.differences if whole(c.name) == whole(change.name) and c.name.endswith("]")]
    return not beside or all(_number(c.before) and _number(c.after) and c.after >= c.before for c in beside)


def _grown(change: Change, evidence: Evidence) -> bool:
    """Whether a tensor becomes a larger one, at the latest when the forward runs once more."""
    same = [c for c in (change, *evidence.differences, *evidence.rewritten) if c.name == change.name]
    return any(_tensors(c) and tuple(c.before.shape) != tuple(c.after.shape) for c in same)


_STATE_BYTES = torch.Generator().get_state().numel()


def _holds_generator(change: Change, evidence: Evidence) -> bool:
    """Whether a tensor is the saved state of a generator."""
    value = change.before if is_tensor(change.before) else change.after
    return is_tensor(value) and value.dtype == torch.uint8 and tuple(value.shape) == (_STATE_BYTES,)


def _spectral(change: Change, evidence: Evidence) -> bool:
    return bool(re.search(r"(^|[._])(_u|_v|u|v|weight_u|weight_v)$", change.name)) and (
        _owner(change, "Spectral") or change.name.endswith(("weight_u", "weight_v", "_u", "_v"))
    )


def _seeded(change: Change, evidence: Evidence) -> bool:
    return evidence.forward is not None and change.name.split()[-1] in evidence.forward.seeded


def _lost(change: Change, evidence: Evidence) -> bool:
    forward = evidence.forward
    return change.after is None and (forward is None or change.name in forward.exit)


def _carried(change: Change, evidence: Evidence) -> bool:
    """Whether the first forward makes a tensor, or each forward a larger one."""
    made = (c.before is None and is_tensor(c.after) for c in (change, *evidence.written) if c.name == change.name)
    return not _added(change) and (any(made) or _grown(change, evidence))


def _shrunk(change: Change) -> bool:
    a, b = change.before, change.after
    return isinstance(a, Extent) and isinstance(b, Extent) and b.count < a.count


def _taken(change: Change, evidence: Evidence) -> bool:
    """Whether the forward itself takes elements out of a container."""
    if evidence.forward is None:
        return _shrunk(change)
    return any(_shrunk(c) for c in evidence.written if c.name == change.name)


def _generator(name: str) -> StateRule:
    return lambda change, evidence: change.name == f"the random state of {name}"


def _contains(change: Change) -> bool:
    return isinstance(change.before, Extent) or isinstance(change.after, Extent)


def _added(change: Change) -> bool:
    """Whether this is an element of a container that was not there."""
    return change.name.endswith("]") and (change.before is None or change.after is None)


def _tensors(change: Change) -> bool:
    return is_tensor(change.before) and is_tensor(change.after)


def _by(test: Callable[[Change], bool]) -> StateRule:
    return lambda change, evidence: test(change)


def _but(rule: StateRule, *others: StateRule) -> StateRule:
    """Returns a rule that holds if `rule` does and none of the others."""
    return lambda c, e: rule(c, e) and not any(other(c, e) for other in others)


_numpy, _python = (_but(_generator(name), _seeded) for name in ("numpy", "random"))
_of_torch = _by(lambda c: c.name.startswith(("the random state of PyTorch", "the random state of cuda")))
_position = _by(lambda c: isinstance(c.before, Position))
_of_instance_norm = _by(lambda c: _owner(c, "InstanceNorm"))
_of_batch_norm = _but(_is_batch_norm, _of_instance_norm)
_of_observer = _by(lambda c: _owner(c, "Observer", "FakeQuant"))
_of_layer = (_of_batch_norm, _of_instance_norm, _spectral, _of_observer, _holds_generator)
_consumed = _by(lambda c: _shrunk(c) or (_added(c) and c.after is None))
_grows = _but(lambda c, e: _contains(c) or _added(c) or _grown(c, e), _consumed)
_hooked = _by(lambda c: c.name.startswith(HOOKS))
_collected = _but(_by(lambda c: _contains(c) or _added(c)), _hooked, _taken)
_flag = _by(lambda c: isinstance(c.after, bool) or isinstance(c.before, bool))
_kept = _but(_carried, _spectral, _holds_generator)
_lazy = _by(lambda c: c.before is None or c.after is None or type(c.before) is not type(c.after))
_own = (_position, _taken, _spectral, _holds_generator, _hooked, _collected, _flag, _counts_up, _kept)

RULES: Sequence[tuple[Cause, tuple[str, ...], StateRule]] = (
    (SEEDED, (GENERATOR,), _seeded),
    (NUMPY_RANDOM, (GENERATOR,), _numpy),
    (PYTHON_RANDOM, (GENERATOR,), _python),
    (TORCH_RANDOM, (GENERATOR,), _of_torch),
    (OWN_GENERATOR, (ATTRIBUTE, BUFFER, CLASS, GLOBAL, CLOSURE), _holds_generator),
    (ITERATOR, (ATTRIBUTE, CLASS, GLOBAL, CLOSURE, ARGUMENT), _position),
    (ITERATOR, (ATTRIBUTE, CLASS, GLOBAL), _taken),
    (BATCH_NORM, (BUFFER,), _of_batch_norm),
    (INSTANCE_NORM, (BUFFER,), _of_instance_norm),
    (SPECTRAL_NORM, (BUFFER, ATTRIBUTE), _spectral),
    (OBSERVER, (BUFFER,), _of_observer),
    (BUFFER_REPLACED, (BUFFER,), _but(_grown, *_of_layer)),
    (BUFFER_COUNTER, (BUFFER,), _but(_counts, _grown, *_of_layer)),
    (TAG_LOST, (TAG,), _lost),
    (ARGUMENT_CONSUMED, (ARGUMENT,), _consumed),
    (ARGUMENT_GROWS, (ARGUMENT,), _grows),
    (ARGUMENT_WRITTEN, (ARGUMENT,), _but(_by(_tensors), _grows)),
    (HOOKED, (ATTRIBUTE,), _hooked),
    (COLLECTOR, (ATTRIBUTE,), _collected),
    (FLAG, (ATTRIBUTE,), _flag),
    (COUNTER, (ATTRIBUTE,), _counts_up),
    (CARRIED, (ATTRIBUTE,), _kept),
    (LAZY, (ATTRIBUTE,), _but(_lazy, *_own)),
    (STATISTIC, (ATTRIBUTE,), _but(_by(_tensors), *_own)),
)
"""Causes, the kinds of states that they apply to, and their rules, which exclude each other: order means nothing."""

_OTHERWISE = {
    GENERATOR: OWN_GENERATOR,
    BUFFER: BUFFER_AVERAGE,
    PARAMETER: WEIGHT_WRITTEN,
    MODE: MODE_CHANGED,
    ENVIRONMENT: ENVIRONMENT_CHANGED,
    TAG: TAG_CHANGED,
    ARGUMENT: ARGUMENT_CHANGED,
    RETURNED: RETURNED_CHANGED,
    CLASS: CLASS_STATE,
    GLOBAL: GLOBAL_STATE,
    CLOSURE: CLOSED_OVER,
    ATTRIBUTE: OTHER_STATE,
}
"""The cause of a change of each kind if no rule holds."""


def cause_of_state(change: Change, evidence: Evidence) -> Cause | None:
    """Returns why a state differs; None if it is not a state."""
    name = unnumbered(change.name)
    if name in evidence.stopped:
        return EARLY_STOP
    by = evidence.by(name)
    if evidence.scenario.forwards > 1 and change.kind != GENERATOR and name not in evidence.differ_alone:
        if (evidence.overtaken or _right_alone(evidence)) and by != BACKWARD:
            return OVERTAKEN
        if evidence.fork is None:
            return LEFT_BY_EARLIER
    if by != FORWARD and change.kind not in _OF_ANY and type(change.before) is not Identity:
        if by == CALLER:
            return BETWEEN
        return LOSSY_HOOKS if change.kind == ARGUMENT and _tensors(change) else IN_BACKWARD
    found = (cause for cause, kinds, rule in RULES if change.kind in kinds and rule(change, evidence))
    return next(found, _OTHERWISE.get(change.kind))


def _right_alone(evidence: Evidence) -> bool:
    """Whether outputs or gradients differ, but not when one forward comes before one backward."""
    computed = {unnumbered(c.name) for c in evidence.differences if c.kind in (OUTPUT, GRADIENT)}
    return bool(computed) and computed.isdisjoint(evidence.differ_alone)


def in_container(change: Change, among: Sequence[Change]) -> Change:
    """Returns the change of a container's size if the change of an element follows from it, else `change`."""
    name = whole(change.name)
    return next((c for c in among if c.name == name and _contains(c)), change)


_OF_ANY = (GENERATOR, MODE, TAG)
"""Kinds of states whose cause does not depend on who changes them."""
