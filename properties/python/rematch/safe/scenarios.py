"""The ways in which a module is used: plain and checkpointed runs are compared in each."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from rematch.frameworks.pytorch.operators import contexts_by
from rematch.frameworks.pytorch.watch import Watch

Backend = str | Callable[..., Any]
"""What torch.compile(backend=) takes."""


@dataclass(frozen=True)
class Variant:
    """How a region is checkpointed. `own`: only by the target's own calls of checkpoint(); none is added."""

    name: str
    reentrant: bool = False
    own: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


REENTRANT, NON_REENTRANT = Variant("reentrant", reentrant=True), Variant("non_reentrant")
OWN = Variant("own", own=True)


@dataclass(frozen=True)
class Scenario:
    """One way in which a module is used: a plain run and checkpointed ones are compared in it."""

    name: str
    train: bool = True
    eval_parts: bool = False
    inputs_require_grad: bool = True
    only_first_input: bool = False
    frozen: bool = False
    preserve_rng_state: bool = True
    early_stop: bool = True
    autocast: bool = False
    offload: bool = False
    policy: str = ""
    compiled: Backend = ""
    """The backend of torch.compile() that compiles the target with its checkpoint; empty: none."""
    backwards: int = 1
    microbatches: int = 1
    steps: int = 1
    forwards: int = 1
    """The number of forwards before each backward: each has its own inputs, and their losses are added up."""
    lengths: tuple[int, ...] = ()
    """The length of the sequence in each forward; 0: the length that was given."""
    unused_forward: bool = False
    others_draw: tuple[str, ...] = ()
    """Generators from which other code draws between the forward and its backward: "numpy", "random"."""
    sets: str = ""
    """An attribute of modules that a caller sets to another value between the forward and the backward."""
    later: bool = False
    """Whether the backward reads a later time and another load of the system than the forward."""
    documented: str = ""
    """If PyTorch documents what goes wrong in this use: a description of the use."""
    reentrant: bool = True
    """Whether the reentrant variant supports it."""
    plain: str = ""
    """The scenario that has the same plain run; empty: this one."""

    @property
    def policy_text(self) -> str:
        """The policy in words; empty without one."""
        return self.name if self.policy else ""

    @property
    def excuse(self) -> str:
        """The use without which a finding here does not matter: a policy, a use that PyTorch warns of, or setting too
        early what the forward reads."""
        return self.policy_text or self.documented or (self.name if self.sets else "")

    @property
    def has_others(self) -> bool:
        """Whether some forwards get other inputs than those that were given."""
        return self.unused_forward or max(self.microbatches, self.steps, self.forwards) > 1

    def prepare(self, modules: Mapping[str, nn.Module], trained: Mapping[str, Tensor]) -> None:
        """Sets the modes of `modules`, and which of the `trained` parameters train."""
        for module in modules.values():
            if not self.train or (self.eval_parts and has_mode(module)):
                module.eval()
        if self.frozen:
            for parameter in list(trained.values())[:-2]:
                parameter.requires_grad_(False)

    def grads_of(self, names: Sequence[str]) -> Sequence[str]:
        """Returns those of the inputs `names` that get gradients."""
        if not self.inputs_require_grad:
            return ()
        return names[:1] if self.only_first_input else names

    def ambient(self, device: str) -> AbstractContextManager[Any]:
        """Returns the context that surrounds each forward."""
        stack = ExitStack()
        if self.autocast:
            stack.enter_context(torch.autocast(device, torch.bfloat16))
        if self.offload:
            stack.enter_context(saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t))
        return stack

    def options(self) -> dict[str, Any]:
        """Returns the options that this scenario passes to checkpoint()."""
        options: dict[str, Any] = {}
        if not self.preserve_rng_state:
            options["preserve_rng_state"] = False
        if self.policy:
            options["context_fn"] = contexts_by(self.policy, Watch())
        return options


def has_mode(module: nn.Module) -> bool:
    """Whether a module of PyTorch computes something else in evaluation: dropout, and norms with statistics."""
    kinds = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase)
    return isinstance(module, kinds) and next(module.children(), None) is None


FIRST = Scenario("one training step")
_AS_FIRST = partial(Scenario, plain=FIRST.name)

SCENARIOS = (
    FIRST,
    Scenario("evaluation mode", train=False),
    Scenario("inputs that require no grad", inputs_require_grad=False, reentrant=False),
    Scenario("two backwards over a retained graph", backwards=2),
    Scenario("gradients accumulated over two microbatches", microbatches=2),
    Scenario("two forwards before one backward", forwards=2),
    Scenario("autocast to bfloat16", autocast=True),
    _AS_FIRST("preserve_rng_state=False", preserve_rng_state=False),
    Scenario("only the first input requires grad", only_first_input=True),
    Scenario("all but the last parameters are frozen", frozen=True),
    Scenario("dropout and norms in evaluation mode", eval_parts=True),
    Scenario("two steps of an optimizer", steps=2),
    Scenario("a forward before it whose backward never comes", unused_forward=True),
    _AS_FIRST("early stop off", early_stop=False, reentrant=False),
    _AS_FIRST("saved tensors offloaded", offload=True),
    _AS_FIRST("a policy that keeps matrix products", policy="products", reentrant=False),
    _AS_FIRST("a policy that keeps every second operator", policy="every second call", reentrant=False),
    _AS_FIRST("a policy that keeps half of the operators", policy="subset 1", reentrant=False),
)

FORWARDS = tuple(s for s in SCENARIOS if s is FIRST or not s.train or s.forwards > 1 or s.autocast)
"""The scenarios that say something about forwards alone."""


def compiled_by(backend: Backend) -> Scenario:
    """Returns a scenario: a training step that a backend of torch.compile() compiles, plain and checkpointed."""
    return Scenario(f"compiled by {getattr(backend, '__name__', backend)}", compiled=backend, reentrant=False)


def set_between(attribute: str) -> Scenario:
    """Returns a scenario: a training step in which a caller sets an attribute again before the backward."""
    return _AS_FIRST(f"{attribute} set between a forward and its backward", sets=attribute)


LENGTHS = Scenario("two forwards of other lengths before one backward", forwards=2)
"""For modules that take sequences."""
LATER = Scenario("a backward at another time, with another load and other free memory", later=True)
"""For modules that read clocks, the load or the memory of the system."""


def with_arguments(*names: str) -> Scenario:
    """Returns a scenario: a training step with arguments that were left at None."""
    return Scenario(f"one training step with {' and '.join(names)}")


OTHERS_DRAW = Scenario("others draw between forward and backward")
"""For modules that draw from the generators of Python or NumPy: other code draws from the same ones."""
BEHIND_FROZEN = Scenario(
    "inputs that require no grad",
    inputs_require_grad=False,
    documented="use_reentrant=True behind frozen weights, where no input requires grad",
)
"""For partly frozen modules, such as those with adapters: what comes before them is often frozen, too."""
