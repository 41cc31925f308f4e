"""Instructions as expressions of Python. One that is not here is an error that names it."""
import re

import numpy as np

from ptx.parser import SIZES, Unknown

DTYPES = {"pred": np.bool_, "f32": np.float32, "f64": np.float64}
for _bits in (8, 16, 32, 64):
    DTYPES[f"u{_bits}"] = DTYPES[f"b{_bits}"] = getattr(np, f"uint{_bits}")
    DTYPES[f"s{_bits}"] = getattr(np, f"int{_bits}")
INTEGERS = {f"{kind}{bits}" for kind in "us" for bits in (16, 32, 64)}
FLOATS = {"f32", "f64"}
# Opcodes without their last part, by the types that they take, and what they are in Python.
BITWISE = {"and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}", "not": "~{0}"}
INTEGER = {"add": "{0} + {1}", "sub": "{0} - {1}", "mul.lo": "{0} * {1}", "mad.lo": "{0} * {1} + {2}",
           "neg": "-{0}", "min": "np.minimum({0}, {1})", "max": "np.maximum({0}, {1})",
           "div": "X.divided({0}, {1}, {line}, I)", "rem": "X.remainder({0}, {1}, {line}, I)"}
FLOAT = {"add.rn": "{0} + {1}", "sub.rn": "{0} - {1}", "mul.rn": "{0} * {1}", "div.rn": "{0} / {1}",
         "sqrt.rn": "np.sqrt({0})", "rcp.rn": "1 / {0}"}
PLAIN_FLOAT = {"neg": "-{0}", "abs": "np.abs({0})", "max": "A.larger({0}, {1})"}
# A comparison with NaN is false, and with a `u` behind its name true.
COMPARED = {"eq": "{0} == {1}", "ne": "{0} != {1}", "lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}",
            "ge": "{0} >= {1}"}
COMPARED_FLOAT = {**COMPARED, "ne": "({0} < {1}) | ({0} > {1})", "neu": "{0} != {1}", "ltu": "~({0} >= {1})",
                  "leu": "~({0} > {1})", "gtu": "~({0} <= {1})", "geu": "~({0} < {1})",
                  "equ": "~(({0} < {1}) | ({0} > {1}))", "nan": "({0} != {0}) | ({1} != {1})",
                  "num": "({0} == {0}) & ({1} == {1})"}
# To, from: float32 and double hold all of u32 or s32 or round them once, as NumPy does.
CONVERTED = {("f64", "f32"): "cvt", ("f32", "f64"): "cvt.rn"}
CONVERTED.update({(f, i): "cvt.rn" for f in FLOATS for i in INTEGERS})


def write(t, instruction):
    """Appends the lines of one instruction to a translation."""
    root = instruction.opcode.split(".")[0]
    special = {"ld": load, "st": store, "mov": move, "cvta": move, "setp": compare, "selp": select, "cvt": convert,
               "shfl": shuffle, "bar": meet, "shl": shift, "shr": shift, "mul": multiply, "mad": plain, "fma": fuse,
               "prmt": permute}
    special.get(root, plain)(t, instruction)


def plain(t, instruction):
    stem, type_ = instruction.opcode.rsplit(".", 1)
    to, *operands = instruction.operands
    if stem in BITWISE and (type_ in ("pred",) or type_[0] == "b"):
        text = BITWISE[stem]
    elif type_ in INTEGERS and stem in INTEGER:
        text = INTEGER[stem]
    elif type_ in FLOATS and stem in PLAIN_FLOAT:
        text = PLAIN_FLOAT[stem]
    elif type_ in FLOATS and stem in FLOAT:
        text = f"A.nan32({FLOAT[stem]})" if type_ == "f32" else FLOAT[stem]
    else:
        raise Unknown("an instruction that is not known")
    t.result(to, type_, text.format(*(t.operand(o, type_) for o in operands), line=instruction.line))


def multiply(t, instruction):
    if not instruction.opcode.startswith("mul.wide."):
        return plain(t, instruction)
    type_ = instruction.opcode.rsplit(".", 1)[1]
    wide = f"{type_[0]}{int(type_[1:]) * 2}"
    to, a, b = instruction.operands
    a, b = (f"{t.operand(o, type_)}.astype(D[{wide!r}])" for o in (a, b))
    t.result(to, wide, f"{a} * {b}")


def fuse(t, instruction):
    type_ = instruction.opcode.rsplit(".", 1)[1]
    if instruction.opcode != f"fma.rn.{type_}" or type_ not in FLOATS:
        raise Unknown("an instruction that is not known")
    to, *operands = instruction.operands
    a, b, c = (t.operand(o, type_) for o in operands)
    t.result(to, type_, f"A.fma{type_[1:]}({a}, {b}, {c})")


