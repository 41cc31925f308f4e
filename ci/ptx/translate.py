"""Turns a kernel into Python: one function for each basic block, in which an instruction is an expression on arrays.

An array holds a register of all lanes that run the block, or one element where it is the same in all of them. Registers
that another block reads are kept by the machine; the others are variables of the function.
"""
import re

import numpy as np

from ptx import arithmetic, instructions
from ptx.instructions import DTYPES, FLOATS
from ptx.parser import SIZES, Unknown

PLACES = {"%tid.x": "tid", "%ctaid.x": "ctaid", "%ntid.x": "ntid", "%nctaid.x": "nctaid"}



class Block:
    """A straight run of instructions, and where it goes."""

    def __init__(self, first, last, sync):
        self.first, self.last = first, last  # Numbers of instructions; the last is not part of it.
        self.sync = sync  # The operand that says which lanes it waits for.
        self.function = None
        self.barrier = False  # Whether it ends with a barrier.
        self.ran = False


def without_guards(kernel):
    """Instructions of which only branches have a guard: others are jumped over."""
    made, starts = [], []
    for k, instruction in enumerate(kernel.instructions):
        starts.append(len(made))
        if instruction.guard and instruction.opcode not in ("bra", "bra.uni"):
            guard = instruction.guard[1:] if instruction.guard[0] == "!" else "!" + instruction.guard
            made.append(type(instruction)(instruction.line, "bra", [len(made) + 2], guard))
        made.append(instruction)
    starts.append(len(made))
    labels = {name: starts[at] for name, at in kernel.labels.items()}
    return made, labels


def mask_of(instruction):
    """The lanes that an instruction waits for; None where it waits for none."""
    if instruction.opcode.startswith("shfl.sync"):
        return instruction.operands[4]
    return instruction.operands[0] if instruction.opcode == "bar.warp.sync" else None


