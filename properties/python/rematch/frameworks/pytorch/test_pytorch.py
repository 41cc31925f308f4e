"""PyTorch as a subject, over the pipes that the harness uses."""

from __future__ import annotations

import sys

import pytest
from cases import chain, observed, regressions, run_of, segment
from harness import Harness

torch = pytest.importorskip("torch")
from rematch.frameworks.pytorch.arguments import flat, handed, received  # noqa: E402

# Saved cases in which PyTorch differs from its plain run, and where that shows first.
DIVERGES = {"recomputed_tensor_kept": "buffer", "running_statistics_updated_twice": "buffer"}
# checkpoint_sequential() of PyTorch never checkpoints the last segment.
CASES = {
    name: case
    for name, case in regressions().items()
    if case.get("plan", {}).get("sequential", {}).get("last_stored", True)
}
VARIANTS = ["reentrant", "non_reentrant"]
TRAINABLE = {"input_requires_grad": True}


def both(subject, case, **plain):
    """The records of the plain and the checkpointed run of a case."""
    return subject.both(run_of(case), **plain)


def differing(record):
    """The quantities of the second run that have other bits than in the first."""
    found = observed(record).values()
    return [o["quantity"] for o in found if o.get("present", True) and not o.get("as")]


def counts(record):
    return [entry["count"] for entry in record["executions"]]


@pytest.mark.parametrize("name", CASES)
def test_plain_and_checkpointed_runs_of_saved_cases_agree_but_where_known(torch_subject, name):
    plain, checkpointed = both(torch_subject, CASES[name])
    assert "error" not in plain and "error" not in checkpointed
    assert differing(checkpointed)[:1] == [DIVERGES[name]] if name in DIVERGES else (differing(checkpointed) == [])
    assert plain["streams"] == checkpointed["streams"]


def test_a_recomputation_ends_where_the_last_tensor_is_saved_unless_early_stop_is_off(torch_subject):
    layers = ["linear", "tanh", "linear"]
    stops = chain(*layers, plan={"segments": [segment(0, 3)]}, protocol=TRAINABLE)
    goes_on = chain(*layers, plan={"segments": [segment(0, 3, early_stop=False)]}, protocol=TRAINABLE)
    # The product saves its operands before it is computed: it is entered all the same.
    assert counts(both(torch_subject, stops)[1]) == [2, 2, 2]
    assert counts(both(torch_subject, goes_on)[1]) == [2, 2, 2]
    last = chain("linear", "add", plan={"segments": [segment(0, 2)]}, protocol=TRAINABLE)
    last["layers"][1]["from"] = [0, 0]
    assert counts(both(torch_subject, last)[1]) == [2, 1]


def test_layers_of_nested_segments_run_once_more_for_each_level(torch_subject):
    inner = segment(0, 1, "reentrant")
    plan = {"segments": [segment(0, 2, "reentrant", nested=[inner])]}
    case = chain("linear", "relu", plan=plan, protocol=TRAINABLE)
    assert counts(both(torch_subject, case)[1]) == [3, 2]


def test_a_hook_fires_once_for_each_reentrant_segment_that_uses_the_weight(torch_subject):
    layers = [{"kind": "linear", "features": 6}, {"kind": "linear", "features": 6, "tied_to": 0}]
    for variant, fired in (("reentrant", 2), ("non_reentrant", 1)):
        plan = {"segments": [segment(0, 1, variant), segment(1, 2, variant)]}
        plain, checkpointed = both(torch_subject, chain(*layers, plan=plan, protocol=TRAINABLE))
        assert [h["count"] for h in plain["hooks"]] == [1, 1]
        assert [h["count"] for h in checkpointed["hooks"]] == [fired, fired]


def test_a_reentrant_segment_without_trainable_inputs_freezes_its_weights(torch_subject):
    plan = {"segments": [segment(0, 1, "reentrant")]}
    case = chain("linear", "linear", plan=plan)
    plain, checkpointed = both(torch_subject, case, detached_layers=[0])
    for record in (plain, checkpointed):
        gradients = [o.get("present", True) for o in observed(record).values() if o["quantity"] == "parameter_gradient"]
        assert gradients == [False, False, True, True]


