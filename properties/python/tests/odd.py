"""Odd tensors, objects, functions and habits, by name: a function that makes each."""

import array
import collections
import contextvars
import ctypes
import dataclasses
import decimal
import enum
import fractions
import functools
import gc
import io
import itertools
import logging
import os
import queue
import re
import signal
import socket
import sys
import tempfile
import threading
import types
import unittest.mock
import warnings
import weakref

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

X = torch.randn(2, 4, generator=torch.Generator().manual_seed(1))


class Block(nn.Module):
    """Holds a thing that its forward does not use."""

    def __init__(self, thing=None):
        super().__init__()
        self.lin, self.thing = nn.Linear(4, 4), thing

    def forward(self, x):
        return torch.tanh(self.lin(x))


class Uses(Block):
    """Computes with a buffer."""

    def __init__(self, buffer):
        super().__init__()
        self.register_buffer("scale", buffer)

    def forward(self, x):
        scale = self.scale if self.scale.layout == torch.strided else self.scale.to_dense()
        return super().forward(x) * scale.float().sum()


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    t: torch.Tensor


class Slots:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a = torch.ones(2)


def fails(error, text):
    """A method that raises an error."""

    def method(*_):
        raise error(text)

    return method


class Raises:
    """Each special method fails but those of objects."""

    __eq__ = __bool__ = __len__ = __repr__ = fails(ValueError, "not of this kind")
    __hash__ = object.__hash__


class NoCopy:
    __deepcopy__ = fails(TypeError, "no copy")
    __reduce_ex__ = fails(ValueError, "no pickle")


class Anything:
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class BadSlot:
    __slots__ = ("a",)

    def __getattribute__(self, name):
        if name == "a":
            raise RuntimeError("do not read")
        return object.__getattribute__(self, name)


class BadDict(dict):
    items = clear = fails(RuntimeError, "no items")


class BadMapping(collections.abc.Mapping):
    """Has one key, and nothing there."""

    __getitem__ = fails(KeyError, "a")
    __len__ = lambda self: 1  # noqa: E731
    __iter__ = lambda self: iter("a")  # noqa: E731


class BadList(list):
    __iter__ = fails(RuntimeError, "no elements")


class BadIterator:
    __iter__ = lambda self: self  # noqa: E731
    __next__ = __getstate__ = fails(RuntimeError, "no next")


class FillsItself(dict):
    def __missing__(self, key):
        self[key] = key
        return key


def chain(length):
    found = None
    for _ in range(length):
        found = (found,)
    return found


def cycle():
    found = []
    found.append(found)
    return found


def without_module():
    scope = {}
    exec("def made(x):\n    return x", scope)
    scope["made"].__module__ = None
    return scope["made"]


def fake():
    from torch._subclasses import FakeTensorMode

    return FakeTensorMode().from_tensor(torch.ones(2))


def with_history():
    t = torch.ones(4)
    t *= torch.ones(4, requires_grad=True)
    return t


