"""The text of a script that shows a case in PyTorch alone; export.py chooses among several."""

from __future__ import annotations

import re
from inspect import getsource

from rematch.frameworks.pytorch.layers import FUNCTIONS, USES, delayed_float8, draws
from rematch.frameworks.pytorch.script_counts import HOOKS, KEPT, Question, check, layer_name
from rematch.frameworks.pytorch.script_counts import tail as counted
from rematch.frameworks.pytorch.script_custom import setup_of
from rematch.frameworks.pytorch.script_model import INDENT, WIDTH, indented
from rematch.frameworks.pytorch.script_steps import StepText
from rematch.frameworks.pytorch.script_tail import CALL, CALL_WITH_KEYWORDS, helpers_of, imports_of, tail
from rematch.layers import OUTPUTS
from rematch.protocol import Unsupported

_OF_KIND = {delayed_float8: "delayed_scaling"}
"""Kinds of layers by other names than theirs."""


class Script(StepText):
    """Writes one script. `aspects` are what both runs are compared by: "outputs", "gradients",
    "input gradient", "buffers", "parameters", "reevaluation", "random state", "draws", "error", or
    "no error": then the injected failure is all that is run."""

    def text(self, title: str, question: Question | None = None) -> str:
        """The whole script. `question`: the count that it is about. Raises Unsupported for what
        cannot be written."""
        check(self._aspects, self._request)
        body = indented(self._run())
        flag = ", change" if self._fails else ""
        end = self._tail() if question is None else counted(question)
        lines = [f"def run(checkpointed{flag}):", *body, "", "", *end]
        if self._calls > 1:
            keywords = any("keywords=" in line for line in body)
            lines[1:1] = indented(CALL_WITH_KEYWORDS if keywords else CALL)
        listed, flagged = self._style.whole_ops, not self._keeps_all()
        policy = "=contexts" in "\n".join(lines) and not listed
        lines = [*self._helpers(), *helpers_of(self._style, policy, flagged), *lines]
        if "saved bytes" in self._aspects:
            lines = [*KEPT.splitlines(), *lines]
        for function in FUNCTIONS:
            name = function.__name__
            used = any(re.search(rf"(?<![\w.]){name}\(", line) for line in lines)
            kind = _OF_KIND.get(function, name)
            if used and any(layer.kind == kind for layer in self._case.layers):
                shown = [USES[function], function] if function in USES else [function]
                for source in reversed(shown):
                    lines = [*getsource(source).splitlines(), "", "", *lines]
        gap = [""] if lines[0].startswith(("torch.", "RANKS")) else ["", ""]
        customs = self._layers.customs.values()
        script = "\n".join(lines)
        setup = "\n".join(s.text for c in customs for s in c.statements if not s.imports)
        imports = imports_of(f"{script}\n{setup}", self._own)
        further, setup = setup_of(customs, script, "\n".join(imports))
        text = "\n".join([*imports, *further, *gap, *setup, *lines]) + "\n"
        return "\n".join([*title.splitlines(), text])

    def _helpers(self) -> list[str]:
        """Further lines that the runs use."""
        return []

    def _tail(self) -> list[str]:
        return tail(self._style, self._aspects)

    def _run(self) -> list[str]:
        style, arrays = self._style, self._request.arrays
        make = self._layers.tensors.make
        state: list[str] = []
        first = arrays.trial_input if self._fails else arrays.inputs[0]
        target = arrays.trial_target if self._fails else arrays.targets[0]
        if self._many:
            state.append(f"inputs = {self._stack(arrays.inputs)}")
            for k, name in enumerate(self._further):
                further = [forward[k] for forward in arrays.further_inputs]
                state.append(f"all_{name} = {self._stack(further)}")
            if not style.summed:
                state.append(f"targets = {self._stack(arrays.targets)}")
        else:
            state.append(f"x = {make(first, grad=self._input_grad)}")
            further = arrays.further_trial_inputs if self._fails else arrays.inputs_of(0)[1:]
            state += self._made_further(further)
            if not style.summed:
                if target is None:
                    raise Unsupported("a forward that fails has no target")
                state.append(f"target = {make(target)}")
        state += self._layers.definitions()
        state += self._prior_gradients()
        if "draws" in self._aspects:
            state.append("drawn = defaultdict(list)")
        if self._counted:
            state.append("entered = 0")
        state += self._counters()
        definitions = self._definitions()
        body = self._several() if self._many else self._single()
        random = (
            self._layers.tensors.drawn
            or (style.exact and any(c.seeded for c in self._layers.customs.values()))
            or "random state" in self._aspects
            or any(draws(layer, self._protocol.train) for layer in self._case.layers)
        )
        # The random state of the case is that of its seed when its first forward begins.
        seed = [f"torch.manual_seed({self._case.seed if style.exact else style.seed})"]
        further = max((layer.stream for layer in self._case.layers), default=0)
        if further:
            start = self._case.seed if style.exact else style.seed
            made = f"torch.Generator().manual_seed({start})"
            seed.append(f"generators = [{made} for _ in range({further})]")
        for custom in self._layers.customs.values():
            seed += custom.seeding(self._case.seed if style.exact else style.seed)
        seed = list(dict.fromkeys(seed))
        # Draws must be the same in both runs.
        if not self._layers.tensors.drawn:
            return [*state, *definitions, *(seed if random else []), *body]
        return [*seed, *state, *definitions, *body]

    def _prior_gradients(self) -> list[str]:
        if not self._protocol.prior_gradients or not self._layers.trained() or self._fails:
            return []
        return [f"for p in ({self._layers.listed()},):", INDENT + "p.grad = torch.ones_like(p)"]

    def _counters(self) -> list[str]:
        """Lines that count, and where they are told."""
        lines = {"runs": "runs = Counter()", "requires grad": "flags = {}"}
        made = [line for aspect, line in lines.items() if aspect in self._aspects]
        if "hooks" in self._aspects:
            made.append("fired = Counter()")
            made += [
                f'{name}.register_hook(lambda gradient: fired.update(["{name}"]))' for name in self._layers.trained()
            ]
        if "saved bytes" in self._aspects:
            target = [] if self._style.summed else ["target"]
            known = ["x", *self._further, *target, *self._layers.known]
            made.append(f"model = [{', '.join(known)}]")
        return made

    def _counts(self, outputs: list[str]) -> dict[str, str]:
        """Counts by name."""
        results, layers = {}, [layer_name(x.kind, i) for i, x in enumerate(self._case.layers)]
        if "runs" in self._aspects:
            results |= {f"runs of {name}": f'runs["{name}"]' for name in layers}
        if "hooks" in self._aspects:
            results |= {f"times that the hook of {name} fired": f'fired["{name}"]' for name in self._layers.trained()}
        if "requires grad" in self._aspects:
            for i, name in enumerate(layers):
                for k in range(OUTPUTS.get(self._case.layers[i].kind, 1)):
                    if (i, k) in self._live[i + 1]:
                        place = f"{name}, output {k}"
                        results[f"{place} requires grad"] = f'flags["{place}"]'
            results |= {f"output {k} requires grad": f"{name}.requires_grad" for k, name in enumerate(outputs)}
        if "saved bytes" in self._aspects:
            results["saved bytes after the forward"] = "after_forward"
            results["saved bytes after the backward"] = "saved_bytes(model)"
        return results

    def _stack(self, arrays: list) -> str:
        make = self._layers.tensors.make
        return "[" + ", ".join(make(array) for array in arrays) + "]"

    def _made_further(self, arrays: list) -> list[str]:
        make = self._layers.tensors.make
        named = zip(self._further.items(), arrays, strict=True)
        return [f"{name} = {make(array, grad=grad)}" for (name, grad), array in named]

    def _single(self) -> list[str]:
        outputs, kind = self._outputs(), self._protocol.inject
        losses = self._losses(outputs, "target")
        # A loss that is used once needs no name.
        named = "outputs" in self._aspects or self._protocol.backwards > 1 or self._fails
        named = named or self._protocol.partial or len(losses) > 1
        named = named or {"requires grad", "saved bytes"} & set(self._aspects)
        named = named or _apart(self._protocol.autocast, self._style.exact)
        made = [f"{name} = {loss}" for name, loss in losses.items()]
        lines = self._scoped([*self._model(), *(made if named else [])])
        if "saved bytes" in self._aspects:
            lines = [f"with {HOOKS}:", *indented(lines), "after_forward = saved_bytes(model)"]
        if self._fails and kind in ("weight_changed", "input_changed"):
            lines += ["if change:", *indented(self._change())]
        if "random state" in self._aspects:
            lines.append("after_forward = torch.get_rng_state()")
        lines += self._backward(*(losses if named else losses.values()))
        results = self._results(outputs) | self._counts(outputs)
        if "random state" in self._aspects:
            results["random state after the forward"] = "after_forward"
            results["random state after the backward"] = "torch.get_rng_state()"
        if "draws" in self._aspects:
            for i, layer in enumerate(self._case.layers):
                if draws(layer, self._protocol.train):
                    for at, name in ((0, "in the forward"), (-1, "the last time it ran")):
                        results[f"{layer.kind} {i} {name}"] = f"drawn['{layer.kind} {i}'][{at}]"
        optimizer, step = self._optimizer_lines()
        lines = [*optimizer, *lines, *step] if self._protocol.loss_scale else lines + optimizer + step
        if "parameters" in self._aspects:
            results |= {name: f"{name}.detach()" for name in self._layers.trained()}
        if "error" in self._aspects:
            return lines
        entries = [f'"{name}": {value}' for name, value in results.items()]
        line = f"return {{{', '.join(entries)}}}"
        if len(line) <= WIDTH - 4:
            return [*lines, line]
        return [*lines, "return {", *indented([e + "," for e in entries]), "}"]

    def _results(self, outputs: list[str]) -> dict[str, str]:
        """Results that are compared after one forward and backward, by name."""
        results = {}
        if "outputs" in self._aspects:
            results |= {"output" if i == 0 else f"output {i}": f"{name}.detach()" for i, name in enumerate(outputs)}
            results |= {name: f"{name}.detach()" for name in self._losses(outputs, "")}
        if {"gradients", "input gradient"} & set(self._aspects):
            results |= {f"{name}.grad": f"{name}.grad" for name in self._differentiable_inputs()}
        if "gradients" in self._aspects:
            results |= {f"{name}.grad": f"{name}.grad" for name in self._layers.trained()}
        if "buffers" in self._aspects:
            results |= {name: name for name in self._layers.buffers}
        return results

    _target = "targets[i]"

    def _own_rows(self, batch: str) -> str:
        """The part of a batch that a forward takes, in memory of its own."""
        return f"{batch}.clone()"

    def _returned(self, outputs: list[str]) -> list[str]:
        """How the function of the whole model ends."""
        return [f"return {', '.join(outputs)}"]

    def _ready(self) -> list[str]:
        """Lines between its definition and the first step."""
        return []

    def _microbatch(self, lines: list[str]) -> list[str]:
        """A forward and its backward, within their scopes."""
        return lines

    def _copied(self, value: str, absent: bool) -> str:
        """A copy of a parameter, a gradient or a buffer. `absent`: it may be None."""
        return f"None if {value} is None else {value}.clone()" if absent else f"{value}.clone()"

    def _several(self) -> list[str]:
        """Steps, microbatches, a trial before them, and an evaluation after them."""
        p, outputs = self._protocol, self._outputs()
        made, step = self._optimizer_lines()
        lines = [
            *filter(None, [self._style.compiled]),
            f"def forward({', '.join(['x', *self._further])}):",
            *indented(self._model()),
            *indented(self._returned(outputs)),
            "",
            *self._ready(),
        ]
        if self._trial:
            lines += self._trial_lines()
        lines += [*made, "results = {}"]
        where = "step {step}, forward {i}: "
        given = {"x": ("inputs[i]", self._input_grad)}
        given |= {name: (f"all_{name}[i]", grad) for name, grad in self._further.items()}
        forward = [
            f"{name} = {self._own_rows(batch)}{'.requires_grad_()' if grad else ''}"
            for name, (batch, grad) in given.items()
        ]
        losses = self._losses(outputs, self._target)
        forward += self._scoped(
            [f"{', '.join(outputs)} = {self._forward_call()}", *(f"{name} = {loss}" for name, loss in losses.items())]
        )
        results = self._results(outputs)
        of_inputs = [f"{name}.grad" for name in self._differentiable_inputs()]
        late = {k: v for k, v in results.items() if k in of_inputs}
        early = {k: v for k, v in results.items() if k.startswith(("output", "loss"))}
        final = {k: v for k, v in results.items() if k not in late and k not in early}
        keep = [f'results[f"{where}{k}"] = {v}' for k, v in early.items()]
        if "random state" in self._aspects:
            keep.append(f'results[f"{where}random state"] = torch.get_rng_state()')
        after = [f'results[f"{where}{k}"] = {v}' for k, v in late.items()]
        begin = f"step * {p.microbatches}" if p.microbatches > 1 else "step"
        span = f"range({begin}, {begin} + {p.microbatches})"
        loop = [f"for step in range({p.steps}):"]
        if p.forwards_first:
            inner = ["waiting = []", f"for i in {span}:"]
            held = ", ".join(("i", "x", *self._further, *losses))
            inner += indented([*forward, *keep, f"waiting.append(({held}))"])
            inner += [f"for {held} in reversed(waiting):"]
            inner += indented([*self._backward(*losses), *after])
        else:
            whole = self._microbatch([*forward, *keep, *self._backward(*losses), *after])
            inner = [f"for i in {span}:", *indented(whole)]
        copied = {k: self._copied(v, k.endswith("grad")) for k, v in final.items()}
        inner += [f'results[f"step {{step}}: {k}"] = {v}' for k, v in copied.items() if "grad" in k]
        inner += step
        inner += [f'results[f"step {{step}}: {k}"] = {v}' for k, v in copied.items() if "grad" not in k]
        if "parameters" in self._aspects:
            inner += [
                f'results[f"step {{step}}: {n}"] = {self._copied(f"{n}.detach()", False)}'
                for n in self._layers.trained()
            ]
        if "random state" in self._aspects:
            inner.append('results[f"step {step}: random state"] = torch.get_rng_state()')
        if p.zero_grad and p.steps > 1 and self._layers.trained():
            inner += [f"for p in ({self._layers.listed()},):", INDENT + "p.grad = None"]
        lines += [*loop, *indented(inner)]
        if "reevaluation" in self._aspects:
            lines += self._evaluation()
        return [*lines, "return results"]


def _apart(autocast: str, exact: bool) -> bool:
    """Whether the loss is computed elsewhere than where its backward begins."""
    return autocast != "off" or exact
