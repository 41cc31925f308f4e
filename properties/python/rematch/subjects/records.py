"""Records of runs, and arrays, as the harness reads them."""

import base64
import hashlib
from math import prod
from typing import Any

import numpy as np

from rematch.subjects.case import FIELDS

# NumPy has no bfloat16: such arrays are passed on as 16-bit integers with the same bits.
_DTYPES = {
    "float32": np.dtype("<f4"),
    "float64": np.dtype("<f8"),
    "int32": np.dtype("<i4"),
    "uint8": np.dtype("u1"),
    "bfloat16": np.dtype("<u2"),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items() if name != "bfloat16"}


def decode(array: dict[str, Any]) -> np.ndarray:
    """A writable array of its own from `{"dtype", "shape", "data"}`, or `"file"` and `"offset"`.

    Raises ValueError when the data does not fill the shape, OSError when there is no such file.
    """
    dtype = _DTYPES.get(array["dtype"])
    if dtype is None:
        raise ValueError(f"dtype: one of {', '.join(_DTYPES)} expected, got {array['dtype']!r}")
    shape = tuple(array["shape"])
    count = prod(shape)
    if "file" in array:
        flat = np.fromfile(array["file"], dtype, count, offset=array.get("offset", 0))
    else:
        flat = np.frombuffer(bytearray(base64.b64decode(array["data"])), dtype)
    if flat.size != count:
        raise ValueError(f"data: {count} elements of {array['dtype']} expected, got {flat.size}")
    return flat.reshape(shape)


def encode(array: np.ndarray) -> dict[str, Any]:
    """The inverse of decode(), always with the data in line."""
    return {
        "dtype": name_of(array.dtype),
        "shape": list(array.shape),
        "data": base64.b64encode(bits_of(array)).decode("ascii"),
    }


def name_of(dtype: np.dtype) -> str:
    """ "float32". Raises TypeError for a dtype that records cannot hold."""
    name = _NAMES.get(dtype)
    if name is None:
        known = ", ".join(_NAMES.values())
        raise TypeError(f"an array of {known} expected, got {dtype}; convert it with astype()")
    return name


def bits_of(array: np.ndarray) -> bytes:
    """The elements, row-major and little-endian. Every NaN has the same bits: which of two NaNs an
    addition passes on is up to the compiler, and says nothing."""
    if array.dtype.kind == "f":
        nans = np.isnan(array)
        if np.count_nonzero(nans):
            array = np.where(nans, array.dtype.type(np.nan), array)
    return array.tobytes()


FORMAT = 1
"""The version of the record that this module writes."""

Bits = dict[tuple[str, int, int, int], tuple[bytes, tuple[int, ...]]]
"""The bits of observations and their shapes, by quantity, step, microbatch and index."""


def hash64(data: bytes | bytearray | memoryview) -> str:
    """64 bits that equal contents share, in every process, as the protocol writes them."""
    return "0x" + hashlib.blake2b(data, digest_size=8).hexdigest()


class Record:
    """Everything that one run shows. Methods append; nothing is read back.

    PROTOCOL.md leads to what each list and each field means. `where` is a `step` and a `microbatch`, 0 where they are
    not given, as is whatever else it may be.
    """

    def __init__(self, previous: Bits | None = None) -> None:
        """`previous`: the bits that the last run of the same case had; they are not sent again."""
        self._previous = previous or {}
        self.bits: Bits = {}
        self._lists: dict[str, list[dict[str, Any]]] = {}
        self._last_state: tuple[bytes, str] = (b"", "")
        self._rest: dict[str, Any] = {"format": FORMAT}

    def observe(
        self,
        quantity: str,
        array: np.ndarray | None,
        *,
        step: int = 0,
        microbatch: int = 0,
        index: int = 0,
        requires_grad: bool = False,
        dtype: str | None = None,
    ) -> None:
        """Notes an array: "output", "loss", "input_gradient", "parameter_gradient", "parameter",
        "buffer" or "reevaluation". None is an absent gradient, which is not a gradient of zeros.
        `dtype` is needed for "bfloat16" only, whose bits come as 16-bit integers.

        Raises TypeError for an array of any other dtype than float32, float64, int32 and uint8.
        """
        place = {"quantity": quantity, "step": step, "microbatch": microbatch, "index": index}
        if array is None:
            entry = entry_of("observations", present=False, **place)
        else:
            entry = entry_of("observations", requires_grad=requires_grad, **place)
            entry |= {"dtype": dtype or name_of(array.dtype), "shape": array.shape}
            key, bits = (quantity, step, microbatch, index), bits_of(array)
            if self._previous.get(key) == (bits, array.shape):
                entry["as"] = True
            else:
                entry["data"] = base64.b64encode(bits).decode("ascii")
            self.bits[key] = (bits, array.shape)
        self.append("observations", entry)

    def add(self, name: str, /, **fields: Any) -> None:
        """Notes an entry of one of the record's lists, such as "draws". Raises KeyError for a list or a field that
        there is none of."""
        self.append(name, entry_of(name, **fields))

    def append(self, name: str, entry: dict[str, Any]) -> None:
        """Notes what entry_of() made."""
        self._lists.setdefault(name, []).append(entry)

    def executions(self, counts: list[int], **where: int) -> None:
        """Notes how often each layer ran for one forward, recomputations included."""
        for layer, count in enumerate(counts):
            self.add("executions", layer=layer, count=count, **where)

    def hooks(self, counts: list[int], **where: int) -> None:
        """Notes how often each parameter's gradient hook fired in the backwards of one forward."""
        for parameter, count in enumerate(counts):
            if count:
                self.add("hooks", parameter=parameter, count=count, **where)

    def stream(self, moment: str, state: bytes, **where: int) -> None:
        """Notes the random state of a `stream` at "after_forward", "after_backward" or "after_step". Equal states must
        have equal bytes."""
        if state != self._last_state[0]:
            # Most states are that of the moment before.
            self._last_state = (state, hash64(state))
        self.add("streams", moment=moment, seed=self._last_state[1], **where)

    def trial(self, failed: bool, message: str = "", left_behind: str = "") -> None:
        """Says how the injected failure ended, and forgets whatever was noted before, but for what the
        model consists of. `left_behind` names settings that are not as before the trial."""
        self._lists = {name: its for name, its in self._lists.items() if name == "units"}
        self.bits.clear()
        told = {"failed": failed, "message": message, "left_behind": left_behind}
        self._rest["trial"] = {name: value for name, value in told.items() if value}

    def error(self, kind: str, message: str) -> None:
        """Says that the implementation under test failed. What was noted before stays."""
        self._rest["error"] = {"kind": kind, "message": message}

    def entries(self, name: str) -> list[dict[str, Any]]:
        """A list as the protocol writes it."""
        return self._lists.get(name, [])

    def take_over(self, other: "Record") -> None:
        """Notes all that the other record shows, but for its arrays."""
        self._rest |= other._rest
        self._lists |= {k: v for k, v in other._lists.items() if k != "observations"}

    def to_json(self) -> dict[str, Any]:
        """The record as the protocol writes it, defaults left out."""
        return {**self._rest, **self._lists}


def entry_of(name: str, /, **fields: Any) -> dict[str, Any]:
    """An entry of a record's list, as the protocol writes it: without what is 0, False or empty by default."""
    usual = FIELDS["record"][name]
    return {field: value for field, value in fields.items() if usual[field] or value}
