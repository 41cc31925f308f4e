# absent-gradients: A gradient is absent (None, not zero) exactly where it is absent in the plain run, and where the forecast says so.
# at: step 0, gradient of parameter 0 (layer 0 linear weight)
# expected: present (forecast: present)
# got: absent
# tensorflow 2.21.0; run: python this_file.py
import sys

import tensorflow as tf
import numpy as np


x = tf.constant(np.random.default_rng(85).standard_normal((1, 24)).astype(np.float32))
target = tf.constant(np.array([0], np.int32))
weight0 = tf.constant(np.random.default_rng(63).standard_normal((1, 24)).astype(np.float32))
bias0 = tf.constant(np.array([-0.1], np.float32))


def plain(x, weight0, bias0):
    v0 = x @ tf.transpose(weight0) + bias0
    return (v0,)


def checkpointed(x, weight0, bias0):
    def checkpointed_segment_0_1(x):
        v0 = x @ tf.transpose(weight0) + bias0
        return v0
    v0 = tf.recompute_grad(checkpointed_segment_0_1)(x)
    return (v0,)


def run(model):
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)

    def objective(x, weight0, bias0):
        y = model(x, weight0, bias0)[0]
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=target, logits=tf.reshape(y, [y.shape[0], -1])))

    with tf.GradientTape() as tape:
        tape.watch(weight0)
        loss = objective(x, weight0, bias0)
    return tape.gradient(loss, weight0) is not None


expected, got = run(plain), run(checkpointed)
different = repr(expected) != repr(got)
print(f"gradient of weight0 is not None\n  expected      {str(expected)[:999]}\n  checkpointed  {str(got)[:999]}")
print("DIFFERENT: gradient of weight0 is not None" if different else "same")
sys.exit(1 if different else 0)
