# dropout-masks: A recomputation of a random layer draws what its forward drew, and every forward draws what the plain run drew.
# at: step 0, microbatch 0, layer 1 (dropout), execution 1
# expected: 5 elements from offset 0, hash 0x2aa1be392a3404f9
# got: 5 elements from offset 0, hash 0x9c38f07c4b41d816
# tensorflow 2.21.0; run: python this_file.py
import sys

import tensorflow as tf
import numpy as np


x = tf.constant(np.array([[0.1], [-0.1], [0.6], [0.1], [-0.5]], np.float32))
target = tf.constant(np.array([[3.0], [-3.0], [-3.0], [0.0], [-3.0]], np.float32))
weight0 = tf.constant(np.array([[0.4]], np.float32))
bias0 = tf.constant(np.array([1.3], np.float32))


def plain(x, weight0, bias0):
    v0 = x @ tf.transpose(weight0) + bias0
    v1 = tf.nn.dropout(v0, 0.5)
    v2 = v1 * v0
    return (v2,)


def checkpointed(x, weight0, bias0):
    v0 = x @ tf.transpose(weight0) + bias0
    def checkpointed_segment_1_2(v0):
        v1 = tf.nn.dropout(v0, 0.5)
        return v0, v1
    v0, v1 = tf.recompute_grad(checkpointed_segment_1_2)(v0)
    def checkpointed_segment_2_3(v1, v0):
        v2 = v1 * v0
        return v2
    v2 = tf.recompute_grad(checkpointed_segment_2_3)(v1, v0)
    return (v2,)


def run(model):
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)

    def objective(x, weight0, bias0):
        y = model(x, weight0, bias0)[0]
        return tf.reduce_mean((tf.reshape(y, target.shape) - target) ** 2)

    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = objective(x, weight0, bias0)
    return np.array(tape.gradient(loss, x)).tolist()


expected, got = run(plain), run(checkpointed)
different = repr(expected) != repr(got)
print(f"gradient of x\n  expected      {str(expected)[:999]}\n  checkpointed  {str(got)[:999]}")
print("DIFFERENT: gradient of x" if different else "same")
sys.exit(1 if different else 0)
