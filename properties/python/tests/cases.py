"""Cases and what the harness sends with them, worked out for the tests' own small models."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from rematch.subjects.records import decode, encode

REGRESSIONS = Path(__file__).parents[2] / "regressions"
Shape = tuple[int, ...]
TRAINABLE = {"input_requires_grad": True}
WHOLE = {"early_stop": False, "determinism": "none"}
"""A segment that runs again to its end, unchecked: what functions of other frameworks than PyTorch have."""


def _window(extent: int, layer: dict[str, Any]) -> int:
    span = extent + 2 * layer.get("padding", 0) - layer["kernel"]
    return span // layer.get("stride", 1) + 1


def _outputs(layer: dict[str, Any], operands: list[Shape]) -> list[Shape]:
    x, kind = operands[0], layer["kind"]
    if kind == "embedding":
        return [(*x, layer["features"])]
    if kind in ("linear", "spectral_norm", "gru", "lstm"):
        return [(*x[:-1], layer["features"])]
    if kind == "conv2d" or kind.endswith("pool2d"):
        channels = layer.get("features", x[1])
        return [(x[0], channels, _window(x[2], layer), _window(x[3], layer))]
    if kind == "flatten":
        return [(x[0], int(np.prod(x[1:])))]
    if kind == "concat":
        return [(x[0], x[1] + operands[1][1], *x[2:])]
    if kind == "kv_cache":
        return [(x[0], layer["kept"] + x[1], x[2])]
    if kind == "split":
        first = layer["features"]
        return [(x[0], first, *x[2:]), (x[0], x[1] - first, *x[2:])]
    return [x, x] if kind == "duplicate" else [x]


def _parameters(layer: dict[str, Any], x: Shape) -> list[tuple[str, Shape, float, float]]:
    kind = layer["kind"]
    if kind == "custom":
        return [("all", (0,), 0, 0)] if "parameters" in layer["layer"] else []
    if kind == "embedding":
        return [("weight", (layer["vocabulary"], layer["features"]), -1, 1)]
    biases = layer.get("bias", True)
    if kind in ("linear", "conv2d"):
        window = (layer["kernel"],) * 2 if kind == "conv2d" else ()
        shape = (layer["features"], x[1] if window else x[-1], *window)
        bound = 1 / np.sqrt(np.prod(shape[1:]))
        return [("weight", shape, -bound, bound), ("bias", shape[:1], -bound, bound)][: 1 + biases]
    if kind in ("gru", "lstm"):
        features = layer["features"]
        rows, bound = {"gru": 3, "lstm": 4}[kind] * features, 1 / np.sqrt(features)
        shapes = {"weight_ih": (rows, x[2]), "weight_hh": (rows, features), "bias_ih": (rows,), "bias_hh": (rows,)}
        return [(role, shape, -bound, bound) for role, shape in shapes.items()][: 2 + 2 * biases]
    if kind == "spectral_norm":
        shape = (layer["features"], x[-1])
        return [("weight", shape, 0.5, 1.5), ("bias", shape[:1], -0.5, 0.5)][: 1 + biases]
    if kind == "moe":
        shape, bound = (layer["experts"], x[-1]), 1 / np.sqrt(x[-1])
        return [("router", shape, -bound, bound), ("experts", (*shape, x[-1]), -bound, bound)]
    if kind in ("stochastic_depth", "early_exit"):
        bound = 1 / np.sqrt(x[-1])
        return [("weight", (x[-1], x[-1]), -bound, bound)]
    width = x[1] if kind in ("batch_norm", "group_norm") else x[-1]
    norm = [("weight", (width,), 0.5, 1.5), ("bias", (width,), -0.5, 0.5)] if kind.endswith("_norm") else []
    return norm[:1] if kind == "rms_norm" else norm


def _buffers(layer: dict[str, Any], x: Shape) -> list[tuple[str, Any, float]]:
    """Role, shape and the value of all elements."""
    kind = layer["kind"]
    if kind == "batch_norm":
        return [("running_mean", x[1], 0), ("running_var", x[1], 1)]
    if kind == "delayed_scaling":
        return [("history", 4, 0)] if layer.get("fp8") else [("scale", 1, 1)]
    if kind == "spectral_norm":
        return [(role, extent, extent**-0.5) for role, extent in (("u", layer["features"]), ("v", x[-1]))]
    if kind == "kv_cache":
        return [("cache", (layer["kept"], x[2]), 0.5)]
    if kind == "moe":
        return [("load", layer["experts"], 0)]
    return [("all", 0, 0)] if kind == "custom" and "state" in layer["layer"] else []


def _operands(layer: dict[str, Any]) -> list[tuple[int, int]]:
    given = layer.get("from", [])
    return [tuple(v) for v in ([given] if given and not isinstance(given[0], list) else given)]


def _live(layers: list[dict[str, Any]], outputs: list[list[Shape]]) -> list[list[list[int]]]:
    n = len(layers)
    last_use = {(-1, 0): 0}
    for i, made in enumerate(outputs):
        for k in range(len(made)):
            # Output 0 goes to the next layer; another one that no layer uses is a model output.
            last_use[(i, k)] = i + 1 if k == 0 else n
    used: dict[tuple[int, int], int] = {}
    for i, layer in enumerate(layers):
        for value in _operands(layer):
            used[value] = i
    for value, at in used.items():
        last_use[value] = max(at, value[0] + 1) if value[1] == 0 else at
    boundaries = []
    for b in range(n + 1):
        rest = [v for v, at in last_use.items() if v[0] < b <= at and v != (b - 1, 0)]
        boundaries.append([[b - 1, 0], *(list(v) for v in sorted(rest))])
    return boundaries


def _drawn(kind: str, random: np.random.Generator, shape: Shape, dtype: str) -> np.ndarray:
    if kind == "small_integers":
        return random.integers(-3, 4, shape).astype(dtype)
    return random.standard_normal(shape).astype(dtype)


def _input(case: dict[str, Any], random: np.random.Generator) -> np.ndarray:
    shape, first = tuple(case["input"]), case["layers"][0]
    if first["kind"] == "embedding":
        return random.integers(0, first["vocabulary"], shape).astype("int32")
    return _drawn(case.get("data", "normal"), random, shape, case.get("dtype", "float32"))


def run_of(case: dict[str, Any]) -> dict[str, Any]:
    """`case`, `model` and `arrays` of a run request. The numbers follow from the case's seed."""
    layers, protocol = case["layers"], case.get("protocol", {})
    dtype, data = case.get("dtype", "float32"), case.get("data", "normal")
    random = np.random.default_rng(int(case.get("seed", 0)))
    further = range(case.get("further_inputs", 0))
    shapes: dict[tuple[int, int], Shape] = {(-1, k): tuple(case["input"]) for k in range(1 + len(further))}
    parameters, buffers, used = [], [], []
    arrays: dict[str, list[dict[str, Any]]] = {"parameters": [], "buffers": []}
    outputs, custom = [], []
    for i, layer in enumerate(layers):
        operands = [shapes[(i - 1, 0)], *(shapes[v] for v in _operands(layer))]
        owner = layer.get("tied_to", -1)
        if owner >= 0:
            used.append(used[owner])
        else:
            own = _parameters(layer, operands[0])
            used.append(list(range(len(parameters), len(parameters) + len(own))))
            for role, shape, low, high in own:
                parameters.append({"layer": i, "role": role, "frozen": layer.get("frozen", False)})
                values = random.uniform(low, high, shape)
                if data == "small_integers":
                    values = _drawn(data, random, shape, dtype)
                arrays["parameters"].append(encode(values.astype(dtype)))
        for role, shape, value in _buffers(layer, operands[0]):
            buffers.append({"layer": i, "role": role})
            arrays["buffers"].append(encode(np.full(shape, value, dtype)))
        if layer["kind"] == "custom":
            custom.append({"layer": i, "shape": operands[0]})
        outputs.append(_outputs(layer, operands))
        shapes |= {(i, k): shape for k, shape in enumerate(outputs[i])}
    last = shapes[(len(layers) - 1, 0)]
    rows, columns = last[0], int(np.prod(last[1:]))
    forwards = protocol.get("steps", 1) * protocol.get("microbatches", 1)
    inputs = [_input(case, random) for _ in range(forwards)]
    if protocol.get("loss") == "cross_entropy":
        targets = [random.integers(0, columns, rows).astype("int32") for _ in range(forwards)]
    else:
        targets = [random.uniform(-1, 1, (rows, columns)).astype(dtype) for _ in range(forwards)]
    model = {"live": _live(layers, outputs), "parameters": parameters, "layer_parameters": used}
    model |= {"buffers": buffers, "custom_operands": custom}
    sent: dict[str, Any] = {**arrays, "inputs": [encode(a) for a in inputs], "targets": [encode(a) for a in targets]}
    if further:
        sent["further_inputs"] = [[encode(_input(case, random)) for _ in further] for _ in range(forwards)]
    if protocol.get("reevaluate"):
        sent["reevaluation"] = encode(_input(case, random))
        if further:
            sent["further_reevaluation_inputs"] = [encode(_input(case, random)) for _ in further]
    return {"case": case, "model": model, "arrays": sent}


