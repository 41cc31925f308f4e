"""The text of a script that shows a case on several ranks, within DistributedDataParallel or
fully_shard(), as data_parallel.py runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rematch.case import Segment
from rematch.frameworks.pytorch.layers import call
from rematch.frameworks.pytorch.script import Script
from rematch.frameworks.pytorch.script_custom import CustomText
from rematch.frameworks.pytorch.script_layers import Layers
from rematch.frameworks.pytorch.script_model import INDENT, indented
from rematch.frameworks.pytorch.setup import Setup
from rematch.protocol import Unsupported

_HELPERS = """\
RANKS = {ranks}


class Call(nn.Module):  # has parameters, and runs what it is given
    def forward(self, function, *values, **keywords):
        return function(*values, **keywords)


def rows(batch):  # those of this rank
    return batch.tensor_split(RANKS)[dist.get_rank()].clone()


"""

_WHOLE = """\
def whole(shards):
    return None if shards is None else shards.full_tensor().detach().clone()


"""

_TAIL = """\
def work(rank, folder, checkpointed):
    # A rank that hangs says where, and none outlives a script that is killed.
    faulthandler.dump_traceback_later({seconds}, exit=True)
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # all ranks are on this machine
    store = f"file://{{folder}}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS)
    try:
        shown = {{"error": "none", **run(checkpointed)}}
        dist.barrier()  # nobody leaves while others still talk to it
    except Exception as error:
        shown = {{"error": f"{{type(error).__name__}}: {{error}}"}}
    torch.save(shown, f"{{folder}}/{{rank}}.part")
    os.replace(f"{{folder}}/{{rank}}.part", f"{{folder}}/{{rank}}")
    os._exit(0)  # without a word to ranks that wait for this one


def outcome(checkpointed):  # what each rank shows
    with tempfile.TemporaryDirectory() as folder:
        start, end = mp.get_context("fork").Process, time.monotonic() + {seconds} + 2
        args = [(i, folder, checkpointed) for i in range(RANKS)]
        ranks = [start(target=work, args=given, daemon=True) for given in args]
        for rank in ranks:
            rank.start()
        try:
            for rank in ranks:
                rank.join(max(0, end - time.monotonic()))
        finally:
            for rank in ranks:
                rank.kill()
        files = [f"{{folder}}/{{i}}" for i in range(RANKS)]
        silent = {{"error": "no answer within {seconds} s"}}
        return [torch.load(file) if os.path.exists(file) else silent for file in files]


def same(a, b):  # to the bit; what is missing is None
    if not torch.is_tensor(a) or not torch.is_tensor(b):
        return not torch.is_tensor(a) and not torch.is_tensor(b) and a == b
    return torch.equal(a.flatten().view(torch.uint8), b.flatten().view(torch.uint8))


torch.set_printoptions(precision=9)
plain, checkpointed = outcome(checkpointed=False), outcome(checkpointed=True)
alike, different = {alike}, []
for rank, (expected, got) in enumerate(zip(plain, checkpointed)):
    for name in expected if expected.keys() == got.keys() else ["error"]:
        a, b = expected[name], got[name]
        print(f"rank {{rank}}, {{name}}\\n  plain         {{a}}\\n  checkpointed  {{b}}")
        different += [] if same(a, b) else [f"{{name}} of rank {{rank}}"]
