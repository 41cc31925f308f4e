"""The text of what a script does with its model: losses, their backwards, steps, and what is noted of them."""

import re
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from rematch.frameworks.pytorch.layers import call
from rematch.frameworks.pytorch.operators import INFERENCE
from rematch.frameworks.pytorch.source import Text, TorchSource
from rematch.subjects.export import FEW, Finding
from rematch.subjects.protocol import Request, Unsupported
from rematch.subjects.script import COUNTED, Script, Style, runs_of
from rematch.subjects.source import evaluation

MOST = 4096
"""How many numbers are written out."""


def indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" if line else "" for line in lines]


class StepText(Script):
    """The steps of a script; TorchScript puts them into a function. Aspects are those of LAWS, and "" for numbers of
    every kind. `compiled`: the decorator that compiles the forward."""

    def __init__(
        self, framework: Text, request: Request, style: Style, found: Finding, aspect: str, compiled: str = ""
    ) -> None:
        super().__init__(framework, request, style, found, aspect)
        self._case, self._arrays, self._protocol = request.case, request.arrays, request.case.protocol
        self._compiled, self._more = compiled, (compiled,)
        self._trial = aspect == "trial"
        p = self._protocol
        self._many = not self._trial and p.steps * p.microbatches > 1
        if aspect in COUNTED and (
            self._many or p.inject != "none" or aspect == "saved bytes" and self._case.plan.offload
        ):
            raise Unsupported("a script counts in one forward and its backwards only, and nothing on the host")
        self._customs = {
            f"m{index}": framework.modules_by_declaration[self._case.layers[index].layer]
            for index, _ in request.model.custom_operands
            if self._case.layers[index].layer in framework.modules_by_declaration
        }
        for own in self._customs.values():
            if callable(own.make) or callable(own.call):
                raise Unsupported(f"{own.name} is made or called by a function, not by an expression")
        further = [k < p.further_inputs_with_grad for k in range(self._case.further_inputs)]
        grad = p.input_requires_grad or (style.input_grad and not self._case.takes_tokens)
        self._given = dict(zip(self._source().signature(), [grad, *further], strict=True))
        if aspect in COUNTED and not self._promised():
            raise Unsupported(f"no script tells of {found.law} at {found.at or 'an unknown place'}")
        self._where = "step {step}, microbatch {i}: " if self._many else ""

    def _source(self) -> TorchSource:
        """The model's text."""
        model, detached = self._request.model, self._request.detached_layers
        train = self._protocol.train
        return TorchSource(self._framework, self._case, model, True, train, detached=detached, name="forward")

    @property
    def parameters(self) -> list[str]:
        return self._source()._names

    def _named(self) -> str:
        """The dictionary of what trains."""
        entries, model = [], self._request.model
        for name, info in zip(self.parameters, model.parameters, strict=True):
            own = f"m{info.layer}"
            if own in self._customs and not info.frozen:
                entries.append(f'**dict({own}.named_parameters("{own}"))')
            elif not info.frozen:
                entries.append(f'"{name}": {name}')
        return f"{{{', '.join(entries)}}}"

    def _tensor(self, array: np.ndarray, grad: bool = False, drawn: bool = True) -> str:
        options = "dtype=torch.float64" if array.dtype == np.float64 else ""
        shape, ends = ", ".join(map(str, array.shape)), "requires_grad=True" if grad else ""
        if array.dtype.kind != "f":
            # Tokens are of rank 2, classes of rank 1.
            dtype = "dtype=torch.int32" if array.ndim == 2 else ""
            return call("torch.tensor", str(array.tolist()), dtype)
        for value, name in ((0, "zeros"), (1, "ones")):
            if array.size > 1 and (array == value).all() and not np.signbit(array).any():
                return call(f"torch.{name}", shape, options, ends)
        if drawn and not self._style.exact and array.size > FEW:
            return call("torch.randn", shape, options, ends)
        if array.size > MOST:
            raise OverflowError
        text = re.sub(r"\b(nan|inf)\b", r"torch.\1", self._literal(array))
        return call("torch.tensor", text, options, ends)

    def _literal(self, array: np.ndarray) -> str:
        if array.ndim:
            return f"[{', '.join(map(self._literal, array))}]"
        return str(array if self._style.exact else array.dtype.type(round(float(array), 2)))

    def _promised(self) -> dict[str, str]:
        expected, at = self._found.parts.get("expected", ""), self._found.at
        if "plain run" in at or "retained" in at:
            return {}
        if self._trial:
            return {"an error is raised": "True"} if expected == "an error" else {}
        if self._aspect == "runs":
            return runs_of(self._found)
        place = re.search(r"parameter (\d+)", at) if self._aspect == "hooks" else None
        if place:
            return {f"calls of the hook of {self.parameters[int(place[1])]}": expected}
        if self._aspect == "requires grad" and (place := re.search(r"(layer \d+) .*(, output \d+)|output \d+", at)):
            return {f"{place[1] + place[2] if place[1] else place[0]} requires grad": str("no" not in expected)}
        if self._aspect == "saved bytes" and re.search("after the forward of|saved bytes of", at):
            moment = "forward" if "after the forward" in at else "backward"
            return {f"saved bytes after the {moment}": expected}
        return {}

    def _autocast(self, lines: list[str], wanted: bool) -> list[str]:
        cache = "" if self._protocol.cast_cache else "cache_enabled=False"
        scope = call("torch.autocast", '"cpu"', "dtype=torch.bfloat16", cache)
        return [f"with {scope}:", *indented(lines)] if wanted else lines

    def _forward(self) -> list[str]:
        p = self._protocol
        lines = [f"outputs = {self._forward_call()}"]
        if self._case.plan.offload:
            lines = [f"with save_on_cpu() if checkpointed else nullcontext(): {lines[0]}"]
        lines.append(f"loss = {self._loss()}")
        if p.auxiliary_losses:
            lines.append(f"further = [y{self._wide()}.square().mean() for y in outputs[1:]]")
        return self._autocast(lines, p.autocast != "off")

    def _forward_call(self) -> str:
        return f"forward({', '.join(self._given)})"

    def _wide(self) -> str:
        return ".float()" if self._protocol.autocast != "off" else ""

    def _loss(self) -> str:
        flat = "" if self._case.rank_of(len(self._case.layers)) == 2 else ".flatten(1)"
        y = f"outputs[0]{flat}{self._wide()}"
        return self._framework.losses[self._protocol.loss].format(y=y, target=self._target())

    def _target(self) -> str:
        return "targets[i]" if self._many else "target"

    def _backward(self) -> list[str]:
        p = self._protocol
        scaled = "scaler.scale({})" if p.loss_scale and not self._trial else "{}"
        if p.backwards > 1 or p.partial or p.auxiliary_losses:
            losses = "loss, *further" if p.auxiliary_losses else "loss,"
            lines = ["parts = [None]"]
            if p.partial:
                lines = [f"groups = [{', '.join(self._groups())}]"]
                lines.append("parts = [sum(part, []) for part in (groups[::2], groups[1::2]) if part]")
            every = f"for _ in range({p.backwards}) for y in ({losses}) if y.requires_grad for part in parts"
            lines += [
                f"calls = [(y, part) {every}]",
                "for left, (y, part) in zip(reversed(range(len(calls))), calls):",
                f"    {scaled.format('y')}.backward(retain_graph=left > 0, inputs=part)",
            ]
        else:
            lines = [f"{scaled.format('loss')}.backward()"]
            if not (any(self._given.values()) or self._trial) or self._aspect == "requires grad":
                lines = ["if loss.requires_grad:", *indented(lines)]
        return self._autocast(lines, p.autocast == "both")

    def _groups(self) -> list[str]:
        """Lists of what trains, in the order in which partial backwards take turns."""
        named = zip(self.parameters, self._request.model.parameters, strict=True)
        groups = [
            f"[*m{info.layer}.parameters()]" if f"m{info.layer}" in self._customs else f"[{name}]"
            for name, info in named
            if not info.frozen
        ]
        return [*groups, *(f"[{name}]" for name, grad in self._given.items() if grad)]

    def _narrowed(self, lines: list[str]) -> list[str]:
        """The lines with the note of one result alone, and what a run returns."""
        where, _, what = self._style.only.rpartition(": ")
        kept = []
        for line in lines:
            note = re.fullmatch(r'( *)results(?: \|= \{|\[)f?"(.*?)"(?:\] =|:) (.*?)(?: for .*\})?', line)
            if not note:
                kept += [line] if where or line != "results = {}" else []
                continue
            margin, key, value = note.groups()
            before, named, after = re.fullmatch(r"(.*?)(\{(?:name|k)\})?([^{]*)", key.rpartition(": ")[2]).groups()
            if not (what.startswith(before) and what.endswith(after)) or not named and before + after != what:
                continue
            if named:
                name = what.removeprefix(before).removesuffix(after)
                if name in self._given:
                    continue
                module, dot, rest = name.partition(".")
                owner = f'{module}.get_parameter("{rest}")' if dot else name
                value = re.sub(r"\b[pby]\b", f"outputs[{name}]" if before else owner, value)
                key = key.replace(named, name)
            value = re.sub(r"^numbers\((.*)\)$", r"\1 is not None" if self._absent else r"\1.tolist()", value)
            kept.append(f'{margin}results[f"{key}"] = {value}' if where else f"{margin}result = {value}")
        if not where and kept[-1].startswith("result = "):
            return [*kept[:-1], kept[-1].replace("result = ", "return ", 1)]
        return [*kept, f"return results[{self._style.only!r}]" if where else "return result"]

    def _note(self, name: str, value: str) -> str:
        return f'results[{"f" if self._where else ""}"{self._where}{name}"] = {value}'

    def _noted(self, names: str, value: str, every: str) -> str:
        return f'results |= {{f"{self._where}{names}": {value} for {every}}}'

    def _tried(self) -> list[str]:
        """The injected failure, by which the plain run, which shows what is right, is not changed."""
        kind, lines = self._protocol.inject, self._forward()
        if kind in ("weight_changed", "input_changed"):
            used = self._request.model.layer_parameters[self._protocol.inject_layer]
            written = "x" if kind == "input_changed" else self.parameters[used[0]]
            lines += ["if checkpointed:", "    with torch.no_grad():", f"        {written}.mul_(-1.5).sub_(1)"]
        lines += self._backward()
        if not self._promised():
            caught = "results |= settings()"
            return [caught, "try:", *indented(lines), "except RuntimeError:", f"    {caught}"]
        lines += [self._note("an error is raised", "False"), *self._gradients("", "gradients")]
        told = ['print("error:", error)', self._note("an error is raised", "True")]
        return ["try:", *indented(lines), "except RuntimeError as error:", *indented(told)]

    def _gradients(self, *wanted: str) -> list[str]:
        """Notes of the gradients of inputs and parameters, where the aspect is one of those `wanted`."""
        lines = [
            self._note(f"{name}.grad", f"numbers({name}.grad)")
            for name, grad in self._given.items()
            if grad and (self._trial or self._aspect in (*wanted, "input gradient"))
        ]
        if (self._trial or self._aspect in wanted) and self._named() != "{}":
            lines.append(self._noted("{name}.grad", "numbers(p.grad)", "name, p in parameters.items()"))
        return lines

    def _random_state(self, moment: str) -> list[str]:
        if self._aspect != "random state":
            return []
        more = ", *generators" if any(layer.stream for layer in self._case.layers) else ""
        state = f"[g.get_state().tolist() for g in (torch.default_generator,{more[1:]})]"
        return [self._note(f"random state after the {moment}", state)]

    def _steps(self) -> list[str]:
        """Steps and microbatches, and an evaluation after them."""
        p, aspect, lines = self._protocol, self._aspect, []
        grads = {name: ".requires_grad_()" if grad else "" for name, grad in self._given.items()}
        forward = [f"{n} = {self._own_rows(f'{n}s[i]')}{grad}" for n, grad in grads.items() if self._many]
        forward += self._forward()
        if aspect == "saved bytes":
            hooks = "with saved_tensors_hooks(Kept, lambda kept: kept.tensor):"
            forward = [f"known = [{self._known()}]", hooks, *indented(forward), "after_forward = saved_bytes(known)"]
        if aspect in ("", "outputs"):
            forward.append(self._noted("output {k}", "numbers(y)", "k, y in enumerate(outputs)"))
            forward.append(self._note("loss", "numbers(loss)"))
        forward += self._random_state("forward")
        forward += self._inferred()
        gradients = self._gradients("", "gradients")
        of_inputs = [line for line in gradients if "parameters" not in line]
        backward = [*self._backward(), *of_inputs, *self._random_state("backward")]
        step = [line for line in gradients if line not in of_inputs]
        if (p.steps > 1 or aspect in ("parameters", "reevaluation")) and self._named() != "{}":
            lines, update = self._optimizer()
            step += update
        if p.loss_scale:
            lines.append(f'scaler = torch.amp.GradScaler("cpu", init_scale={p.loss_scale})')
        step += self._random_state("step")
        if aspect == "parameters" and self._named() != "{}":
            step.append(self._noted("{name}", "numbers(p)", "name, p in parameters.items()"))
        if aspect in ("", "buffers") and self._buffers():
            step.append(self._noted("{name}", "numbers(b)", f"name, b in {{{self._buffers()}}}.items()"))
        if p.zero_grad and p.steps > 1:
            step += ["for p in parameters.values():", "    p.grad = None"]
        lines += self._in_turn(forward, backward, step) if self._many else [*forward, *backward, *step]
        if aspect == "reevaluation":
            lines += self._evaluation()
        return lines + [self._note(name, value) for name, value in self._counted().items()]

    def _inferred(self) -> list[str]:
        """Evaluates the model under its plan, between a forward and its backward."""
        scope = self._case.options.get(INFERENCE)
        if scope is None:
            return []
        source = replace(self._source(), train=False, observed=False, name="infer")
        given = ", ".join(f"{name}.detach()" for name in self._given)
        trains = {m: self._case.layers[int(m[1:])].trains(self._protocol.train) for m in self._customs}
        result = f"inferred = infer({given})[0]"
        noted = [self._note("inferred", "numbers(inferred)")] if self._aspect == "inference" else []
        modes = [f"{m}.eval()" for m in trains], [f"{m}.train({mode})" for m, mode in trains.items()]
        return [*source.text().splitlines(), *modes[0], f"with torch.{scope}():", f"    {result}", *noted, *modes[1]]

    def _in_turn(self, forward: list[str], backward: list[str], step: list[str]) -> list[str]:
        p = self._protocol
        each = f"for i in range(step * {p.microbatches}, (step + 1) * {p.microbatches}):"
        if p.forwards_first:
            held = ", ".join(["i", *self._given, "loss", *(["further"] if p.auxiliary_losses else [])])
            body = ["waiting = []", each, *indented([*forward, f"waiting.append(({held}))"])]
            body += [f"for {held} in reversed(waiting):", *indented(backward)]
        else:
            body = [each, *indented(self._microbatch([*forward, *backward]))]
        return [f"for step in range({p.steps}):", *indented([*body, *step])]

    def _own_rows(self, batch: str) -> str:
        """The part of a batch that a forward takes, in memory of its own."""
        return f"{batch}.clone()"

    def _microbatch(self, lines: list[str]) -> list[str]:
        return lines

    def _optimizer(self) -> tuple[list[str], list[str]]:
        """The lines that make the optimizer, and its step."""
        p = self._protocol
        name, momentum = ("SGD", f"momentum={p.momentum}") if p.optimizer == "sgd" else ("Adam", "")
        made = call(f"torch.optim.{name}", "parameters.values()", f"lr={p.learning_rate}", momentum)
        step = ["optimizer.step()"]
        if p.loss_scale:
            step = ["scaler.unscale_(optimizer)", "scaler.step(optimizer)", "scaler.update()"]
        if p.clip:
            step.insert(len(step) // 2, f"torch.nn.utils.clip_grad_norm_(parameters.values(), {p.clip})")
        return [f"optimizer = {made}"], step

    def _buffers(self) -> str:
        """The entries of a dictionary of the state of layers."""
        names = [f"{b.role}_{b.layer}" for b in self._request.model.buffers if f"m{b.layer}" not in self._customs]
        return ", ".join([*(f'"{n}": {n}' for n in names), *(f'**state_of("{m}", {m})' for m in self._customs)])

    def _known(self) -> str:
        """The tensors that are there before a forward."""
        named = zip(self.parameters, self._request.model.parameters, strict=True)
        names = [*self._given, "target", *(name for name, p in named if f"m{p.layer}" not in self._customs)]
        names += [f"{b.role}_{b.layer}" for b in self._request.model.buffers if f"m{b.layer}" not in self._customs]
        return ", ".join([*names, *(f"*{m}.parameters(), *{m}.buffers()" for m in self._customs)])

    def _evaluation(self) -> list[str]:
        arrays = self._arrays
        if arrays.reevaluation is None:
            raise Unsupported("there is nothing to evaluate on")
        source = evaluation(self._source())
        source.name = "evaluate"
        given = ", ".join(
            self._tensor(a, drawn=False) for a in (arrays.reevaluation, *arrays.further_reevaluation_inputs)
        )
        modes = [f"{name}.eval()" for name in self._customs]
        self._where = ""
        return [*source.text().splitlines(), *modes, self._note("evaluation", f"numbers(evaluate({given})[0])")]

    def _counted(self) -> dict[str, str]:
        counts = {}
        for name in self._promised():
            if found := re.match(r"runs of layer (\d+)", name):
                counts[name] = f"runs[{found[1]}]"
            elif name.startswith("calls of the hook of "):
                counts[name] = f'fired["{name.removeprefix("calls of the hook of ")}"]'
            elif found := re.match(r"output (\d+) requires grad", name):
                counts[name] = f"outputs[{found[1]}].requires_grad"
            elif name.endswith("requires grad"):
                counts[name] = f'flags["{name.removesuffix(" requires grad")}"]'
            else:
                counts[name] = "after_forward" if name.endswith("forward") else "saved_bytes(known)"
        return counts
