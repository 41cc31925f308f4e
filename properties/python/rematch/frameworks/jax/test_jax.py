"""Laws of the subjects in JAX, flax.nnx and Equinox."""

import sys

import pytest
from cases import TRAINABLE, WHOLE, chain, differing, observed, plan, run_of, segment

SUBJECTS = {
    "jax": ("jax",),
    "jax:nested": ("jax", "--nested"),
    "jax:policies": ("jax", "--policies"),
    "jax:jit": ("jax", "--jit"),
    "jax:scan": ("jax", "--jit", "--scan"),
    "nnx": ("nnx",),
    "equinox": ("equinox",),
}
NEEDED = {"nnx": "flax", "equinox": "equinox"}
LAYERS = [
    {"kind": "linear", "features": 4},
    {"kind": "tanh"},
    {"kind": "dropout", "p": 0.5},
    {"kind": "linear", "features": 3},
    {"kind": "add", "from": [3, 0]},
]
BATCH_NORM = {"nnx": "batch_norm_rows", "equinox": "batch_norm_rows"}


def case(layers, *segments, **protocol):
    whole = plan(*(segment(*ends, **WHOLE) for ends in segments))
    return chain(*layers, input=(2, 3), plan=whole, protocol={"steps": 2, **TRAINABLE, **protocol})


def begin(start, name):
    pytest.importorskip(NEEDED.get(name.partition(":")[0], "jax"))
    return start(sys.executable, "-m", "rematch", *SUBJECTS[name])


@pytest.mark.parametrize("name", ["jax:jit", "jax:scan"])
def test_a_compiled_recomputation_draws_the_mask_of_its_forward(start, name):
    plain, checkpointed = begin(start, name).agreed(case(LAYERS[:4], (0, 3)))
    masks = {draw["hash"] for draw in plain["draws"]}
    assert len(plain["draws"]) == 2 and len(checkpointed["draws"]) == 4
    assert {draw["hash"] for draw in checkpointed["draws"]} == masks


def test_a_reference_is_written_to_twice_by_jax_checkpoint(start):
    layer = {"kind": "custom", "layer": "running: N C -> N C; state"}
    _, checkpointed = begin(start, "jax").agreed(case([layer], (0, 1)))
    assert {"buffer", "input_gradient"} <= differing(checkpointed)


def test_every_layer_of_its_own_is_differentiated_at_any_width(start):
    """The flags that fix its rounding leave XLA unable to compile some operations."""
    subject = begin(start, "jax")
    for own in subject.hello()["layers"]:
        for width in (1, 2, 3, 21):
            given = case([{"kind": "custom", "layer": own}], (0, 1), steps=1)
            subject.agreed({**given, "input": [3, width]})


@pytest.mark.parametrize("name", ["nnx", "equinox"])
def test_running_statistics_are_updated_once(start, name):
    layer = {"kind": "custom", "layer": "batch_norm_rows: N C -> N C; parameters, state"}
    plain, checkpointed = begin(start, name).agreed(case([layer], (0, 1)))
    assert "buffer" in {key[0] for key in observed(plain)}
    assert not differing(checkpointed)


def test_jax_checkpoint_loses_what_modules_of_nnx_change(start):
    pytest.importorskip("flax")
    subject = start(sys.executable, "-m", "rematch", "nnx", "--plain-checkpoint")
    layer = {"kind": "custom", "layer": "batch_norm_rows: N C -> N C; parameters, state"}
    _, checkpointed = subject.agreed(case([layer], (0, 1)))
    assert "buffer" in differing(checkpointed)


SERVED = """
from rematch import serve
from rematch.frameworks.jax import policies
from rematch.frameworks.jax.adapter import subject
policies.POLICIES |= {}
serve(subject(["--policies"]))
"""


@pytest.mark.parametrize("truly", (True, False))
def test_what_a_policy_saves_does_not_run_again(start, truly):
    """And a policy that is another than its name says is told."""
    others = {"dots": "nothing_saveable", "nothing": "everything_saveable", "names": "dots_saveable"}
    subject = start(sys.executable, "-c", SERVED.format({} if truly else others))
    assert set(others) < set(subject.hello()["options"]["policy"])
    for policy in others:
        _, checkpointed = subject.agreed({**case(LAYERS[:2], (0, 2)), "options": {"policy": policy}})
        [promise] = checkpointed["promises"]
        assert promise["name"] == "policy" and ("broken" not in promise) == truly


