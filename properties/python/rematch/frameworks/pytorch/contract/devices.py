"""Random states of devices, told by a type of device on which nothing lies."""

import contextlib
import types
import warnings

import torch
import torch.utils.checkpoint as C
from torch._subclasses import FakeTensorMode

from rematch.frameworks.pytorch.contract.probing import *


class Device(types.ModuleType):
    """As much of the module of a device as checkpointing asks for."""

    def __init__(self):
        super().__init__("privateuseone")
        self.begin()

    def begin(self):
        """Forgets what was done to it."""
        self._initialized = True
        self.log = []
        self.states = {index: f"state {index}" for index in range(3)}
        self.current = []

    @contextlib.contextmanager
    def device(self, index):
        self.current.append(index)
        yield
        self.current.pop()

    def get_rng_state(self, index=None):
        return self.states[self.current[-1] if index is None else index]

    def set_rng_state(self, state, index=None):
        index = self.current[-1] if index is None else index
        self.states[index] = state
        self.log.append([index, state])

    def device_count(self):
        return 3

    def get_amp_supported_dtype(self):
        return [torch.bfloat16]


# PyTorch remembers the modules of devices: there must be no other one later.
OTHER = Device()


@contextlib.contextmanager
def other_device():
    """A type of device, known to PyTorch by a module as any other."""
    OTHER.begin()
    setattr(torch, OTHER.__name__, OTHER)
    try:
        yield OTHER
    finally:
        delattr(torch, OTHER.__name__)


@contextlib.contextmanager
def default_type(name):
    before = C.DefaultDeviceType._default_device_type
    try:
        C.DefaultDeviceType.set_device_type(name)
        yield
    finally:
        C.DefaultDeviceType._default_device_type = before


@probe("DV.default_type", "DefaultDeviceType: what it was set to, and the default.")
def default_device_type():
    seen = []
    with default_type("cpu"):
        seen.append(C.DefaultDeviceType.get_device_type())
        with default_type("meta"):
            seen.append(C.DefaultDeviceType.get_device_type())
        C.DefaultDeviceType.set_device_type()
        seen.append(C.DefaultDeviceType.get_device_type())
    return {"types": seen}


@probe("DV.states", "get_device_states() and set_device_states(), by type of device.")
def states():
    seen = {}
    with default_type("cpu"):
        seen["of_the_cpu"] = list(C.get_device_states(variable(0.5), 3, [variable(0.5)]))
        C.set_device_states([], [])
    with default_type("meta"):
        C.set_device_states([0], [None])
    C.set_device_states([0], [None], device_type="meta")
    with other_device() as device:
        C.set_device_states([1, 0], ["first", "second"], device_type=device.__name__)
        with default_type(device.__name__):
            C.set_device_states([2], ["third"])
            seen["without_tensors_on_it"] = list(C.get_device_states(variable(0.5)))
        seen["set"] = device.log
    with other_device() as device, FakeTensorMode():
        one, two = (torch.empty(3, device=f"{device.__name__}:{i}") for i in (1, 2))
        given = (two, 3, [variable(0.5), {"nested": one}])
        seen["of_nested_tensors"] = list(C.get_device_states(*given))
    return seen


@probe("DV.recomputation", "Random states of two devices in forward, recomputation and afterwards.")
def recomputation():
    seen = {}
    with other_device() as device, FakeTensorMode():
        one, two = (torch.empty(3, device=f"{device.__name__}:{i}") for i in (1, 2))
        at_first = dict(device.states)
        for variant, preserve in ((v, p) for v in VARIANTS for p in (True, False)):
            found = []

            def body(x, *_):
                found.append(dict(device.states))
                return x.sin()

            device.states = dict(at_first)
            given = (variable(0.5), two, 3, [{"nested": one}])
            y = checkpointed(variant, body, *given, preserve_rng_state=preserve)
            device.states[1], device.states[2] = "later 1", "later 2"
            before = dict(device.states)
            y.sum().backward()
            name = f"{variant}_{'preserved' if preserve else 'not_preserved'}"
            seen[f"{name}_restored"] = [at_first == run for run in found]
            seen[f"{name}_kept_by_backward"] = device.states == before
    return seen


@probe("DV.several_types", "Warnings for tensors on two types of devices, as arguments.")
def several_types():
    words = "at least two types of devices", "Device types: ['meta', 'privateuseone']"
    with other_device() as device, FakeTensorMode(), torch.no_grad():
        other = torch.empty(3, device=f"{device.__name__}:1")
        meta, x = torch.empty(3, device="meta"), variable(0.5)

        def warned_of(call, *given):
            """The type that the warning puts first, if there is one."""
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                call(lambda *_: x, *given)
            texts = [str(w.message) for w in caught if words[0] in str(w.message)]
            texts = [t.partition("first device type: ")[2][:4] for t in texts if words[1] in t]
            return sorted(set(texts))

        given = [(x, other, 3), (other, [other]), (x, meta), (x, other, meta), (meta, {"k": other})]
        return {name: [warned_of(call, *g) for g in given] for name, call in CALLS.items()}


@probe("DV.initialized_late", "A device initialized within a segment, its random state stashed.")
def initialized_late():
    def error(call, starts, before, **options):
        def body(x):
            device._initialized = device._initialized or starts
            return x.sin()

        device._initialized = before
        return outcome(lambda: call(body, variable(0.5), **options).sum().backward())

    with other_device() as device, default_type(device.__name__):
        return {
            "before": error(checkpoint, True, True),
            "within": error(checkpoint, True, False),
            "within_not_preserved": error(checkpoint, True, False, preserve_rng_state=False),
            "never": [error(call, False, False) for call in CALLS.values()],
        }
