"""Random models through torch.utils.checkpoint, the way a user would do it with Hypothesis.

The same kind of case as `rematch check --mix standard`: half small MLPs, half small CNNs, one
plain and one checkpointed run, gradients and RNG state compared. Prints cases per second as JSON.

Usage: hypothesis_torch.py [CASES] [THREADS]
"""
import json
import sys
import time
import warnings

import torch
from hypothesis import HealthCheck, given, seed, settings, strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

warnings.filterwarnings("ignore")
CASES = int(sys.argv[1]) if len(sys.argv) > 1 else 300
torch.set_num_threads(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
done = 0


def mlp(draw):
    width = draw(st.integers(1, 32))
    x = torch.randn(draw(st.integers(1, 8)), width)
    layers = []
    for _ in range(draw(st.integers(1, 10))):
        kind = draw(st.sampled_from(["linear", "relu", "dropout", "layernorm", "gelu", "tanh"]))
        if kind == "linear":
            out = draw(st.integers(1, 32))
            layers.append(nn.Linear(width, out))
            width = out
        elif kind == "dropout":
            layers.append(nn.Dropout(draw(st.sampled_from([0.1, 0.25, 0.5]))))
        elif kind == "layernorm":
            layers.append(nn.LayerNorm(width))
        else:
            layers.append({"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh}[kind]())
    return layers, x


def cnn(draw):
    channels, side = draw(st.integers(1, 4)), draw(st.sampled_from([4, 8]))
    x = torch.randn(draw(st.integers(1, 8)), channels, side, side)
    layers = []
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["conv", "relu", "pool", "batchnorm", "dropout"]))
        if kind == "conv":
            out = draw(st.integers(1, 8))
            layers.append(nn.Conv2d(channels, out, 3, padding=1))
            channels = out
        elif kind == "relu":
            layers.append(nn.ReLU())
        elif kind == "pool" and side >= 4:
            layers.append(nn.MaxPool2d(2))
            side //= 2
        elif kind == "batchnorm":
            layers.append(nn.BatchNorm2d(channels))
        else:
            layers.append(nn.Dropout(0.25))
    return layers + [nn.Flatten(), nn.Linear(channels * side * side, 4)], x


@st.composite
def cases(draw):
    number = draw(st.integers(0, 2**31 - 1))
    torch.manual_seed(number)
    layers, x = (mlp if draw(st.booleans()) else cnn)(draw)
    return number, nn.Sequential(*layers), x, draw(st.integers(1, len(layers)))


@seed(1)
@settings(max_examples=CASES, deadline=None, database=None,
          suppress_health_check=list(HealthCheck))
@given(cases())
def rematch(case):
    global done
    number, model, x, segments = case

    def run(checkpointed):
        torch.manual_seed(number)
        model.zero_grad(set_to_none=True)
        leaf = x.clone().requires_grad_()
        y = checkpoint_sequential(model, segments, leaf) if checkpointed else model(leaf)
        y.square().sum().backward()
        return [leaf.grad] + [p.grad for p in model.parameters()], torch.get_rng_state()

    (plain, state), (again, state_again) = run(False), run(True)
    assert all(torch.equal(a, b) for a, b in zip(plain, again))
    assert torch.equal(state, state_again)
    done += 1


start = time.perf_counter()
rematch()
seconds = time.perf_counter() - start
print(json.dumps({"torch": torch.__version__, "cases": done, "seconds": round(seconds, 3),
                  "cases_per_second": round(done / seconds, 1)}))
