"""Judges a whole model: its own checkpointing, and one block of each kind."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map, tree_map_only

from rematch.journal.journal import hooked
from rematch.journal.regions import plain, told
from rematch.safe.blocks import Wrapped, chosen_blocks
from rematch.safe.generators import random_states, set_random_states
from rematch.safe.judge import judge, refuse_lazy
from rematch.safe.process import Process
from rematch.safe.state import State
from rematch.safe.switch import Switch, flag_switch, known_switch
from rematch.safe.target import copied, named_arguments
from rematch.safe.verdict import Finding, Verdict, reservations


@dataclass
class Block:
    """Blocks of a model that are alike, and the verdict on the first of them."""

    names: list[str]
    kind: str
    verdict: Verdict | None
    why_not: str = ""

    @property
    def answer(self) -> str:
        """The answer in a few words."""
        if self.verdict is None:
            return f"not judged: {self.why_not}"
        if self.verdict.safe:
            return "safe as far as tried"
        return "not safe: " + ", ".join(dict.fromkeys(f.cause.name for f in self.verdict.findings))


@dataclass
class ModelVerdict:
    """The answer for a model: the verdicts on its own checkpointing and on its blocks."""

    name: str
    switch: str
    """The name of what turns its own checkpointing on; empty if nothing was found."""
    own: Verdict | None
    """The verdict on its own checkpointing, off against on."""
    why_not: str
    asked: bool = False
    """Whether a switch was given: then only a verdict on it is an answer."""
    blocks: list[Block] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def safe(self) -> bool:
        """Whether its own checkpointing changes nothing in what was tried; if it has none, whether no judged block
        does. A switch that could not be judged is not safe."""
        if self.own is not None or self.asked or self.switch:
            return self.own is not None and self.own.safe
        judged = [block.verdict for block in self.blocks if block.verdict is not None]
        return bool(judged) and all(verdict.safe for verdict in judged)

    @property
    def findings(self) -> list[Finding]:
        """The findings about the model's own checkpointing, then those about its blocks."""
        verdicts = [self.own, *(block.verdict for block in self.blocks)]
        return [finding for verdict in verdicts if verdict is not None for finding in verdict.findings]

    @property
    def causes(self) -> str:
        """Names of the causes why it is not safe: those of its own checkpointing, or of its blocks if it has none."""
        found = self.own.findings if self.own is not None else self.findings
        return ", ".join(dict.fromkeys(f.cause.name for f in found if not (f.remark or f.only_with)))

    @property
    def judged(self) -> bool:
        """Whether there is an answer."""
        return self.safe or (bool(self.causes) and (self.own is not None or not (self.asked or self.switch)))

    def headline(self) -> str:
        """Returns the answer in one line: its own checkpointing comes first, then its blocks."""
        unsafe = [b for b in self.blocks if b.verdict is not None and not b.verdict.safe]
        beside = f"; checkpointed from outside {_kinds(unsafe)}" if self.own is not None and unsafe else ""
        if self.safe:
            but = reservations(self.own.findings if self.own is not None else self.findings)
            if self.own is None:
                return f"The blocks of {self.name} are safe to checkpoint as far as they were tried{but}"
            return f"{self.name} is safe to checkpoint as far as it was tried{but}{beside}"
        if not self.judged:
            return f"{self.name} was not judged: {self.why_not or 'nothing could be tried'}"
        return f"{self.name} is not safe to checkpoint ({self.causes}){beside}"

    def __str__(self) -> str:
        return self.text()

    def text(self, verbose: bool = False) -> str:
        """Returns the report; `verbose` also lists everything that "and 7 more" stands for."""
        if self.own is None:
            head = f"{self.name}: its own checkpointing was not judged: {self.why_not}"
        else:
            head = (
                f"{self.name}, {self.switch or 'as it checkpoints itself'}, off against on\n\n{self.own.text(verbose)}"
            )
        parts = [self.headline(), head, self.table(verbose)]
        parts += [b.verdict.report(verbose) for b in self.blocks if b.verdict is not None and not b.verdict.safe]
        return "\n\n".join(parts)

    def table(self, verbose: bool = False) -> str:
        """Returns a table with one line for each kind of block."""
        lines = ["blocks, each checkpointed by itself from outside:"]
        for block in self.blocks:
            saved = block.verdict.saved if block.verdict is not None else {}
            least = min((n for name, n in saved.items() if name != "plain"), default=None)
            saves = f"{saved['plain']:>12,} B -> {least:>12,} B" if least is not None else ""
            rest = len(block.names) - 1
            first = ", ".join(block.names) if verbose or not rest else f"{block.names[0]} and {rest} more"
            lines.append(f"  {block.kind:<28} {first:<32} {saves:<32} {block.answer}")
        if not self.blocks:
            lines.append("  none found: name them, blocks='layers.*'")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Returns the verdict as data for JSON."""
        return {
            "name": self.name,
            "safe": self.safe,
            "switch": self.switch,
            "own": None if self.own is None else self.own.to_json(),
            "not_judged": self.why_not,
            "blocks": [
                {
                    "names": block.names,
                    "class": block.kind,
                    "why_not": block.why_not,
                    "verdict": None if block.verdict is None else block.verdict.to_json(),
                }
                for block in self.blocks
            ],
            "seconds": round(self.seconds, 2),
        }


def _kinds(blocks: list[Block]) -> str:
    found = [f for b in blocks if b.verdict is not None for f in b.verdict.findings if not (f.remark or f.only_with)]
    kinds = dict.fromkeys(block.kind for block in blocks)
    causes = dict.fromkeys(finding.cause.name for finding in found)
    return f"{', '.join(kinds)} {'is' if len(kinds) == 1 else 'are'} not ({', '.join(causes)})"


def judge_model(
    model: nn.Module,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    loss: Callable[[Any], Tensor] | None = None,
    blocks: str | Sequence[str] | None = None,
    switch: str | Callable[[Any, bool], None] | None = None,
    options: Mapping[str, Any] | None = None,
    most_blocks: int | None = None,
    progress: bool | None = None,
    grad: bool = True,
    **more: Any,
) -> ModelVerdict:
    """Says whether a model's own checkpointing changes what it computes, and which of its blocks may be checkpointed.

    One step finds the blocks and the arguments that each really gets; one block of each class, setting and kind of
    arguments is judged. The model is left as it was.

    Args:
        args, kwargs: a batch.
        loss: makes a scalar of what the model returns.
        blocks: one or several patterns of names, such as "layers.*"; by default the blocks that the model's own switch
            wraps, or repeated children.
        switch: turns the model's own checkpointing on and off: the name of an attribute, or a function that is called
            with the model and True or False. By default that of transformers, diffusers or timm, in submodules, too.
        options: options of checkpoint(), for switches that take them.
        most_blocks: the most kinds of blocks that are judged.
        progress: prints progress on standard error; by default on a terminal only.
        grad: False judges only forwards of the model, under torch.no_grad(), as in generation with a cache among its
            arguments, and no block.
        more: further arguments of judge(), for every part.

    Raises RuntimeError if a plain step fails, and TypeError if `model` is not a module.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"judge_model() expects a module, got {type(model).__name__}")
    begin = time.monotonic()
    progress = sys.stderr.isatty() if progress is None else progress
    kwargs = dict(kwargs or {})
    found = _switch(model, switch, dict(options) if options else None)
    # A cache among the arguments is filled by each forward.
    state, process, random = State({"": model, **named_arguments(args, kwargs)}).kept(), Process(), random_states()
    process.look_at(state.functions())
    refuse_lazy(state)
    try:
        refusal = _refusal(model, found) if switch is None else ""
        if refusal:
            found = None
        calls, wrapped, ran = _steps(model, args, kwargs, found, state)
        name = type(model).__name__ if grad else f"{type(model).__name__} without gradients"
        verdict = ModelVerdict(name, found.name if found else "", None, "", switch is not None)
        if ran or found is not None:
            own = judge(
                model,
                *args,
                kwargs=kwargs,
                loss=loss,
                switch=found.turn if found else None,
                progress=progress,
                own=True,
                grad=grad,
                **more,
            )
            if own.regions or not own.safe or own.saves or not grad:
                verdict.own = own
            else:
                verdict.why_not = f"{found.name if found else 'it'} was turned on, and no region was checkpointed"
        else:
            verdict.why_not = refusal or "no switch was found; switch= names it"
        names = chosen_blocks(model, blocks, wrapped, calls) if grad else []
        for group in [*_groups(model, names, calls).values()][:most_blocks]:
            if progress and time.monotonic() - begin > 2:
                print(f"{verdict.name}: block {group[0]}", file=sys.stderr)
            verdict.blocks.append(_judged(model, group, calls, {"progress": progress, **more}))
    finally:
        process.restore()
        state.restore()
        set_random_states(random)
    verdict.seconds = time.monotonic() - begin
    return verdict


