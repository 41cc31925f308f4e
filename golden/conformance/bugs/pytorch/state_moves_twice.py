"""torch.compile: whether a checkpoint updates running statistics once or twice depends on where the graph breaks.

In one graph a recomputation writes to no buffer. A segment that is compiled by itself within checkpoint(), or one with a graph
break, is recomputed as a whole: it updates once more, and if its output depends on that state, gradients belong to another
function than the output.

severity: silent, other statistics, wrong gradients
promise: none; of an eager checkpoint the docstring says that a function that is another one in the backward may lead "to
    silently incorrect gradients". In one graph, statistics are those without a checkpoint
cause: torch/utils/checkpoint.py: calls the compiled code once more, with its writes; the partitioner of one graph does not
"""

import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

x = torch.ones(2, 1, requires_grad=True)


def plain(segment, x, use_reentrant):
    return segment(x)


def is_wrong(name, run, compiled, breaks=False):
    norm, scale = nn.BatchNorm1d(1), torch.ones(())

    def segment(x):
        if breaks:
            torch._dynamo.graph_break()
        y = norm(x) + x  # which is x: all rows are alike
        return (y * scale.mul_(2)).sin() if compiled == "segment" else y.sin()

    def model(x):
        inner = torch.compile(segment, backend="aot_eager") if compiled == "segment" else segment
        return run(inner, x, use_reentrant=False)

    torch._dynamo.reset()
    y = (torch.compile(model, backend="aot_eager") if compiled == "model" else model)(x)
    factor = scale.item()
    got = [torch.autograd.grad(y.sum(), x)[0][0].item(), norm.num_batches_tracked.item()]
    expected = [factor * torch.tensor(factor).cos().item(), 1]
    wrong = not torch.allclose(torch.tensor(got), torch.tensor(expected))
    print(f"{name}: {'WRONG' if wrong else 'right'}: gradient and updates {got}, expected {expected}")
    return wrong


is_wrong("control: one graph", checkpoint, "model")
is_wrong("control: no checkpoint", plain, "segment")
wrong = is_wrong("a graph break in the segment", checkpoint, "model", breaks=True)
wrong |= is_wrong("the segment is compiled, the checkpoint is not", checkpoint, "segment")
sys.exit(wrong)
