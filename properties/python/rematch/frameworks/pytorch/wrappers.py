"""Modules that checkpoint other modules: each wraps a segment once, and the model then trains, evaluates and fails."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.distributed._composable import checkpoint as composable_checkpoint
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.utils.checkpoint import set_checkpoint_early_stop

from rematch.frameworks.pytorch import wrapped
from rematch.frameworks.pytorch.arguments import FORM, Values, flat, handed, received
from rematch.frameworks.pytorch.model import Forward, TorchModel, Wiring, values_of
from rematch.frameworks.pytorch.subject import TorchSubject
from rematch.frameworks.pytorch.watch import Watch
from rematch.subjects.case import Choice, Segment
from rematch.subjects.export import Finding
from rematch.subjects.framework import Framework
from rematch.subjects.promises import script_of
from rematch.subjects.protocol import Request, Unsupported


class Block(nn.Module):
    """A segment as a module, which holds what its layers use. Segments nested in it are modules within."""

    run: Callable[..., Any]
    options: dict[str, Any]
    """Those of checkpoint()."""

    def forward(self, *given: Any, **keywords: Any) -> Any:
        return self.run(*given, **keywords)


def blocks_of(root: nn.Module) -> Iterator[Block]:
    return (module for module in root.modules() if isinstance(module, Block))


def fsdp(root: nn.Module) -> None:
    """As users of FSDP do it, and torchtitan."""

    def wrap(block: Block) -> nn.Module:
        options = dict(block.options)
        impl = CheckpointImpl.REENTRANT if options.pop("use_reentrant") else CheckpointImpl.NO_REENTRANT
        return checkpoint_wrapper(block, checkpoint_impl=impl, **options)

    apply_activation_checkpointing(root, checkpoint_wrapper_fn=wrap, check_fn=lambda module: isinstance(module, Block))


def composable(root: nn.Module) -> None:
    for block in list(blocks_of(root)):
        composable_checkpoint(block, **block.options)


@dataclass(frozen=True)
class Wrapper:
    """How the blocks of a model are made and wrapped. `packs`: it takes tensors by keyword in the reentrant variant."""

    name: str
    wrap: Callable[[nn.Module], None]
    block: type[nn.Module] = Block
    packs: bool = False
    takes_hooks_option: bool = True
    promises: Sequence[Callable[..., Any]] = ()
    checkpoint_function: str = ""
    imports: str = ""
    helpers: Sequence[Callable[..., Any]] = ()
    """Functions that it uses beside these."""
    lacks: Sequence[str] = ()
    """Features that it does not have."""


@dataclass
class WrappedModel(TorchModel):
    """A model whose segments are modules that were wrapped once, before it trains."""

    wrapper: Wrapper = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        case = self.request.case
        # What is left to chance, alike in all runs of a case.
        chance = random.Random(case.seed)
        self._by_scope, self._positional = self._nests or chance.random() < 0.5, chance.random() < 0.5
        self._segments = case.plan.cut(len(case.layers)) if self.request.checkpointed else ()
        self._called: dict[int, nn.Module] = {}
        """By the identity of a segment, the module that stands for it."""
        self._failed: Exception | None = None
        """An error of the wrapper, which is one of the run."""
        if self._segments:
            try:
                self._wrap(is_copied=chance.random() < 0.5)
            except Exception as error:
                self._failed = error

    def _wrap(self, is_copied: bool) -> None:
        root = _holding(nn.Module(), [*self.parameters, *(own.module for own in self._custom.values())])
        root.within = nn.ModuleList(map(self._block, self._segments))
        self.wrapper.wrap(root)
        if is_copied:
            copies: dict[int, Any] = {}
            root = deepcopy(root, copies)
            self.parameters = [copies.get(id(p), p) for p in self.parameters]
            for own in self._custom.values():
                own.module = copies.get(id(own.module), own.module)
            self._parameters_of = self._parameters_by_layer()
        self._bind(root.within, self._segments)

    def _block(self, segment: Segment) -> nn.Module:
        block = _holding(self.wrapper.block(), self.held_by(segment))
        block.within = nn.ModuleList(map(self._block, segment.nested))
        # A function and not a method: copies of the block share it.
        block.run = lambda *given, **keywords: self._run_block(segment, given, keywords)
        block.options = self._options(segment)
        if self._by_scope:
            block.options.pop("early_stop", None)
        return block

    def _bind(self, modules: Iterable[nn.Module], segments: Sequence[Segment]) -> None:
        for module, segment in zip(modules, segments, strict=True):
            self._called[id(segment)] = module
            self._bind(module.within, segment.nested)

    def _run_model(self, state: Forward, values: Values) -> Values:
        if self._failed is not None:
            raise self._failed
        return self._run_range(0, len(self.request.case.layers), self._segments, state, values)

    def _run_plain(self, state: Forward) -> Values:
        # Wrapped modules evaluate as they are.
        return self.forward(state)

    def without_plan(self, state: Forward) -> Values:
        return super()._run_plain(state)

    def _form(self, segment: Segment) -> str:
        """How the segment is handed its values; some wrappers take tensors by keyword where checkpoint() refuses them."""
        choice = segment.choice
        by_keyword = self.wrapper.packs and choice.reentrant and not self._positional
        return "keywords" if by_keyword and choice.arguments == "tensors" else choice.arguments

    def _run_checkpoint(self, segment: Segment, state: Forward, values: Values) -> Values:
        self._goes_by_operators(segment)
        given, keywords = handed(self._form(segment), values)
        module = self._called[id(segment)]
        module.training = self.train
        with self._early_stop(segment.choice, {}):
            if self._positional:
                returned = module(state, *given, **keywords)
            else:
                returned = module(*given, **keywords, state=state)
        return flat(returned) if segment.choice.nested_outputs else values_of(returned)

    def _run_block(self, segment: Segment, given: Sequence[Any], keywords: dict[str, Any]) -> Any:
        state = given[0] if self._positional else keywords.pop("state")
        count = len(self.request.model.live[segment.begin])
        inputs = received(self._form(segment), count, given[self._positional :], keywords)
        return self._run_segment(segment, *inputs, state=state)

    def _takes_hooks_option(self) -> bool:
        return self.wrapper.takes_hooks_option

    def _early_stop(self, choice: Choice, options: dict[str, Any]) -> AbstractContextManager[Any]:
        is_said = choice.reentrant or not self._by_scope
        return nullcontext() if is_said else set_checkpoint_early_stop(choice.early_stop)


def _holding(module: nn.Module, held: Iterable[Any]) -> Any:
    """The module, as one that has these parameters and modules; other tensors are left out."""
    for number, one in enumerate(held):
        if isinstance(one, nn.Module):
            module.add_module(f"m{number}", one)
        elif isinstance(one, nn.Parameter):
            module.register_parameter(f"p{number}", one)
    return module


class WrappedSubject(TorchSubject):
    """PyTorch on the CPU, eager, with segments that are wrapped modules."""

    tries_promises = False

    def __init__(self, wrapper: Wrapper, **options: Any) -> None:
        self._wrapper = wrapper
        self.promises, self.checkpoint_function = wrapper.promises, wrapper.checkpoint_function
        self.imports = f"{TorchSubject.imports}\n{wrapper.imports}"
        self.promise_helpers = wrapper.helpers
        super().__init__(f"torch {wrapper.name}", lacks=wrapper.lacks, **options)
        self._tries(self._promises, 0.2)
        self._without(FORM)

    def broken(self, promise: str) -> str:
        return Framework.broken(self, promise)

    def _model(self, request: Request, wirings: list[Wiring], watch: Watch) -> TorchModel:
        return WrappedModel(request, wirings, watch, custom=self.modules_by_declaration, wrapper=self._wrapper)

    def export(self, request: Request, finding: str) -> str:
        if Finding.read(finding).law == "promises":
            return script_of(self, finding)
        raise Unsupported("scripts have no modules that stay wrapped from step to step")


_WRAPPER = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper"
WRAPPERS = {
    "fsdp": Wrapper(
        "fsdp",
        fsdp,
        packs=True,
        promises=wrapped.FSDP,
        checkpoint_function="checkpoint_wrapper",
        imports=f"from {_WRAPPER}",
    ),
    "composable": Wrapper(
        "composable",
        composable,
        takes_hooks_option=False,
        promises=wrapped.COMPOSABLE,
        checkpoint_function="checkpoint",
        imports="from torch.distributed._composable import checkpoint",
    ),
}
