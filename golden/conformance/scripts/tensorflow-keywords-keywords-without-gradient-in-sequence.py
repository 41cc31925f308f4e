# absent-gradients: A gradient is absent (None, not zero) exactly where it is absent in the plain run, and where the forecast says so.
# at: step 0, microbatch 0, gradient of the model input
# expected: present (forecast: present)
# got: absent
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

    def of_array(found):
        # tf.gather() has gradients that name their rows.
        return tf.convert_to_tensor(found) if isinstance(found, tf.IndexedSlices) else found

    pairs = zip(tape.gradient(loss, sources), sources, strict=True)
    return [of_module(g, s) if isinstance(s, list) else of_array(g) for g, s in pairs]


def differentiate(objective, arguments, trained, backwards = 1):
    sources = [arguments[i] for i in trained]
    # Without the variables of frozen modules, which count as trainable.
    with tf.GradientTape(persistent=backwards > 1, watch_accessed_variables=False) as tape:
        tape.watch(sources)
        loss, outputs = objective(*arguments)
    found = [gradients_of(tape, loss, sources) for _ in range(backwards)]
    return loss, outputs, found[-1]


def numbers(value):
    if isinstance(value, (list, tuple)):
        value = np.concatenate([np.ravel(part) for part in value] or [[]])
    return np.array(value).tolist()


x = tf.constant(np.random.default_rng(85).standard_normal((3, 4, 5, 5)).astype(np.float32))
target = tf.constant(np.array([[-0.4687359929084778, -0.9021404981613159, -0.08343875408172607, 0.4902113676071167, 0.24791038036346436, 0.8994545936584473, 0.18358421325683594, 0.9564266204833984, 0.8892292976379395, -0.6332234740257263, -0.299688458442688, 0.3601642847061157, 0.20569372177124023, 0.46376875042915344, 0.6362428665161133, 0.38534295558929443, -0.8436236381530762, 0.2611929178237915, -0.6791824102401733, -0.4745703935623169, 0.2514382600784302, -0.8479084968566895, 0.31133735179901123, -0.32627683877944946, 0.8882303237915039, 0.47486862540245056, 0.6927844285964966, 0.5682012438774109, 0.3133312463760376, 0.8456244468688965, 0.3238410949707031, 0.024181723594665527, 0.38088035583496094, 0.34162604808807373, -0.22115790843963623, -0.6832911968231201], [0.8507236242294312, 0.18120253086090088, 0.6892180442810059, -0.595004677772522, -0.005373179912567139, -0.29752033948898315, -0.010606467723846436, -0.6730239987373352, -0.17149239778518677, -0.04551208019256592, 0.5943770408630371, 0.4088085889816284, 0.5227787494659424, -0.3244498372077942, -0.5334217548370361, -0.6665441989898682, -0.3411230444908142, 0.47914600372314453, -0.25893253087997437, -0.7311936616897583, 0.5393294095993042, -0.9692954421043396, -0.29673057794570923, -0.36227279901504517, 0.027013659477233887, 0.715021014213562, -0.21803134679794312, -0.3674921989440918, 0.5953114032745361, -0.19137358665466309, 0.8315445184707642, -0.8232672810554504, 0.79810631275177, -0.7241916656494141, -0.38767576217651367, 0.16683244705200195], [-0.7272698283195496, -0.8547878265380859, -0.6730207204818726, -0.6395504474639893, 0.4528214931488037, 0.6043846607208252, -0.8833900690078735, -0.6711181402206421, 0.5917470455169678, -0.44801807403564453, 0.9340389966964722, -0.384290874004364, 0.5156247615814209, 0.9746208190917969, -0.8625792264938354, -0.13010644912719727, -0.27726662158966064, -0.5647921562194824, 0.6142531633377075, -0.937473714351654, 0.5415372848510742, -0.24263805150985718, -0.39077335596084595, 0.4513922929763794, -0.026965439319610596, -0.802214503288269, -0.30415797233581543, -0.6150388121604919, -0.7100145220756531, -0.14896774291992188, 0.5488512516021729, -0.5736362934112549, 0.4709138870239258, 0.4904818534851074, 0.7583560943603516, -0.41429489850997925]], np.float32))
weight0 = tf.constant(np.random.default_rng(63).standard_normal((4, 4, 2, 2)).astype(np.float32))
bias0 = tf.constant(np.array([-0.1, 0.6, 0.1, -0.5], np.float32))


def plain(x, weight0, bias0):
    v0 = tf.transpose(tf.nn.conv2d(tf.transpose(x, [0, 2, 3, 1]), tf.transpose(weight0, [2, 3, 1, 0]), 2, [[0, 0], [1, 1], [1, 1], [0, 0]]), [0, 3, 1, 2]) + tf.reshape(bias0, [1, -1, 1, 1])
    return (v0,)


def checkpointed_segment_0_1(x, weight0, bias0):
    v0 = tf.transpose(tf.nn.conv2d(tf.transpose(x, [0, 2, 3, 1]), tf.transpose(weight0, [2, 3, 1, 0]), 2, [[0, 0], [1, 1], [1, 1], [0, 0]]), [0, 3, 1, 2]) + tf.reshape(bias0, [1, -1, 1, 1])
    return v0


def checkpointed(x, weight0, bias0):
    v0 = tf.recompute_grad(checkpointed_segment_0_1)(x=x, weight0=weight0, bias0=bias0)
    return (v0,)


def run(model):
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)

    def objective(x, weight0, bias0):
        outputs = model(x, weight0, bias0)
        y = outputs[0]
        return tf.reduce_mean((tf.reshape(y, target.shape) - target) ** 2), outputs

    loss, outputs, gradients = differentiate(objective, [x, weight0, bias0], [0], 2)
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of x"] = gradients[0]
    results["random state"] = [tf.random.uniform([]), tf.random.get_global_generator().state]
    return {name: numbers(value) for name, value in results.items()}


expected, got = run(plain), run(checkpointed)
different = [name for name in got if repr(expected.get(name)) != repr(got.get(name))]
for name in different:
    print(f"{name}\n  expected      {str(expected.get(name))[:999]}")
    print(f"  checkpointed  {str(got.get(name))[:999]}")
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
