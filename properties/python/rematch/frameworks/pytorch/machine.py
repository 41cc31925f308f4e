"""The machine as PyTorch uses it: its instructions, and memory that an operator did not write."""

import ctypes
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

_FLAGS = {"NaN": "junk", "zeros": "zero"}
"""What the allocator fills each block with, and the flag of c10 for it. Read as another dtype, the NaN are large
numbers."""


def instructions() -> dict[str, str]:
    """The instruction sets that ATen and oneDNN use here: {"ATen": "AVX2", "oneDNN": "Intel AVX2"}. oneDNN is
    left out where it does not tell."""
    used = {"ATen": torch.backends.cpu.get_cpu_capability()}
    if told := re.search(r"info,cpu,isa:(.*)", _told_by_onednn()):
        used["oneDNN"] = told[1].strip()
    return used


@cache
def _told_by_onednn() -> str:
    """What oneDNN prints about itself when it runs a convolution, once in a process."""
    if not torch.backends.mkldnn.is_available():
        return ""
    one = torch.zeros(1, 1, 1, 1)
    with tempfile.TemporaryFile() as file:
        # It prints to file descriptor 1, whatever sys.stdout is.
        stdout = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
                torch.mkldnn_convolution(one, one, None, [0, 0], [1, 1], [1, 1], 1)
        finally:
            ctypes.CDLL(None).fflush(None)
            os.dup2(stdout, 1)
            os.close(stdout)
        file.seek(0)
        return file.read().decode(errors="replace")


class Unwritten:
    """Fills memory when it is allocated: with NaN in the first run of a case, with zeros in the second, and so on in
    turns. So runs that should be equal differ where a result depends on memory that no operator wrote. By themselves they
    rarely do, because small blocks are used again in the same order.

    Only c10's allocator is asked, from which tensors and the scratchpads of oneDNN come; other memory of libraries
    is as it is.
    """

    def __init__(self) -> None:
        self._flags = _flags_of_c10()
        self._case: Any = None
        self._runs = 0

    @property
    def fills(self) -> bool:
        """Whether this build of PyTorch can fill memory that is allocated."""
        return bool(self._flags)

    @contextmanager
    def filled(self, case: Any) -> Iterator[None]:
        """A scope around one run of the case."""
        self._runs = self._runs + 1 if case == self._case else 0
        self._case = case
        if not self.fills:
            yield
            return
        flag = self._flags[self._runs % len(self._flags)]
        flag.value = True
        try:
            yield
        finally:
            flag.value = False


def _flags_of_c10() -> list[Any]:
    """The flags, in the order of _FLAGS; none where this build of PyTorch does not show them."""
    libraries = Path(torch.__file__).parent.glob("lib/libc10.*")
    for library in libraries:
        try:
            c10 = ctypes.CDLL(str(library))
            return [ctypes.c_bool.in_dll(c10, f"FLAGS_caffe2_cpu_allocator_do_{flag}_fill") for flag in _FLAGS.values()]
        except (OSError, ValueError):
            continue
    return []


unwritten = Unwritten()
"""Of this process, as c10's flags are."""
