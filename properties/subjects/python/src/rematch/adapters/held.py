"""What the functions of scripts close over, for libraries that look into modules."""

from __future__ import annotations

from torch import Tensor, nn


def held_by(function):
    held = []
    for cell in function.__closure__ or ():
        part = cell.cell_contents
        if isinstance(part, (Tensor, nn.Module)):
            held.append(part)
        elif hasattr(part, "__closure__"):
            held += held_by(part)
    return held
