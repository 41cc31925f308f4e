"""Promises that are the same in any framework. `gradients(objective, *numbers)` is the framework's own helper: it makes
arrays of the numbers, and returns the gradients of what `objective` makes of them, None for one that is absent."""

from rematch.subjects.promises import Function


def of_any(names: str) -> tuple[Function, ...]:
    """Those of that names, with spaces between."""
    return tuple(globals()[name] for name in names.split())


def keyword_tensor(checkpoint, gradients):
    """A tensor that is given by keyword gets its gradient."""
    product = checkpoint(lambda x, w: x * w * w)
    return gradients(lambda x, w: product(x, w=w), 2.0, 3.0)


def closed_over(checkpoint, gradients):
    """A tensor that a function closes over gets its gradient."""
    return gradients(lambda x, w: checkpoint(lambda x: x * w * w)(x), 2.0, 3.0)


def none_argument(checkpoint, gradients):
    """An argument may be None, such as an absent mask."""
    return gradients(lambda x: checkpoint(lambda x, mask: x * x if mask is None else x)(x, None), 2.0)


def number_argument(checkpoint, gradients):
    """An argument may be a number of Python."""
    return gradients(lambda x: checkpoint(lambda x, n: x**n)(x, 3), 2.0)


def other_arguments(checkpoint, gradients):
    """Arguments may be numbers, flags, strings and None."""
    power = checkpoint(lambda x, n, flag, name, none: x**n if flag and name == "power" and none is None else x)
    return gradients(lambda x: power(x, 3, True, "power", None), 2.0)


def dictionary_argument(checkpoint, gradients):
    """Tensors in a dictionary get their gradients."""
    product = checkpoint(lambda named: named["a"] * named["b"])
    return gradients(lambda x: product({"a": x, "b": x * x}), 2.0)


def same_argument_twice(checkpoint, gradients):
    """A tensor given twice gets the sum of both gradients."""
    return gradients(lambda x: checkpoint(lambda a, b: a * b * b)(x, x), 2.0)


def returns_same_twice(checkpoint, gradients):
    """A function may return one tensor twice, and its argument; all gradients count."""

    def several(x):
        y = x * x
        return y, y, x

    def loss(x):
        a, b, c = checkpoint(several)(x)
        return 2 * a + 5 * b + 7 * c

    return gradients(loss, 2.0)


def input_handed_on(checkpoint, gradients):
    """A function may return its input beside its result."""

    def loss(x):
        a, b = checkpoint(lambda x: (x * x, x))(x * 1)
        return 2 * a + 5 * b

    return gradients(loss, 2.0)


def none_returned(checkpoint, gradients):
    """A function may return None beside a tensor, as attention without weights does."""
    seen = []

    def loss(x):
        y, none = checkpoint(lambda x: (x * x, None))(x)
        seen.append(none is None)
        return y

    return [*gradients(loss, 2.0), *seen]


def dictionary_returned(checkpoint, gradients):
    """A function may return a dictionary of tensors."""

    def loss(x):
        made = checkpoint(lambda x: {"a": x * x, "b": x * 1})(x)
        return made["a"] * made["b"]

    return gradients(loss, 2.0)


def unused_output(checkpoint, gradients):
    """An output that nothing uses adds nothing to gradients, even where its derivative is infinite."""
    return gradients(lambda x: checkpoint(lambda x: (x * 2, x**0.5))(x)[0], 0.0)


def error_passes(checkpoint, gradients):
    """An error in a checkpointed function comes through as it is, and leaves nothing behind."""

    def fails(x):
        raise KeyError("mine")

    try:
        gradients(lambda x: checkpoint(fails)(x), 2.0)
    except KeyError as error:
        said = str(error) == "'mine'"
    return [said, *gradients(lambda x: checkpoint(lambda x: x * x)(x), 2.0)]