Calls = dict[str, tuple[tuple[Any, ...], dict[str, Any]]]


def _switch(model: nn.Module, given: Any, options: dict[str, Any] | None) -> Switch | None:
    if isinstance(given, str):
        return flag_switch(given)
    if given is not None:
        return Switch("the switch that was given", given)
    return known_switch(model, options)


def _refusal(model: nn.Module, switch: Switch | None) -> str:
    """Returns how a library's switch refuses a model that has the method but does not support it; "" if it works."""
    if switch is None:
        return ""
    try:
        switch.turn(model, True)
    except (AssertionError, NotImplementedError, TypeError, ValueError) as error:
        return f"{switch.name} refuses: {error}"
    return ""


def _steps(
    model: nn.Module, args: Any, kwargs: Any, switch: Switch | None, state: State
) -> tuple[Calls, list[str], bool]:
    """Runs a plain step and one with the switch on. Returns the arguments of each module (with the switch on, if it is
    called then, as caches may be off), the names of the modules that checkpoint() got, and whether it was called. An
    error with the switch on is not raised here, as it is judged later."""
    calls: Calls = {}
    noted: set[str] = set()
    names = {module: name for name, module in model.named_modules()}
    wrapped = Wrapped(model)

    def note(module: nn.Module, args: Any, kwargs: Any) -> None:
        # A hook within a compiled module is compiled, too.
        if torch.compiler.is_compiling():
            return
        wrapped.enters(names[module])
        if names[module] not in noted:
            noted.add(names[module])
            calls[names[module]] = tree_map_only(Tensor, copied, (args, kwargs))

    try:
        for on, regions in ((False, plain()), (True, told(wrapped))):
            state.restore()
            noted.clear()
            hooks = [h for m in names for h in hooked(m.register_forward_pre_hook, note, with_kwargs=True)]
            try:
                if switch is not None:
                    switch.turn(model, on)
                with regions, torch.enable_grad():
                    # A model may ask its inputs for gradients.
                    fresh, named = tree_map_only(Tensor, _fresh, (args, kwargs))
                    model(*fresh, **named)
            except Exception as error:
                if not on:
                    raise RuntimeError(f"the model fails in a plain step: {type(error).__name__}: {error}") from error
            finally:
                for hook in hooks:
                    hook.remove()
    finally:
        state.restore()
    return calls, wrapped.names, wrapped.count > 0


