"""Selective checkpointing: what policies are asked, what their answers do, and what is refused."""

from __future__ import annotations

from collections import Counter
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, library
from torch.utils import checkpoint as api
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy

from rematch.frameworks.pytorch.contract import promise as p

promises: list[p.Promise] = []
_ATEN = torch.ops.aten
_SIN, _COS, _EXP = _ATEN.sin.default, _ATEN.cos.default, _ATEN.exp.default


class _Ran(TorchDispatchMode):
    """Counts the operators that really run."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[Any] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func] += 1
        return func(*args, **(kwargs or {}))


def three_steps(x: Tensor) -> Tensor:
    """One operator after the other, each of which saves a tensor."""
    return x.sin().cos().exp()


def selective(policy: Any, function: Any, *inputs: Any, mutated: Any = None, **options: Any) -> Any:
    """What checkpoint() returns of `function` under a policy, or under a list of operators that are
    kept. `mutated`: kept results may be written to."""
    contexts = partial(api.create_selective_checkpoint_contexts, policy)
    if mutated is not None:
        contexts = partial(contexts, allow_cache_entry_mutation=mutated)
    return api.checkpoint(function, *inputs, use_reentrant=False, context_fn=contexts, **options)


def _executions(policy: Any) -> tuple[int, int, int]:
    """How often sin, cos and exp run, and the gradient must be right."""
    x = p.leaf()
    with _Ran() as ran:
        out = selective(policy, three_steps, x, early_stop=False)
        got = p.gradient(out, x)
    p.equal(got, p.gradient(three_steps(x), x), "gradient")
    # The backward of sin runs one more cos, that of cos one more sin.
    return ran.counts[_SIN] - 1, ran.counts[_COS] - 1, ran.counts[_EXP]


@p.promise(promises)
def answers() -> None:
    """The results of operators for which a policy answers MUST_SAVE, PREFER_SAVE or True are saved
    and not computed again; all others are."""
    saves = [CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE, True]
    others = [CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE, False]
    for name in ("MUST_CPU_OFFLOAD", "PREFER_CPU_OFFLOAD"):
        if hasattr(CheckpointPolicy, name):
            others.append(getattr(CheckpointPolicy, name))
    for answer in saves:
        got = _executions(lambda c, op, *_, a=answer, **__: a if op is _COS else others[0])
        p.equal(got, (2, 1, 2), f"executions of sin, cos and exp, {answer} for cos")
    for answer in others:
        got = _executions(lambda c, op, *_, a=answer, **__: a)
        p.equal(got, (2, 2, 2), f"executions of sin, cos and exp, {answer} for all")


@p.promise(promises)
def list_of_operators() -> None:
    """A list of operators is equivalent to a policy that answers MUST_SAVE for these and
    PREFER_RECOMPUTE for all others."""
    p.equal(
        _executions([_SIN, _EXP]), (1, 2, 1), "executions of sin, cos and exp, first and last kept"
    )
    p.equal(_executions([_COS]), (2, 1, 2), "executions of sin, cos and exp, cos kept")
    p.equal(_executions([]), (2, 2, 2), "executions of sin, cos and exp, none kept")


@p.promise(promises)
def policy_is_told() -> None:
    """A policy gets a SelectiveCheckpointContext, the operator, and its args and kwargs."""
    asked: list[Any] = []

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        asked.append((context, op, args, kwargs))
        return CheckpointPolicy.PREFER_RECOMPUTE

    x = p.leaf()
    out = selective(policy, lambda x: torch.std(x.exp(), dim=(0,), correction=0), x)
    p.equal(
        [op for _, op, _, _ in asked], [_EXP, _ATEN.std.correction], "operators that were asked of"
    )
    context, _, args, kwargs = asked[1]
    p.expect(isinstance(context, api.SelectiveCheckpointContext), f"the context is {context!r}")
    p.equal(context.is_recompute, False, "is_recompute in the forward")
    p.equal(args[0].detach(), x.exp().detach(), "operand of an operator")
    p.equal((list(args[1]), kwargs), ([0], {"correction": 0}), "options of an operator")
    if p.RECENT:
        p.equal(context.op_output.detach(), out.detach(), "op_output")
        p.equal(asked[0][0].op_output.detach(), x.exp().detach(), "op_output")
    p.gradient(out, x)
    if p.RECENT:
        p.equal(len(asked), 2, "questions: there are none in the recomputation")


@p.promise(promises)
def options_of_operators() -> None:
    """An operator that is recomputed under a policy gets the options that it had in the forward."""
    x = p.leaf()

    def function(x: Tensor) -> Tensor:
        y = torch.std(x.exp(), dim=(0,), correction=0)
        return y * torch.sum(x.sin(), dtype=torch.float64).float() * y.exp()

    out = selective([], function, x, early_stop=False)
    p.equal(p.gradient(out, x), p.gradient(function(x), x), "gradient")


@p.promise(promises, when=p.RECENT)
def policy_by_result() -> None:
    """A policy may go by what an operator made."""
    x = p.leaf()
    seen: list[Any] = []

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> bool:
        seen.append(context.op_output)
        return bool((context.op_output > 1).all())

    with _Ran() as ran:
        out = selective(policy, lambda x: (x.exp() + 1).log().sin(), x, early_stop=False)
        p.gradient(out, x)
    p.equal(ran.counts[_ATEN.add.Tensor], 1, "executions of what was saved")
    p.equal(ran.counts[_ATEN.log.default], 2, "executions of what was not")


@p.promise(promises)
def ignored_operators() -> None:
    """Policies are not asked about SAC_IGNORED_OPS, such as detach, which are run each time."""
    x, asked = p.leaf(), []

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> bool:
        asked.append(op)
        return True

    p.expect(_ATEN.detach.default in api.SAC_IGNORED_OPS, "detach is not among SAC_IGNORED_OPS")
    p.expect(torch.ops.prim.device.default in api.SAC_IGNORED_OPS, "device is not among them")
    with _Ran() as ran:
        out = selective(policy, lambda x: x.sin() * x.detach(), x)
    p.expect(ran.counts[_ATEN.detach.default] > 0, "detach did not run")
    p.equal(asked, [_SIN, _ATEN.mul.Tensor], "operators that were asked of")
    p.equal(p.gradient(out, x), p.gradient(x.sin() * x.detach(), x), "gradient")


@p.promise(promises, when=p.RECENT)
def results_by_number() -> None:
    """What is saved of several runs of an operator is found again in its order."""
    x = p.leaf()

    def function(x: Tensor) -> Tensor:
        return x.sin().sin().sin().sin().cos()

    wanted = p.gradient(function(x), x)
    for kept in ((0,), (1, 2), (0, 1, 3)):
        numbers = iter(range(9))

        def policy(c: Any, op: Any, *_: Any, kept: Any = kept, n: Any = numbers, **__: Any) -> bool:
            return op is _SIN and next(n) in kept

        with _Ran() as ran:
            out = selective(policy, function, x, early_stop=False)
            p.equal(p.gradient(out, x), wanted, f"gradient with {kept} kept")
        # The backward of cos runs one more sin.
        p.equal(ran.counts[_SIN], 4 + 4 - len(kept) + 1, f"executions with {kept} kept")


@p.promise(promises)
def mutated_results() -> None:
    """An error is raised if a saved tensor is mutated, unless allow_cache_entry_mutation=True."""

    x = p.leaf()

    def function(x: Tensor) -> Tensor:
        y = x.sin()
        kept.append(y)
        return y.cos()

    kept: list[Tensor] = []
    for allowed in (None, False, True):
        kept.clear()
        out = selective([_SIN], function, x, mutated=allowed)
        with torch.no_grad():
            kept[0].add_(1)
        if allowed:
            wanted = -(x.sin() + 1).sin() * x.cos()
            p.equal(p.gradient(out, x), wanted.detach(), "gradient by the mutated tensor")
            continue
        with p.raises(
            RuntimeError, "Tensor cached during selective activation checkpoint has been mutated"
        ):
            p.gradient(out, x)
    out = selective([_SIN], function, x)
    p.equal(p.gradient(out, x), p.gradient(function(x), x), "gradient where nothing is mutated")


@p.promise(promises)
def mutated_views() -> None:
    """An error is raised if a saved view is mutated."""
    kept: list[Tensor] = []

    def function(x: Tensor) -> Tensor:
        kept.append((x * 2).view(3, 1))
        return kept[0].sin()

    out = selective([_ATEN.view.default], function, x := p.leaf())
    with torch.no_grad():
        kept[0].add_(1)
    with p.raises(RuntimeError, "has been mutated"):
        p.gradient(out, x)


@p.promise(promises)
def second_backward() -> None:
    """A region under selective checkpointing that saves something allows one backward only."""
    x = p.leaf()
    out = selective([_SIN], three_steps, x)
    wanted = p.gradient(three_steps(x), x)
    p.equal(p.gradient(out, x, retain_graph=True), wanted, "gradient")
    if p.RECENT:
        with p.raises(
            RuntimeError, "Trying to backward an extra time", "selective activation checkpoint"
        ):
            p.gradient(out, x)
        out = selective([], three_steps, x)
        p.equal(p.gradient(out, x, retain_graph=True), wanted, "gradient where nothing is saved")
        p.equal(p.gradient(out, x), wanted, "second gradient where nothing is saved")


@p.promise(promises, when=p.RECENT)
def other_operators() -> None:
    """A recomputation under a policy that runs other operators than the forward raises an error
    that names them."""
    x = p.leaf()
    other = p.Changing(three_steps, lambda x: x.sin().tanh().exp())
    with p.raises(RuntimeError, "aten.tanh", "encountered during backward", "not found in storage"):
        p.gradient(selective([_SIN], other, x), x)
    other = p.Changing(three_steps, lambda x: x.sin().sin().exp())
    words = "aten.sin", "index 1", "encountered during backward", "not found in storage"
    with p.raises(RuntimeError, *words, "nondeterministic"):
        p.gradient(selective([_COS], other, x), x)


@p.promise(promises)
def several_outputs() -> None:
    """An operator with several results can be saved, and one with none that are tensors."""
    x = p.leaf()

    def function(x: Tensor) -> Tensor:
        values, places = torch.sort(x * 2)
        return (values.sin() * (places + values[0].item())).cos()

    for policy in (
        [_ATEN.sort.default],
        [_ATEN._local_scalar_dense.default],
        lambda *_, **__: True,
    ):
        out = selective(policy, function, x)
        wanted = p.gradient(function(x), x)
        p.equal(p.gradient(out, x), wanted, "gradient")


@p.promise(promises)
def views_are_saved() -> None:
    """A view can be saved, and is still a view of what it shows."""
    x = p.leaf(1, 2, 3, 4)

    def function(x: Tensor) -> Tensor:
        return x.sin().view(2, 2).cos().t().exp()

    for policy in ([_ATEN.view.default, _ATEN.t.default], lambda *_, **__: True):
        out = selective(policy, function, x)
        p.equal(p.gradient(out, x), p.gradient(function(x), x), "gradient")


@p.promise(promises)
def contexts() -> None:
    """The function runs under the first, the recomputation under the second context that context_fn
    returns."""
    entered: list[str] = []

    class Context:
        def __init__(self, name: str) -> None:
            self._name = name

        def __enter__(self) -> None:
            entered.append(self._name)

        def __exit__(self, *_: Any) -> None:
            entered.append(f"end of {self._name}")

    def function(x: Tensor) -> Tensor:
        entered.append("runs")
        return x.sin()

    def pair() -> Any:
        entered.append("asked")
        return Context("first"), Context("second")

    x = p.leaf()
    for stop in p.BOTH:
        entered.clear()
        out = api.checkpoint(function, x, use_reentrant=False, context_fn=pair, early_stop=stop)
        p.equal(
            entered, ["asked", "first", "runs", "end of first"], "order of events in the forward"
        )
        p.equal(p.gradient(out, x), x.cos().detach(), "gradient")
        p.equal(entered[4:], ["second", "runs", "end of second"], "order of events in the backward")
    for context in api.noop_context_fn():
        with context as nothing:
            p.equal(nothing, None, "what the default context gives")


@cache
def _effect() -> Any:
    """An operator with an ordered effect, which it leaves in the list `ticks`, and one without."""
    namespace = library.Library("rematch_contract", "FRAGMENT")
    made = []
    for name in ("tick", "tock"):
        namespace.define(f"{name}(Tensor x) -> Tensor")
        ticks: list[str] = []
        implementation = lambda x, t=ticks: t.append("") or x.sin()  # noqa: E731
        namespace.impl(name, implementation, "CPU")
        made.append((getattr(torch.ops.rematch_contract, name).default, ticks))
    library._register_effectful_op(made[0][0], library.EffectType.ORDERED)
    return namespace, made


@p.promise(promises, when=p.RECENT)
def effects() -> None:
    """A policy's PREFER_RECOMPUTE is overridden for operators with an ordered effect, whose results
    are saved; MUST_RECOMPUTE is not."""
    _, ((tick, ticks), (tock, tocks)) = _effect()
    x = p.leaf()
    for answer, runs in (
        (CheckpointPolicy.PREFER_RECOMPUTE, 1),
        (CheckpointPolicy.MUST_SAVE, 1),
        (CheckpointPolicy.MUST_RECOMPUTE, 2),
        (CheckpointPolicy.PREFER_CPU_OFFLOAD, 1),
        (False, 1),
    ):
        ticks.clear(), tocks.clear()
        out = selective(
            lambda c, op, *_, a=answer, **__: a if op in (tick, tock) else False,
            lambda x: (tick(x.detach()) * tock(x.detach()) * x).cos(),
            x,
        )
        p.equal(p.gradient(out, x), p.gradient((x.detach().sin() ** 2 * x).cos(), x), "gradient")
        p.equal(len(ticks), runs, f"executions of the operator with an effect, {answer}")
        wanted = 1 if answer is CheckpointPolicy.MUST_SAVE else 2
        p.equal(len(tocks), wanted, f"executions of one without, {answer}")
