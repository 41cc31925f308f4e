# buffers-after-step: Running statistics are updated once per forward: after every step they have the same bits as in the plain run.
# at: step 0, buffer 0 (layer 0 all), element 0 (first of 2 that differ, of 2)
# expected: -0.0098145520314574242 (0xbf8419a6e0000000)
# got: -0.018647648394107819 (0xbf93185e80000000)
# tensorflow 2.21.0; run: python this_file.py
import sys

import tensorflow as tf
import numpy as np


def gradients_of(tape, loss, sources):
    """None where there is none, also for modules, whose sources are lists."""

    def of_module(found, source):
        if all(g is None for g in found):
            return None
        pairs = zip(found, source, strict=True)
        return [tf.zeros_like(v) if g is None else tf.convert_to_tensor(g) for g, v in pairs]

    pairs = zip(tape.gradient(loss, sources), sources, strict=True)
    return [of_module(g, s) if isinstance(s, list) else g for g, s in pairs]


def differentiate(objective, arguments, trained, backwards: int = 1):
    sources = [arguments[i] for i in trained]
    # Without the variables of frozen modules, which count as trainable.
    with tf.GradientTape(persistent=backwards > 1, watch_accessed_variables=False) as tape:
        tape.watch(sources)
        loss, outputs = objective(*arguments)
    found = [gradients_of(tape, loss, sources) for _ in range(backwards)]
    return loss, outputs, found[-1]


def parameters_of(m):
    return list(m.trainable_variables)


def state_of(m):
    return [v for v in m.variables if not v.trainable]


def set_mode(m, train):
    m.train = train


class BatchNorm(tf.Module):
    def __init__(self, features):
        super().__init__()
        self.scale, self.offset = tf.Variable(tf.ones(features)), tf.Variable(tf.zeros(features))
        self.mean = tf.Variable(tf.zeros(features), trainable=False)
        self.variance = tf.Variable(tf.ones(features), trainable=False)

    def __call__(self, x):
        mean, variance = self.mean, self.variance
        if self.train:
            mean, variance = tf.nn.moments(x, [0, *range(2, len(x.shape))])
            self.mean.assign(0.9 * self.mean + 0.1 * mean)
            self.variance.assign(0.9 * self.variance + 0.1 * variance)
        shape = [1, -1] + [1] * (len(x.shape) - 2)
        given = (tf.reshape(v, shape) for v in (mean, variance, self.offset, self.scale))
        return tf.nn.batch_normalization(x, *given, 1e-3)


x = tf.constant(np.random.default_rng(85).standard_normal((5, 1, 5, 5)).astype(np.float32))
target = tf.constant(np.array([[-0.7688683867454529, 0.11226093769073486, -0.17054897546768188, -0.9931377172470093, 0.7820460796356201, -0.8496804237365723, 0.5997719764709473, 0.1269627809524536, -0.06565868854522705, 0.018998265266418457, 0.8562917709350586, -0.732601523399353, -0.1672315001487732, 0.6648344993591309, 0.26313769817352295, -0.7865329384803772, 0.6255253553390503, 0.387174129486084, 0.796512246131897, -0.6638137102127075, 0.2581249475479126, -0.6418426036834717, -0.3286589980125427, -0.48939186334609985, 0.5207881927490234], [-0.15746921300888062, 0.7158159017562866, -0.30705446004867554, 0.9787195920944214, 0.4723784923553467, 0.6801897883415222, -0.7104446887969971, -0.5742548704147339, -0.9882975816726685, -0.7141053080558777, -0.506159782409668, -0.0018235440365970135, 0.502852201461792, 0.08746933937072754, -0.6884226202964783, -0.7005589008331299, -0.9078545570373535, -0.5004266500473022, 0.9170764684677124, 0.2920442819595337, -0.8357359170913696, 0.07444989681243896, 0.9090481996536255, -0.7964814901351929, -0.26233971118927], [-0.9382942318916321, 0.5310847759246826, -0.35769760608673096, 0.6195602416992188, 0.13201844692230225, -0.7529777884483337, -0.7909290790557861, 0.9359116554260254, -0.321066677570343, -0.5393354296684265, 0.6680485010147095, -0.14578121900558472, 0.881489634513855, -0.9140936136245728, -0.728644847869873, 0.028533220291137695, -0.201363205909729, 0.13429486751556396, 0.6199767589569092, -0.49071091413497925, 0.35644590854644775, -0.5066757202148438, -0.6613961458206177, -0.06241971254348755, -0.3968498110771179], [0.6169260740280151, 0.12445903569459915, -0.22318124771118164, -0.2171398401260376, -0.26380252838134766, 0.8274366855621338, 0.7365157604217529, -0.13509732484817505, 0.6090704202651978, -0.920070469379425, -0.37652742862701416, 0.8538559079170227, -0.8436484932899475, 0.43630993366241455, 0.09533238410949707, -0.7849040031433105, -0.8152403235435486, -0.6245978474617004, -0.4113861322402954, -0.2826312780380249, -0.006872891914099455, 0.8873111009597778, -0.07459521293640137, 0.8758528232574463, -0.4313066005706787], [-0.9576193690299988, -0.27691274881362915, -0.7645474076271057, 0.29903578758239746, -0.5215303897857666, 0.38266026973724365, -0.2162896990776062, 0.4179493188858032, -0.4674539566040039, 0.07039070129394531, -0.5280746221542358, 0.05586397647857666, -0.2651057839393616, -0.9255536198616028, 0.09653627872467041, -0.957205593585968, 0.7616409063339233, 0.3865780830383301, 0.6387131810188293, -0.23704791069030762, 0.08225560188293457, 0.8815274238586426, 0.4721944332122803, -0.17020249366760254, -0.4497619867324829]], np.float32))


def plain(x, w0):
    v0 = m0(x)
    return (v0,)


def checkpointed(x, w0):
    def checkpointed_segment_0_1(x):
        v0 = m0(x)
        return v0
    v0 = tf.recompute_grad(checkpointed_segment_0_1)(x)
    return (v0,)


def run(model):
    global m0
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)
    m0 = BatchNorm(1)
    set_mode(m0, True)
    w0 = parameters_of(m0)
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)

    def objective(x, w0):
        outputs = model(x, w0)
        y = outputs[0]
        return tf.reduce_mean((tf.reshape(y, target.shape) - target) ** 2), outputs

    loss, outputs, gradients = differentiate(objective, [x, w0], [1])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of w0"] = gradients[0]
    results["state of m0"] = state_of(m0)
    results["random state"] = [tf.random.uniform([]), tf.random.get_global_generator().state]
    return {name: numbers(value) for name, value in results.items()}


def numbers(value):
    if isinstance(value, (list, tuple)):
        return np.concatenate([np.ravel(part) for part in value] or [[]])
    return np.array(value)


plain_results, results = run(plain), run(checkpointed)
different = []
for name, expected in plain_results.items():
    got = results[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    if not np.array_equal(expected, got):
        different.append(name)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
