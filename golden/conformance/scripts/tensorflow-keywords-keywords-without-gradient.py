# absent-gradients: A gradient is absent (None, not zero) exactly where it is absent in the plain run, and where the forecast says so.
# at: step 0, microbatch 0, gradient of the model input
# expected: present (forecast: present)
# got: absent
# tensorflow 2.21.0; run: python this_file.py
import sys

import tensorflow as tf
import numpy as np


x = tf.constant(np.array([[0.1], [-0.1], [0.6], [0.1], [-0.5]], np.float32))
target = tf.constant(np.array([[3.0], [-3.0], [-3.0], [0.0], [-3.0]], np.float32))


def plain(x):
    v0 = x * x
    return (v0,)


def checkpointed_segment_0_1(x):
    v0 = x * x
    return v0


def checkpointed(x):
    v0 = tf.recompute_grad(checkpointed_segment_0_1)(x=x)
    return (v0,)


def run(model):
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)

    def objective(x):
        y = model(x)[0]
        return tf.reduce_mean((tf.reshape(y, target.shape) - target) ** 2)

    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = objective(x)
    return tape.gradient(loss, x) is not None


expected, got = run(plain), run(checkpointed)
different = repr(expected) != repr(got)
print(f"gradient of x is not None\n  expected      {str(expected)[:999]}\n  checkpointed  {str(got)[:999]}")
print("DIFFERENT: gradient of x is not None" if different else "same")
sys.exit(1 if different else 0)
