"""Numbers that every floating-point format holds exactly, and how they are written down."""

import torch

DTYPES = {"float32": torch.float32, "float64": torch.float64}


def random(*shape, seed=0, low=-192, high=192):
    """Multiples of 1/128 in [low, high) / 128. A generator of our own: torch's may change."""
    count = 1
    for extent in shape:
        count *= extent
    state = 0x9E3779B9 * (seed + 1) & 0xFFFFFFFF
    values = []
    for _ in range(count):
        state ^= state << 13 & 0xFFFFFFFF
        state ^= state >> 17
        state ^= state << 5 & 0xFFFFFFFF
        values.append((low + state % (high - low)) / 128)
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def positive(*shape, seed=0):
    return random(*shape, seed=seed, low=64, high=256)


def classes(*values):
    return torch.tensor(values, dtype=torch.int64)


def stored(tensor):
    dtype = "int32" if tensor.dtype == torch.int64 else str(tensor.dtype).removeprefix("torch.")
    return {"shape": list(tensor.shape), "dtype": dtype, "values": tensor.flatten().tolist()}


def cast(inputs, dtype):
    return {
        name: value.to(dtype) if value.is_floating_point() else value.clone()
        for name, value in inputs.items()
    }
