"""Selective checkpointing as people write it: policies by operators of PyTorch, whatever layer runs them."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any
from zlib import crc32

import torch
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from rematch.frameworks.pytorch.policy_check import POLICY
from rematch.frameworks.pytorch.watch import Watch
from rematch.subjects.case import Case, Segment

__all__ = ["INFERENCE", "POLICY", "SHARE", "VALUES", "contexts_by", "policy_of", "text_of"]

SHARE = 0.3
"""The share of cases with a policy by operators."""
INFERENCE, SCOPES = "inference", {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}
"""The option of cases that evaluate the model between each forward and its backward, and what they do that in."""

aten = torch.ops.aten
PRODUCTS = [aten.mm.default, aten.addmm.default, aten.bmm.default, aten.convolution.default]
ATTENTION = [
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten.max.default,
]
Keeps = Callable[[Any, Sequence[Any]], bool]
"""Whether a policy keeps what an operator makes of its arguments."""


def _draws(op: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in op.tags


def makes_values(op: Any) -> bool:
    """Whether the operator makes values, and nothing else: no draws, views, memory or writing."""
    return not (op.is_view or op._schema.is_mutable or _draws(op) or "empty" in op._schema.name)


def _chosen(number: int, op: Any) -> bool:
    return crc32(f"{number} {op}".encode()) % 2 == 1


def _subset(number: int) -> Keeps:
    return lambda op, arguments: makes_values(op) and _chosen(number, op)


def _anything(number: int) -> Keeps:
    return lambda op, arguments: _chosen(number, op)


def _every_second(ops: Sequence[Any], others: Sequence[Any]) -> Keeps:
    count = 0

    def keeps(op: Any, arguments: Sequence[Any]) -> bool:
        nonlocal count
        count += op in ops
        return op in others or (op in ops and count % 2 == 1)

    return keeps


def _every_second_of_all() -> Keeps:
    counts: dict[Any, int] = {}

    def keeps(op: Any, arguments: Sequence[Any]) -> bool:
        counts[op] = counts.get(op, 0) + 1
        return makes_values(op) and counts[op] % 2 == 0

    return keeps


def _by_shape(op: Any, arguments: Sequence[Any]) -> bool:
    if op not in PRODUCTS:
        return False
    rows, columns = arguments[1].shape[-2:]
    return bool(rows >= columns)


_MUST = CheckpointPolicy.PREFER_RECOMPUTE, CheckpointPolicy.MUST_SAVE
_PREFER = CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_SAVE
_BOOLS = False, True

Answers = tuple[Any, Any]
"""What a policy says of results that it does not keep, and of those that it keeps."""

POLICIES: dict[str, tuple[Callable[[], Keeps], Answers]] = {
    "nothing": (lambda: lambda op, arguments: False, _MUST),
    "nothing, and must not": (lambda: lambda op, arguments: False, _PREFER),
    "everything": (lambda: lambda op, arguments: True, _MUST),
    "everything, preferably": (lambda: lambda op, arguments: True, _PREFER),
    "draws": (lambda: lambda op, arguments: _draws(op) and not op._schema.is_mutable, _MUST),
    "products": (lambda: lambda op, arguments: op in PRODUCTS, _MUST),
    "products and attention": (lambda: lambda op, arguments: op in (*PRODUCTS, *ATTENTION), _BOOLS),
    "every second product": (lambda: _every_second(PRODUCTS, ATTENTION), _MUST),
    "products by shape": (lambda: _by_shape, _PREFER),
    "every second call": (_every_second_of_all, _BOOLS),
    **{f"subset {n}": (partial(_subset, n), (_MUST, _PREFER)[n % 2]) for n in range(10)},
    **{f"anything {n}": (partial(_anything, n), (_PREFER, _MUST)[n % 2]) for n in range(4)},
}
"""The policies, each with what makes a fresh one. Subsets are of operators that make values and nothing
else; those of anything may also draw, be views, or write to what another made."""
MAY_KEEP_DRAWS = ("everything", "draws", "anything")
VALUES = ["none", *POLICIES]


_FUNCTION = """\
def contexts():{count}
    def policy(context, op, *args, **keywords):{counts}
        return CheckpointPolicy.{save} if {keeps} else CheckpointPolicy.{recompute}

    return create_selective_checkpoint_contexts(policy)


"""


def text_of(name: str, kept: Iterable[Any]) -> tuple[str, str]:
    """How a script writes the policy that keeps these operators: its definitions, and what checkpoint() takes as
    `context_fn`."""
    listed = f"kept = {_listed(kept)}\n\n\n"
    answers = POLICIES[name][1]
    recompute, save = (
        a.name if isinstance(a, CheckpointPolicy) else a for a in (_MUST if answers == _BOOLS else answers)
    )
    words = {"save": save, "recompute": recompute, "count": "", "counts": ""}
    for begin, keeps in (("nothing", "False"), ("everything", "True")):
        if name.startswith(begin):
            return _FUNCTION.format(keeps=keeps, **words), "contexts"
    if not name.startswith("every second") and name != "products by shape":
        return listed, "partial(create_selective_checkpoint_contexts, kept)"
    if name == "products by shape":
        keeps = "op in kept and args[1].shape[-2] >= args[1].shape[-1]"
        return listed + _FUNCTION.format(keeps=keeps, **words), "contexts"
    words |= {"count": "\n    count = Counter()\n", "counts": "\n        count[op] += 1"}
    if name == "every second call":
        return listed + _FUNCTION.format(keeps="op in kept and count[op] % 2 == 0", **words), "contexts"
    listed = f"products = {_listed(PRODUCTS)}\n\n\n"
    keeps = "op in products and sum(count[product] for product in products) % 2 == 1"
    if others := set(kept) - set(PRODUCTS):
        keeps += f" or op in {_listed(others)}"
    return listed + _FUNCTION.format(keeps=keeps, **words), "contexts"


def _listed(operators: Iterable[Any]) -> str:
    return f"[{', '.join(sorted(f'torch.ops.{op}' for op in operators))}]"


def policy_of(case: Case, segment: Segment) -> str:
    """Returns the name of the segment's policy by operators, "" if it has none.

    A policy serves a single backward. A segment that does not preserve the random state has none that may keep draws.
    """
    name, protocol, choice = case.options.get(POLICY, ""), case.protocol, segment.choice
    several = protocol.backwards > 1 or protocol.partial or protocol.auxiliary_losses
    if not name or choice.reentrant or choice.keep or segment.nested or several:
        return ""
    return "" if name.startswith(MAY_KEEP_DRAWS) and not choice.preserve_rng else name


def contexts_by(name: str, watch: Watch) -> Callable[[], Any]:
    """What checkpoint() takes as `context_fn`."""
    make, answers = POLICIES[name]

    def contexts() -> Any:
        keeps = make()

        def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
            kept = keeps(op, args)
            if kept:
                watch.kept.add(op)
            if watch.place is not None:
                watch.place.asked.append((op, kept))
            return answers[kept]

        return create_selective_checkpoint_contexts(policy)

    return contexts
