# executions: Every layer runs as often as the forecast says: once for the forward and once for each recomputation that reaches it. It computes each time, unless a policy kept its results.
# at: step 0, microbatch 0, layer 0 (flatten), checkpointed run
# expected: 3
# got: 1
# keras 3.15.1 on tensorflow; run: python this_file.py
import sys
from collections import Counter

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


def of_tensorflow(objective, arguments, trained):
    import tensorflow as tf

    sources = value_of([arguments[i] for i in trained])
    # Without the variables of frozen layers.
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sources)
        loss, outputs = in_layer(objective, arguments)
    gradients = tape.gradient(loss, sources)
    return loss, outputs, [whole(g, s) for g, s in zip(gradients, sources, strict=True)]


x = keras.ops.convert_to_tensor(np.random.default_rng(85).standard_normal((2, 2, 5, 5)).astype(np.float32))
target = keras.ops.convert_to_tensor(np.array([[-0.42746657133102417, -0.7821547985076904, 0.06117689609527588, 0.26197266578674316, -0.9357240200042725, 0.38473546504974365, -0.5597496032714844, -0.38114798069000244, -0.5888500213623047, 0.11291968822479248, -0.08742797374725342, -0.7351050972938538, -0.3033134341239929, -0.7886178493499756, -0.3401988744735718, -0.04827094078063965, 0.04648399353027344, -0.8458276987075806, -0.032973408699035645, -0.2599461078643799, 0.13136982917785645, 0.6803165674209595, 0.34346258640289307, 0.9302806854248047, -0.1971421241760254, 0.25055503845214844, -0.8311643600463867, 0.30521881580352783, -0.4303617477416992, 0.5455296039581299, -0.8588567972183228, -0.827424943447113, -0.9256710410118103, 0.09021401405334473, -0.44344544410705566, 0.6398575305938721, -0.9989326596260071, 0.034942030906677246, -0.16641680896282196, 0.147247314453125, -0.29837626218795776, -0.02666616439819336, -0.8928588628768921, -0.888643741607666, 0.011120200157165527, -0.06036001443862915, -0.7864403128623962, -0.9153976440429688, -0.5671565532684326, 0.7932932376861572], [0.4692533016204834, 0.8606750965118408, 0.7585633993148804, 0.07006776332855225, 0.21872210502624512, 0.9169275760650635, 0.42484843730926514, 0.392112135887146, -0.5108067989349365, 0.9498645067214966, -0.14646267890930176, 0.38038134574890137, -0.41179370880126953, 0.5835522413253784, 0.5719683170318604, 0.6953227519989014, 0.8682693243026733, 0.6383610963821411, -0.22682875394821167, -0.20104318857192993, -0.37130749225616455, -0.06982624530792236, 0.2678612470626831, 0.7650102376937866, 0.38917601108551025, 0.26716601848602295, 0.6577143669128418, -0.7297016978263855, 0.7673180103302002, 0.6585477590560913, -0.1638871431350708, 0.3621329069137573, -0.14379531145095825, -0.752878725528717, -0.808129072189331, 0.7763307094573975, -0.7606037259101868, 0.8922144174575806, -0.6403351426124573, 0.7705622911453247, 0.5165994167327881, 0.3722727298736572, -0.9080802202224731, 0.878525972366333, -0.520060122013092, 0.7211295366287231, 0.1721421480178833, 0.09188997745513916, 0.5448257923126221, -0.40525519847869873]], np.float32))


runs = Counter()


def enter(layer):
    runs[layer] += 1


def plain(x):
    enter(0)
    v0 = keras.ops.reshape(x, [x.shape[0], -1])
    return (v0,)


def checkpointed(x):
    def checkpointed_segment_0_1_(x):
        def checkpointed_segment_0_1(x):
            enter(0)
            v0 = keras.ops.reshape(x, [x.shape[0], -1])
            return v0
        v0 = keras.remat(checkpointed_segment_0_1)(x=x)
        return v0
    v0 = keras.remat(checkpointed_segment_0_1_)(x=x)
    return (v0,)


def run(model):
    runs.clear()
    keras.utils.set_random_seed(0), seeds.state.assign([0, 0])

    def objective(x):
        outputs = model(x)
        y = outputs[0]
        return keras.ops.mean((keras.ops.reshape(y, target.shape) - target) ** 2), outputs

    loss, outputs, gradients = of_tensorflow(objective, [x], [0])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of x"] = gradients[0]
    results["random state"] = seeds.state
    results |= {f"runs of layer {i}": n for i, n in runs.items()}
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