@pytest.mark.parametrize("form", ["dictionary", "keywords"])
@pytest.mark.parametrize("returns", [False, True])
def test_tensors_among_other_things_reach_a_segment_and_come_back(torch_subject, form, returns):
    layers = ["linear", "duplicate", "tanh", {"kind": "add", "from": [1, 1]}, "dropout"]
    given = {"arguments": form, "nested_outputs": returns}
    plan = {"segments": [segment(0, 2, **given), segment(2, 5, **given)]}
    plain, checkpointed = both(torch_subject, chain(*layers, plan=plan, protocol=TRAINABLE))
    assert "error" not in plain and "error" not in checkpointed
    assert differing(checkpointed) == []
    assert max(counts(checkpointed)) == 2


@pytest.mark.parametrize("form", ["tensors", "dictionary", "keywords", "emptied"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_is_handed_over_in_any_form_arrives(form, count):
    values = tuple(torch.zeros(i) for i in range(count))
    given, keywords = handed(form, values)
    arrived = received(form, count, given, keywords)
    assert [v is value for v, value in zip(arrived, values, strict=True)] == [True] * count


def test_what_arrives_otherwise_than_it_was_handed_over_is_an_error():
    values = (torch.zeros(1), torch.zeros(2))
    given, keywords = handed("keywords", values)
    keywords.pop("mask")
    with pytest.raises(ValueError, match="keyword arguments"):
        received("keywords", 2, given, keywords)
    [structure], _ = handed("dictionary", values)
    assert flat(structure) == values
    for changed in ({"count": 3}, {"rest": (values[1],)}, {"rest": []}, {"none": 0}):
        with pytest.raises(ValueError, match="a dictionary"):
            flat(structure | changed)
    with pytest.raises(ValueError, match="a dictionary"):
        flat(values)


@pytest.mark.parametrize("early_stop", [True, False])
def test_a_list_that_a_segment_empties_is_empty_when_it_is_recomputed(torch_subject, early_stop):
    plan = {"segments": [segment(0, 1, arguments="emptied", early_stop=early_stop)]}
    plain, checkpointed = both(torch_subject, chain("tanh", plan=plan, protocol=TRAINABLE))
    assert "error" not in plain
    assert checkpointed["error"] == {"kind": "IndexError", "message": "pop from empty list"}


@pytest.mark.parametrize("given", [{"arguments": "dictionary"}, {"arguments": "emptied"}, {"nested_outputs": True}])
def test_what_a_reentrant_segment_takes_or_returns_within_something_else_gets_no_gradient(torch_subject, given):
    plan = {"segments": [segment(0, 1, "reentrant", **given)]}
    case = chain("tanh", "linear", plan=plan, protocol=TRAINABLE)
    plain, checkpointed = both(torch_subject, case)
    present = [observed(record)["input_gradient", 0, 0, 0].get("present", True) for record in (plain, checkpointed)]
    assert present == [True, False]
    assert counts(checkpointed) == [1, 1]


@pytest.mark.parametrize(("form", "noticed"), [("tensors", True), ("keywords", False)])
def test_a_changed_input_is_noticed_where_it_is_no_keyword_argument(torch_subject, form, noticed):
    plan = {"segments": [segment(0, 1, arguments=form)]}
    protocol = {**TRAINABLE, "inject": "input_changed"}
    run = run_of(chain("relu", plan=plan, protocol=protocol))
    arrays = run["arrays"]
    arrays |= {"trial_input": arrays["inputs"][0], "trial_target": arrays["targets"][0]}
    torch_subject.record(**run)
    assert torch_subject.record(checkpointed=True)["trial"].get("failed", False) is noticed


def test_masks_are_recorded_with_their_execution(torch_subject):
    plan = {"segments": [segment(0, 2)]}
    case = chain("dropout", "dropout", plan=plan, protocol=TRAINABLE)
    plain, checkpointed = both(torch_subject, case)
    assert [(d.get("layer", 0), d.get("execution", 0)) for d in plain["draws"]] == [(0, 0), (1, 0)]
    drawn = {(d.get("layer", 0), d.get("execution", 0)): d["hash"] for d in checkpointed["draws"]}
    assert drawn[0, 0] == drawn[0, 1] == plain["draws"][0]["hash"]
    assert drawn[1, 0] == drawn[1, 1] == plain["draws"][1]["hash"]
    assert drawn[0, 0] != drawn[1, 0]
    assert all(d["elements"] == 24 for d in plain["draws"])


def test_without_random_state_a_recomputation_draws_another_mask(torch_subject):
    plan = {"segments": [segment(0, 1, preserve_rng=False)]}
    _, checkpointed = both(torch_subject, chain("dropout", plan=plan, protocol=TRAINABLE))
    first, second = checkpointed["draws"]
    assert first["hash"] != second["hash"]
    assert "input_gradient" in differing(checkpointed)


def test_bytes_that_the_graph_keeps_are_counted(torch_subject):
    """A case of 4 rows, 6 columns and 5 features: 96 bytes of input, 80 of each result."""
    plan = {"segments": [segment(1, 3)]}
    case = chain("linear", "tanh", "tanh", "tanh", plan=plan, protocol=TRAINABLE)
    plain, checkpointed = both(torch_subject, case)
    saved = [[r.get("saved", 0) for r in run["bytes"]] for run in (plain, checkpointed)]
    # Each tanh saves its result, which the loss saves as well; the input belongs to the model.
    assert saved[0] == [240, 0]
    # The segment keeps its input; its last result is not what the last layer saves.
    assert saved[1] == [160, 0]


def test_what_is_offloaded_is_counted_apart(torch_subject):
    plan = {"segments": [segment(0, 2)], "offload": True}
    case = chain("tanh", "tanh", "linear", plan=plan, protocol=TRAINABLE)
    plain, checkpointed = both(torch_subject, case)
    assert [r.get("offloaded", 0) for r in plain["bytes"]] == [0, 0]
    assert [r.get("offloaded", 0) for r in checkpointed["bytes"]] == [96, 0]


def test_several_backwards_retain_the_graph(torch_subject):
    plan = {"segments": [segment(0, 2)]}
    case = chain("linear", "tanh", plan=plan, protocol={**TRAINABLE, "backwards": 3})
    plain, checkpointed = both(torch_subject, case)
    assert differing(checkpointed) == []
    assert counts(checkpointed) == [4, 4]
    retained = [r for r in checkpointed["bytes"] if r.get("retained")]
    assert len(retained) == 2 and retained[0]["saved"] == checkpointed["bytes"][0]["saved"]


def test_sequential_plans_store_the_last_segment(torch_subject):
    plan = {"sequential": {"segments": 3, "variant": "non_reentrant"}}
    case = chain(*["linear"] * 7, plan=plan, protocol=TRAINABLE)
    plain, checkpointed = both(torch_subject, case)
    assert counts(checkpointed) == [2, 2, 2, 2, 1, 1, 1]
    assert differing(checkpointed) == []


def test_values_that_skip_a_border_cross_sequential_plans(torch_subject):
    plan = {"sequential": {"segments": 3, "variant": "reentrant"}}
    layers = ["linear", "relu", "tanh", {"kind": "add", "from": [0, 0]}, "linear", "relu"]
    _, checkpointed = both(torch_subject, chain(*layers, plan=plan, protocol=TRAINABLE))
    assert "error" not in checkpointed and differing(checkpointed) == []


@pytest.mark.parametrize("before", range(3))
def test_a_policy_keeps_products_from_being_computed_again(torch_subject, before):
    """Whichever way it says so: that depends on the layer."""
    kept = segment(0, before + 2, keep=[{"op": "linear"}])
    layers = ["tanh"] * before + ["linear", "tanh"]
    case = chain(*layers, plan={"segments": [kept]}, protocol=TRAINABLE)
    _, checkpointed = both(torch_subject, case)
    assert differing(checkpointed) == []
    again = [v["op"] for v in checkpointed["values"] if v.get("execution") and "op" in v]
    assert "aten::addmm" not in again and again.count("aten::tanh") >= before


def test_a_policy_keeps_every_operator_of_a_layer_that_is_many(torch_subject):
    kept = segment(0, 2, keep=[{"op": "moe"}])
    case = chain({"kind": "moe", "experts": 2}, "silu", plan={"segments": [kept]}, protocol=TRAINABLE)
    _, checkpointed = both(torch_subject, case)
    again = {v["op"] for v in checkpointed["values"] if v.get("execution") and "op" in v}
    # The rows of each expert are counted twice.
    assert differing(checkpointed) == ["buffer"] and again <= {"moe", "aten::add_", "silu", "aten::silu"}


@pytest.mark.parametrize(
    ("inject", "plain_fails", "fails"),
    [
        ("forward_throws", True, True),
        ("recomputation_throws", False, True),
        ("input_changed", True, True),
        ("graph_dropped", False, False),
        # PyTorch's recomputations compare neither weights nor operators.
        ("weight_changed", True, False),
        ("op_exchanged", False, False),
    ],
)
def test_a_trial_says_how_it_ended_and_leaves_nothing_behind(torch_subject, inject, plain_fails, fails):
    layer = 1 if inject == "op_exchanged" else 0
    case = chain(
        "linear",
        "tanh",
        plan={"segments": [segment(0, 2)]},
        protocol={**TRAINABLE, "inject": inject, "inject_layer": layer},
    )
    plain, checkpointed = both(torch_subject, case)
    assert checkpointed["trial"].get("failed", False) is fails
    assert plain["trial"].get("failed", False) is plain_fails
    for record in (plain, checkpointed):
        assert "left_behind" not in record["trial"] and "error" not in record
    assert differing(checkpointed) == []


def test_rrelu_that_saves_last_gives_a_wrong_gradient(torch_subject):
    """pytorch #193671: early stop comes before the noise is written."""
    plan = {"segments": [segment(0, 1)]}
    _, checkpointed = both(torch_subject, chain("rrelu", plan=plan, protocol=TRAINABLE))
    if differing(checkpointed) == []:
        pytest.skip("repaired in this PyTorch")
    assert set(differing(checkpointed)) == {"input_gradient"}


def test_runs_repeat_to_the_bit_in_every_process(torch_subject):
    case = run_of(chain("linear", "dropout", plan={"segments": [segment(0, 2)]}))
    with Harness(sys.executable, "-m", "rematch", "pytorch") as again:
        for run in (case, {**case, "checkpointed": True}):
            assert torch_subject.record(**run) == again.record(**run)


def test_one_variant_can_be_left_out(start):
    hello = start(sys.executable, "-m", "rematch", "pytorch", "--variant", "reentrant").hello()
    assert "reentrant" in hello["implements"]
    assert not {"non_reentrant", "mixed_variants"} & set(hello["implements"])


def test_cheap_observation_sees_no_masks_and_the_same_numbers(torch_subject, start):
    cheap = start(sys.executable, "-m", "rematch", "pytorch", "--observe", "cheap")
    assert "draws" not in cheap.hello()["observes"]
    case = run_of(chain("linear", "dropout", protocol=TRAINABLE))
    few, all_of_it = cheap.record(**case), torch_subject.record(**case)
    assert "draws" not in few and "values" not in few
    assert few["observations"] == all_of_it["observations"]


@pytest.mark.parametrize("kind", ["dropout", "gaussian_noise"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_recomputation_draws_anew_from_any_other_generator_than_the_default_one(torch_subject, kind, variant):
    def masks(stream):
        layer = {"kind": kind, "p": 0.5, "stream": stream}
        plan = {"segments": [segment(0, 3, variant)]}
        case = chain("linear", layer, "tanh", plan=plan, protocol=TRAINABLE)
        _, checkpointed = both(torch_subject, case)
        assert {d.get("stream", 0) for d in checkpointed["draws"]} == {stream}
        return [d["hash"] for d in checkpointed["draws"]]

    forward, recomputed = masks(stream=0)
    assert forward == recomputed
    forward, recomputed = masks(stream=1)
    assert forward != recomputed