WIDE = [{"kind": kind, **more} for kind, more in (("linear", {"features": 8}), ("tanh", {}))] * 2 + [LAYERS[3]]
PLANTED = """
import jax{imported}
{function} = {planted}
from rematch.__main__ import main
main()
"""
KEPT = "lambda f, **_: f"
FUNCTIONS = {"nnx": "nnx.remat", "equinox": "eqx.filter_checkpoint"}
IMPORTED = {"nnx": "\nfrom flax import nnx", "equinox": "\nimport equinox as eqx"}


def observes(subject, *observables):
    subject.send({"hello": {"protocol": 1, "features": [], "observables": observables}})
    assert subject.receive()["hello"]["observes"] == [*observables]


@pytest.mark.parametrize("name", SUBJECTS)
def test_segments_that_keep_what_their_layers_save_are_told(start, name):
    """By the bound of the law saved-at-most."""
    pytest.importorskip(NEEDED.get(name, "jax"))
    function, imported = FUNCTIONS.get(name, "jax.checkpoint"), IMPORTED.get(name, "")
    given, (begin, end) = case(WIDE, (1, 4)), (1, 4)
    for planted in (function, KEPT):
        program = PLANTED.format(imported=imported, function=function, planted=planted)
        subject = start(sys.executable, "-c", program, *SUBJECTS[name])
        observes(subject, "saved_bytes", "saved_tensors")
        plain = subject.record(**run_of(given), checkpointed=False, layer_values=True)
        readings = subject.record(checkpointed=True)["bytes"]
        saved = [v for v in plain["values"] if v.get("saved")]
        # Each layer reads the weight, transposed, and its operand, or its result.
        assert {v.get("layer", 0) for v in saved} == {0, 1, 2, 3, 4}
        outside = {v["memory"] for v in saved if not begin <= v.get("layer", 0) < end}
        dropped = {v["memory"]: v["bytes"] for v in saved if v["memory"] not in outside}
        inputs, outputs = 2 * 8 * 4, 2 * 3 * 4
        most = plain["bytes"][0]["saved"] - sum(dropped.values()) + inputs + outputs
        got = [r["saved"] for r in readings if r["moment"] == "after_forward"]
        assert len(got) == 2 and all((saved > most) == (planted is KEPT) for saved in got)


@pytest.mark.parametrize("name", ("jax:jit", "nnx"))
def test_saved_bytes_are_those_of_a_models_own_sizes(start, name):
    pytest.importorskip(NEEDED.get(name, "jax"))
    subject = start(sys.executable, "-m", "rematch", *SUBJECTS[name])
    observes(subject, "saved_bytes", "saved_tensors")
    saved = []
    for features in (8, 4):
        given = run_of(case([{"kind": "linear", "features": features}, LAYERS[3]], (0, 1)))
        saved.append(subject.record(**given, checkpointed=False)["bytes"][0]["saved"])
    assert saved[1] < saved[0]


LEAKS = """
import jax
from rematch import serve
from rematch.frameworks.jax.adapter import subject
made, kept = jax.vjp, []
def vjp(*arguments, **options):
    loss, pull, aux = made(*arguments, **options)
    kept.append(pull)
    return loss, pull, aux
jax.vjp = vjp
serve(subject([]))
"""


@pytest.mark.parametrize("leaks", (True, False))
def test_what_stays_after_a_backward_is_told(start, leaks):
    subject = start(sys.executable, "-c", LEAKS if leaks else LEAKS.replace("jax.vjp = vjp\n", ""))
    observes(subject, "saved_bytes", "released_bytes")
    plain, checkpointed = subject.agreed(case(WIDE, (1, 4)))
    for record in (plain, checkpointed):
        left = [r.get("saved", 0) for r in record["bytes"] if r["moment"] == "after_backward"]
        assert len(left) == 2 and all((saved > 0) == leaks for saved in left)


FORGETS = """
from rematch import serve
from rematch.frameworks.equinox.adapter import Equinox

class Forgets(Equinox):
    def let_go(self):
        super().let_go()
        self.drop_compiled()

serve(Forgets())
"""


def test_a_step_that_is_traced_again_trains_though_the_run_that_made_it_was_evaluated(start):
    pytest.importorskip("equinox")
    subject = start(sys.executable, "-c", FORGETS)
    given = run_of(case(LAYERS[:4], (0, 3), steps=1, reevaluate=True))
    subject.record(**given, checkpointed=False)
    assert not differing(subject.record(checkpointed=False))
