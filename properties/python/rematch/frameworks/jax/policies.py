"""Policies of `jax.checkpoint()`, as an option of a case, and what they say of the operations that run again."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from rematch.subjects.case import Case
from rematch.subjects.protocol import Request
from rematch.subjects.records import Record

POLICY = "policy"
"""The option that names the policy of all segments."""

_NAMES = 'names_which_can_be_saved=[], names_which_can_be_offloaded=["kept"]'
_HOST = 'offload_src="device", offload_dst="pinned_host"'
POLICIES = {
    "nothing": "nothing_saveable",
    "everything": "everything_saveable",
    "dots": "dots_saveable",
    "dots without batch": "dots_with_no_batch_dims_saveable",
    "names": 'save_only_these_names("kept")',
    "names that are not there": 'save_only_these_names("missing")',
    "all but names": 'save_anything_except_these_names("kept")',
    "any names but these": 'save_any_names_but_these("missing")',
    "dots or names": "save_from_both_policies(jax.checkpoint_policies.dots_saveable, "
    'jax.checkpoint_policies.save_only_these_names("kept"))',
    "names on the host": f"save_and_offload_only_these_names({_NAMES}, {_HOST})",
    "dots on the host": 'offload_dot_with_no_batch_dims("device", "pinned_host")',
}
"""Members of jax.checkpoint_policies, in source."""
VALUES = ["none", *POLICIES]

_DOTS = ("dot_general",)
_ALL = (*_DOTS, "conv_general_dilated", "tanh", "exp", "logistic", "erf", "rsqrt", "name")
_NEVER_AGAIN = {
    "everything": _ALL,
    "dots": _DOTS,
    "dots or names": (*_DOTS, "name"),
    "names": ("name",),
    "any names but these": ("name",),
    "names on the host": ("name",),
}
"""Primitives that are not to run again under a policy. That a value has a name is a primitive, too."""
_AS_WITHOUT = ("nothing", "names that are not there")
"""Policies under which the same runs again as without one."""


def option(chosen: Mapping[str, str]) -> str:
    """The option of jax.checkpoint(), in source."""
    policy = chosen.get(POLICY, "")
    return f", policy=jax.checkpoint_policies.{POLICIES[policy]}" if policy else ""


def _count(jaxpr: Any, found: Counter[str]) -> Counter[str]:
    for equation in jaxpr.eqns:
        found[equation.primitive.name] += 1
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda v: hasattr(v, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                _count(inner, found)
    return found


def counts(framework: Any, request: Request, case: Case, checkpointed: bool) -> Counter[str]:
    """The primitives of a step with its gradients, each as often as it is there."""
    run = framework.run_type(framework, replace(request, case=case, checkpointed=checkpointed), Record())
    run.seed()
    given, trained = framework.given(run, request.arrays.inputs[0]), run.trained
    around = framework.array(request.arrays.targets[0]), [run.names["key"]]

    def loss(*values: Any) -> Any:
        replaced = dict(zip(trained, values, strict=True))
        return jnp.sum(run.objective(*around, *(replaced.get(i, a) for i, a in enumerate(given)))[0])

    step = jax.grad(loss, tuple(range(len(trained))))
    return _count(jax.make_jaxpr(step)(*(given[i] for i in trained)).jaxpr, Counter())


def disobeyed(framework: Any, request: Request) -> str:
    """What runs again though the policy of the case keeps it, or does not though it keeps nothing; "" if all is as it
    says."""
    case = request.case
    policy = case.options[POLICY]
    without = replace(case, options={name: value for name, value in case.options.items() if name != POLICY})
    ran = counts(framework, request, case, True)
    if policy in _AS_WITHOUT:
        expected, names = counts(framework, request, without, True), _ALL
    elif policy in _NEVER_AGAIN:
        expected, names = counts(framework, request, without, False), _NEVER_AGAIN[policy]
    else:
        return ""
    # A layer may have a checkpoint of its own, which a policy around it makes needless.
    fewer = policy in _NEVER_AGAIN
    wrong = [
        f"{name}: {expected[name]} expected, {ran[name]} now"
        for name in names
        if ran[name] > expected[name] or (ran[name] < expected[name] and not fewer)
    ]
    return "; ".join(wrong)