def _fresh(t: Tensor) -> Tensor:
    return copied(t).requires_grad_(t.requires_grad)


def _groups(model: nn.Module, names: list[str], calls: Calls) -> dict[Any, list[str]]:
    groups: dict[Any, list[str]] = {}
    for name in names:
        block = model.get_submodule(name)
        shapes = tuple((n, tuple(p.shape), p.requires_grad) for n, p in block.named_parameters())
        inner = tuple((type(m).__name__, m.extra_repr(), m.training) for m in block.modules())
        taken = repr(tree_map(_described, calls[name]))
        groups.setdefault((type(block), shapes, inner, taken), []).append(name)
    return groups


def _described(value: Any) -> Any:
    if isinstance(value, Tensor):
        return f"{value.dtype} {tuple(value.shape)}"
    return value if isinstance(value, (int, float, str, bool, type(None))) else type(value).__name__


def _judged(model: nn.Module, names: list[str], calls: Calls, more: Mapping[str, Any]) -> Block:
    block = model.get_submodule(names[0])
    args, kwargs = calls[names[0]]
    try:
        verdict = judge(block, *args, kwargs=kwargs, **more)
    except RuntimeError as error:
        return Block(names, type(block).__name__, None, str(error).split("\n")[0][:160])
    return Block(names, type(block).__name__, verdict)
