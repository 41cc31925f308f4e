"""The common part of scripts that start their ranks by themselves."""

from __future__ import annotations

from rematch.frameworks.pytorch.script import TorchScript
from rematch.frameworks.pytorch.setup import Setup
from rematch.frameworks.pytorch.source import Text
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

SECONDS = 30
"""How long a script waits for ranks: less than an export may take for both runs."""


class RanksScript(TorchScript):
    """`setup`: how the case is run in parallel. Raises Unsupported for what no such script can
    show."""

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
