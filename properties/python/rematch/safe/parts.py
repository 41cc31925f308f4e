"""Takes tensors of other layouts apart into strided ones, whose elements can all be compared."""

import torch
from torch import Tensor

_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


def strided_parts(t: Tensor) -> list[Tensor] | None:
    """Returns the strided tensors that hold the elements of `t`; None if `t` is strided itself, or holds none."""
    if t.device.type == "meta":
        return None
    if t.is_nested:
        return list(t.unbind())
    if t.layout == torch.sparse_coo:
        # An uncoalesced tensor has many forms.
        whole = t.coalesce()
        return [whole.indices(), whole.values()]
    if t.layout in _COMPRESSED:
        return [*(getattr(t, name)() for name in _COMPRESSED[t.layout]), t.values()]
    if t.layout != torch.strided:
        return [t.to_dense()]
    return [t.int_repr(), t.dequantize()] if t.is_quantized else None


def memory_of(t: Tensor) -> Tensor:
    """Returns each element in memory once if elements of `t` share memory, as expand() makes them do; else `t`."""
    if t.layout != torch.strided or t.is_nested or 0 not in t.stride() or t.numel() == 0:
        return t
    once = [n if stride else 1 for n, stride in zip(t.shape, t.stride(), strict=True)]
    return t.as_strided(once, t.stride())
