# absent-gradients: Gradients are absent (None, not zero) exactly where they are in the plain run, and where the forecast says so.
# at: step 0, gradient of parameter 0 (layer 0 embedding weight)
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


def differentiate(objective, arguments, trained, backwards: int = 1):
    sources = [arguments[i] for i in trained]
    # Without the variables of frozen modules, which count as trainable.
    with tf.GradientTape(persistent=backwards > 1, watch_accessed_variables=False) as tape:
        tape.watch(sources)
        loss, outputs = objective(*arguments)
    found = [gradients_of(tape, loss, sources) for _ in range(backwards)]
    return loss, outputs, found[-1]


x = tf.constant(np.array([[10, 1, 4, 10, 8], [0, 4, 9, 1, 0], [6, 10, 2, 8, 6], [10, 3, 10, 3, 4], [10, 2, 9, 6, 9]], np.int32))
target = tf.constant(np.array([[-0.1119617223739624, 0.4426920413970947, -0.9002673029899597, -0.3757062256336212, -0.1504865288734436, 0.06565749645233154, -0.49144184589385986, -0.34784024953842163, 0.5608291625976562, -0.5117306709289551, -0.3845289945602417, -0.05982840061187744, -0.589719295501709, -0.3561251759529114, 0.046460747718811035, -0.4252825975418091, 0.15771079063415527, 0.11002576351165771, 0.8541480302810669, -0.6165211796760559, -0.4259512424468994, -0.8966173529624939, 0.08679604530334473, -0.35774141550064087, -0.3343311548233032, -0.4777464270591736, 0.0074578518979251385, 0.3668680191040039, -0.6134132742881775, 0.23245394229888916, -0.23606860637664795, -0.3171995282173157, 0.05171537026762962, -0.8638421893119812, -0.5793563723564148], [-0.16855114698410034, 0.6322294473648071, -0.3595516085624695, 0.2793877124786377, -0.36602848768234253, 0.9556477069854736, -0.9361034631729126, 0.5068434476852417, 0.28792786598205566, 0.71380615234375, 0.2078535556793213, 0.9770903587341309, 0.3755462169647217, -0.3854086399078369, 0.8253793716430664, 0.7046005725860596, 0.799515962600708, -0.18238812685012817, 0.8652777671813965, -0.9409255385398865, -0.2071465253829956, -0.6584193706512451, 0.4295610189437866, -0.15594595670700073, 0.225058913230896, -0.6902199387550354, 0.8379107713699341, -0.621605634689331, -0.5805068016052246, 0.035298824310302734, -0.24714916944503784, -0.748403787612915, -0.8627769947052002, -0.2943674325942993, 0.8459576368331909], [0.7606198787689209, -0.40386539697647095, -0.5430712699890137, 0.27871620655059814, 0.6018692255020142, -0.7073168754577637, -0.07163316011428833, -0.6944328546524048, 0.6323298215866089, 0.46012425422668457, -0.5580693483352661, 0.38236701488494873, 0.025096535682678223, -0.48310935497283936, -0.04983222484588623, 0.7359223961830139, 0.23588800430297852, -0.13391977548599243, -0.17534685134887695, 0.7461378574371338, -0.6151050329208374, -0.6036242842674255, -0.08055585622787476, 0.21639466285705566, 0.6206146478652954, 0.06765294075012207, -0.6385703682899475, 0.6327396631240845, 0.25014591217041016, -0.5297231674194336, 0.11927521228790283, 0.2532832622528076, 0.11671435832977295, -0.6600364446640015, -0.7844712138175964], [-0.5830414295196533, 0.8822132349014282, -0.019495725631713867, -0.11159604787826538, 0.663418173789978, -0.7976276874542236, -0.02796649932861328, 0.865088939666748, -0.8881917595863342, 0.9449808597564697, -0.2014904022216797, 0.5005072355270386, 0.3818243741989136, 0.5249601602554321, 0.9829217195510864, -0.5000452995300293, -0.22467893362045288, 0.922649621963501, -0.6240533590316772, -0.9217478036880493, -0.2137892246246338, -0.040129002183675766, 0.9551409482955933, -0.6104903817176819, 0.3593409061431885, -0.8607316017150879, -0.9420308470726013, 0.09358012676239014, 0.05590379238128662, -0.618639349937439, 0.7316756248474121, 0.8845652341842651, -0.09411251544952393, -0.15933305025100708, 0.9369176030158997], [0.43229353427886963, 0.3881927728652954, 0.14310991764068604, 0.2644597291946411, 0.5331683158874512, -0.023167550563812256, 0.9442319869995117, 0.5869630575180054, -0.380743145942688, -0.22963720560073853, 0.08509182929992676, -0.2415441870689392, 0.055321455001831055, -0.37486934661865234, -0.8423668742179871, -0.8436377048492432, 0.7934658527374268, 0.17743134498596191, 0.5477059483528137, 0.29873764514923096, -0.3649340867996216, 0.0787506103515625, -0.9699583649635315, -0.44716358184814453, -0.9315792918205261, 0.8096292018890381, -0.6717275381088257, 0.15291452407836914, 0.4585740566253662, -0.22729766368865967, 0.5678843259811401, -0.31440308690071106, 0.680198073387146, 0.2781410217285156, 0.5498003959655762]], np.float32))
weight0 = tf.constant(np.random.default_rng(85).standard_normal((11, 7)).astype(np.float32))


def plain(x, weight0):
    v0 = tf.gather(weight0, x)
    return (v0,)


def checkpointed_segment_0_1(x, weight0):
    v0 = tf.gather(weight0, x)
    return v0


def checkpointed(x, weight0):
    v0 = tf.recompute_grad(checkpointed_segment_0_1)(x=x, weight0=weight0)
    return (v0,)


def run(model):
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)

    def objective(x, weight0):
        outputs = model(x, weight0)
        y = outputs[0]
        return tf.reduce_mean((tf.reshape(y, target.shape) - target) ** 2), outputs

    loss, outputs, gradients = differentiate(objective, [x, weight0], [1])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of weight0"] = gradients[0]
    results["random state"] = [tf.random.uniform([]), tf.random.get_global_generator().state]
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
