"""The text of a script that shows a case in PyTorch alone; export.py chooses among several."""

import ast
import re

import numpy as np

from rematch.frameworks.pytorch.layers import draws
from rematch.frameworks.pytorch.operators import POLICY, text_of
from rematch.frameworks.pytorch.script_steps import StepText, indented
from rematch.subjects.protocol import Unsupported
from rematch.subjects.script import imports_of

_IMPORTS = """\
import faulthandler
import os
import random
import sys
import tempfile
import time
import weakref
from collections import Counter
from contextlib import nullcontext
from functools import partial
from itertools import pairwise

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, bf16_compress_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.parallel import PrepareModuleInput, PrepareModuleOutput, SequenceParallel
from torch.func import functional_call
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
"""
"""Lines of which a script has those that it needs."""

_NUMBERS = """\
def numbers(tensor):
    return None if tensor is None else tensor.tolist()


"""

_ENTER = """\
runs = Counter()  # of layers


def enter(layer):
    global at
    at = layer
    runs[layer] += 1
{fails}

"""
_FAILS = """\
    if layer == {layer} and runs[layer] {when}:
        raise RuntimeError("fails")
"""

_KEEPING = """\
def keeping(*layers):  # what these layers compute
    def policy(context, op, *args, **keywords):
        if at in layers and not (op.is_view or op._schema.is_mutable or "empty" in str(op)):
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    return partial(create_selective_checkpoint_contexts, policy)


"""

_MADE = {
    "draws": """\
drawn = {}


def made(layer, *outputs):
    drawn.setdefault(f"what layer {layer} draws first", numbers(outputs[0]))
    drawn[f"what layer {layer} draws last"] = numbers(outputs[0])


""",
    "requires grad": """\
flags = {}


def made(layer, *outputs):
    for k, output in enumerate(outputs):
        flags.setdefault(f"layer {layer}, output {k}", output.requires_grad)


""",
}

_STATE = """\
def state_of(name, module):  # its buffers, and numbers among its attributes
    parts, kinds = module.named_modules(prefix=name), (int, float, torch.Tensor)
    found = {f"{path}.{n}": v for path, m in parts for n, v in vars(m).items() if type(v) in kinds}
    return {n: torch.as_tensor(v) for n, v in found.items()} | dict(module.named_buffers(prefix=name))


"""

_SAVED = """\
class Kept:  # a tensor that a graph keeps
    alive = weakref.WeakSet()

    def __init__(self, tensor):
        self.tensor = tensor
        Kept.alive.add(self)


def saved_bytes(known):
    storages = [kept.tensor.untyped_storage() for kept in Kept.alive]
    own = {tensor.data_ptr() for tensor in known}
    return sum({s.data_ptr(): s.nbytes() for s in storages if s.data_ptr() not in own}.values())


"""

_SETTINGS = """\
def settings():
    return {
        "grad mode": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "hooks on saved tensors": torch._C._autograd._top_saved_tensors_default_hooks(True) is None,
        "dispatch mode": torch._C._len_torch_dispatch_stack(),
        "function mode": torch._C._len_torch_function_stack(),
        "cache of autocast": torch.is_autocast_cache_enabled(),
    }


"""


def needed(setup: str, text: str) -> list[str]:
    """The statements of a layer's setup that a text uses, with all that they use, in their order."""
    kept: list[str] = []
    for node in reversed(ast.parse(setup).body):
        names = [n.asname or n.name for n in getattr(node, "names", [])] or [getattr(node, "name", "")]
        targets = [t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)]
        if any(re.search(rf"\b{name}\b", text) for name in targets or names):
            kept.insert(0, ast.get_source_segment(setup, node) or "")
            text += kept[0]
    return kept


