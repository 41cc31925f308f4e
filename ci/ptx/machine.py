"""Runs the blocks of a launch: all threads at once, as lanes of arrays.

The lanes that run are those at the lowest basic block, so that lanes that parted meet again where their ways do.
"""
import numpy as np

from ptx import arithmetic
from ptx.memory import Global, PerLane, Shared, Violation
from ptx.parser import size_of

WARP = 32
# Lanes at a time: thread blocks of a large grid follow one another.
MOST_LANES = 1 << 14
DONE, WAITING = 1 << 30, 1 << 29


class Fault(Exception):
    """A violation, with the thread that it happened to."""

    def __init__(self, kernel, line, block, thread, why):
        super().__init__(f"line {line} of the PTX, block {block}, thread {thread}: {why}")
        self.kernel, self.line, self.block, self.thread, self.why = kernel, line, block, thread, why


class Machine:
    """Lanes, their registers and their memory, on which the functions of a translation work."""

    def __init__(self, translation, blocks, threads, parameters, memory):
        self.translation, self.grid, self.threads = translation, blocks, threads
        self.kernel = translation.kernel
        # Lanes of the same name are those of the blocks that run.
        self.thread = self.clock = self.warp_clock = np.zeros(0, np.int64)
        param = PerLane(self, len(parameters), 1, "a parameter")
        param.bytes[:len(parameters)] = parameters
        self.memory = Global(self, memory)
        # Such values read as NaN.
        self.excuses_unwritten, self.read_unwritten = False, 0
        self.spaces = {"param": param, "global": self.memory}

    def run(self):
        at_once = max(MOST_LANES // self.threads, 1)
        for first in range(0, self.grid, at_once):
            self.first, self.held = first, min(at_once, self.grid - first)
            try:
                with np.errstate(all="ignore"):
                    self.run_blocks()
            except Violation as v:
                thread = int(self.thread[v.lane])
                raise Fault(self.kernel.name, v.line, thread // self.threads, thread % self.threads, v.why) from v

    def run_blocks(self):
        self.count = self.held * self.threads
        self.every = np.arange(self.count)
        self.thread = self.first * self.threads + self.every
        self.clock = np.zeros(self.count, np.int32)
        self.warp_clock = np.zeros(self.count, np.int32)
        self.spaces["shared"] = Shared(self, size_of(self.kernel.shared.values()), self.held)
        self.spaces["local"] = PerLane(self, size_of(self.kernel.local.values()), self.count, "local memory")
        self.at = np.zeros(self.count, np.int64)
        registers = self.registers = {}
        blocks = self.translation.blocks
        while True:
            number, chosen = self.next()
            if number is None:
                return
            block = blocks[number]
            block.ran = True
            went = block.function(registers, chosen, self)
            self.go(chosen, went, block.barrier)

    def go(self, chosen, went, barrier):
        """Moves the lanes that ran to where they went."""
        where = slice(None) if chosen is None else chosen
        if isinstance(went, tuple):
            taken, to, other = went
            self.at[where] = np.where(taken, DONE if to < 0 else to, DONE if other < 0 else other)
        elif barrier:
            self.at[where] = WAITING + went
        else:
            self.at[where] = DONE if went < 0 else went

    def next(self):
        """The number of a basic block and the lanes that run it; None for no block, or for all lanes."""
        number = int(self.at.min())
        if number >= WAITING:
            if number == DONE:
                return None, None
            self.release()
            number = int(self.at.min())
        blocks = self.translation.blocks
        tried = number
        while True:
            here = self.at == tried
            chosen = None if here.all() else np.flatnonzero(here)
            if blocks[tried].sync is not None:
                chosen = self.together(blocks[tried], chosen)
            if chosen is None or chosen.size:
                return tried, chosen
            # Others may still come there.
            later = self.at[(self.at > tried) & (self.at < WAITING)]
            if not later.size:
                lane = np.flatnonzero(here)[0]
                line = self.translation.instructions[blocks[tried].first].line
                raise Violation(line, lane, "waits for lanes of its warp that have ended or wait elsewhere")
            tried = int(later.min())

    def together(self, block, chosen):
        """Lanes that have come to a block with all others of their mask."""
        lanes = self.lanes(chosen)
        line = self.translation.instructions[block.first].line
        if block.sync[0] == "%":
            mask = self.get(self.registers, block.sync, chosen, line)
        else:
            mask = np.array([int(block.sync, 0)])
        masks = np.broadcast_to(mask.astype(np.int64) & 0xffffffff, lanes.shape)
        own = np.int64(1) << (lanes % self.threads % WARP)
        outside = np.flatnonzero((masks & own) == 0)
        if outside.size:
            raise Violation(line, lanes[outside[0]], "a mask without the lane itself")
        warps, inverse = np.unique(self.warp_of(self.thread[lanes]), return_inverse=True)
        present = np.bincount(inverse, own, len(warps)).astype(np.int64)
        ready = (masks & ~present[inverse]) == 0
        return chosen if ready.all() else lanes[ready]

    def release(self):
        """Lets lanes pass the barrier that all threads of their block have come to."""
        waiting = (self.at >= WAITING) & (self.at < DONE)
        at = self.at.reshape(self.held, self.threads)
        for block in np.flatnonzero(waiting.reshape(at.shape).any(axis=1)):
            # A block's barrier is the basic block behind it.
            different = np.flatnonzero(at[block] != at[block].max())
            ended = np.flatnonzero(at[block] == DONE)
            stuck = ended if ended.size else different
            if stuck.size:
                lane = int(block) * self.threads + int(np.flatnonzero(at[block] < DONE)[0])
                behind = self.translation.blocks[int(self.at[lane]) - WAITING]
                line = self.translation.instructions[behind.first - 1].line
                raise Violation(line, lane, f"waits at a barrier that thread {stuck[0]} "
                                f"{'never reaches' if ended.size else 'passes at another place'}")
        self.at[waiting] -= WAITING
        self.clock[waiting] += 1

    # Called by the functions of basic blocks.

    def lanes(self, chosen):
        return self.every if chosen is None else chosen

    def warp_of(self, threads):
        return threads // self.threads * ((self.threads + WARP - 1) // WARP) + threads % self.threads // WARP

    def get(self, registers, name, chosen, line):
        value = registers.get(name)
        if value is None:
            raise Violation(line, int(self.lanes(chosen)[0]), f"reads {name}, which was never written")
        return value if chosen is None or value.shape[0] == 1 and self.count > 1 else value[chosen]

    def put(self, registers, name, chosen, value):
        if chosen is None:
            registers[name] = value
            return
        before = registers.get(name)
        if before is None:
            held = np.empty(self.count, value.dtype)
        else:
            # Another register may be the same array.
            held = np.repeat(before, self.count) if before.shape[0] == 1 and self.count > 1 else before.copy()
        held[chosen] = value
        registers[name] = held

    def place(self, chosen, which):
        if which == "ntid":
            return np.array([self.threads], np.uint32)
        if which == "nctaid":
            return np.array([self.grid], np.uint32)
        threads = self.thread[self.lanes(chosen)]
        return (threads % self.threads if which == "tid" else threads // self.threads).astype(np.uint32)

    def meet(self, chosen):
        """Orders the memory accesses of lanes that met."""
        self.warp_clock[self.lanes(chosen)] += 1

    def shuffled(self, how, value, b, c, mask, chosen, line):
        """The value of another lane, and whether it was within the segment."""
        lanes = self.lanes(chosen)
        own = lanes % self.threads % WARP
        b, c = (np.broadcast_to(x, lanes.shape).astype(np.int64) for x in (b, c))
        by, clamp, segment = b & 31, c & 31, c >> 8 & 31
        most = own & segment | clamp & ~segment
        from_ = {"idx": own & segment | by & ~segment, "down": own + by, "bfly": own ^ by, "up": own - by}[how]
        inside = from_ >= most if how == "up" else from_ <= most
        source = lanes - own + np.where(inside, from_, own)
        masks = np.broadcast_to(mask, lanes.shape).astype(np.int64)
        outside = np.flatnonzero(masks >> (source - lanes + own) & 1 == 0)
        if outside.size:
            raise Violation(line, lanes[outside[0]], "a shuffle from a lane that is not in its mask")
        offered = np.zeros(self.count, np.uint32)
        offered[lanes] = value
        return offered[source], inside

    def divided(self, a, b, line, chosen, how=arithmetic.divided):
        if (b == 0).any():
            bad = np.flatnonzero(b == 0)[0]
            raise Violation(line, int(self.lanes(chosen)[bad]), "divides by 0")
        return how(a, b)

    def remainder(self, a, b, line, chosen):
        return self.divided(a, b, line, chosen, arithmetic.remainder)

    @staticmethod
    def part(value, k, count):
        """The k-th of the equal parts of a register."""
        bits = value.dtype.itemsize * 8 // count
        return (value >> value.dtype.type(k * bits)).astype(f"u{bits // 8}")

    @staticmethod
    def joined(*parts):
        bits = parts[0].dtype.itemsize * 8
        wide = np.dtype(f"u{bits * len(parts) // 8}").type
        total = parts[0].astype(wide)
        for k, part in enumerate(parts[1:], 1):
            total = total | part.astype(wide) << wide(k * bits)
        return total
