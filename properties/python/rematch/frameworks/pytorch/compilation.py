"""How functions are compiled, and whether the graphs that come of it keep what PyTorch says of checkpoints.

A joint graph of forward and backward is split where values are saved. Its nodes have marks: what the policy of a
checkpoint says (PREFER_RECOMPUTE without one), and which region they are in. Nodes keep their names in both parts: what
both compute is recomputed, and what the backward is given is saved. Otherwise the partitioner is free, so that no
forecast says how often a layer runs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
import torch._functorch.config as functorch_config
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._dynamo.exc import InternalTorchDynamoError
from torch._dynamo.exc import Unsupported as GraphBreak
from torch._dynamo.utils import counters
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.custom_graph_pass import CustomPartitionerFn
from torch.fx import Graph, Node
from torch.utils.checkpoint import CheckpointPolicy

from rematch.frameworks.pytorch.arguments import Values
from rematch.subjects.protocol import Unsupported

_AGAIN = CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE
_FREE = {torch.ops.aten.lift_fresh_copy.default, torch.ops.aten.lift_fresh.default}
"""Operators that copy constants, and may always run again, as may views."""


class Partitioner(CustomPartitionerFn):
    """PyTorch's own, with a look at what it makes."""

    wrong = ""
    """What is wrong with what it made first, until somebody resets it."""

    def __call__(self, joint: Any, inputs: Any, **options: Any) -> Any:
        # It changes marks.
        marks = {node.name: node.meta.get("recompute") for node in joint.graph.nodes}
        forward, backward = min_cut_rematerialization_partition(joint, inputs, **options)
        self.wrong = self.wrong or wrong_in(joint.graph, marks, forward.graph, backward.graph)
        return forward, backward

    def uuid(self) -> None:
        """None: nothing is to be cached."""


partitioner = Partitioner()
BACKENDS: dict[Any, Any] = {
    "aot_eager": aot_autograd(
        fw_compiler=boxed_nop, bw_compiler=boxed_nop, partition_fn=partitioner, keep_inference_input_mutations=True
    )
}
"""Backends that ask `partitioner`, by the name of those that do the same without asking it."""


@dataclass(frozen=True)
class Compilation:
    """How models are compiled.

    `around`: each segment, and each piece between segments, is compiled by itself, and checkpoint() runs eagerly around
    them; otherwise the whole model is compiled, checkpoint() included. `budget`: the checkpointed run has no plan, but
    this activation_memory_budget. `defaults`: kernels and random numbers are the backend's own, which no eager run has.
    """

    backend: str | Callable[..., Any] = "aot_eager"
    around: bool = False
    budget: float | None = None
    defaults: bool = False

    def compile(
        self, run: Callable[..., Values], checkpointed: bool, whole: bool, symbols: bool, wrong: list[str]
    ) -> Callable[..., Values]:
        """Returns `run`, compiled by its first call. If that fails, later calls raise the same error. They check no
        guards: whatever is compiled into it must be the same. `checkpointed` says whether the budget applies,
        `whole` that it must become one graph, `symbols` that sizes are symbols in it. `wrong` is told what the graphs
        break.

        Raises Unsupported where there is nothing to be compiled, or where it takes several graphs.
        """
        # Compiled code belongs to a code object, which methods of equal models would share.
        code, scope = run.__code__.replace(), run.__globals__
        own = FunctionType(code, scope, closure=run.__closure__)
        options = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe}
        backend = BACKENDS.get(self.backend, self.backend)
        compiled = torch.compile(own, backend=backend, fullgraph=whole, options=options, dynamic=symbols)
        ended: list[Exception | None] = []

        def call(*tensors: Any) -> Values:
            if not ended:
                partitioner.wrong = ""
                try:
                    outputs = self._call_first(compiled, checkpointed, tensors)
                except Exception as error:
                    ended.append(error)
                    raise
                ended.append(None)
                wrong.append(partitioner.wrong)
                return outputs
            if ended[0] is not None:
                raise ended[0]
            return compiled(*tensors)

        return call

    def _call_first(self, compiled: Callable[..., Values], checkpointed: bool, on: Any) -> Values:
        before = counters["stats"]["unique_graphs"]
        budget = self.budget if self.budget is not None and checkpointed else 1.0
        try:
            with functorch_config.patch(activation_memory_budget=budget):
                outputs = compiled(*on)
        except GraphBreak as error:
            raise Unsupported(f"cannot be compiled: {str(error).splitlines()[0]}") from error
        except InternalTorchDynamoError as error:
            if "RecursionError" in str(error):
                raise Unsupported("segments are nested too deeply") from error
            raise
        if counters["stats"]["unique_graphs"] <= before:
            raise Unsupported("nothing was compiled: the function computes nothing")
        return outputs


def wrong_in(joint: Graph, marks: Mapping[str, Any], forward: Graph, backward: Graph) -> str:
    """What is wrong with the parts of a joint graph, "" if nothing is. `marks`: those of nodes before the split."""
    computed = {node.name for node in forward.nodes if node.op == "call_function"}
    again = {node.name for node in backward.nodes if node.op == "call_function"} & computed
    saved = {node.name for node in backward.nodes if node.op == "placeholder"}

    def region(node: Node) -> int | None:
        """The region of a node that is to be computed again, None of others."""
        return node.meta.get("ac_graph_id", -1) if marks.get(node.name) in _AGAIN else None

    for node in joint.nodes:
        op, own = node.target, region(node)
        if not isinstance(op, torch._ops.OpOverload) or node.name not in again | saved:
            continue
        if isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool)):
            continue
        users = [region(user) for user in node.users if user.meta.get("partitioner_tag") != "is_backward"]
        later = any(own is not None and user is not None and user > own for user in users)
        hooked = node.meta.get("has_backward_hook", False) and not any(user is not None for user in users)
        kept, free = marks.get(node.name) is CheckpointPolicy.MUST_SAVE, op.is_view or op in _FREE
        wrong = ""
        if node.name in again and _draws(op):
            wrong = "a draw of the forward, is made anew in the backward, with other numbers"
        elif node.name in again and kept and not free:
            wrong = "which must be saved, is computed again in the backward"
        elif node.name in again and own is not None and (later or hooked) and not free:
            wrong = "the input of a later region or hooked, is computed again in the backward"
        elif node.name in saved and own is not None and not hooked and all(user == own for user in users):
            wrong = "which only its region uses, is saved, and not computed again in the backward"
        if wrong:
            layer = node.meta.get("custom", {}).get("layer", "unknown")
            return f"{op} (layer {layer}), {wrong}"
    return ""


def _draws(op: Any) -> bool:
    # Fused attention has no dropout here.
    return torch.Tag.nondeterministic_seeded in op.tags and "attention" not in op._schema.name
