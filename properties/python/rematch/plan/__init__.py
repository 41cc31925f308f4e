"""What does checkpointing save, and which blocks of a model should be checkpointed?"""

from collections.abc import Mapping

from torch import nn

from rematch.plan.model import plan_model
from rematch.plan.options import Applied, Contexts, known_options
from rematch.plan.report import Plan

__all__ = ["Applied", "Plan", "apply", "plan_model"]


def apply(
    model: nn.Module,
    plan: Plan | Mapping[str, str],
    policies: Mapping[str, Contexts] | None = None,
    even_if_it_differs: bool = False,
) -> Applied:
    """Checkpoints blocks of `model` from now on, by a plan or by choices such as {"layers.0": "checkpointed"}.

    Names of parameters stay as they are. The result has remove(), and is a context manager. `policies` are functions
    for checkpoint(context_fn=), by the names that choices use. Raises ValueError for a block that the model lacks, and
    for a plan whose step differed from the plain one, unless `even_if_it_differs`.
    """
    if isinstance(plan, Plan):
        plan.refuse_if_it_differs("apply", even_if_it_differs)
        return Applied(model, plan.choices, plan.step.options)
    return Applied(model, plan, {**known_options(), **(policies or {})})
