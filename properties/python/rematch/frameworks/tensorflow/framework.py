"""TensorFlow: `tf.recompute_grad()`, eager and within `tf.function`."""

import os
import re
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.python.eager import context  # noqa: E402

from rematch.frameworks.tensorflow.promises import PROMISES  # noqa: E402
from rematch.frameworks.tensorflow.promises_arguments import gradient as slope, gradients  # noqa: E402
from rematch.frameworks.tensorflow.tensorflow_run import OBSERVED, EagerRun  # noqa: E402
from rematch.subjects.adapter_layers import Module, where_drawn  # noqa: E402
from rematch.subjects.case import Layer  # noqa: E402
from rematch.subjects.framework import COMMON, SEEN, Framework, Pending, Place, Run  # noqa: E402


def gradients_of(tape: Any, loss: Any, sources: Any) -> Any:
    """The gradient of each source, None if it has none. The source of a module is a list."""

    def of_module(found: Any, source: Any) -> Any:
        if all(g is None for g in found):
            return None
        pairs = zip(found, source, strict=True)
        return [tf.zeros_like(v) if g is None else tf.convert_to_tensor(g) for g, v in pairs]

    def of_array(found: Any) -> Any:
        # tf.gather() has gradients that name their rows.
        return tf.convert_to_tensor(found) if isinstance(found, tf.IndexedSlices) else found

    pairs = zip(tape.gradient(loss, sources), sources, strict=True)
    return [of_module(g, s) if isinstance(s, list) else of_array(g) for g, s in pairs]


def differentiate(objective: Any, arguments: Any, trained: Any, backwards: int = 1) -> Any:
    sources = [arguments[i] for i in trained]
    # Without the variables of frozen modules, which count as trainable.
    with tf.GradientTape(persistent=backwards > 1, watch_accessed_variables=False) as tape:
        tape.watch(sources)
        loss, outputs = objective(*arguments)
    found = [gradients_of(tape, loss, sources) for _ in range(backwards)]
    return loss, outputs, found[-1]


def parameters_of(m: Any) -> list[Any]:
    return list(m.trainable_variables)


def state_of(m: Any) -> list[Any]:
    return [v for v in m.variables if not v.trainable]


def set_mode(m: Any, train: bool) -> None:
    m.train = train


class BatchNorm(tf.Module):
    def __init__(self, features: int):
        super().__init__()
        self.scale, self.offset = tf.Variable(tf.ones(features)), tf.Variable(tf.zeros(features))
        self.mean = tf.Variable(tf.zeros(features), trainable=False)
        self.variance = tf.Variable(tf.ones(features), trainable=False)

    def __call__(self, x: Any) -> Any:
        mean, variance = self.mean, self.variance
        if self.train:
            mean, variance = tf.nn.moments(x, [0, *range(2, len(x.shape))])
            self.mean.assign(0.9 * self.mean + 0.1 * mean)
            self.variance.assign(0.9 * self.variance + 0.1 * variance)
        shape = [1, -1] + [1] * (len(x.shape) - 2)
        given = (tf.reshape(v, shape) for v in (mean, variance, self.offset, self.scale))
        return tf.nn.batch_normalization(x, *given, 1e-3)


class SpectralNorm(tf.Module):
    def __init__(self, features: int):
        super().__init__()
        self.weight = tf.Variable(tf.random.normal([features, features]))
        self.u = tf.Variable(tf.ones([features, 1]), trainable=False)

    def __call__(self, x: Any) -> Any:
        v = tf.math.l2_normalize(tf.stop_gradient(tf.transpose(self.weight) @ self.u))
        u = tf.math.l2_normalize(tf.stop_gradient(self.weight @ v))
        if self.train:
            self.u.assign(u)
        return x @ (self.weight / tf.reduce_sum(u * (self.weight @ v)))


class Recurrent(tf.Module):
    def __init__(self, features: int):
        super().__init__()
        self.weight = tf.Variable(tf.random.normal([features, features]))

    def __call__(self, x: Any) -> Any:
        def step(i: Any, h: Any) -> Any:
            return i + 1, tf.tanh(h @ self.weight + x)

        return tf.while_loop(lambda i, h: i < 3, step, (0, tf.zeros_like(x)))[1]


class Owner(tf.Module):
    """A variable, a counter and a generator."""

    def __init__(self, features: int):
        super().__init__()
        self.table = tf.Variable(tf.random.normal([3, features]))
        self.count = tf.Variable(0.0, trainable=False)
        self.generator = tf.random.Generator.from_seed(7)
        self.function = tf.function(lambda x: tf.tanh(x * self.table[0]))


