"""Reads PTX as nvcc writes it: the entries of a module, with their parameters, registers, memory and instructions."""
import re
from dataclasses import dataclass, field

SIZES = {"pred": 1, **{f"{kind}{bits}": bits // 8 for kind in "busf" for bits in (8, 16, 32, 64)}}


class Unknown(Exception):
    """Text that is not understood, with its line."""


@dataclass
class Instruction:
    """`@guard opcode operands;`. An operand is text, or a list of texts where it stands in braces."""
    line: int
    opcode: str
    operands: list
    guard: str = ""


@dataclass
class Variable:
    """A parameter, or an array in shared or local memory, at an offset among those of its kind."""
    name: str
    type: str
    size: int
    offset: int


@dataclass
class Kernel:
    name: str
    parameters: list = field(default_factory=list)
    registers: dict = field(default_factory=dict)  # Prefix -> type.
    shared: dict = field(default_factory=dict)  # Name -> Variable.
    local: dict = field(default_factory=dict)
    instructions: list = field(default_factory=list)
    labels: dict = field(default_factory=dict)  # Name -> index of the instruction behind it.

    def register_type(self, name):
        return self.registers[re.match(r"%[A-Za-z_]+", name).group()]


NAME = r"[A-Za-z_$%][\w$]*"
VARIABLE = re.compile(rf"\.(param|shared|local)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+({NAME})(?:\[(\d+)\])?$")


def is_number(variable):
    return variable.size == SIZES[variable.type]


def size_of(variables):
    return max((v.offset + v.size for v in variables), default=0)


def place(found, variables):
    """The variable of a declaration, behind those before it."""
    _, align, type_, name, count = found.groups()
    size = SIZES[type_] * int(count or 1)
    align = int(align or SIZES[type_])
    return Variable(name, type_, size, -(-size_of(variables) // align) * align)


def operands_of(text):
    """Operands, parted by commas outside of braces."""
    operands = []
    for braces, plain in re.findall(r"\{([^}]*)\}|([^,{}\s][^,{}]*)", text):
        operands.append([part.strip() for part in braces.split(",")] if braces else plain.strip())
    return operands


def statement(line, text):
    found = re.match(r"(?:@(!?%\w+)\s+)?([a-z][\w.]*)\s*(.*)$", text, re.S)
    if not found:
        raise Unknown(f"line {line}: {text}")
    guard, opcode, rest = found.groups()
    return Instruction(line, opcode, operands_of(rest), guard or "")


def read_body(kernel, line, text):
    """One statement or declaration of a body; labels have been taken off."""
    if text.startswith(".reg"):
        type_, name = re.match(r"\.reg\s+\.(\w+)\s+(%\w+?)(?:<\d+>)?$", text).groups()
        kernel.registers[re.match(r"%[A-Za-z_]+", name).group()] = type_
    elif text.startswith((".shared", ".local")):
        found = VARIABLE.match(text)
        held = kernel.shared if text.startswith(".shared") else kernel.local
        held[found[4]] = place(found, held.values())
    elif text.startswith(".pragma"):
        pass
    elif text.startswith("."):
        raise Unknown(f"line {line}: {text}")
    else:
        kernel.instructions.append(statement(line, text))


def parts(source):
    """(line, text, end) of whatever ends with `;`, `{`, `}` or `:`; braces of operands end nothing."""
    source = re.sub(r"//[^\n]*", "", source)
    token = re.compile(r"\s*((?:[^;{}:]|\{[%\w\s,]*\})*)([;{}:])")
    at, line = 0, 1
    while found := token.match(source, at):
        begin = line + source.count("\n", at, found.start(1))
        line += source.count("\n", at, found.end())
        at = found.end()
        yield begin, found[1].strip(), found[2]
    if source[at:].strip():
        raise Unknown(f"line {line}: {source[at:at + 80]}")


def parse(source):
    """The kernels of a module by name."""
    kernels, shared, kernel, depth = {}, {}, None, 0
    # Lines that end with nothing.
    source = re.sub(r"^\.(version|target|address_size).*$", "", source, flags=re.M)
    for line, text, end in parts(source):
        if end == ":":
            kernel.labels[text] = len(kernel.instructions)
        elif end == "{":
            depth += 1
            if depth == 1:
                kernel = read_entry(line, text)
                kernel.shared = dict(shared)
        elif end == "}":
            depth -= 1
            if depth == 0:
                kernels[kernel.name] = kernel
        elif depth == 0:
            found = VARIABLE.match(text)
            if not found or found[1] != "shared":
                raise Unknown(f"line {line}: {text}")
            shared[found[4]] = place(found, shared.values())
        elif text:
            read_body(kernel, line, text)
    return kernels


def read_entry(line, text):
    found = re.match(rf"(?:\.visible\s+|\.weak\s+)?\.entry\s+({NAME})\s*\((.*)\)(.*)$", text, re.S)
    if not found:
        raise Unknown(f"line {line}: {text}")
    kernel = Kernel(found[1])
    for parameter in filter(None, (p.strip() for p in found[2].split(","))):
        kernel.parameters.append(place(VARIABLE.match(parameter), kernel.parameters))
    return kernel
