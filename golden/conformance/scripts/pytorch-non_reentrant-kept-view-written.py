# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: An error is raised if a saved view is mutated. Not so (mutated_views): RuntimeError expected, nothing was raised
# torch 2.15.0+cu132; run: python this_file.py
import torch
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from torch import Tensor
from torch.utils import checkpoint as api
from typing import Any

BOTH = (True, False)


def leaf(*values: float, grad: bool = True) -> Tensor:
    """A tensor of these elements, of three without any."""
    return torch.tensor(values or (0.3, -0.7, 1.1), dtype=torch.float32, requires_grad=grad)


class Broken(Exception):
    """A promise is not kept; the text says in which way."""


def equal(got: Any, wanted: Any, what: str) -> None:
    """Tensors are compared to the bit."""
    if isinstance(wanted, Tensor):
        same = isinstance(got, Tensor) and got.dtype == wanted.dtype and torch.equal(got, wanted)
    else:
        same = type(got) is type(wanted) and got == wanted
    # Printing tensors takes longer than all the rest.
    if not same:
        raise Broken(f"{what}: {wanted!r} expected, got {got!r}")


def gradient(output: Tensor, *inputs: Tensor, **options: Any) -> Any:
    """Of the sum of the output; a tuple of several."""
    found = torch.autograd.grad(output.sum(), inputs, **options)
    return found[0] if len(inputs) == 1 else found


def contexts() -> None:
    """The function runs under the first, the recomputation under the second context that context_fn
    returns."""
    entered: list[str] = []

    class Context:
        def __init__(self, name: str) -> None:
            self._name = name

        def __enter__(self) -> None:
            entered.append(self._name)

        def __exit__(self, *_: Any) -> None:
            entered.append(f"end of {self._name}")

    def function(x: Tensor) -> Tensor:
        entered.append("runs")
        return x.sin()

    def pair() -> Any:
        entered.append("asked")
        return Context("first"), Context("second")

    x = leaf()
    for stop in BOTH:
        entered.clear()
        out = api.checkpoint(function, x, use_reentrant=False, context_fn=pair, early_stop=stop)
        equal(
            entered, ["asked", "first", "runs", "end of first"], "order of events in the forward"
        )
        equal(gradient(out, x), x.cos().detach(), "gradient")
        equal(entered[4:], ["second", "runs", "end of second"], "order of events in the backward")
    for context in api.noop_context_fn():
        with context as nothing:
            equal(nothing, None, "what the default context gives")


def selective(policy: Any, function: Any, *inputs: Any, mutated: Any = None, **options: Any) -> Any:
    """What checkpoint() returns of `function` under a policy, or under a list of operators that are
    kept. `mutated`: kept results may be written to."""
    contexts = partial(api.create_selective_checkpoint_contexts, policy)
    if mutated is not None:
        contexts = partial(contexts, allow_cache_entry_mutation=mutated)
    return api.checkpoint(function, *inputs, use_reentrant=False, context_fn=contexts, **options)


class Caught:
    """What a scope of raises() ended with."""

    error: BaseException


def expect(holds: Any, otherwise: str) -> None:
    """`otherwise` says what is wrong unless it holds."""
    if not holds:
        raise Broken(otherwise)


def said(text: str, *words: str) -> None:
    """The text has all those words, in that order."""
    rest = text
    for word in words:
        expect(word in rest, f"{word!r} expected in: {text}")
        rest = rest.partition(word)[2]


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


@contextmanager
def raises(kind: type[BaseException], *words: str) -> Iterator[Caught]:
    """The scope raises an error of exactly that kind, with those words in that order."""
    caught = Caught()
    try:
        yield caught
    except Broken:
        raise
    except BaseException as error:
        # Frames of the error would keep alive what they hold.
        caught.error = error.with_traceback(None)
        expect(type(error) is kind, f"{kind.__name__} expected, got {_told(error)}")
        said(str(error), *words)
    else:
        raise Broken(f"{kind.__name__} expected, nothing was raised")


_ATEN = torch.ops.aten


def mutated_views() -> None:
    """An error is raised if a saved view is mutated."""
    kept: list[Tensor] = []

    def function(x: Tensor) -> Tensor:
        kept.append((x * 2).view(3, 1))
        return kept[0].sin()

    out = selective([_ATEN.view.default], function, x := leaf())
    with torch.no_grad():
        kept[0].add_(1)
    with raises(RuntimeError, "has been mutated"):
        gradient(out, x)


warnings.simplefilter("ignore")
try:
    mutated_views()
except Exception as error:
    raise SystemExit(f"NOT KEPT: {type(error).__name__}: {error}")
print("kept")
