"""Which memory of PyTorch's is live, and what a graph keeps of it."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef


class Kept:
    """A tensor that a graph keeps: counted from when it is packed until the graph lets go of it."""

    __slots__ = ("__weakref__", "_count", "_name", "value")

    def __init__(self, value: Any, count: dict[int, list[int]], name: int, size: int) -> None:
        self.value = value
        self._count = count
        self._name = name
        entry = count.setdefault(name, [0, size])
        entry[0] += 1

    def __del__(self) -> None:
        entry = self._count[self._name]
        entry[0] -= 1
        if entry[0] == 0:
            del self._count[self._name]

    def unpack(self) -> Any:
        return self.value


class Memory:
    """Names every storage that it is shown, once, and counts the bytes of those that are live.

    The memory of the model and of its inputs has the name 0; saved() does not count it.
    """

    def __init__(self) -> None:
        # A weak reference keeps the address from being given to another storage.
        self._known: dict[int, tuple[StorageWeakRef, int, int]] = {}
        # Of these alone bytes are counted: a model may have many tensors.
        self._made: dict[int, tuple[StorageWeakRef, int]] = {}
        self._inputs: set[int] = set()
        self._names = 0
        self._saved: dict[int, list[int]] = {}
        self._offloaded: dict[int, list[int]] = {}

    def belongs_to_model(self, tensors: Iterable[Tensor]) -> None:
        """Gives the name 0 to their memory."""
        for t in tensors:
            storage = t.untyped_storage()
            self._known[storage._cdata] = (StorageWeakRef(storage), 0, 0)
            self._made.pop(storage._cdata, None)

    def enters(self, tensors: Iterable[Tensor]) -> None:
        """Hands inputs to a forward: they count as the model's, but must be freed by the end of their backward."""
        tensors = list(tensors)
        self.belongs_to_model(tensors)
        for t in tensors:
            storage = t.untyped_storage()
            self._made[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
            self._inputs.add(storage._cdata)

    def name(self, t: Tensor) -> tuple[int, int]:
        """The name of a tensor's memory, and its size in bytes."""
        storage = t.untyped_storage()
        known = self._known.get(storage._cdata)
        if known is None:
            self._names += 1
            known = (StorageWeakRef(storage), self._names, storage.nbytes())
            self._known[storage._cdata] = known
            self._made[storage._cdata] = known[0], known[2]
        return known[1], known[2]

    def keep(self, t: Tensor, value: Any, offloaded: bool = False) -> Kept:
        """Counts `t` until what is returned is gone, which holds `value`."""
        name, size = self.name(t)
        return Kept(value, self._offloaded if offloaded else self._saved, name, size)

    def saved(self, offloaded: bool = False) -> int:
        """Bytes that graphs keep now."""
        counts = self._offloaded if offloaded else self._saved
        return sum(size for _, size in counts.values())

    def held(self, inputs: bool = True) -> int:
        """Bytes of all memory that was named and is live, but for what belongs to the model. `inputs`: those
        of forwards are among it."""
        gone = [at for at, (reference, _) in self._made.items() if reference.expired()]
        for at in gone:
            del self._made[at], self._known[at]
            self._inputs.discard(at)
        return sum(size for at, (_, size) in self._made.items() if inputs or at not in self._inputs)
