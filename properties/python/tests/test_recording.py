"""A recorded run is judged as a watch would have judged it, on any machine."""

import json

import pytest
import torch
from harness import run_module
from modules import maker
from torch.utils.checkpoint import checkpoint
from watched import Transformer, train

import rematch
from rematch.journal.file import NoJournal
from rematch.recording import judge_journal

VARIANTS = pytest.mark.parametrize("reentrant", [True, False])


def model_of(reentrant, noise=0.0, **options):
    torch.manual_seed(0)
    model = Transformer(use_reentrant=reentrant, **options)
    model.layers[3].moe.router.noise = noise
    return model


def trained(model, path=None, between=lambda: None):
    """What a watch finds in two steps, or what judges the journal of the same."""
    torch.manual_seed(1)
    if path is None:
        with rematch.watch(model, 1, on_difference=lambda finding: None, keep_bytes=1 << 12, turns=0) as watch:
            train(model, 2, between)
        return watch
    with rematch.record(model, path):
        train(model, 2, between)
    return judge_journal(path)


@VARIANTS
@pytest.mark.parametrize("what", ["sound", "noise", "masks", "written"])
def test_a_journal_says_what_a_watch_says(tmp_path, reentrant, what):
    def of(path=None):
        model = model_of(reentrant, 0.5 * (what == "noise"), preserve_rng_state=what != "masks")

        def write():
            with torch.no_grad():
                model.layers[2].attention.out_proj.weight[3, 5] += what == "written"

        return trained(model, path, write)

    watch, judged = of(), of(tmp_path / "run.journal")
    assert [str(f) for f in judged.findings] == [str(f) for f in watch.findings]
    assert [f.times for f in judged.findings] == [f.times for f in watch.findings]
    assert (judged.compared, judged.rounded) == (watch.compared, watch.rounded)
    assert bool(judged.findings) == (what != "sound")
    assert judged.not_seen == []


def recorded(path, function, error=None, **holds):
    """What judges the journal of a step that computes the function, or a layer that it holds, in a checkpoint."""

    def forward(self, x):
        then = function or self.holds
        return checkpoint(lambda x: then(self.inner(x)), x, use_reentrant=False).abs().sum()

    model = maker(forward, None, **holds)()
    with rematch.record(model, path):
        model(torch.ones(2, 4)).backward()
        if error:
            raise error
    return judge_journal(path)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.complex64])
def test_elements_of_any_dtype_are_written_and_read(tmp_path, dtype):
    count = iter(range(9))
    judged = recorded(tmp_path / "j", lambda y: (y.to(dtype) * torch.tensor(1 + next(count)).to(dtype)).abs())
    [finding] = judged.findings
    assert (finding.operator, finding.element, finding.comparison.first.differing) == ("aten.mul.Tensor", 0, 8)
    assert finding.comparison.first.now == pytest.approx(2 * finding.comparison.first.was)


@pytest.mark.parametrize(
    ("cause", "layer"),
    [
        ("batch-norm", lambda: torch.nn.BatchNorm1d(4)),
        ("spectral-norm", lambda: torch.nn.utils.spectral_norm(torch.nn.Linear(4, 4))),
        (None, lambda: torch.nn.Tanh()),
    ],
)
def test_a_journal_names_the_cause_where_the_forward_wrote_a_state(tmp_path, cause, layer):
    judged = recorded(tmp_path / "j", None, holds=layer)
    assert [finding["cause"] for finding in judged.to_json()["findings"]] == ([cause] if cause else [])
    assert cause is None or f"cause: {cause}: " in str(judged)


def test_a_journal_says_how_the_run_ended(tmp_path):
    with pytest.raises(KeyError):
        recorded(tmp_path / "j", torch.sin, KeyError("lost"))
    judged = judge_journal(tmp_path / "j")
    assert (judged.regions, judged.compared) == (1, 1)
    assert judged.not_seen == ["the run ended in an error: KeyError: 'lost'"]
    text = (tmp_path / "j").read_text()
    # The process ends: within the seal, or within the line of the recomputation.
    for kept, compared in ((text.rindex("sealed"), 1), (text.rindex("prints"), 0)):
        (tmp_path / "j").write_text(text[:kept] if compared else text[: text.rindex("\n", 0, kept) + 9])
        judged = judge_journal(tmp_path / "j")
        assert judged.compared == compared
        assert judged.not_seen[0] == "the journal is not sealed: the process ended while it was written"


def test_a_journal_says_what_could_not_be_seen(monkeypatch, tmp_path):
    def fails(*_):
        raise NotImplementedError("of this kind")

    monkeypatch.setattr("rematch.journal.computations.Computations._made", fails)
    judged = recorded(tmp_path / "j", torch.sin)
    assert judged.compared == 1 and any("of this kind" in sentence for sentence in judged.not_seen)
    assert "every recomputation computed what its forward did, as far as it was seen" in str(judged)


@pytest.mark.parametrize(
    "text", ["", "[]\n", "{}\n", '{"journal": 99}\n', "no JSON\n", '{"journal": 1}\n[]\n', '{"journal": 1}\n{}\n']
)
def test_what_is_no_journal_is_refused(tmp_path, text):
    (tmp_path / "j").write_text(text)
    with pytest.raises(NoJournal, match="expected"):
        judge_journal(tmp_path / "j")


def test_the_command_tells_by_its_status(tmp_path):
    def judged(*words):
        done = run_module(tmp_path, "rematch", "judge", *words)
        return done.returncode, done.stdout, done.stderr

    for noise in (0.0, 0.5):
        trained(model_of(False, noise), tmp_path / f"{noise}")
    status, out, _ = judged("0.0")
    assert status == 0 and out.endswith("every recomputation computed what its forward did\n")
    status, out, _ = judged("0.5", "--json")
    assert status == 1 and json.loads(out)["findings"][0]["module"] == "layers.3.moe.router"
    whole = (tmp_path / "0.0").read_text()
    (tmp_path / "cut").write_text(whole[: whole.rindex('{"sealed"')])
    status, out, _ = judged("cut")
    assert status == 1 and "the journal is not sealed" in out
    status, out, err = judged("none")
    assert status == 2 and not out and "No such file" in err and "Traceback" not in err
