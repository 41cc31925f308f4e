"""Scripts of adapters that are tables of expressions, tried with MLX."""

import pytest
from cases import TRAINABLE, WHOLE, chain, plan, run_of, segment
from harness import run_alone

from rematch.subjects.records import decode
from rematch.subjects.samples import classes


def case(*layers, **rest):
    return chain(*layers, input=(2, 4), plan=plan(segment(0, 1, **WHOLE)), **rest)


def test_a_script_has_the_tokens_of_the_case(mlx):
    sent = run_of(case({"kind": "embedding", "vocabulary": 5, "features": 2}))
    script = mlx.export(sent, "errors: an error")["script"]
    tokens = decode(sent["arrays"]["inputs"][0])
    assert f"x = mx.array(np.array({tokens.tolist()}, np.int32))" in script


def test_a_script_shows_the_finding_with_nothing_but_the_framework(mlx, tmp_path):
    layers = [{"kind": "duplicate"}, {"kind": "add", "from": [0, 1]}]
    script = mlx.export(run_of(case(*layers, protocol=TRAINABLE)), "input-gradients: differ")["script"]
    ended = run_alone(script, tmp_path)
    assert ended.returncode == 1, ended.stderr
    assert ended.stdout.rstrip().endswith("DIFFERENT: gradient of x")


@pytest.mark.parametrize(
    ("layer", "finding"),
    [
        # The error does not occur; both runs agree.
        ({"kind": "dropout", "p": 0.5}, "errors: x\nexpected: no error\ngot: ValueError: y"),
        ({"kind": "tanh"}, "outputs: x"),
    ],
)
def test_no_script_is_written_that_does_not_show_the_finding(mlx, layer, finding):
    answer = mlx.export(run_of(case(layer, protocol=TRAINABLE)), finding)
    assert "no script was found" in answer["unsupported"]


def test_each_class_of_its_library_is_tried_or_says_why_not():
    from rematch.frameworks.mlx.adapter import LIBRARY, Mlx

    subject = Mlx()
    tried = {module.name.rpartition(".")[0]: module for module in subject.modules}
    for name in classes(LIBRARY, subject.names):
        assert (name in tried) != bool(subject.found()["not tried"].get(name)), name
    assert tried["nn.TransformerEncoderLayer"].traits.startswith("parameters")


@pytest.mark.parametrize("kind", ["nn.MultiHeadAttention", "nn.Transformer"])
def test_attention_is_tried_with_masks(kind):
    from rematch.frameworks.mlx.adapter import Mlx

    calls = [module.call for module in Mlx().modules if module.name.startswith(f"{kind}.")]
    assert any("np.tril(" in call for call in calls) and any("np.tril(" not in call for call in calls)


def test_a_found_layer_that_draws_in_a_segment_is_shown_by_a_script(mlx, tmp_path):
    from rematch.frameworks.mlx.adapter import Mlx

    drawing = next(m for m in Mlx().modules if m.name.startswith("nn.TransformerEncoderLayer") and "draws" in m.traits)
    asked = run_of(case({"kind": "custom", "layer": drawing.declaration}, protocol=TRAINABLE))
    script = mlx.export(asked, "input-gradients: differ")["script"]
    ended = run_alone(script, tmp_path)
    assert ended.stdout.rstrip().partition("DIFFERENT: ")[2].startswith("gradient of x"), ended.stderr
