"""Arrays as the protocol writes them, to and from NumPy."""

import base64
from math import prod
from typing import Any

import numpy as np

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


def encode(array: np.ndarray, dtype: str | None = None) -> dict[str, Any]:
    """The inverse of decode(), always with the data in line. `dtype` names what NumPy cannot."""
    name = dtype or name_of(array.dtype)
    return {"dtype": name, "shape": list(array.shape), "data": base64.b64encode(bits_of(array)).decode("ascii")}


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
