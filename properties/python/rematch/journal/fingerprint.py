"""Fingerprints of tensors, computed where the tensor lies and without waiting for it."""

from collections import defaultdict

import torch
from torch import Tensor

COLUMNS = 1024
"""The number of words in a row: long tensors are laid out in rows."""
SHORT = 2 * COLUMNS
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Fingerprints:
    """Computes fingerprints. One is the sum of a tensor's words modulo 2^64, each times an odd weight for its position.

    Rows of a long tensor are summed in this way first, and these sums are taken as words. Devices whose libraries have
    no products of integers sum rows and columns instead. Neither needs a second tensor of its size. A single changed
    element is always seen. Elements are read in order, so layout and storage do not matter. -0 differs from 0, and a
    NaN is compared by its bits.
    """

    def __init__(self) -> None:
        self._weights: dict[torch.device, Tensor] = {}
        self._parts: dict[tuple[torch.device, int], Tensor] = {}

    def of(self, flat: Tensor) -> Tensor:
        """Returns the fingerprint of `flat`, which flattened() has made: an int64 without dimensions on its device."""
        words = self.shortened(flat)
        return (words * self._for(flat.device, words.numel())).sum()

    def shortened(self, flat: Tensor) -> Tensor:
        """Returns words that have the fingerprint of `flat`, at most SHORT of them; they may be part of `flat`."""
        words = _words(flat)
        while words.numel() > SHORT:
            rows = words.numel() // COLUMNS
            grid, rest = words[: rows * COLUMNS].view(rows, COLUMNS), words[rows * COLUMNS :].to(torch.int64)
            if words.is_cpu:
                sums = (grid.to(torch.int64) @ self._for(flat.device, COLUMNS),)
            else:
                sums = grid.sum(0), grid.sum(1)
            words = torch.cat((*sums, rest))
        return words

    def of_all(self, flats: list[Tensor]) -> list[Tensor]:
        """Returns the fingerprints of many tensors, as of() does: those that have as many words at once."""
        found: list[Tensor | None] = [None] * len(flats)
        alike: dict[tuple[torch.device, torch.dtype, int], list[tuple[int, Tensor]]] = defaultdict(list)
        for i, flat in enumerate(flats):
            words = self.shortened(flat)
            alike[words.device, words.dtype, words.numel()].append((i, words))
        for (device, _, count), those in alike.items():
            sums = (torch.stack([words for _, words in those]) * self._for(device, count)).sum(1)
            for (i, _), one in zip(those, sums.unbind(), strict=True):
                found[i] = one
        return found  # type: ignore[return-value]

    def _for(self, device: torch.device, count: int) -> Tensor:
        known = self._parts.get((device, count))
        if known is None:
            known = self._parts[device, count] = self._all(device)[:count]
        return known

    def _all(self, device: torch.device) -> Tensor:
        if device not in self._weights:
            # A generator of its own: random states of the training stay as they are.
            own = torch.Generator("cpu").manual_seed(1)
            drawn = torch.randint(-(2**62), 2**62, (SHORT,), generator=own, device="cpu", dtype=torch.int64)
            self._weights[device] = (2 * drawn + 1).to(device)
        return self._weights[device]


def flattened(t: Tensor) -> Tensor:
    """Returns the elements in order, as a view if possible."""
    t = t.detach()
    if t.is_complex():
        t = torch.view_as_real(t.resolve_conj())
    if t.is_neg():
        t = t.resolve_neg()
    flat = t.reshape(-1)
    # Elements of an expanded tensor, or every second one, do not lie in a row.
    return flat if flat.is_contiguous() else flat.contiguous()


def bits(flat: Tensor) -> Tensor:
    """Returns the elements as integers, for comparison: a NaN equals itself."""
    return flat.view(_WORDS[flat.element_size()])


def _words(flat: Tensor) -> Tensor:
    if flat.numel() * flat.element_size() % 8:
        return bits(flat)
    if flat.storage_offset() * flat.element_size() % 8:
        flat = flat.clone()
    return flat.view(torch.int64)
