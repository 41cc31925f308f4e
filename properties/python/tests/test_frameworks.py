"""Laws that every framework keeps, tried with each subject that is here."""

import json
import shlex
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from cases import TRAINABLE, chain, observed, run_of, segment
from harness import SOURCES, Harness, run_alone

from rematch.subjects.records import decode

FILES = sorted((SOURCES / "rematch" / "frameworks").glob("*/framework.json"))
DECLARED = [json.loads(file.read_text()) for file in FILES]
ENVIRONMENTS = {name: e for d in DECLARED for name, e in d.get("environments", {}).items()}
# Subjects on PyTorch have tests of their own. By its profile, a framework fails where segments close over parameters or
# are called by keyword.
OF_PYTORCH = ("pytorch", "libraries")
KNOWN_TO_FAIL = (":closure", ":keywords")
SUBJECTS = {
    name: subject
    for declared in DECLARED
    for name, subject in declared["subjects"].items()
    if subject["environment"] not in OF_PYTORCH and not name.endswith(KNOWN_TO_FAIL)
}
LAYERS = [
    {"kind": "conv2d", "features": 2, "kernel": 3, "padding": 1},
    {"kind": "max_pool2d", "kernel": 2, "stride": 2},
    {"kind": "avg_pool2d", "kernel": 1},
    {"kind": "flatten"},
    {"kind": "linear", "features": 4},
    {"kind": "layer_norm"},
    {"kind": "gelu"},
    {"kind": "silu"},
    {"kind": "split", "features": 2},
    {"kind": "concat", "from": [8, 1]},
    {"kind": "rms_norm"},
    {"kind": "softmax"},
    {"kind": "duplicate"},
    {"kind": "add", "from": [12, 1]},
    {"kind": "tanh"},
    {"kind": "sigmoid"},
    {"kind": "relu"},
]
ASKED = ["embedding", "dropout", "reentrant", "non_reentrant", *(layer["kind"] for layer in LAYERS)]


class Started(Harness):
    """A subject that is tried, and what it answered to hello."""

    def begin(self):
        self.send({"hello": {"protocol": 1, "features": ASKED, "observables": ["executions", "draws"]}})
        self.told = self.receive()["hello"]
        return self

    def needs(self, *words):
        """Skips a test of what the subject has not."""
        for word in words:
            if word not in [*self.told["implements"], *self.told["observes"]]:
                pytest.skip(f"it has no {word}")

    def options(self):
        """Options of a segment in the variant that it has."""
        if "non_reentrant" not in self.told["implements"]:
            return {"variant": "reentrant"}
        return {"variant": "non_reentrant", "early_stop": False, "determinism": "none"}

    def trained(self, *kinds, end):
        """A case whose input trains, and whose layers up to `end` are checkpointed."""
        plan = {"segments": [segment(0, end, **self.options())]}
        return chain(*kinds, plan=plan, protocol=TRAINABLE)


@pytest.fixture(scope="module", params=SUBJECTS)
def subject(request):
    declared = SUBJECTS[request.param]
    needed = [ENVIRONMENTS[declared["environment"]]["module"].partition(".")[0]]
    if request.param.startswith("keras:"):
        needed.append(request.param.split(":")[1])
    if missing := [module for module in needed if find_spec(module) is None]:
        pytest.skip(f"needs {missing[0]}")
    with Started(sys.executable, "-m", "rematch", *shlex.split(declared["arguments"])) as started:
        yield started.begin()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_a_framework_is_one_folder(file):
    folder, declared = file.parent, json.loads(file.read_text())
    assert (folder / "adapter.py").exists()
    assert declared["format"] == 1 and declared["subjects"]
    for name, subject in declared["subjects"].items():
        assert name.split(":")[0] == subject["arguments"].split()[0] == folder.name
        assert subject["environment"] in ENVIRONMENTS