for run, shown in ("plain", plain), ("checkpointed", checkpointed):
    for name in shown[0]:
        if name.endswith(alike) and not all(same(shown[0][name], s.get(name)) for s in shown):
            different.append(f"{{name}} differs between ranks of the {{run}} run")
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
"""

SECONDS = 30
"""So long a script waits for ranks, less than what an export may take for both runs."""


class _ParallelLayers(Layers):
    """Parameters belong to modules: to "net" within DistributedDataParallel; to those of segments,
    or to "model", where they are sharded."""

    def __init__(self, *given: Any, setup: Setup) -> None:
        self._sharded = setup.kind == "fsdp2"
        super().__init__(*given)

    def place(self, parameter: int) -> str:
        """The module that it belongs to: that of all layers that use it, or the root."""
        if not self._sharded:
            return "net"
        used = self.model.layer_parameters
        places = {self.place_of(i) for i, its in enumerate(used) if parameter in its}
        return places.pop() if len(places) == 1 else "model"

    def place_of(self, layer: int) -> str:
        for number, segment in enumerate(self.case.plan.segments):
            if self._sharded and segment.begin <= layer < segment.end:
                return f"segment{number}"
        return "model" if self._sharded else "net"

    def _parameter(self, index: int) -> str:
        name = super()._parameter(index)
        own = self.model.parameters[index].layer in self.customs
        # A sharded parameter is another tensor whenever its module runs.
        return f"{self.place(index)}.{name}" if self._sharded and not own else name

    def _made(self, index: int) -> str:
        info, array = self.model.parameters[index], self.request.arrays.parameters[index]
        frozen = "requires_grad=False" if info.frozen else ""
        made = call("nn.Parameter", self.tensors.make(array, info.role), frozen)
        return made if self._sharded else f"net.{self.parameters[index]} = {made}"

    def definitions(self) -> list[str]:
        root = "model" if self._sharded else "net"
        lines = [f"{root} = Call()"]
        if self._sharded:
            units = range(len(self.case.plan.segments))
            lines += [f"segment{k} = {root}.segment{k} = Call()" for k in units]
        lines += super().definitions()
        for index, custom in self.customs.items():
            lines.append(f"{self.place_of(index)}.{custom.name} = {custom.name}")
        return lines


class ParallelScript(Script):
    """`setup`: how the case is run in parallel. Raises Unsupported for what no such script can
    show."""

    def __init__(self, *given: Any, setup: Setup) -> None:
        self._setup = setup
        self._sharded = setup.kind == "fsdp2"
        super().__init__(*given)
        # One forward is written like several.
        self._many = True
        request = self._request
        if request.detached_layers and (self._sharded or self._layers.customs):
            raise Unsupported("no script on ranks makes constants of what a segment freezes")
        if self._sharded and "reevaluation" in self._aspects:
            raise Unsupported("no script evaluates what is sharded")

    def _made_layers(self, customs: Mapping[int, CustomText]) -> Layers:
        return _ParallelLayers(self._request, self._style, customs, setup=self._setup)

    def _helpers(self) -> list[str]:
        text = _HELPERS.format(ranks=self._setup.ranks) + (_WHOLE if self._sharded else "")
        return text.splitlines()

    def _tail(self) -> list[str]:
        names = [f": {name}" for name in self._layers.trained()]
        alike = tuple(name + end for name in names for end in (".grad", ""))
        return _TAIL.format(alike=alike, seconds=SECONDS).splitlines()

    def _called(self, by: str, segment: Segment, function: str) -> list[str]:
        segments = self._case.plan.segments if self._sharded else ()
        units = [f"segment{k}" for k, unit in enumerate(segments) if unit is segment]
        if not units:
            return super()._called(by, segment, function)
        if by and self._setup.mode == "checkpoint around":
            return [by, f"partial({units[0]}, {function})"]
        return [*units, *super()._called(by, segment, function)]

    _target = "rows(targets[i])"

    def _own_rows(self, batch: str) -> str:
        return f"rows({batch})"

    def _loss(self, output: str, wide: str, target: str) -> str:
        loss = super()._loss(output, wide, target)
        count = self._case.input[0]
        # The mean over ranks is that over rows.
        even = count % self._setup.ranks == 0
        return loss if even else f"{loss} * (len(x) * RANKS / {count})"

    def _returned(self, outputs: list[str]) -> list[str]:
        first, *rest = outputs
        # DistributedDataParallel takes all that a module returns for part of a loss.
        return [*([f"rest[:] = [{', '.join(rest)}]"] if rest else []), f"return {first}"]

    def _forward_call(self) -> str:
        made = call("model", "forward", "x", *self._further)
        return made if len(self._outputs()) == 1 else f"({made}, *rest)"

    def _prior_gradients(self) -> list[str]:
        return []  # _ready() sets them, when parameters are as they are in the end.

    def _ready(self) -> list[str]:
        lines = ["rest = []"] if len(self._outputs()) > 1 else []
        setup = self._setup
        if self._sharded:
            units = [f"segment{k}" for k in range(len(self._case.plan.segments))]
            lines.append('mesh = init_device_mesh("cpu", (RANKS,))')
            lines.append(f"for module in ({', '.join([*units, 'model'])},):")
            lines.append(INDENT + "fully_shard(module, mesh=mesh)")
        else:
            mode = "" if setup.mode == "default" else f"{setup.mode}=True"
            # So little that each parameter has a bucket of its own.
            size = "" if setup.buckets else "bucket_cap_mb=1e-6"
            lines.append(f"model = {call('DistributedDataParallel', 'net', mode, size)}")
        return [*lines, *super()._prior_gradients(), ""]

    def _microbatch(self, lines: list[str]) -> list[str]:
        count = self._protocol.microbatches
        waits = self._setup.no_sync and count > 1
        last = f"i % {count} == {count - 1}"
        if self._sharded:
            synced = [f"model.set_requires_gradient_sync({last})"] if waits else []
            return ["model.reshard()", *synced, *lines]
        if not waits:
            return lines
        # A static graph is learned from a backward that reduces.
        learns = "i == 0 or " if self._setup.mode == "static_graph" else ""
        return [f"with nullcontext() if {learns}{last} else model.no_sync():", *indented(lines)]

    def _copied(self, value: str, absent: bool) -> str:
        if self._sharded:
            return f"whole({value.removesuffix('.detach()')})"
        return super()._copied(value, absent)
