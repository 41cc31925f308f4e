"""Modules whose states change in the backward, or between it and the forward, or stay changed after early stop; and
those that lose gradients where what they return is not the reason."""

import queue

import torch
from modules import Inner, given, linear, planted
from planted_computations import ids
from torch import nn
from torch.utils.checkpoint import checkpoint


@planted("changed-in-backward")
class Feedback(Inner):
    """A hook of the backward changes the scale before the recomputation reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(()))

    def see(self, gradient):
        self.scale = 0.5 * self.scale + 0.5 / (1 + gradient.detach().norm())

    def forward(self, x):
        y = torch.tanh(self.inner(x) * self.scale)
        if y.requires_grad:
            y.register_hook(self.see)
        return y


@planted("changed-in-backward", lambda: given(torch.randn(3, 4).requires_grad_()))
def steps_in_backward():
    layer = nn.Linear(4, 4)

    def step(parameter):
        with torch.no_grad():
            parameter -= 0.5 * parameter.grad
        parameter.grad = None

    for parameter in layer.parameters():
        parameter.register_post_accumulate_grad_hook(step)

    def model(x):
        for _ in range(3):
            x = checkpoint(lambda y: layer(y).tanh(), x, use_reentrant=True)
        return x

    return model


@planted("changed-in-backward")
def reads_gradient(self, x):
    gradient = self.inner.weight.grad
    return (self.inner(x) * (1.0 if gradient is None else 1 / (1 + gradient.norm()))).tanh()


@planted("changed-before-backward")
def exchanges_weights_for_a_forward():
    """functional_call() puts the weights back before the backward."""

    class Checkpoints(Inner):
        def forward(self, x):
            return checkpoint(lambda y: self.inner(y).tanh(), x, use_reentrant=False)

    module, weight = Checkpoints(), nn.Parameter(torch.randn(4, 4))
    return lambda x: torch.func.functional_call(module, {"inner.weight": weight * 2}, (x,))


def halve(t):
    return t.half() if t.dtype == torch.float32 else t


def unhalve(t):
    return t.float() if t.dtype == torch.float16 else t


@planted("hooks-change-values")
class Halves(Inner):
    pack, unpack = staticmethod(halve), staticmethod(unhalve)

    def forward(self, x):
        with torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack):
            return checkpoint(lambda y: self.inner(y.sin()).tanh(), self.inner(x), use_reentrant=False)


@planted("early-stop", active=False)
def sets_flag(self, x):
    first, self.active = not self.active, True
    y = self.inner(x).tanh()
    y = y.exp() if first else y.sin()
    self.active = False
    return y


def noise():
    made = queue.Queue()
    for _ in range(50):
        made.put(torch.randn(4))
    return made


@planted("iterator", noises=noise)
def takes_from_queue(self, x):
    return (self.inner(x) + self.noises.get()).tanh()


class Keys:
    """A cache of keys, as an object."""

    keys: torch.Tensor | None = None

    def update(self, keys):
        self.keys = keys if self.keys is None else torch.cat([self.keys, keys])
        return self.keys


@planted("argument-cache", lambda: given(torch.randn(3, 4), Keys()))
def attends_to_object(self, x, cache):
    keys = cache.update(self.inner(x))
    return torch.softmax(x @ keys.t(), -1) @ keys


@planted("carried-state", cache=Keys)
def attends_to_own(self, x):
    """In a reentrant checkpoint its keys have no gradient, too."""
    keys = self.cache.update(self.inner(x))
    return torch.softmax(x @ keys.t(), -1) @ keys


@planted("closure-changed")
def closes_over_object(self, x):
    """Two functions deep."""
    cache = Keys()
    inner = lambda y: torch.softmax(y @ cache.update(self.inner(y)).t(), -1) @ cache.keys  # noqa: E731
    outer = lambda y, function=inner: function(y)  # noqa: E731
    for _ in range(2):
        x = checkpoint(outer, x, use_reentrant=False)
    return x


@planted("side-output")
class RecordsRouter(Inner):
    recording = False

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.logits = nn.Linear(4, 4), None
        self.gate.register_forward_hook(lambda module, args, y: self.logits.append(y) if self.recording else None)

    def block(self, x):
        return x + self.inner(x) * self.gate(x).softmax(-1)

    def forward(self, x):
        self.logits, self.recording = [], True
        y = checkpoint(self.block, x.requires_grad_() if x.is_leaf else x, use_reentrant=True)
        logits, self.logits, self.recording = self.logits, None, False
        return {"y": y, "auxiliary": torch.stack(logits).square().mean()}


@planted("no-input-requires-grad", ids, embedding=lambda: nn.Embedding(5, 4).requires_grad_(False))
def frozen_embedding(self, ids):
    """What is lost behind it shows in outputs within containers."""
    x = checkpoint(self.inner, self.embedding(ids), use_reentrant=True)
    return {"logits": x.tanh(), "hidden": [x]}


@planted("switch-cuts-graph", last=linear, gradient_checkpointing=True)
def cuts(self, x):
    if not self.gradient_checkpointing:
        return self.last(self.inner(x))
    x = checkpoint(self.inner, x.detach(), use_reentrant=False)
    return checkpoint(self.last, x.detach(), use_reentrant=False)


@planted("left-by-earlier-forward", last=lambda: nn.Buffer(torch.zeros(())))
def notes_its_mean(self, x):
    y = self.inner(x).tanh()
    self.last.copy_(y.detach().mean())
    return y.exp()


@planted("returned-then-changed")
def returns_what_it_collects(self, x):
    past = []

    def block(y):
        past.append(y.detach())
        return self.inner(y).tanh()

    return checkpoint(block, x, use_reentrant=False), past
