"""PyTorch as a subject, over the pipes that the harness uses."""

import sys

import pytest
import torch
from cases import TRAINABLE, chain, differing, regressions, run_of, segment
from harness import Harness

from rematch.frameworks.pytorch.arguments import flat, handed, received

# Saved cases in which PyTorch differs from its plain run, and where that shows first.
DIVERGES = {"recomputed_tensor_kept": "buffer", "running_statistics_updated_twice": "buffer"}
CASES = regressions()


@pytest.mark.parametrize("name", CASES)
def test_plain_and_checkpointed_runs_of_saved_cases_agree_but_where_known(torch_subject, name):
    plain, checkpointed = torch_subject.agreed(CASES[name])
    first = next((o["quantity"] for o in checkpointed["observations"] if o["quantity"] in differing(checkpointed)), "")
    assert first == DIVERGES.get(name, "")
    assert plain["streams"] == checkpointed["streams"]


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
    plain, checkpointed = torch_subject.agreed(case)
    assert checkpointed["trial"].get("failed", False) is fails
    assert plain["trial"].get("failed", False) is plain_fails
    for record in (plain, checkpointed):
        assert "left_behind" not in record["trial"]
    assert differing(checkpointed) == set()


@pytest.mark.parametrize("kind", ["dropout", "gaussian_noise"])
@pytest.mark.parametrize("variant", ["reentrant", "non_reentrant"])
def test_a_recomputation_draws_anew_from_any_other_generator_than_the_default_one(torch_subject, kind, variant):
    def masks(stream):
        layer = {"kind": kind, "p": 0.5, "stream": stream}
        plan = {"segments": [segment(0, 3, variant)]}
        case = chain("linear", layer, "tanh", plan=plan, protocol=TRAINABLE)
        _, checkpointed = torch_subject.agreed(case)
        assert {d.get("stream", 0) for d in checkpointed["draws"]} == {stream}
        return [d["hash"] for d in checkpointed["draws"]]

    forward, recomputed = masks(stream=0)
    assert forward == recomputed
    forward, recomputed = masks(stream=1)
    assert forward != recomputed


@pytest.mark.parametrize("early_stop", [True, False])
def test_a_list_that_a_segment_empties_is_empty_when_it_is_recomputed(torch_subject, early_stop):
    plan = {"segments": [segment(0, 1, arguments="emptied", early_stop=early_stop)]}
    plain, checkpointed = torch_subject.both(run_of(chain("tanh", plan=plan, protocol=TRAINABLE)))
    assert "error" not in plain
    assert checkpointed["error"] == {"kind": "IndexError", "message": "pop from empty list"}


@pytest.mark.parametrize(("form", "noticed"), [("tensors", True), ("keywords", False)])
def test_a_changed_input_is_noticed_where_it_is_no_keyword_argument(torch_subject, form, noticed):
    plan = {"segments": [segment(0, 1, arguments=form)]}
    protocol = {**TRAINABLE, "inject": "input_changed"}
    run = run_of(chain("relu", plan=plan, protocol=protocol))
    arrays = run["arrays"]
    arrays |= {"trial_input": arrays["inputs"][0], "trial_target": arrays["targets"][0]}
    torch_subject.record(**run)
    assert torch_subject.record(checkpointed=True)["trial"].get("failed", False) is noticed


def test_bytes_that_the_graph_keeps_are_counted(torch_subject):
    """A case of 4 rows, 6 columns and 5 features: 96 bytes of input, 80 of each result."""
    plan = {"segments": [segment(1, 3)]}
    case = chain("linear", "tanh", "tanh", "tanh", plan=plan, protocol=TRAINABLE)
    plain, checkpointed = torch_subject.agreed(case)
    saved = [[r.get("saved", 0) for r in run["bytes"]] for run in (plain, checkpointed)]
    # Each tanh saves its result, which the loss saves as well; the input belongs to the model.
    assert saved[0] == [240, 0]
    # The segment keeps its input; its last result is not what the last layer saves.
    assert saved[1] == [160, 0]