Point = collections.namedtuple("Point", "x y")
MATRIX = torch.arange(16.0).reshape(4, 4)
VIEWS = {
    "as it is": lambda t: t,
    "transposed": lambda t: t.t(),
    "every second": lambda t: t[::2],
    "one column": lambda t: t[:, 1],
    "expanded": lambda t: t[:1].expand(3, 4, 4)[0] if t.dim() < 2 else t[:1].expand(4, 4),
    "expanded by a number": lambda t: t[0, 0].expand(4),
    "expanded outside": lambda t: t.expand(2, 4, 4),
    "empty": lambda t: t[:0],
    "a number": lambda t: t[0, 0],
}
DTYPES = ["float32", "float64", "float16", "bfloat16", "complex64", "int64", "uint8", "bool"]
TENSORS = {
    f"{dtype}, {how}": lambda dtype=dtype, view=view: view(MATRIX.to(getattr(torch, dtype)))
    for dtype in DTYPES
    for how, view in VIEWS.items()
}
LAYOUTS = {
    "coo": lambda t: t.to_sparse(),
    "coo, uncoalesced": lambda t: torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (4, 4)),
    "csr": lambda t: t.to_sparse_csr(),
    "csc": lambda t: t.to_sparse_csc(),
    "bsr": lambda t: t.to_sparse_bsr((2, 2)),
    "bsc": lambda t: t.to_sparse_bsc((2, 2)),
    "mkldnn": lambda t: t.to_mkldnn(),
}
STORED = {
    **{name: (lambda f=f: f(MATRIX)) for name, f in LAYOUTS.items()},
    "overlapping": lambda: torch.ones(8).unfold(0, 4, 1),
    "parameter that is expanded": lambda: nn.Parameter(torch.ones(1).expand(4), requires_grad=False),
    "conjugate": lambda: torch.ones(2, dtype=torch.cfloat).conj(),
    "negative": lambda: torch.ones(2, dtype=torch.cfloat).conj().imag,
    "float8": lambda: torch.ones(2).to(torch.float8_e4m3fn),
    "nan": lambda: torch.tensor([float("nan"), 1.0]),
    "shared with numpy": lambda: torch.from_numpy(np.ones(4, dtype="float32")),
}
WITHOUT_MEMORY = {
    "meta": lambda: torch.ones(2, 3, device="meta"),
    "meta, expanded": lambda: torch.ones(1, device="meta").expand(4),
    "meta parameter": lambda: nn.Parameter(torch.ones(2, device="meta")),
    "fake": fake,
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "lazy": lambda: nn.UninitializedParameter(),
    "of a graph": lambda: torch.ones(2, requires_grad=True) * 2,
    "with a history": with_history,
}
OF_THREADS = [queue.Queue, queue.LifoQueue, threading.RLock, threading.Event, threading.Condition, threading.Semaphore]
OF_OTHERS = [threading.local, socket.socket, itertools.count, weakref.WeakValueDictionary, unittest.mock.MagicMock]
OF_OURS = [Slots, BadSlot, Raises, Anything, FillsItself, BadMapping, BadIterator, torch.Generator]
OBJECTS = {
    **{kind.__name__: kind for kind in (*OF_THREADS, *OF_OTHERS, *OF_OURS)},
    "array of objects": lambda: np.array([1, "a", None], dtype=object),
    "structured array": lambda: np.zeros(3, dtype=[("a", "i4"), ("b", "f4")]),
    "array that is not to be written": lambda: np.broadcast_to(np.ones(1), (4,)),
    "array of dates": lambda: np.array(["2020-01-01"], dtype="datetime64[D]"),
    "generator of numpy": lambda: np.random.default_rng(0),
    "nan": lambda: float("nan"),
    "file": tempfile.TemporaryFile,
    "stream": lambda: io.StringIO("a"),
    "lock": threading.Lock,
    "barrier": lambda: threading.Barrier(2),
    "thread": lambda: threading.Thread(target=print),
    "context variable": lambda: contextvars.ContextVar("v"),
    "generator": lambda: (i for i in range(3)),
    "iterator of a list": lambda: iter([1, 2]),
    "iterator of a loader": lambda: iter(DataLoader([1, 2, 3])),
    "module": lambda: types,
    "enum": lambda: Colour.RED,
    "frozen data class": lambda: Frozen(1, torch.ones(2)),
    "cannot be copied": NoCopy,
    "chain": lambda: chain(3000),
    "cycle": cycle,
    "dict that fails": lambda: BadDict(a=1),
    "list that fails": lambda: BadList([1]),
    "default dict": lambda: collections.defaultdict(list),
    "ordered dict": lambda: collections.OrderedDict(a=1),
    "chain map": lambda: collections.ChainMap({}, {"a": 1}),
    "deque": lambda: collections.deque([torch.ones(2)], maxlen=1),
    "set": lambda: {(1, 2), ("a", 3)},
    "named tuple": lambda: Point(torch.ones(1), 2),
    "mapping proxy": lambda: types.MappingProxyType({"a": 1}),
    "weak reference": lambda: weakref.ref(X),
    "array": lambda: array.array("d", [1.0]),
    "memory view": lambda: memoryview(bytearray(b"abc")),
    "ctypes": lambda: (ctypes.c_int * 3)(1, 2, 3),
    "decimal": lambda: decimal.Decimal("1.5"),
    "fraction": lambda: fractions.Fraction(1, 2),
    "pattern": lambda: re.compile("a+"),
    "exception": lambda: ValueError("a"),
    "name space": lambda: types.SimpleNamespace(a=torch.ones(1)),
    "lazy module": lambda: nn.LazyLinear(3),
    "meta module": lambda: nn.Linear(2, 2, device="meta"),
    "scripted module": lambda: torch.jit.script(nn.ReLU()),
    "optimizer": lambda: torch.optim.Adam(nn.Linear(2, 2).parameters()),
    "scaler": lambda: torch.amp.GradScaler("cpu"),
    "stream of a device": lambda: torch.Stream("cpu") if hasattr(torch, "Stream") else None,
    "function without a module": without_module,
    "function with a tensor": lambda: lambda x, t=X: x,
    "partial": lambda: functools.partial(torch.add, X),
    "cached function": lambda: functools.lru_cache(lambda x: x),
    "compiled function": lambda: torch.compile(lambda x: x, backend="eager"),
    "bound method of a builtin": lambda: [].append,
}


FUNCTIONS = {
    "without a module": lambda: without_module(),
    "partial": lambda: functools.partial(torch.mul, torch.ones(4)),
    "builtin": lambda: torch.tanh,
    "exported": lambda: torch.export.export(nn.Linear(4, 4), (X,)).module(),
    "traced by fx": lambda: torch.fx.symbolic_trace(Block()),
    "compiled": lambda: torch.compile(Block(), backend="eager"),
    "callable object": lambda: type("Callable", (), {"__call__": lambda self, x: x.tanh()})(),
}


def entered(make):
    """What enters the context that `make` makes, and what leaves it."""

    def enter():
        context = make()
        context.__enter__()
        return context

    return enter, lambda context: context.__exit__(None, None, None)


def replaced(where, name, value):
    return entered(lambda: unittest.mock.patch.object(where, name, value))


def switched(get, switch, value):
    return (lambda: (get(), switch(value))[0]), switch


HABITS = {
    "sys.stdout": replaced(sys, "stdout", io.StringIO()),
    "sys.stderr": replaced(sys, "stderr", io.StringIO()),
    "the working directory": switched(os.getcwd, os.chdir, "/"),
    "the garbage collector": (gc.disable, lambda _: gc.enable()),
    "the recursion limit": switched(sys.getrecursionlimit, sys.setrecursionlimit, 5000),
    "the filters of warnings": entered(lambda: warnings.catch_warnings(action="error")),
    "the handlers of signals": switched(
        lambda: signal.getsignal(signal.SIGUSR1),
        lambda handler: signal.signal(signal.SIGUSR1, handler),
        lambda *_: None,
    ),
    "the level of logging": switched(lambda: 0, logging.disable, 50),
    "os.environ['TORCH_ODD']": entered(lambda: unittest.mock.patch.dict(os.environ, TORCH_ODD="1")),
    "os.environ['ODD']": entered(lambda: unittest.mock.patch.dict(os.environ, ODD="1")),
    "functions of torch.nn.functional": replaced(F, "gelu", torch.tanh),
    "anomaly mode of PyTorch": entered(lambda: torch.autograd.set_detect_anomaly(True)),
    "the default dtype of PyTorch": switched(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
}
