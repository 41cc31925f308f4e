# absent-gradients: A gradient is absent (None, not zero) exactly where it is absent in the plain run, and where the forecast says so.
# at: step 0, microbatch 0, gradient of the model input
# expected: present (forecast: present)
# got: absent
# tensorflow 2.21.0; run: python this_file.py
import sys

import tensorflow as tf
import numpy as np


x = tf.constant(np.random.default_rng(85).standard_normal((3, 6)).astype(np.float32))
target = tf.constant(np.array([[-0.3208712935447693, -0.6570998430252075, 0.8136758804321289, -0.39155858755111694, 0.5821608304977417, 0.442052960395813], [0.09045147895812988, -0.9799385070800781, 0.8505250215530396, 0.7061090469360352, 0.7872588634490967, 0.6660513877868652], [0.5665491819381714, -0.8020899295806885, 0.46066737174987793, 0.7782100439071655, 0.705976128578186, 0.11491787433624268]], np.float32))


def plain(x):
    v0 = tf.nn.relu(x)
    v1 = tf.nn.relu(v0)
    return (v1,)


def checkpointed_segment_0_1(x):
    v0 = tf.nn.relu(x)
    return v0


def checkpointed(x):
    v0 = tf.recompute_grad(checkpointed_segment_0_1)(x=x)
    v1 = tf.nn.relu(v0)
    return (v1,)


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
