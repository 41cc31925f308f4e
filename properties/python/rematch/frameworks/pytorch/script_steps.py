"""The text of a training step: losses, their backwards, and the optimizer."""

from __future__ import annotations

from itertools import product

from rematch.frameworks.pytorch.layers import call
from rematch.frameworks.pytorch.script_model import INDENT, ModelText, indented
from rematch.protocol import Unsupported


class StepText(ModelText):
    """Text of what a script does with the model's outputs; Script puts it into the protocol."""

    def _differentiable_inputs(self) -> list[str]:
        """Names of the model inputs that require grad."""
        further = [name for name, grad in self._further.items() if grad]
        return ["x"] * self._input_grad + further

    def _losses(self, outputs: list[str], target: str) -> dict[str, str]:
        """The model's losses by the names of variables."""
        wide = ".float()" if self._protocol.autocast != "off" else ""
        losses = {"loss": self._loss(outputs[0], wide, target)}
        if self._protocol.auxiliary_losses:
            further = "sum()" if self._style.summed else "square().mean()"
            for index, output in enumerate(outputs[1:], 1):
                losses[f"loss{index}"] = f"{output}{wide}.{further}"
        return losses

    def _loss(self, output: str, wide: str, target: str) -> str:
        if self._style.summed:
            return f"{output}.sum()"
        output += "" if self._case.rank_of(len(self._case.layers)) == 2 else ".flatten(1)"
        output += wide
        if self._protocol.loss == "mse":
            return f"F.mse_loss({output}, {target})"
        return f"F.cross_entropy({output}, {target})"

    def _scoped(self, lines: list[str]) -> list[str]:
        """Within the forward's scopes."""
        if self._protocol.autocast == "off":
            return lines
        return [f"with {self._autocast()}:", *indented(lines)]

    def _autocast(self) -> str:
        cache = "" if self._protocol.cast_cache else "cache_enabled=False"
        return call("torch.autocast", '"cpu"', "dtype=torch.bfloat16", cache)

    def _scaled(self, loss: str) -> str:
        scale = self._protocol.loss_scale
        if not scale or not self._optimizer_lines()[0]:
            return f"({loss} * {scale})" if scale else loss
        return f"scaler.scale({loss})"

    def _backward(self, *losses: str) -> list[str]:
        count = self._protocol.backwards
        losses = tuple(map(self._scaled, losses))
        loss = losses[0]
        lines = [f"{loss}.backward()"]
        if self._protocol.partial or len(losses) > 1:
            names = self._layers.trained() + self._differentiable_inputs()
            parts = [f"inputs=[{', '.join(part)}]" for part in (names[::2], names[1::2]) if part]
            parts = parts if self._protocol.partial and parts else [""]
            calls = list(product(range(count), losses, parts))
            keep = ["retain_graph=True"] * (len(calls) - 1) + [""]
            lines = []
            for (_, root, part), more in zip(calls, keep, strict=True):
                # A loss that depends on nothing that is trained has no gradient.
                if len(losses) > 1 and not self._differentiable_inputs():
                    lines.append(f"if {root}.requires_grad:")
                    lines.append(INDENT + call(f"{root}.backward", part, more))
                else:
                    lines.append(call(f"{root}.backward", part, more))
        elif count > 1:
            again = f"{loss}.backward(retain_graph=True)"
            before = [again] if count == 2 else [f"for _ in range({count - 1}):", INDENT + again]
            lines = [*before, *lines]
        if self._protocol.autocast == "both":
            lines = [f"with {self._autocast()}:", *indented(lines)]
        risky = any(c.reentrant for c in self._case.choices()) or not self._layers.trained()
        if "requires grad" in self._aspects or (self._style.exact and risky and not self._differentiable_inputs()):
            lines = [f"if {loss}.requires_grad:", *indented(lines)]
        return lines

    def _optimizer_lines(self) -> tuple[list[str], list[str]]:
        """Lines that make the optimizer, and its step; none where it does not matter."""
        p, trained = self._protocol, self._layers.trained()
        matters = p.steps > 1 or {"parameters", "reevaluation"} & set(self._aspects)
        if not matters or not trained or self._fails:
            return [], []
        name, momentum = ("SGD", f"momentum={p.momentum}") if p.optimizer == "sgd" else ("Adam", "")
        momentum = momentum if p.momentum else ""
        made = call(f"torch.optim.{name}", f"[{self._layers.listed()}]", f"lr={p.learning_rate}", momentum)
        lines, step = [f"optimizer = {made}"], ["optimizer.step()"]
        if p.clip:
            step.insert(0, f"torch.nn.utils.clip_grad_norm_([{self._layers.listed()}], {p.clip})")
        if p.loss_scale:
            lines.append(f'scaler = torch.amp.GradScaler("cpu", init_scale={p.loss_scale})')
            step = ["scaler.unscale_(optimizer)", *step[:-1], "scaler.step(optimizer)"]
            step.append("scaler.update()")
        return lines, step

    def _change(self) -> list[str]:
        written = "x"
        if self._protocol.inject == "weight_changed":
            used = self._request.model.layer_parameters[self._protocol.inject_layer]
            written = self._layers.parameters[used[0]]
        return ["with torch.no_grad():", f"{INDENT}{written}.mul_(-1.5).sub_(1)"]

    def _forward_call(self) -> str:
        return f"forward({', '.join(['x', *self._further])})"

    def _evaluation(self) -> list[str]:
        arrays = self._request.arrays
        if arrays.reevaluation is None:
            raise Unsupported("there is nothing to evaluate on")
        given = [arrays.reevaluation, *arrays.further_reevaluation_inputs]
        if not self._style.exact:
            given = [array.round(2) for array in given]
        named = zip(("x", *self._further), given, strict=True)
        lines = [f"{name} = {self._layers.tensors.make(array)}" for name, array in named]
        lines += self._given_names()
        lines += [f"{custom.name}.eval()" for custom in self._layers.customs.values()]
        for index in range(self._end):
            x, targets = self._operands_and_targets(index, False)
            made = self._layers.expression(index, x, train=False)
            if made != ", ".join(targets):
                lines.append(f"{', '.join(targets)} = {made}")
        return [
            "# In eval mode, on an input that neither run has seen.",
            "with torch.no_grad():",
            *indented(lines),
            f'results["evaluation"] = {self._outputs()[0]}',
        ]

    def _trial_lines(self) -> list[str]:
        """The injected failure before the first step, and what is set back after it."""
        kind, arrays = self._protocol.inject, self._request.arrays
        make, outputs = self._layers.tensors.make, self._outputs()
        lines = ["trial = True"] if self._counted else []
        lines.append(f"x = {make(arrays.trial_input, grad=self._input_grad)}")
        lines += self._made_further(arrays.further_trial_inputs)
        losses: dict[str, str] = {}
        if arrays.trial_target is not None and not self._style.summed:
            lines.append(f"target = {make(arrays.trial_target)}")
        if arrays.trial_target is not None or self._style.summed:
            losses = self._losses(outputs, "target")
        made = [f"{name} = {loss}" for name, loss in losses.items()]
        body = self._scoped([f"{', '.join(outputs)} = {self._forward_call()}", *made])
        undo: list[str] = []
        if kind in ("weight_changed", "input_changed"):
            change = self._change()
            written = change[1].strip().split(".mul_")[0]
            lines.append(f"before = {written}.detach().clone()")
            undo = ["with torch.no_grad():", f"{INDENT}{written}.copy_(before)"]
            body += change
        if kind not in ("graph_dropped", "forward_throws") and losses:
            body += self._backward(*losses)
        lines += ["try:", *indented(body), "except RuntimeError as error:"]
        lines += [INDENT + 'print("trial:", error)', *undo]
        lines += [f"del {', '.join(dict.fromkeys([*outputs, *losses]))}"] if kind == "graph_dropped" else []
        trained = self._layers.trained()
        if trained:
            value = "torch.ones_like(p)" if self._protocol.prior_gradients else "None"
            lines += [f"for p in ({self._layers.listed()},):", f"{INDENT}p.grad = {value}"]
        return [*lines, *(["trial = False"] if self._counted else [])]
