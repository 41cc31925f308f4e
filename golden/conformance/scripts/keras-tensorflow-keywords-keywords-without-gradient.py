# absent-gradients: Gradients are absent (None, not zero) exactly where they are in the plain run, and where the forecast says so.
# at: step 0, microbatch 0, gradient of the model input
# expected: present (forecast: present)
# got: absent
# keras 3.15.1 on tensorflow; run: python this_file.py
import sys

import os

os.environ["KERAS_BACKEND"] = "tensorflow"
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


def parameters_of(m):
    return list(m.trainable_variables)


def state_of(m):
    seeds = [v for v in m.non_trainable_variables if "seed_generator" in v.path]
    return [v for v in m.non_trainable_variables if not any(v is s for s in seeds)]


def set_mode(m, train):
    m.mode = train


def built(layer, *shape, operands: int = 1):
    layer(*[keras.ops.ones(shape)] * operands)
    return layer


def last(layer, x):
    """The layer of images, with their channels last."""
    y = layer(keras.ops.transpose(x, [0, 2, 3, 1]), training=layer.mode)
    return keras.ops.transpose(y, [0, 3, 1, 2])


def of_tensorflow(objective, arguments, trained):
    import tensorflow as tf

    sources = value_of([arguments[i] for i in trained])
    # Without the variables of frozen layers.
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sources)
        loss, outputs = in_layer(objective, arguments)
    gradients = tape.gradient(loss, sources)
    return loss, outputs, [whole(g, s) for g, s in zip(gradients, sources, strict=True)]


x = keras.ops.convert_to_tensor(np.random.default_rng(85).standard_normal((5, 1, 7, 7)).astype(np.float32))
target = keras.ops.convert_to_tensor(np.array([[-0.1119617223739624, 0.4426920413970947, -0.9002673029899597, -0.3757062256336212, -0.1504865288734436, 0.06565749645233154, -0.49144184589385986, -0.34784024953842163, 0.5608291625976562, -0.5117306709289551, -0.3845289945602417, -0.05982840061187744, -0.589719295501709, -0.3561251759529114, 0.046460747718811035, -0.4252825975418091, 0.15771079063415527, 0.11002576351165771, 0.8541480302810669, -0.6165211796760559, -0.4259512424468994, -0.8966173529624939, 0.08679604530334473, -0.35774141550064087, -0.3343311548233032, -0.4777464270591736, 0.0074578518979251385, 0.3668680191040039, -0.6134132742881775, 0.23245394229888916, -0.23606860637664795, -0.3171995282173157, 0.05171537026762962, -0.8638421893119812, -0.5793563723564148, -0.16855114698410034, 0.6322294473648071, -0.3595516085624695, 0.2793877124786377, -0.36602848768234253, 0.9556477069854736, -0.9361034631729126, 0.5068434476852417, 0.28792786598205566, 0.71380615234375, 0.2078535556793213, 0.9770903587341309, 0.3755462169647217, -0.3854086399078369], [0.8253793716430664, 0.7046005725860596, 0.799515962600708, -0.18238812685012817, 0.8652777671813965, -0.9409255385398865, -0.2071465253829956, -0.6584193706512451, 0.4295610189437866, -0.15594595670700073, 0.225058913230896, -0.6902199387550354, 0.8379107713699341, -0.621605634689331, -0.5805068016052246, 0.035298824310302734, -0.24714916944503784, -0.748403787612915, -0.8627769947052002, -0.2943674325942993, 0.8459576368331909, 0.7606198787689209, -0.40386539697647095, -0.5430712699890137, 0.27871620655059814, 0.6018692255020142, -0.7073168754577637, -0.07163316011428833, -0.6944328546524048, 0.6323298215866089, 0.46012425422668457, -0.5580693483352661, 0.38236701488494873, 0.025096535682678223, -0.48310935497283936, -0.04983222484588623, 0.7359223961830139, 0.23588800430297852, -0.13391977548599243, -0.17534685134887695, 0.7461378574371338, -0.6151050329208374, -0.6036242842674255, -0.08055585622787476, 0.21639466285705566, 0.6206146478652954, 0.06765294075012207, -0.6385703682899475, 0.6327396631240845], [0.25014591217041016, -0.5297231674194336, 0.11927521228790283, 0.2532832622528076, 0.11671435832977295, -0.6600364446640015, -0.7844712138175964, -0.5830414295196533, 0.8822132349014282, -0.019495725631713867, -0.11159604787826538, 0.663418173789978, -0.7976276874542236, -0.02796649932861328, 0.865088939666748, -0.8881917595863342, 0.9449808597564697, -0.2014904022216797, 0.5005072355270386, 0.3818243741989136, 0.5249601602554321, 0.9829217195510864, -0.5000452995300293, -0.22467893362045288, 0.922649621963501, -0.6240533590316772, -0.9217478036880493, -0.2137892246246338, -0.040129002183675766, 0.9551409482955933, -0.6104903817176819, 0.3593409061431885, -0.8607316017150879, -0.9420308470726013, 0.09358012676239014, 0.05590379238128662, -0.618639349937439, 0.7316756248474121, 0.8845652341842651, -0.09411251544952393, -0.15933305025100708, 0.9369176030158997, 0.43229353427886963, 0.3881927728652954, 0.14310991764068604, 0.2644597291946411, 0.5331683158874512, -0.023167550563812256, 0.9442319869995117], [0.5869630575180054, -0.380743145942688, -0.22963720560073853, 0.08509182929992676, -0.2415441870689392, 0.055321455001831055, -0.37486934661865234, -0.8423668742179871, -0.8436377048492432, 0.7934658527374268, 0.17743134498596191, 0.5477059483528137, 0.29873764514923096, -0.3649340867996216, 0.0787506103515625, -0.9699583649635315, -0.44716358184814453, -0.9315792918205261, 0.8096292018890381, -0.6717275381088257, 0.15291452407836914, 0.4585740566253662, -0.22729766368865967, 0.5678843259811401, -0.31440308690071106, 0.680198073387146, 0.2781410217285156, 0.5498003959655762, 0.32918834686279297, -0.3415895104408264, 0.29652225971221924, -0.8796795010566711, -0.507808268070221, 0.41833293437957764, 0.9550877809524536, -0.8396472930908203, 0.6791500449180603, 0.8299671411514282, 0.24684929847717285, 0.13494646549224854, -0.3429492712020874, -0.5447834730148315, -0.7096660733222961, -0.1289038062095642, 0.04317605495452881, 0.7704294919967651, 0.1459568738937378, 0.32658684253692627, -0.7694216966629028], [0.3177835941314697, -0.6684937477111816, 0.5035492181777954, -0.2738989293575287, -0.9783027768135071, -0.7956519722938538, 0.4926004409790039, 0.5942964553833008, 0.8262914419174194, 0.4307187795639038, -0.7196038961410522, 0.1708155870437622, 0.5406808853149414, 0.6983187198638916, 0.6261422634124756, -0.5839672088623047, -0.248626247048378, -0.9287021160125732, 0.7362858057022095, -0.9332920908927917, -0.05006253719329834, 0.5082038640975952, 0.08327043056488037, 0.20786869525909424, -0.6046909689903259, -0.07907503843307495, 0.6256879568099976, 0.07252335548400879, 0.6325011253356934, -0.4032168984413147, 0.4783778190612793, -0.19334423542022705, 0.8095047473907471, -0.7741018533706665, 0.8580586910247803, 0.23596727848052979, -0.32352304458618164, -0.040006935596466064, -0.1952841877937317, 0.5208108425140381, -0.846829891204834, -0.6118029356002808, -0.3830525875091553, 0.022336602210998535, -0.18608111143112183, -0.2168900966644287, 0.11962532997131348, 0.35098159313201904, 0.4067612886428833]], np.float32))


