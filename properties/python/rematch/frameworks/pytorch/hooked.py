"""A hook that a forward registers.

Scripts show this source, so it uses nothing but PyTorch.
"""


def hooked(x, factor):
    """A copy of x, with a hook that multiplies its gradient."""
    y = x.clone()
    if y.requires_grad:
        y.register_hook(lambda gradient: factor * gradient)
    return y
