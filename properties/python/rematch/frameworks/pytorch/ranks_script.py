"""Scripts that start their ranks by themselves, and those of models whose layers are split among ranks, as split_model.py
runs them."""

from typing import Any

import numpy as np

from rematch.frameworks.pytorch.layers import call
from rematch.frameworks.pytorch.script import TorchScript
from rematch.frameworks.pytorch.setup import Setup
from rematch.frameworks.pytorch.source import Text, TorchSource
from rematch.frameworks.pytorch.split_units import module_of, units_of
from rematch.subjects.export import Finding
from rematch.subjects.protocol import Request, Unsupported
from rematch.subjects.script import COUNTED, Style

_NUMBERS = """\
def numbers(tensor):  # of all ranks together
    tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return None if tensor is None else tensor.tolist()


"""

_OUTCOME = """\
def work(rank, store, checkpointed, answer):
    # A rank that hangs says where, and none outlives a script that is killed.
    faulthandler.dump_traceback_later({seconds}, exit=True)
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # all ranks are on this machine
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size={ranks})
    try:
        shown = run(checkpointed)
        dist.barrier()  # nobody leaves while others still talk to it
    except Exception as error:
        shown = {{"error": f"{{type(error).__name__}}: {{error}}"}}
    answer.send(shown)
    os._exit(0)  # without a word to ranks that wait for this one


def outcome(checkpointed):  # what all ranks show
    fork, shown = mp.get_context("fork"), []
    with tempfile.TemporaryDirectory() as folder:
        pipes = [fork.Pipe() for _ in range({ranks})]
        for rank, (_, answer) in enumerate(pipes):
            fork.Process(target=work, args=(rank, f"file://{{folder}}/store", checkpointed, answer), daemon=True).start()
        for pipe, answer in pipes:
            answer.close()
            try:
                shown.append(pipe.recv())
            except EOFError:
                shown.append({{"error": "no answer within {seconds} s"}})
    every = {{f"{{name}} of rank {{rank}}": its[name] for rank, its in enumerate(shown) for name in its}}
    differ = [name for name in shown[0] if {alike}len({{repr(its.get(name)) for its in shown}}) > 1]
    return every | {{f"{{name}} differs between ranks": True for name in differ}}


"""

SECONDS = 50
"""How long a script waits for ranks: less than an export may take for both runs."""


class RanksScript(TorchScript):
    """A script on several ranks, set up as `setup` says. Raises Unsupported for what none can show."""

    numbers = _NUMBERS
    alike = ""
    """Which results must be the same on every rank, if not all."""

    def __init__(
        self, text: Text, request: Request, style: Style, found: Finding, aspect: str, *, setup: Setup
    ) -> None:
        self._setup = setup
        if aspect in (*COUNTED, "trial"):
            raise Unsupported(f"no script counts on several ranks what {found.law} compares")
        super().__init__(text, request, style, found, aspect)

    def _outcome(self) -> str:
        return _OUTCOME.format(alike=self.alike, ranks=self._setup.ranks, seconds=SECONDS)


class SplitScript(RanksScript):
    """Each rank has its part of some layers, and all rows of a batch."""

    mesh_of_layers = "mesh"

    def __init__(self, *given: Any, **options: Any) -> None:
        text, request, *_ = given
        units = units_of(request, text.modules_by_declaration, options["setup"])
        self._styles = {unit.layer: unit.styles for unit in units}
        super().__init__(*given, **options)

    def _mesh_of_all(self) -> str:
        return f'init_device_mesh("cpu", ({self._setup.ranks},))'

    def _modules(self) -> dict[int, str]:
        """What the layers that are split are called."""
        return {layer: f"{self._request.case.layers[layer].kind}{layer}" for layer in self._styles}

    def _source(self) -> TorchSource:
        source = super()._source()
        source.split = self._modules()
        for layer, module in reversed(source.split.items()):
            for role, parameter in self._of(layer).items():
                source._names[parameter] = f"{module}.{role}"
        return source

    def _of(self, layer: int) -> dict[str, int]:
        """The parameters of a layer, by the names that its module has for them."""
        return dict(zip(("weight", "bias"), self._request.model.layer_parameters[layer], strict=False))

    def _data(self) -> list[str]:
        made = [f"{name} = {module_of(self._request, layer)}" for layer, name in self._modules().items()]
        return [*made, *super()._data()]

    def _parameter_line(self, index: int, array: np.ndarray, grad: bool) -> str:
        name = self.parameters[index]
        if name.partition(".")[0] not in self._modules().values():
            return super()._parameter_line(index, array, grad)
        return f"{name} = {call('nn.Parameter', self._tensor(array), '' if grad else 'requires_grad=False')}"

    def _made_modules(self) -> list[str]:
        lines, names = super()._made_modules(), self.parameters
        lines += [f"mesh = {self._mesh_of_all()}"] if self._styles or self._setup.kind != "tp" else []
        for layer, module in self._modules().items():
            # Every rank has all of it, and takes its part.
            split = (
                f"parallelize_module({module}, {self.mesh_of_layers}, {style}, src_data_rank=None)"
                for style in self._styles[layer]
            )
            lines += split
            if self._case.layers[layer].frozen and "SequenceParallel" in str(self._styles[layer]):
                lines.append(f"{module}.requires_grad_(False)  # SequenceParallel has parameters train")
            own = {f"{module}.{role}": names[index] for role, index in self._of(layer).items()}
            lines += [f"{mine} = {name}" for mine, name in own.items() if mine != name]
        return lines