def regressions() -> dict[str, dict[str, Any]]:
    """The saved cases of the harness that PyTorch can run, by name, as it would send them: fields have new names.
    checkpoint_sequential() of PyTorch never checkpoints the last segment."""
    texts = {path.stem: path.read_text() for path in sorted(REGRESSIONS.glob("*.json"))}
    cases = {name: json.loads(text.replace("mishap", "inject")) for name, text in texts.items()}
    return {n: c for n, c in cases.items() if c.get("plan", {}).get("sequential", {}).get("last_stored", True)}


def chain(*kinds: str | dict[str, Any], input: Shape = (4, 6), **rest: Any) -> dict[str, Any]:
    """A case of these layers; a kind by itself has the usual fields."""
    usual: dict[str, dict[str, Any]] = {"linear": {"features": 5}, "dropout": {"p": 0.5}}
    layers = [{"kind": k, **usual.get(k, {})} if isinstance(k, str) else k for k in kinds]
    case = {"format": 1, "seed": 7, "dtype": "float32", "input": list(input), "layers": layers}
    return {**case, **rest}


def plan(*segments: dict[str, Any]) -> dict[str, Any]:
    return {"segments": list(segments)}


def segment(begin: int, end: int, variant: str = "non_reentrant", **rest: Any) -> dict[str, Any]:
    return {"begin": begin, "end": end, "variant": variant, **rest}


Observed = dict[tuple[str, int, int, int], dict[str, Any]]


def observed(record: dict[str, Any]) -> Observed:
    """The observations of a record by quantity, step, microbatch and index."""
    return {
        (o["quantity"], o.get("step", 0), o.get("microbatch", 0), o.get("index", 0)): o
        for o in record.get("observations", [])
    }


def differing(record: dict[str, Any]) -> set[str]:
    """The quantities of a run that have other bits than in the run before."""
    return {key[0] for key, o in observed(record).items() if o.get("present", True) and not o.get("as")}


def assert_same_arrays(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Two records have the same observations, to the bit."""
    one, other = observed(first), observed(second)
    assert one.keys() == other.keys()
    for place, got in one.items():
        np.testing.assert_array_equal(decode(got), decode(other[place]), err_msg=str(place))
