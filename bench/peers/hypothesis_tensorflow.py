"""TensorFlow's tf.recompute_grad() under Hypothesis, with layers of Keras:
hypothesis_tensorflow.py --help"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from gradients import SAFE, Case, Layer, Meeting, Peer, main  # noqa: E402

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
nn = tf.keras.layers


class Traced(nn.Dense):
    """Compiled by the user, as a part that is called often."""

    def __init__(self, units: int) -> None:
        super().__init__(units)
        self.traced = tf.function(super().call)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.traced(x)


def make(layer: Layer) -> tf.keras.layers.Layer:
    return {
        "linear": lambda: nn.Dense(layer.outputs),
        "conv": lambda: nn.Conv2D(layer.outputs, 3, padding="same"),
        "relu": nn.ReLU,
        "gelu": lambda: nn.Activation("gelu"),
        "tanh": lambda: nn.Activation("tanh"),
        "layer_norm": nn.LayerNormalization,
        "pool": lambda: nn.MaxPool2D(2),
        "flatten": nn.Flatten,
        "dropout": lambda: nn.Dropout(0.25),
        "spectral_norm": lambda: nn.SpectralNormalization(nn.Dense(layer.outputs)),
        "traced": lambda: Traced(layer.outputs),
        "batch_norm": nn.BatchNormalization,
    }[layer.kind]()


def run(case: Case, checkpointed: bool) -> list[np.ndarray]:
    tf.keras.utils.set_random_seed(case.seed)
    layers = [make(layer) for layer in case.layers]
    value = case.input()
    if value.ndim == 4:
        value = value.transpose(0, 2, 3, 1)
    x = leaf = tf.constant(value)
    # Layers of Keras make their weights in their first call.
    for layer in layers:
        x = layer(x, training=False)
    variables = [v for layer in layers for v in layer.trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch(leaf)
        x = leaf
        for begin, end in case.segments:

            def segment(x, layers=layers[begin:end]):
                for layer in layers:
                    x = layer(x, training=True)
                return x

            call = tf.recompute_grad(segment) if checkpointed else segment
            if checkpointed and case.options["nested"]:
                call = tf.recompute_grad(call)
            x = call(x)
        loss = tf.reduce_sum(x**2)
    gradients = tape.gradient(loss, [leaf, *variables])
    return [np.zeros(0) if t is None else t.numpy() for t in (loss, *gradients)]


main(
    Peer(
        {"tensorflow": tf.__version__, "keras": tf.keras.__version__},
        run,
        [*SAFE, "dropout", "batch_norm"],
        {"nested": [False, True]},
        {
            "drawn-again": Meeting(["dropout"]),
            "statistics-twice": Meeting(["batch_norm"]),
            "state-read-after-it-moved": Meeting(["spectral_norm"]),
            "variables-of-a-traced-function": Meeting(["traced"]),
            "needless-recomputation": Meeting(options={"nested": [True]}),
        },
    )
)
