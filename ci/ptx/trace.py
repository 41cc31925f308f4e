"""Launches that the emulated device wrote (engine/emulator/trace.h), and what PTX makes of them."""
import json
import re
from dataclasses import dataclass

import numpy as np

from ptx.parser import SIZES, Unknown, is_number, size_of


@dataclass
class Launch:
    """`before` and `after` are bytes by the address of their block."""
    kernel: str
    source: str
    blocks: int
    threads: int
    shared: int
    arguments: list
    before: dict
    after: dict


def read(path):
    with open(path, "rb") as file:
        head = json.loads(file.readline())
        before, after = {}, {}
        for address, size, known, begin, end in head["memory"]:
            # Bytes that were not written are all ones.
            content = np.full(size, 0xff, np.uint8)
            content[:known] = np.frombuffer(file.read(known), np.uint8)
            before[address] = content
            after[address] = content.copy()
            after[address][begin:end] = np.frombuffer(file.read(end - begin), np.uint8)
    arguments = [(kind, bytes.fromhex(text)) for kind, text in head["arguments"]]
    return Launch(plain_name(head["kernel"]), head["source"], head["blocks"], head["threads"], head["shared"],
                  arguments, before, after)


def plain_name(mangled):
    """A kernel's name as both compilers have it: nvcc names an unnamed namespace after the file, and the emulated device
    tells the name of a type in the kernel."""
    name = re.sub(r"^Z(.*)E4Here$", r"_Z\1", mangled)
    out, at = "", 0
    for found in re.finditer(r"(\d+)_GLOBAL__N_", name):
        # Digits before it may belong to what comes before: only one of their endings is its length.
        for k in range(len(found[1])):
            end = found.start() + len(found[1]) + int(found[1][k:])
            text = name[found.end(1):end]
            if re.match(r"_GLOBAL__N__[0-9a-f]{8}_\d+_\w+_cu_[0-9a-f]{8}(_\w+)?$|_GLOBAL__N_1$", text) and found.start() >= at:
                out += name[at:found.start() + k] + "12_GLOBAL__N_1"
                at = end
                break
    return out + name[at:]


def number_as(kind, raw, type_):
    """An argument's bytes as those of its parameter, which may be another type of number."""
    size = SIZES[type_]
    if kind == "b":
        return raw
    if kind == "f":
        value = np.frombuffer(raw, f"f{len(raw)}")[0]
        return np.array([value]).astype(f"f{size}").tobytes() if type_[0] == "f" else raw
    value = int.from_bytes(raw, "little", signed=kind == "s")
    if type_[0] == "f":
        return np.array([value]).astype(f"f{size}").tobytes()
    return (value % 2**(8 * size)).to_bytes(size, "little")


def parameters(kernel, launch):
    """The bytes of a kernel's parameters."""
    out = np.zeros(size_of(kernel.parameters), np.uint8)
    if launch.shared:
        raise Unknown("shared memory whose size the launch chooses")
    if len(kernel.parameters) != len(launch.arguments):
        raise Unknown(f"{len(launch.arguments)} arguments for {len(kernel.parameters)} parameters")
    for parameter, (kind, raw) in zip(kernel.parameters, launch.arguments):
        raw = number_as(kind, raw, parameter.type) if is_number(parameter) else raw
        if len(raw) != parameter.size:
            raise Unknown(f"an argument of {len(raw)} bytes for {parameter.name} of {parameter.size}")
        out[parameter.offset:parameter.offset + parameter.size] = np.frombuffer(raw, np.uint8)
    return out


def difference(launch, machine):
    """(bytes that differ, sentence about the first, NaNs of other bits). NaNs that were stored as such are equal: those of
    x86 have other bits than those of PTX, which for double leaves them open."""
    count, first, nans = 0, "", 0
    for k, address in enumerate(sorted(launch.after)):
        expected, got = launch.after[address], machine.memory.content(k)
        if np.array_equal(expected, got):
            continue
        differs = expected != got
        floats = machine.memory.content(k, machine.memory.floats)
        for size in (4, 8):
            whole = len(got) // size * size
            both = [np.isnan(np.ascontiguousarray(x[:whole]).view(f"f{size}")) for x in (expected, got)]
            same = both[0] & both[1] & (floats[:whole:size] == size) & differs[:whole].reshape(-1, size).any(axis=1)
            nans += int(same.sum())
            differs[:whole] &= ~np.repeat(same, size)
        count += int(differs.sum())
        if differs.any() and not first:
            at = int(np.flatnonzero(differs)[0])
            word = at // 4 * 4
            first = (f"byte {at} of the block of {len(got)}: {got[word:word + 4].tobytes()[::-1].hex()} instead of "
                     f"{expected[word:word + 4].tobytes()[::-1].hex()}")
    return count, first, nans
