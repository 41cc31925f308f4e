# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: CheckpointError: torch.utils.checkpoint: A different number of tensors was saved during the original forward and recomputation.
# Number of tensors saved during forward: 8
# Number of tensors saved during recomputation: 4.
#
# Tip: To see a more detailed error message, either pass `debug=True` to
# `torch.utils.checkpoint.checkpoint(...)` or wrap the code block
# with `with torch.utils.checkpoint.set_checkpoint_debug_enabled(True):` to
# enable checkpoint‑debug mode globally.
#
# If this error occurs under torch.compile with automatic_dynamic_shapes enabled,
# it may be because the recomputation selected a different compiled graph than the
# forward pass (e.g., a dynamic graph instead of the original static graph).
# To fix this, either:
#   - Use torch._dynamo.mark_dynamic() to explicitly mark varying dimensions as
#     dynamic upfront, avoiding the static-to-dynamic transition.
#   - Call torch._C._dynamo.eval_frame._set_lru_cache(False) to disable LRU cache
#     reordering, which can change which graph is checked first between forward
#     and recompute.
# See https://github.com/pytorch/pytorch/issues/166926 for more details and
# workaround examples.
# keras 3.15.1 on torch; run: python this_file.py
import sys

import os

os.environ["KERAS_BACKEND"] = "torch"
import keras

seeds = keras.random.SeedGenerator(0)
import numpy as np


class Network(keras.layers.Layer):
    """A layer that calls a function, in the place of an activation."""

    def __init__(self, function):
        super().__init__(name="segment")
        self.activation = function

    def call(self, *values):
        return self.activation(*values)


def in_layer(objective, arguments):
    """What runs within a layer takes its mode from the call of that layer."""
    network = Network(lambda x: objective(x, *arguments[1:]))
    return network(arguments[0], training=True)


def whole(gradients, sources):
    """With zeros for what is missing of a module's gradients, unless all are."""
    if not isinstance(sources, list) or all(g is None for g in gradients):
        return None if isinstance(sources, list) else gradients
    pairs = zip(gradients, sources, strict=True)
    return [keras.ops.zeros_like(s) if g is None else g for g, s in pairs]


def value_of(argument):
    if isinstance(argument, list):
        return [value_of(part) for part in argument]
    return argument.value if isinstance(argument, keras.Variable) else argument


def parameters_of(m):
    return list(m.trainable_variables)


def state_of(m):
    seeds = [v for v in m.non_trainable_variables if "seed_generator" in v.path]
    return [v for v in m.non_trainable_variables if not any(v is s for s in seeds)]


def set_mode(m, train):
    m.mode = train


def built(layer, *shape, operands: int = 1):
    layer(*[keras.ops.ones(shape)] * operands)
    return layer


class Block(keras.layers.Layer):
    """A layer of layers, which take their mode from the call that they are part of."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = list(layers)

    def call(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def of_torch(objective, arguments, trained):
    for index, argument in enumerate(value_of(arguments)):
        for part in argument if isinstance(argument, list) else [argument]:
            part.requires_grad_(index in trained)
            part.grad = None
    loss, outputs = in_layer(objective, arguments)
    if loss.requires_grad:
        loss.backward()
    sources = value_of([arguments[i] for i in trained])
    found = [[p.grad for p in s] if isinstance(s, list) else s.grad for s in sources]
    gradients = [whole(g, s) for g, s in zip(found, sources, strict=True)]
    return loss.detach(), [y.detach() for y in outputs], gradients


x = keras.ops.convert_to_tensor(np.array([[0.1], [-0.1], [0.6], [0.1]], np.float32))
target = keras.ops.convert_to_tensor(np.array([[0.6531474590301514], [0.13543224334716797], [0.5887975692749023], [-0.2458828091621399]], np.float32))


def plain(x, w0):
    v0 = m0(x) if m0.mode else m0(x, training=False)
    return (v0,)


def checkpointed(x, w0):
    def checkpointed_segment_0_1(x):
        v0 = m0(x) if m0.mode else m0(x, training=False)
        return v0
    v0 = keras.remat(checkpointed_segment_0_1)(x)
    return (v0,)


def run(model):
    global m0
    keras.utils.set_random_seed(0), seeds.state.assign([0, 0])
    m0 = built(Block(keras.layers.Dense(1), keras.layers.BatchNormalization()), 2, 1)
    set_mode(m0, True)
    w0 = parameters_of(m0)
    keras.utils.set_random_seed(0), seeds.state.assign([0, 0])

    def objective(x, w0):
        outputs = model(x, w0)
        y = outputs[0]
        return keras.ops.mean((keras.ops.reshape(y, target.shape) - target) ** 2), outputs

    loss, outputs, gradients = of_torch(objective, [x, w0], [1])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of w0"] = gradients[0]
    results["state of m0"] = state_of(m0)
    results["random state"] = seeds.state
    return {name: numbers(value) for name, value in results.items()}


def numbers(value):
    if isinstance(value, (list, tuple)):
        return np.concatenate([np.ravel(part) for part in value] or [[]])
    return np.array(value)


def outcome(model):
    try:
        return run(model)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


plain_results, results = outcome(plain), outcome(checkpointed)
different = []
for name in ["error"] if "error" in plain_results | results else plain_results:
    expected, got = plain_results.get(name), results.get(name)
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    if not np.array_equal(expected, got):
        different.append(name)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