def counted(m: Any, x: Any) -> Any:
    if m.train:
        m.count.assign_add(1.0)
    return x * m.count


def permuted(x: Any) -> Any:
    return tf.gather(x, tf.random.shuffle(tf.range(x.shape[1])), axis=1)


@tf.custom_gradient
def clipped(x: Any) -> Any:
    return tf.identity(x), lambda g: tf.clip_by_value(g, -0.01, 0.01)


def _conv2d(layer: Layer, train: bool) -> str:
    bias = " + tf.reshape({bias}, [1, -1, 1, 1])" if layer.bias else ""
    padding = "[[0, 0], [{padding}, {padding}], [{padding}, {padding}], [0, 0]]"
    return (
        "tf.transpose(tf.nn.conv2d(tf.transpose({x}, [0, 2, 3, 1]), "
        "tf.transpose({weight}, [2, 3, 1, 0]), {stride}, " + padding + "), [0, 3, 1, 2])" + bias
    )


def _pool(name: str, filled: str) -> str:
    padding = "[[0, 0], [{padding}, {padding}], [{padding}, {padding}], [0, 0]]"
    return (
        f"tf.transpose(tf.nn.{name}(tf.pad(tf.transpose({{x}}, [0, 2, 3, 1]), {padding}, "
        f"constant_values={filled}), {{kernel}}, {{stride}}, 'VALID'), [0, 3, 1, 2])"
    )


KINDS = {
    "embedding": "tf.gather({weight}, {x})",
    "linear": lambda layer, train: "{x} @ tf.transpose({weight})" + (" + {bias}" if layer.bias else ""),
    "conv2d": _conv2d,
    "relu": "tf.nn.relu({x})",
    "max_pool2d": _pool("max_pool2d", "float('-inf')"),
    "avg_pool2d": _pool("avg_pool2d", "0.0"),
    "dropout": where_drawn("tf.nn.dropout({x}, {p})"),
    "layer_norm": "tf.nn.batch_normalization({x}, *tf.nn.moments({x}, [-1], keepdims=True), {bias}, {weight}, 1e-5)",
    "rms_norm": "{x} * tf.math.rsqrt(tf.reduce_mean({x} ** 2, -1, keepdims=True) + 1e-5) * {weight}",
    "gelu": "tf.nn.gelu({x})",
    "silu": "tf.nn.silu({x})",
    "tanh": "tf.tanh({x})",
    "sigmoid": "tf.sigmoid({x})",
    "softmax": "tf.nn.softmax({x}, -1)",
    "gaussian_noise": where_drawn("{x} + {p} * tf.random.get_global_generator().normal({x}.shape)"),
    "flatten": "tf.reshape({x}, [{x}.shape[0], -1])",
    "add": "{x} + {y}",
    "mul": "{x} * {y}",
    "concat": "tf.concat([{x}, {y}], {axis})",
    "split": "tf.split({x}, [{features}, {x}.shape[{axis}] - {features}], {axis})",
    "duplicate": "({x}, {x})",
}


def _rows(name: str, call: str, traits: str = "", make: str = "tf.Module()") -> Module:
    return Module(name, "N C -> N C", make, traits, call)


_STATELESS = "tf.nn.experimental.stateless_dropout(x, 0.5, [1, 2]) if m.train else x"
_NUMPY = "x * np.random.binomial(1, 0.5, x.shape) if m.train else x"

MODULES = (
    Module("batch_norm_images", "N C H W -> N C H W", "BatchNorm(C)", "parameters, state"),
    _rows("batch_norm_rows", "m(x)", "parameters, state", "BatchNorm(C)"),
    _rows("spectral_norm", "m(x)", "parameters, state", "SpectralNorm(C)"),
    _rows("while_loop", "m(x)", "parameters", "Recurrent(C)"),
    _rows("embedding", "x + tf.gather(m.table, [1])", "parameters", "Owner(C)"),
    _rows("traced", "m.function(x)", "parameters", "Owner(C)"),
    _rows("counter", "counted(m, x)", "state", "Owner(1)"),
    _rows("generator", "x * m.generator.normal(x.shape) if m.train else x", "draws elsewhere", "Owner(1)"),
    _rows("numpy_dropout", _NUMPY, "draws elsewhere"),
    _rows("stateless_dropout", _STATELESS),
    _rows("clipped_gradient", "clipped(x)"),
    _rows("rounded", "x + tf.stop_gradient(tf.round(x) - x)"),
)
EAGER_MODULES = (_rows("shuffle", "permuted(x) if m.train else x", "draws"),)