class Translation:
    """The blocks of a kernel, as functions f(R, I, X): registers, lanes (None for all), machine."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.instructions, self.labels = without_guards(kernel)
        self.constants, self.numbers = [], {}
        self.blocks = self.cut()
        self.at = {block.first: k for k, block in enumerate(self.blocks)}
        self.texts = {}
        carried = self.carried()
        for k, block in enumerate(self.blocks):
            exec(compile(self.text(k, carried), f"<{kernel.name}>", "exec"), self.texts)  # noqa: S102
        space = {"np": np, "A": arithmetic, "D": DTYPES, **{f"C{k}": c for k, c in enumerate(self.constants)}}
        self.texts.update(space)
        for k, block in enumerate(self.blocks):
            block.function = self.texts[f"block_{k}"]

    def target(self, operand):
        return operand if isinstance(operand, int) else self.labels[operand]

    def cut(self):
        """Blocks begin at targets, behind branches and barriers, and where lanes wait for others: there once for
        instructions that wait for the same."""
        every = self.instructions
        starts = {0, len(every), *(self.target(i.operands[0]) for i in every if i.opcode.startswith("bra"))}
        starts |= {k + 1 for k, i in enumerate(every) if i.opcode.startswith(("bra", "bar.sync", "ret"))}
        waited = None
        for k, instruction in enumerate(every):
            mask = mask_of(instruction)
            if k in starts:
                waited = None
            if mask is not None and mask != waited:
                starts.add(k)
                waited = mask
            if waited in self.written(instruction):
                waited = None
        ends = sorted(s for s in starts if s <= len(every))
        blocks = [Block(first, last, mask_of(every[first])) for first, last in zip(ends, ends[1:])]
        for block in blocks:
            block.barrier = every[block.last - 1].opcode.startswith("bar.sync")
        return blocks

    @staticmethod
    def written(instruction):
        if instruction.opcode.startswith(("st.", "bra", "bar.", "ret")):
            return []
        to = instruction.operands[0]
        return to if isinstance(to, list) else to.split("|")

    def read(self, instruction):
        texts = [instruction.guard, *instruction.operands[len(self.written(instruction)) > 0:]]
        flat = [t for text in texts for t in (text if isinstance(text, list) else [text]) if isinstance(t, str)]
        return [r for text in flat for r in re.findall(r"%[A-Za-z_]+\d*(?!\w*\.)", text) if text not in PLACES]

    def carried(self):
        """Registers that a block reads before it writes them: these are kept."""
        kept = set()
        for block in self.blocks:
            done = set()
            for instruction in self.instructions[block.first:block.last]:
                kept.update(r for r in self.read(instruction) if r not in done)
                done.update(self.written(instruction))
        return kept

    def text(self, number, carried):
        """The source of a block's function."""
        block = self.blocks[number]
        self.lines, self.known = [], set()
        written, ending = [], None
        for instruction in self.instructions[block.first:block.last]:
            for name in self.read(instruction):
                if name not in self.known:
                    self.known.add(name)
                    self.lines.append(f"{self.variable(name)} = X.get(R, {name!r}, I, {instruction.line})")
            if instruction.opcode.startswith(("bra", "ret", "bar.sync")):
                ending = instruction
            else:
                self.translate(instruction)
            for name in self.written(instruction):
                if name != "_":
                    self.known.add(name)
                    written += [name] if name in carried and name not in written else []
        self.lines += [f"X.put(R, {name!r}, I, {self.variable(name)})" for name in written]
        self.lines.append(self.ending(ending, block.last))
        return f"def block_{number}(R, I, X):\n  " + "\n  ".join(self.lines) + "\n"

    def ending(self, instruction, following):
        last = self.at.get(following, -1)
        if instruction is None or instruction.opcode.startswith("bar.sync"):
            if instruction is not None and instruction.operands != ["0"]:
                raise Unknown(f"line {instruction.line}: {instruction.opcode} {instruction.operands}")
            return f"return {last}"
        if instruction.opcode == "ret":
            return "return -1"
        to = self.at.get(self.target(instruction.operands[0]), -1)
        if not instruction.guard:
            return f"return {to}"
        to, last = (last, to) if instruction.guard[0] == "!" else (to, last)
        return f"return {self.variable(instruction.guard.lstrip('!'))}, {to}, {last}"

    @staticmethod
    def variable(name):
        return name.replace("%", "v_").replace("!", "")

    def constant(self, text, type_):
        """An array of one element."""
        key = (text, type_)
        if key not in self.numbers:
            dtype = DTYPES[type_]
            if re.match(r"0[fd][0-9A-Fa-f]+$", text):
                raw = np.array([int(text[2:], 16)], np.uint32 if text[1] == "f" else np.uint64)
                value = raw.view(np.float32 if text[1] == "f" else np.float64)
                if value.dtype != dtype:
                    value = raw.view(dtype)
            elif re.match(r"-?(0x)?[0-9A-Fa-f]+U?$", text) and type_ not in FLOATS:
                number = int(text.rstrip("U"), 0)
                value = np.array([number % 2**64], np.uint64).astype(dtype)
            else:
                raise Unknown(f"the operand {text}")
            self.numbers[key] = f"C{len(self.constants)}"
            self.constants.append(value)
        return self.numbers[key]

    def operand(self, text, type_):
        """An operand as an array of a type; registers that are wider give their low bits."""
        if text in PLACES:
            return f"X.place(I, '{PLACES[text]}')"
        if not text.startswith("%"):
            held = {**self.kernel.shared, **self.kernel.local}.get(text)
            held = held or next((p for p in self.kernel.parameters if p.name == text), None)
            return self.constant(str(held.offset) if held else text, type_)
        own = self.kernel.register_type(text)
        name = self.variable(text)
        if DTYPES[own] == DTYPES[type_]:
            return name
        if SIZES[own] == SIZES[type_] and "pred" not in (own, type_):
            return f"{name}.view(D[{type_!r}])"
        if SIZES[own] > SIZES[type_] and own[0] != "f" and type_[0] != "f":
            return f"{name}.astype(D[{type_!r}])"
        raise Unknown(f"{text} as {type_}")

    def result(self, name, type_, text):
        """Sets a register to an expression of a type; one that is narrower is extended as its type says."""
        if name == "_":
            return
        own = self.kernel.register_type(name)
        if DTYPES[own] != DTYPES[type_]:
            if SIZES[own] > SIZES[type_] and own[0] != "f" and type_[0] != "f":
                wide = type_[0].replace("b", "u") + own[1:]
                text = f"({text}).astype(D[{wide!r}]).view(D[{own!r}])"
            elif SIZES[own] == SIZES[type_]:
                text = f"({text}).view(D[{own!r}])"
            else:
                raise Unknown(f"{name} from {type_}")
        self.lines.append(f"{self.variable(name)} = {text}")

    def translate(self, instruction):
        try:
            instructions.write(self, instruction)
        except (Unknown, LookupError, AttributeError) as why:
            raise Unknown(f"line {instruction.line}: {instruction.opcode} {instruction.operands}: {why}") from why