def plain(x, w0):
    v0 = last(m0, x)
    return (v0,)


def checkpointed(x, w0):
    def checkpointed_segment_0_1(x):
        v0 = last(m0, x)
        return v0
    v0 = keras.remat(checkpointed_segment_0_1)(x=x)
    return (v0,)


def run(model):
    global m0
    keras.utils.set_random_seed(0), seeds.state.assign([0, 0])
    m0 = built(keras.layers.BatchNormalization(), 1, 7, 7, 1)
    set_mode(m0, False)
    w0 = parameters_of(m0)
    keras.utils.set_random_seed(0), seeds.state.assign([0, 0])

    def objective(x, w0):
        outputs = model(x, w0)
        y = outputs[0]
        return keras.ops.mean((keras.ops.reshape(y, target.shape) - target) ** 2), outputs

    loss, outputs, gradients = of_tensorflow(objective, [x, w0], [0, 1])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of x"] = gradients[0]
    results["gradient of w0"] = gradients[1]
    results["state of m0"] = state_of(m0)
    results["random state"] = seeds.state
    return {name: numbers(value) for name, value in results.items()}


def numbers(value):
    if isinstance(value, (list, tuple)):
        return np.concatenate([np.ravel(part) for part in value] or [[]])
    return np.array(value)


def outcome(model):
    try:
        return run(model)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


plain_results, results = outcome(plain), outcome(checkpointed)
different = []
for name in ["error"] if "error" in plain_results | results else plain_results:
    expected, got = plain_results.get(name), results.get(name)
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    if not np.array_equal(expected, got):
        different.append(name)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