class TensorFlow(Framework):
    name = f"tensorflow {tf.__version__}"
    versions = {"tensorflow": tf.__version__, "numpy": np.__version__}
    imports = "import tensorflow as tf"
    script_gradient = """\
with tf.GradientTape() as tape:
    tape.watch({name})
    loss = objective({arguments})
tape.gradient(loss, {name})"""
    helpers = (gradients_of, differentiate, parameters_of, state_of, set_mode)
    helpers += (BatchNorm, SpectralNorm, Recurrent, Owner, counted, permuted, clipped)
    kinds = KINDS
    modules = MODULES + EAGER_MODULES
    losses = {
        "mse": "tf.reduce_mean((tf.reshape(y, target.shape) - target) ** 2)",
        "cross_entropy": "tf.reduce_mean("
        "tf.nn.sparse_softmax_cross_entropy_with_logits("
        "labels=target, logits=tf.reshape(y, [y.shape[0], -1])))",
    }
    features = COMMON | {"retain_graph", "forwards_first", "sequences"}
    observed = SEEN | OBSERVED | {"rng_state", "executions", "absent_gradients"}
    made_line = "made({layer}, {outputs})"
    whole_segments = True
    checkpoint = "tf.recompute_grad({function})({arguments})"
    promises = PROMISES
    promise_helpers = (slope, gradients)
    checkpoint_function = "tf.recompute_grad"
    detach = "tf.stop_gradient({x})"
    sees_draws = True
    script_array = "tf.constant({array})"
    script_parameter = "tf.Variable({array}, trainable=not {frozen})"
    script_random_state = "[tf.random.uniform([]), tf.random.get_global_generator().state]"

    def __init__(self, parameters: str = "variables") -> None:
        """ "variables", or tensors: "arguments" of segments, or parts of their "closure"."""
        self.nested_functions = parameters != "arguments"
        if parameters != "variables":
            self.script_parameter = self.script_array
            self.promises = ()
        if parameters == "arguments":
            # Parameters of a module are variables, which segments close over.
            self.modules = [m for m in self.modules if "parameters" not in m.traits]
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        super().__init__()
        self.names["np"] = np
        self.run_type = EagerRun

    def array(self, a: np.ndarray) -> Any:
        return tf.constant(a)

    def message(self, error: Exception) -> str:
        """Picks the line of an error in a tf.function that says something."""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return [*[s for s in lines if re.match(r"\w*Error: ", s)], *lines, ""][0]

    def parameter(self, a: np.ndarray, frozen: bool) -> Any:
        return eval(self.script_parameter.format(array="a", frozen=frozen))

    def bound(self, module: Any, values: Any) -> list[Any]:
        for variable, value in zip(parameters_of(module), values, strict=True):
            variable.assign(value)
        return parameters_of(module)

    def seed(self, seed: int) -> str:
        return (
            f"tf.random.set_seed({seed}), np.random.seed({seed}), "
            f"tf.random.get_global_generator().reset_from_seed({seed})"
        )

    def random_state(self) -> bytes:
        seeds = repr(context.context()._rng.getstate()).encode()
        return seeds + tf.random.get_global_generator().state.numpy().tobytes()

    def forward(self, run: Run, x: np.ndarray, target: np.ndarray, place: Place) -> Pending:
        assert isinstance(run, EagerRun)
        given, wanted = [self.array(x), *run.parameters], self.array(target)
        sources = [given[i] for i in run.trained]
        run.starts(wanted, given[0])
        with run.watched(), tf.GradientTape(run.request.case.protocol.backwards > 1, False) as tape:
            tape.watch(sources)
            loss, outputs = run.objective(wanted, [], *given)
        run.ends(loss)
        return Pending(place, outputs, loss, sources, [tape])

    def backward(self, run: Run, pending: Pending) -> Any:
        assert isinstance(run, EagerRun)
        found: dict[int, Any] = {}
        for left in reversed(range(run.request.case.protocol.backwards)):
            with run.differentiated():
                gradients = gradients_of(pending.gradients[0], pending.loss, pending.input)
            for index, gradient in zip(run.trained, gradients, strict=True):
                if index and gradient is not None:
                    run.add_gradient(index - 1, gradient)
                elif gradient is not None:
                    found[0] = gradient if 0 not in found else found[0] + gradient
            gradients = gradient = None
            if left:
                run.note_bytes("after_backward", pending.place, retained=True)
        pending.gradients.clear()
        return found.get(0)