def test_a_checkpointed_model_of_all_kinds_has_the_same_gradients(subject):
    layers, at = [], {-1: -1}
    for index, layer in enumerate(LAYERS):
        operand = layer.get("from", [-1, 0])
        if layer["kind"] in subject.told["implements"] and operand[0] in at:
            at[index] = len(layers)
            layers.append({**layer, "from": [at[operand[0]], operand[1]]} if "from" in layer else layer)
    count, options = len(layers), subject.options()
    # A further output of a layer is used in another segment.
    first = next(at[index] for index in range(5, len(LAYERS)) if index in at)
    last = next(at[index] for index in (8, 6, *range(5, len(LAYERS))) if index in at)
    ends = [first, last + 1, count]
    plan = {"segments": [segment(0, ends[0], **options), segment(ends[1], count, **options)]}
    shape = (2, 2, 4, 4) if "kernel" in layers[0] else (2, 4)
    protocol = {**TRAINABLE, "steps": 2}
    given = chain(*layers, input=shape, plan=plan, protocol=protocol)
    plain, checkpointed = subject.agreed(given)
    names = {key[0] for key in observed(plain)}
    assert {"output", "loss", "input_gradient", "parameter_gradient", "parameter"} <= names
    assert observed(checkpointed).keys() == observed(plain).keys()
    if subject.told.get("rounds", "equal") == "equal":
        assert [key for key, value in observed(checkpointed).items() if not value.get("as")] == []


def test_tokens_are_looked_up_and_a_layer_in_eval_mode_does_nothing(subject):
    """Its tied head and its table share a weight; outputs and gradients are worked out here."""
    subject.needs("embedding")
    layers = [
        {"kind": "embedding", "vocabulary": 5, "features": 2},
        {"kind": "dropout", "p": 0.5, "eval": True},
        {"kind": "linear", "features": 5, "bias": False, "tied_to": 0},
    ]
    plan = {"segments": [segment(1, 3, **subject.options())]}
    given = chain(*layers, input=(3, 4), plan=plan)
    plain, checkpointed = subject.agreed(given)
    seen = {key: decode(value) for key, value in observed(plain).items() if "data" in value}
    arrays = run_of(given)["arrays"]
    tokens, target = (decode(arrays[name][0]) for name in ("inputs", "targets"))
    weight = decode(arrays["parameters"][0]).astype("float64")
    rows = weight[tokens]
    output = rows @ weight.T
    np.testing.assert_allclose(seen["output", 0, 0, 0], output, rtol=1e-5, atol=1e-6)
    upstream = 2 * (output - target.reshape(output.shape)) / output.size
    gradient = np.einsum("nto,ntf->of", upstream, rows)
    np.add.at(gradient, tokens, upstream @ weight)
    np.testing.assert_allclose(seen["parameter_gradient", 0, 0, 0], gradient, rtol=1e-4, atol=1e-6)
    for key, value in observed(checkpointed).items():
        assert value.get("as") or not value.get("present", True), key


def test_layers_of_a_segment_run_twice_and_others_once(subject):
    subject.needs("executions")
    plain, checkpointed = subject.agreed(subject.trained("linear", "tanh", "relu", end=2))
    assert [e["count"] for e in plain["executions"]] == [1, 1, 1]
    assert [e["count"] for e in checkpointed["executions"]] == [2, 2, 1]


def test_a_recomputed_mask_is_seen(subject):
    subject.needs("draws", "dropout")
    plain, checkpointed = subject.agreed(subject.trained("dropout", end=1))
    assert [d.get("execution", 0) for d in plain["draws"]] == [0]
    assert [d.get("execution", 0) for d in checkpointed["draws"]] == [0, 1]
    assert checkpointed["draws"][0] == plain["draws"][0]


def test_a_script_needs_nothing_but_the_framework(subject, tmp_path):
    script = subject.export(run_of(subject.trained("linear", "tanh", "relu", end=2)), "")["script"]
    ended = run_alone(script, tmp_path)
    assert "rematch" not in script
    assert ended.stdout.rstrip().rpartition("\n")[2].startswith(("same", "DIFFERENT")), ended.stderr
    if subject.told["rounds"] == "equal":
        assert ended.stdout.rstrip().endswith("same"), ended.stdout
