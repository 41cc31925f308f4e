"""Helpers beside checkpoint(), and what they refuse."""

import torch
import torch.utils.checkpoint as C

from rematch.frameworks.pytorch.contract.probing import constant, outcome, probe, said, variable, warned


@probe("HE.detach_variable", "detach_variable() of a tuple of tensors and other objects.")
def detach_variable():
    x, frozen, thing = variable(0.5).sin(), constant(0.5), object()
    out = C.detach_variable((x, thing, frozen, 3))
    return {
        "types": [type(v).__name__ for v in out],
        "detached": out[0] is not x and out[0].is_leaf,
        "requires_grad": [out[0].requires_grad, out[2].requires_grad],
        "same_object": out[1] is thing,
        "same_memory": out[0].data_ptr() == x.data_ptr(),
        "list_error": said(lambda: C.detach_variable([x]), "Only tuple of tensors is supported"),
    }


@probe("HE.check_backward_validity", "check_backward_validity(): warnings by inputs.")
def check_backward_validity():
    def of(*inputs):
        with warned() as seen:
            C.check_backward_validity(inputs)
        return seen

    x, frozen = variable(0.5), constant(0.5)
    return {"frozen": [of(frozen, 3), of(), of(None, frozen)], "trains": [of(frozen, x), of(x), of(3, x, None)]}


@probe("HE.noop_context_fn", "What the contexts of noop_context_fn() give.")
def noop_context_fn():
    entered = []
    for context in C.noop_context_fn():
        with context as given:
            entered.append(given is None)
    return {"nothing": entered}


@probe("HE.checkpoint_error", "CheckpointError among the kinds of errors.")
def checkpoint_error():
    return {"is_a_runtime_error": issubclass(C.CheckpointError, RuntimeError)}


@probe("HE.create_selective_checkpoint_contexts", "What it takes for a policy, and what it says.")
def create_selective_checkpoint_contexts():
    make, ops = C.create_selective_checkpoint_contexts, torch.ops.aten
    packet = ("to be an OpOverload but got: aten.mm", "Please update", "aten.mm.default")
    seen = {"packet_error": said(lambda: make([ops.sin.default, ops.mm]), *packet)}
    for name, wrong in (("function", torch.sin), ("name", "aten.sin"), ("nothing", None)):
        words = "to be an OpOverload but got: ", f"of type {type(wrong)}"
        seen[f"{name}_error"] = said(lambda: make([wrong]), *words)
    for name, wrong in (("no_list", None), ("tuple", (ops.sin.default,)), ("number", 3)):
        seen[f"{name}_error"] = outcome(lambda: make(wrong))
    forward, recomputation = make([ops.sin.default])
    seen["two_contexts"] = forward is not recomputation
    seen["higher_order_error"] = outcome(lambda: make([torch.ops.higher_order.flex_attention]))
    return seen
