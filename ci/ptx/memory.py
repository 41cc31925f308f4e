"""Memory of a launch: bytes that lanes read and write under the rules of a device, each violation an error.

An access has to lie in one block and to be aligned. Shared memory may be read only where it has been written. Two
threads may touch the same place, one of them writing, only with a barrier between that orders them.
"""
import numpy as np

MANY = -2


class Violation(Exception):
    """An act of a thread that CUDA leaves undefined: line of PTX, lane, sentence."""

    def __init__(self, line, lane, why):
        super().__init__(why)
        self.line, self.lane, self.why = line, lane, why


class Shadow:
    """Who wrote and who read each place since the last barrier, by the place of the first byte.

    `clock` counts the barriers of a lane's block, `warp_clock` the meetings of its warp.
    """

    def __init__(self, size):
        self.writer = np.full(size, -1, np.int32)
        self.reader = np.full(size, -1, np.int32)
        self.clocks = np.zeros((4, size), np.int32)

    def conflicts(self, who, clocks, places, lanes, machine):
        """Lanes that follow another thread's access without a barrier."""
        others = who[places]
        met = (others >= 0) & (others != machine.thread[lanes]) | (others == MANY)
        if not met.any():
            return None
        other = np.maximum(others, 0)
        same_block = (others == MANY) | (other // machine.threads == machine.thread[lanes] // machine.threads)
        ordered = same_block & (clocks[0][places] < machine.clock[lanes])
        same_warp = (others >= 0) & (machine.warp_of(other) == machine.warp_of(machine.thread[lanes]))
        ordered |= same_warp & (clocks[1][places] < machine.warp_clock[lanes])
        bad = np.flatnonzero(met & ~ordered)
        return (bad[0], others[bad[0]]) if bad.size else None

    def stamp(self, clocks, places, lanes, machine):
        clocks[0][places] = machine.clock[lanes]
        clocks[1][places] = machine.warp_clock[lanes]

    def read(self, places, lanes, line, machine):
        found = self.conflicts(self.writer, self.clocks[:2], places, lanes, machine)
        if found:
            raise Violation(line, lanes[found[0]], f"reads what thread {found[1]} wrote without a barrier between")
        threads = machine.thread[lanes]
        before = self.reader[places]
        fresh = (before == -1) | (self.clocks[2][places] < machine.clock[lanes])
        self.reader[places] = np.where(fresh, threads, np.where(before == threads, threads, MANY))
        shared = self.reader[places] != threads
        self.reader[places[shared]] = MANY
        self.stamp(self.clocks[2:], places, lanes, machine)

    def write(self, places, lanes, line, machine):
        for who, clocks, verb in ((self.writer, self.clocks[:2], "wrote"), (self.reader, self.clocks[2:], "read")):
            found = self.conflicts(who, clocks, places, lanes, machine)
            if found:
                other = "another thread" if found[1] == MANY else f"thread {found[1]}"
                raise Violation(line, lanes[found[0]], f"writes what {other} {verb} without a barrier between")
        threads = machine.thread[lanes]
        self.writer[places] = threads
        lost = np.flatnonzero(self.writer[places] != threads)
        if lost.size:
            other = self.writer[places[lost[0]]]
            raise Violation(line, lanes[lost[0]], f"writes what thread {other} writes at the same time")
        self.stamp(self.clocks[:2], places, lanes, machine)


class Memory:
    """Bytes behind one another. Subclasses say where in them an address of a lane lies."""

    def __init__(self, machine, size):
        self.machine = machine
        # Aligned to the widest access.
        self.bytes = np.full(-(-size // 16) * 16, 0xff, np.uint8)
        self.views = {}
        self.shadow = None
        self.written = None
        self.floats = None

    def view(self, dtype):
        dtype = np.dtype(dtype)
        if dtype not in self.views:
            self.views[dtype] = self.bytes.view(dtype)
        return self.views[dtype]

    def places(self, addresses, size, lanes, line):
        raise NotImplementedError

    def located(self, addresses, k, count, dtype, chosen, line):
        """Places of the k-th of `count` elements, in elements, and the lanes."""
        size = np.dtype(dtype).itemsize
        lanes = self.machine.lanes(chosen)
        if addresses.shape[0] == 1 and lanes.shape[0] != 1:
            addresses = np.repeat(addresses, lanes.shape[0])
        crooked = addresses % addresses.dtype.type(size * count) != 0
        if crooked.any():
            bad = int(np.flatnonzero(crooked)[0])
            raise Violation(line, lanes[bad], f"address {addresses[bad]:#x} is not aligned to {size * count} bytes")
        return self.places(addresses + addresses.dtype.type(k * size), size, lanes, line), lanes, size

    def load(self, addresses, k, count, dtype, chosen, line):
        places, lanes, size = self.located(addresses, k, count, dtype, chosen, line)
        if self.written is not None:
            bad = np.flatnonzero(~self.written[places])
            self.machine.read_unwritten += bad.size
            if bad.size and not self.machine.excuses_unwritten:
                raise Violation(line, lanes[bad[0]], "reads shared memory that was never written")
        if self.shadow:
            self.shadow.read(places, lanes, line, self.machine)
        return self.view(dtype)[places // size]

    def store(self, addresses, k, count, value, chosen, line):
        places, lanes, size = self.located(addresses, k, count, value.dtype, chosen, line)
        if self.shadow:
            self.shadow.write(places, lanes, line, self.machine)
        if self.written is not None:
            for byte in range(size):
                self.written[places + byte] = True
        self.view(value.dtype)[places // size] = value
        if self.floats is not None:
            self.floats[places] = size if value.dtype.kind == "f" else 0


def inside(addresses, size, end, lanes, line, what):
    bad = np.flatnonzero(addresses.astype(np.int64) + size > end)
    if bad.size:
        raise Violation(line, lanes[bad[0]], f"{what} at {int(addresses[bad[0]])}, of which there are {end} bytes")


class PerLane(Memory):
    """Local memory, and with one copy for all lanes the parameters."""

    def __init__(self, machine, size, copies, what):
        self.size, self.stride, self.what = size, -(-size // 16) * 16, what
        self.copies = copies
        super().__init__(machine, self.stride * copies)

    def places(self, addresses, size, lanes, line):
        inside(addresses, size, self.size, lanes, line, self.what)
        own = addresses.astype(np.int64)
        return own if self.copies == 1 else own + lanes * self.stride


class Shared(Memory):
    """One array for each thread block."""

    def __init__(self, machine, size, blocks):
        self.size, self.stride = size, -(-size // 16) * 16
        super().__init__(machine, self.stride * blocks)
        self.written = np.zeros(self.bytes.size, bool)
        self.shadow = Shadow(self.bytes.size)

    def places(self, addresses, size, lanes, line):
        inside(addresses, size, self.size, lanes, line, "shared memory")
        return addresses.astype(np.int64) + lanes // self.machine.threads * self.stride


class Global(Memory):
    """The blocks of a device that a launch can reach, by their addresses."""

    def __init__(self, machine, blocks):
        """`blocks` are (address, bytes) in ascending order."""
        self.starts = np.array([at for at, _ in blocks], np.uint64)
        self.sizes = np.array([len(content) for _, content in blocks], np.uint64)
        # As aligned as their addresses are.
        offsets, end = [], 0
        for at, content in blocks:
            end += (at - end) % 256
            offsets.append(end)
            end += len(content)
        self.offsets = np.array(offsets, np.int64)
        super().__init__(machine, end)
        for offset, (_, content) in zip(offsets, blocks):
            self.bytes[offset:offset + len(content)] = content
        self.shadow = Shadow(self.bytes.size)
        # Sizes of the floating-point numbers that were stored, where they begin.
        self.floats = np.zeros(self.bytes.size, np.uint8)

    def content(self, number, of=None):
        """A block's bytes, or their part of another array."""
        offset = int(self.offsets[number])
        return (self.bytes if of is None else of)[offset:offset + int(self.sizes[number])]

    def places(self, addresses, size, lanes, line):
        if not self.starts.size:
            raise Violation(line, lanes[0], f"address {int(addresses[0]):#x} is in no block of the device")
        found = np.searchsorted(self.starts, addresses, "right") - 1
        held = addresses - self.starts[found]
        bad = np.flatnonzero((found < 0) | (held + np.uint64(size) > self.sizes[found]))
        if bad.size:
            at = int(addresses[bad[0]])
            number = max(int(found[bad[0]]), 0)
            start, most = int(self.starts[number]), int(self.sizes[number])
            raise Violation(line, lanes[bad[0]], f"address {at:#x} is {at - start} bytes from a block of {most}")
        return self.offsets[found] + held.astype(np.int64)