class TorchScript(StepText):
    """One function is run with and without checkpointing."""

    which = "checkpointed", "False", "True"
    numbers = _NUMBERS

    def _imports(self, text: str) -> list[str]:
        own = self._framework.own.splitlines()
        defined = re.findall(r"import .*?\b(\w+)$|^def (\w+)\(", self._framework.own, re.MULTILINE)
        known = {name for names in defined for name in names}
        others = (line for line in _IMPORTS.splitlines() if not line or line.rpartition(" ")[2] not in known)
        return [*imports_of("\n".join([text, *own]), others), *own]

    def _definitions(self) -> str:
        """The definitions that the layers of the subject's own use. Raises Unsupported for a name of two meanings."""
        lines: dict[str, None] = {}
        for own in self._customs.values():
            lines |= dict.fromkeys(needed(own.setup, f"{own.make} {own.call}"))
        text = "\n".join([*lines, self._framework.own])
        bound = re.findall(r"(?:^class |^def |import (?:.* as )?)(\w+)", text, re.MULTILINE) if lines else []
        if len(set(bound)) < len(bound):
            raise Unsupported("two custom layers mean different things by a name")
        parts = [f"{line}\n" if "import " in line else f"\n\n{line}\n" for line in lines]
        return "".join(parts).lstrip() + "\n\n" if parts else ""

    def _helpers(self, text: str) -> str:
        before = self._definitions() + super()._helpers(text)
        if any(layer.kind == "rrelu" for layer in self._case.layers):
            before = "torch.use_deterministic_algorithms(True)  # memory that nobody wrote to is NaN\n\n\n" + before
        return before

    def _body(self) -> str:
        wanted = self._entered()
        # Only where something is counted or looked at.
        model = [
            line
            for line in self._source().text().replace("\n\n\n", "\n\n").splitlines()
            if not (m := re.match(r" *(enter|made)\((\d+)", line)) or int(m[2]) in wanted[m[1]]
        ]
        before, seed = self._needs("\n".join(model)), self._seed()
        clear = [f"{name}.clear()" for name in ("runs", "drawn", "flags") if f"\n{name} = " in f"\n{before}"]
        if wanted["enter"] and "def enter" not in before:
            clear, model = ["runs = Counter()"], [re.sub(r"enter\((\d+)\)", r"runs[\1] += 1", line) for line in model]
        # Draws must be the same in both runs, and in the case to the bit those of its first forward.
        first, then = ([], seed) if self._style.exact else (seed, [])
        steps = [*then, "results = {}", *(self._tried() if self._trial else self._steps())]
        steps = self._narrowed(steps) if self._style.only else [*steps, "return results"]
        ready = self._ready()
        others = [line for line in ready if not line.startswith("parameters = ")]
        if not any("parameters" in line for line in [*others, *steps]):
            ready = others
        run = [*clear, *first, *self._data(), *self._made_modules(), *ready, ""]
        run += [*([self._compiled] if self._compiled else []), *model, "", *steps]
        return before + "\n".join([f"def run({self.which[0]}):", *indented(run)]) + "\n"

    def _entered(self) -> dict[str, set[int]]:
        """The layers by which a script is told that they run, and what they return."""
        every = set(range(len(self._case.layers)))
        looks = {"draws": {i for i in every if draws(self._case.layers[i], self._protocol.train)}}
        looks["requires grad"] = {int(n) for name in self._promised() for n in re.findall(r"^layer (\d+)", name)}
        entered: set[int] = {int(n) for name in self._promised() for n in re.findall(r"runs of layer (\d+)", name)}
        if self._trial and self._protocol.inject in ("op_exchanged", "forward_throws", "recomputation_throws"):
            entered = {self._protocol.inject_layer}
        kept = any(choice.keep for choice in self._case.choices())
        return {"enter": every if kept else entered, "made": looks.get(self._aspect, set())}

    def _needs(self, text: str) -> str:
        """The helpers that the model's text uses."""
        p = self._protocol
        when = {"forward_throws": "== 1", "recomputation_throws": "> 1"}.get(p.inject if self._trial else "", "")
        fails = _FAILS.format(layer=p.inject_layer, when=when) if when else ""
        made = _ENTER.format(fails=fails) if fails or "keeping(" in text else ""
        made += _KEEPING if "keeping(" in text else ""
        if re.search(r"context_fn=(?!keeping)", text):
            made += text_of(self._case.options[POLICY], self._framework.kept)[0]
        made += _MADE[self._aspect] if re.search(r"\bmade\(", text) else ""
        made += _STATE if self._customs and self._aspect in ("", "buffers") else ""
        made += _SAVED if self._aspect == "saved bytes" else ""
        return made + (_SETTINGS if self._trial and not self._promised() else "")

    def _seed(self) -> list[str]:
        seed = self._case.seed if self._style.exact else self._style.seed
        lines = [f"torch.manual_seed({seed})"]
        if streams := max(layer.stream for layer in self._case.layers):
            lines.append(f"generators = [torch.Generator().manual_seed({seed}) for _ in range({streams})]")
        if any(own.elsewhere for own in self._customs.values()):
            lines += [f"random.seed({seed})", f"numpy.random.seed({seed % 2**32})"]
        return lines

    def _data(self) -> list[str]:
        """The lines that make inputs, targets, parameters and buffers."""
        lines, arrays = [], self._arrays
        if self._many:
            every = [arrays.inputs_of(i) for i in range(len(arrays.inputs))]
            for k, name in enumerate(self._given):
                lines.append(f"{name}s = [{', '.join(self._tensor(given[k]) for given in every)}]")
            lines.append(f"targets = [{', '.join(self._tensor(target) for target in arrays.targets)}]")
        else:
            first, target = arrays.inputs_of(0), arrays.targets[0]
            if self._trial and arrays.trial_input is not None:
                first, target = [arrays.trial_input, *arrays.further_trial_inputs], arrays.trial_target
            named = zip(self._given.items(), first, strict=True)
            lines += [f"{name} = {self._tensor(array, grad)}" for (name, grad), array in named]
            lines.append(f"target = {'None' if target is None else self._tensor(target)}")
        for index, (info, array) in enumerate(zip(self._request.model.parameters, arrays.parameters, strict=True)):
            if self._case.layers[info.layer].kind != "custom":
                lines.append(self._parameter_line(index, array, not info.frozen))
        for info, array in zip(self._request.model.buffers, arrays.buffers, strict=True):
            if self._case.layers[info.layer].kind != "custom":
                lines.append(f"{info.role}_{info.layer} = {self._tensor(array, drawn=False)}")
        return lines

    def _parameter_line(self, index: int, array: np.ndarray, grad: bool) -> str:
        return f"{self.parameters[index]} = {self._tensor(array, grad)}"

    def _made_modules(self) -> list[str]:
        """The lines that make the library's layers, and name all parameters that train."""
        lines = []
        for name, made in self._source().modules().items():
            layer = self._case.layers[int(name[1:])]
            ends = ".double()" if self._case.dtype == "float64" else ""
            ends += ".requires_grad_(False)" if layer.frozen else ""
            ends += "" if layer.trains(self._protocol.train) else ".eval()"
            # The case's own weights are drawn for each layer.
            seed = (self._case.seed + int(name[1:])) % 2**63
            lines += [f"torch.manual_seed({seed})"] if self._style.exact else []
            lines.append(f"{name} = {made}{ends}")
            if int(name[1:]) in self._request.detached_layers:
                lines.append(f"{name}.requires_grad_(checkpointed)")
        return lines

    def _ready(self) -> list[str]:
        """Lines behind the data."""
        lines = [f"parameters = {self._named()}"]
        if self._protocol.prior_gradients and not self._trial:
            lines += ["for p in parameters.values():", "    p.grad = torch.ones_like(p)"]
        if self._aspect == "hooks":
            lines += ["fired = Counter()", "for name, p in parameters.items():"]
            lines.append("    p.register_hook(lambda gradient, name=name: fired.update([name]))")
        return lines