def shift(t, instruction):
    root, type_ = instruction.opcode.split(".")
    to, a, n = instruction.operands
    a = t.operand(a, type_.replace("b", "u"))
    text = f"A.shifted({a}, {t.operand(n, 'u32')}, {root == 'shr'})"
    if not n.startswith("%") and int(n, 0) < SIZES[type_] * 8:
        text = f"{a} {'>>' if root == 'shr' else '<<'} {t.constant(n, type_.replace('b', 'u'))}"
    t.result(to, type_, text)


def compare(t, instruction):
    found = re.match(r"setp\.(\w+)\.(\w+)$", instruction.opcode)
    how, type_ = found.groups()
    to, a, b = instruction.operands
    texts = COMPARED_FLOAT if type_ in FLOATS else COMPARED
    t.result(to, "pred", texts[how].format(t.operand(a, type_), t.operand(b, type_)))


def select(t, instruction):
    type_ = instruction.opcode.split(".")[1]
    to, a, b, p = instruction.operands
    t.result(to, type_, f"np.where({t.operand(p, 'pred')}, {t.operand(a, type_)}, {t.operand(b, type_)})")


def convert(t, instruction):
    found = re.match(r"(cvt(?:\.rn)?)\.(\w+)\.(\w+)$", instruction.opcode)
    stem, to_type, from_type = found.groups()
    to, value = instruction.operands
    is_integer = to_type[0] in "us" and from_type[0] in "us" and stem == "cvt"
    if not is_integer and CONVERTED.get((to_type, from_type)) != stem:
        raise Unknown("an instruction that is not known")
    text = f"{t.operand(value, from_type)}.astype(D[{to_type!r}])"
    t.result(to, to_type, f"A.nan32({text})" if to_type == "f32" else text)


def move(t, instruction):
    type_ = instruction.opcode.rsplit(".", 1)[1]
    to, value = instruction.operands
    if instruction.opcode not in (f"mov.{type_}", "cvta.to.global.u64"):
        raise Unknown("an instruction that is not known")
    if isinstance(to, list):
        half = f"b{int(type_[1:]) // len(to)}"
        for k, name in enumerate(to):
            t.result(name, half, f"X.part({t.operand(value, type_)}, {k}, {len(to)})")
    elif isinstance(value, list):
        half = f"b{int(type_[1:]) // len(value)}"
        t.result(to, type_, f"X.joined({', '.join(t.operand(v, half) for v in value)})")
    else:
        t.result(to, type_, t.operand(value, type_))


def address(t, text, space):
    """The address of `[register+offset]` or `[name+offset]`."""
    base, offset = re.match(r"\[\s*([%\w$]+)\s*(?:\+\s*(-?\d+))?\s*\]$", text).groups()
    wide = "u32" if space == "shared" else "u64"
    if base.startswith("%"):
        wide = t.kernel.register_type(base).replace("b", "u")
    at = t.operand(base, wide)
    return f"{at} + {t.constant(offset, wide)}" if offset else at


def load(t, instruction):
    found = re.match(r"ld\.(param|global|shared|local)(?:\.nc)?(?:\.v(\d))?\.(\w+)$", instruction.opcode)
    space, count, type_ = found.groups()
    to, where = instruction.operands
    where = address(t, where, space)
    for k, name in enumerate(to if isinstance(to, list) else [to]):
        t.result(name, type_, f"X.spaces[{space!r}].load({where}, {k}, {int(count or 1)}, D[{type_!r}], I, "
                              f"{instruction.line})")


def store(t, instruction):
    found = re.match(r"st\.(global|shared|local)(?:\.v(\d))?\.(\w+)$", instruction.opcode)
    space, count, type_ = found.groups()
    where, value = instruction.operands
    where = address(t, where, space)
    for k, name in enumerate(value if isinstance(value, list) else [value]):
        part = t.operand(name, type_)
        t.lines.append(f"X.spaces[{space!r}].store({where}, {k}, {int(count or 1)}, {part}, I, {instruction.line})")


def shuffle(t, instruction):
    how = re.match(r"shfl\.sync\.(idx|down|bfly|up)\.b32$", instruction.opcode)[1]
    to, value, b, c, mask = instruction.operands
    names = to.split("|")
    b, c, mask, value = (t.operand(o, "b32") for o in (b, c, mask, value))
    both = f"X.shuffled({how!r}, {value}, {b}, {c}, {mask}, I, {instruction.line})"
    t.lines.append(f"shuffled, inside = {both}")
    t.result(names[0], "b32", "shuffled")
    if len(names) > 1:
        t.result(names[1], "pred", "inside")


def meet(t, instruction):
    if instruction.opcode != "bar.warp.sync":
        raise Unknown("an instruction that is not known")
    t.lines.append("X.meet(I)")


def permute(t, instruction):
    to, a, b, selector = instruction.operands
    if instruction.opcode != "prmt.b32":
        raise Unknown("an instruction that is not known")
    t.result(to, "b32", f"A.permuted({t.operand(a, 'b32')}, {t.operand(b, 'b32')}, {int(selector, 0)})")
