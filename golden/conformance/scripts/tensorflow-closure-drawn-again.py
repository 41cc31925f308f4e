# dropout-masks: A recomputation of a random layer draws what its forward drew, and every forward draws what the plain run drew.
# at: step 0, microbatch 0, layer 0 (dropout), execution 1
# expected: 2 elements from offset 0, hash 0x95e0c70caf8cc336
# got: 2 elements from offset 0, hash 0xfb34657ab5e1f0e4
# tensorflow 2.21.0; run: python this_file.py
import sys

import tensorflow as tf
import numpy as np


x = tf.constant(np.array([[0.1], [-0.1]], np.float32))
target = tf.constant(np.array([[0.9805089235305786], [-0.7721356749534607]], np.float32))


def plain(x):
    v0 = tf.nn.dropout(x, 0.5)
    return (v0,)


def checkpointed(x):
    def checkpointed_segment_0_1(x):
        v0 = tf.nn.dropout(x, 0.5)
        return v0
    v0 = tf.recompute_grad(checkpointed_segment_0_1)(x)
    return (v0,)


def run(model):
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)

    def objective(x):
        y = model(x)[0]
        return tf.reduce_mean((tf.reshape(y, target.shape) - target) ** 2)

    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = objective(x)
    return np.array(tape.gradient(loss, x)).tolist()


expected, got = run(plain), run(checkpointed)
different = repr(expected) != repr(got)
print(f"gradient of x\n  expected      {str(expected)[:999]}\n  checkpointed  {str(got)[:999]}")
print("DIFFERENT: gradient of x" if different else "same")
sys.exit(1 if different else 0)
