"""watch() names what a recomputation computes differently in a running job, and changes nothing."""

import copy
import pickle
import warnings
from contextlib import nullcontext
from functools import partial

import planted_computations  # noqa: F401
import planted_states  # noqa: F401
import pytest
import sound_outside  # noqa: F401
import torch
import torch.utils.checkpoint as library
from modules import ONLY_NON_REENTRANT, PLANTED, SOUND, arguments_of, maker
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from watched import WIDTH, Transformer, batch, train

import rematch
from rematch.watching import RecomputationDiffers, WatchWarning

VARIANTS = pytest.mark.parametrize("reentrant", [True, False])


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def silent(model, every=1, **options):
    """A watch that warns of nothing."""
    return rematch.watch(model, every, on_difference=lambda finding: None, **options)


def rows():
    return torch.randn(3, 4, requires_grad=True)


def watched_step(model, **options):
    """A silent watch over one step."""
    with silent(model, **options) as watch:
        model(rows()).sum().backward()
    return watch


def trained(model, steps=1, every=1, before_backward=None, turns=16, **autocast):
    with silent(model, every, turns=turns) as watch:
        train(model, steps, before_backward, **autocast)
    return watch


class Checkpointed(nn.Module):
    def __init__(self, inner, reentrant=False, **options):
        super().__init__()
        self.inner, self.options = inner, {"use_reentrant": reentrant, **options}

    def forward(self, *args, **kwargs):
        if kwargs and self.options["use_reentrant"]:
            return checkpoint(lambda *a: self.inner(*a, **kwargs), *args, **self.options)
        return checkpoint(self.inner, *args, **self.options, **kwargs)


def places(watch):
    return [(finding.module, finding.operator) for finding in watch.findings]


@VARIANTS
def test_noise_in_a_router_is_named_and_the_routing_that_it_turns(reentrant):
    model = Transformer(use_reentrant=reentrant)
    model.layers[3].moe.router.noise = 0.5
    watch = trained(model)
    assert places(watch) == [("layers.3.moe.router", "aten.mul.Tensor")]
    first, route = watch.findings[0].comparison.first, watch.findings[0].comparison.route
    assert (first.element, first.now, first.was) == (1, 1.0, 0.5)
    assert (route.module, route.operator) == ("layers.3.moe.router", "aten.topk")
    said = f"then layers.3.moe.router: aten.topk differs: element {route.element} is {route.now}"
    assert said in str(watch.findings[0])


class Flips(TorchDispatchMode):
    """A device on which topk chooses otherwise."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.topk.default:
            result[1].view(-1)[7] = 3 - result[1].view(-1)[7]
        return result


def test_a_routing_that_turns_by_itself_is_named_with_its_element():
    model = Transformer(use_reentrant=False)
    again = iter([nullcontext(), Flips(), nullcontext(), nullcontext()])
    model.options["context_fn"] = lambda: (nullcontext(), next(again))
    watch = trained(model)
    assert places(watch) == [("layers.1.moe.router", "aten.topk")]
    first = watch.findings[0].comparison.first
    assert (first.element, first.now, first.differing, first.elements) == (7, 3 - first.was, 1, 20)
    said = "rematch.watch, step 1: layers.1.moe.router: aten.topk differs in the recomputation: "
    said += f"element 7 is {first.now}, in the forward {first.was} (1 of 20 elements)"
    assert str(watch.findings[0]) == said


@VARIANTS
def test_another_dropout_mask_is_named(reentrant):
    watch = trained(Transformer(use_reentrant=reentrant, preserve_rng_state=False))
    # The last layer is recomputed first, and with it every other mask of its forward.
    assert places(watch)[0] == ("layers.3.dropout", "aten.bernoulli_.float")
    assert "draws random numbers" in str(watch.findings[0])


@VARIANTS
@pytest.mark.parametrize("autocast", [{}, {"enabled": True}, {"enabled": True, "cache_enabled": False}])
def test_a_weight_written_between_forward_and_backward_is_named(reentrant, autocast):
    model = Transformer(use_reentrant=reentrant)

    def write():
        with torch.no_grad():
            model.layers[2].attention.out_proj.weight[3, 5] += 1

    [finding] = trained(model, 1, 1, write, **autocast).findings
    assert (finding.module, finding.operator) == ("layers.2.attention", "aten.addmm")
    [state] = finding.comparison.states
    assert (state.name, state.element, state.differing) == ("layers.2.attention.out_proj.weight", 3 * 16 + 5, 1)
    assert "layers.2.attention reads a changed layers.2.attention.out_proj.weight" in str(finding)
    assert "it was written since" in str(finding)


@VARIANTS
def test_a_state_that_advances_twice_is_named(reentrant):
    model = Checkpointed(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()), reentrant)
    [finding] = watched_step(model).findings
    assert finding.module == "inner.1"
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    assert finding.comparison.advanced == {f"inner.1.{name}" for name in statistics}
    assert "the forward itself writes it, so it is written twice" in str(finding)


def test_a_state_is_compared_even_if_no_result_shows_it():
    model = Checkpointed(nn.BatchNorm1d(4))
    model.inner.num_batches_tracked = None
    watch = watched_step(model)
    assert places(watch) == [("inner", "aten.native_batch_norm")]
    assert "inner: aten.native_batch_norm reads a changed inner.running_mean" in str(watch.findings[0])


@VARIANTS
def test_an_operator_that_the_recomputation_alone_runs_is_named(reentrant):
    def turns(self, x):
        self.calls += 1
        return x.sin() if self.calls % 2 else x.cos()

    model = Checkpointed(nn.Sequential(nn.Linear(4, 4), maker(turns, None, calls=0)()), reentrant)
    with library.set_checkpoint_early_stop(False):
        watch = watched_step(model)
    assert places(watch) == [("inner.1", "aten.cos")]
    assert "inner.1: aten.cos runs in the recomputation only" in str(watch.findings[0])


@VARIANTS
def test_a_rounding_is_told_or_else_counted(reentrant):
    def rounds(self, x):
        self.factor, factor = 1 + 2**-23, self.factor
        return x * factor

    model = Checkpointed(nn.Sequential(nn.Linear(4, 4), maker(rounds, None, factor=1.0)(), nn.Tanh()), reentrant)
    watch = watched_step(model)
    assert (places(watch), watch.rounded) == (([], 1) if reentrant else ([("inner.1", "aten.mul.Tensor")], 0))


def run_three_steps(make, reentrant):
    """The watch over a module of the catalogue of safe."""
    args, kwargs = arguments_of(make)
    model = Checkpointed(make(), reentrant)
    with silent(model) as watch:
        for _ in range(3):
            fresh = (a.clone().requires_grad_() if torch.is_tensor(a) and a.is_floating_point() else a for a in args)
            made = torch.utils._pytree.tree_leaves(model(*fresh, **kwargs))
            made += [t for o in made for t in getattr(o, "__dict__", {}).values()]
            losses = [t.abs().sum() for t in made if torch.is_tensor(t) and t.requires_grad]
            if losses:
                sum(losses).backward()
    return watch


@VARIANTS
@pytest.mark.parametrize("make", SOUND, ids=lambda make: make.__name__)
def test_a_sound_module_raises_no_alarm(make, reentrant):
    if reentrant and make.__name__ in ONLY_NON_REENTRANT:
        pytest.skip("is sound under use_reentrant=False alone")
    watch = run_three_steps(make, reentrant)
    assert not watch.findings, watch.findings[0]
    # Hooks within a region keep checkpoint() from packing anything, and so from recomputing.
    assert watch.compared or make.__name__ in ("nothing_comes", "identity", "halves_within")


NAMED = ("batch-norm", "instance-norm", "spectral-norm", "buffer-counter", "buffer-average", "global-changed")


@VARIANTS
@pytest.mark.parametrize("make", [make for cause, make in PLANTED if cause in NAMED], ids=lambda make: make.__name__)
def test_modules_of_the_catalogue_that_compute_something_else_are_named(make, reentrant):
    assert run_three_steps(make, reentrant).findings


@VARIANTS
@pytest.mark.parametrize("autocast", [{}, {"enabled": True}])
def test_50_steps_of_a_sound_model_raise_no_alarm(reentrant, autocast):
    watch = trained(Transformer(use_reentrant=reentrant), 50, 2, turns=0, **autocast)
    assert (watch.steps_watched, watch.compared, watch.findings) == (25, 100, [])


@VARIANTS
@pytest.mark.parametrize("autocast", [{}, {"enabled": True}])
def test_the_numbers_of_a_watched_step_are_those_of_an_unwatched_one(reentrant, autocast):
    ended = []
    for every in (None, 1, 2):
        torch.manual_seed(0)
        model = Transformer(use_reentrant=reentrant)
        watch = None if every is None else silent(model, every)
        train(model, 4, **autocast)
        ended.append([torch.get_rng_state(), *(p.detach().clone() for p in model.parameters())])
        assert watch is None or watch.steps_watched == 4 // every
    for other in ended[1:]:
        assert all(torch.equal(a, b) for a, b in zip(ended[0], other, strict=True))


def test_only_training_steps_count_and_others_run_without_anything_but_two_hooks():
    real = library.CheckpointFunction
    model = Transformer(use_reentrant=True)
    seen = []
    model.head.register_forward_hook(lambda *_: seen.append(library.CheckpointFunction is not real))
    watch = silent(model, 3)
    train(model, 3)
    model.eval()(batch())
    with torch.no_grad():
        model.train()(batch())
    train(model, 4)
    assert seen == [False, False, True, False, False, False, False, True, False]
    assert (watch.steps, watch.steps_watched) == (7, 2)
    assert library.CheckpointFunction is real
    assert [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()][0] == 2


def test_a_model_is_as_it_was_after_remove():
    model = Transformer(use_reentrant=False)
    watch = silent(model)
    loss = model(batch()).sum()
    watch.remove()
    loss.backward()
    train(model, 1)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert (watch.steps_watched, watch.compared) == (1, 0)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_of_a_watched_model_is_not_watched(copied):
    model = Transformer(use_reentrant=False)
    with silent(model) as watch:
        train(copied(model), 1)
        assert watch.steps == 0


def test_a_forward_without_a_backward_and_one_that_fails_disturb_nothing():
    real = library.CheckpointFunction
    model = Transformer(use_reentrant=True)
    with silent(model) as watch:
        model(batch())
        with pytest.raises(RuntimeError):
            model(torch.randn(2, 5, 3))
        assert library.CheckpointFunction is real
        train(model, 1)
    assert (watch.steps_watched, watch.compared, watch.findings) == (3, 4, [])


@VARIANTS
def test_two_forwards_before_a_backward_and_accumulation_are_told_apart(reentrant):
    model = Transformer(use_reentrant=reentrant)
    with silent(model, turns=0) as watch:
        (model(batch()).sum() + model(batch(3)).sum()).backward()
        model(batch()).sum().backward()
        losses = [model(batch(n)).sum() for n in (1, 2)]
        losses[0].backward()
        losses[1].backward()
    assert (watch.compared, watch.findings) == (20, [])


@VARIANTS
def test_a_finding_says_the_step_of_its_forward(reentrant):
    model = Checkpointed(nn.BatchNorm1d(4), reentrant)
    with silent(model) as watch:
        losses = [model(rows()).sum() for _ in range(3)]
        losses[1].backward()
    assert [finding.step for finding in watch.findings] == [2]


@pytest.mark.parametrize(
    "broken", ["Computation.take", "Computation.close", "Computations._read", "Computations._made"]
)
def test_what_the_watch_cannot_do_is_said_and_training_goes_on(monkeypatch, broken):
    def fails(*_):
        raise NotImplementedError("of this kind")

    monkeypatch.setattr(f"rematch.journal.computations.{broken}", fails)
    torch.manual_seed(1)
    plain, model = (Transformer(use_reentrant=False) for _ in range(2))
    model.load_state_dict(plain.state_dict())
    with rematch.watch(model, 1), pytest.warns(WatchWarning, match="not seen: .*NotImplementedError: of this kind"):
        torch.manual_seed(2)
        train(model, 2)
    torch.manual_seed(2)
    train(plain, 2)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), model.parameters(), strict=True))


@pytest.mark.parametrize("outer", [True, False])
@pytest.mark.parametrize("inner", [True, False])
def test_nested_checkpoints_are_compared_at_every_depth(outer, inner):
    def differs(self, x):
        self.calls += 1
        return x * (2.0 if self.calls == self.other else 1.0)

    for other in (0, 2, 3):
        counts = maker(differs, None, calls=0, other=other)()
        nested = Checkpointed(nn.Sequential(nn.Tanh(), counts), inner)
        model = Checkpointed(nn.Sequential(nn.Linear(4, 4), nested), outer)
        with silent(model) as watch, library.set_checkpoint_early_stop(False):
            model(rows()).exp().sum().backward()
        # The outermost region, and the one within, are recomputed once each.
        assert watch.compared == 2 and counts.calls == 3
        assert places(watch) == ([("inner.1.inner.1", "aten.mul.Tensor")] if other else [])


def test_selective_checkpoints_are_compared_and_what_their_policies_see_stays():
    asked = []

    def contexts():
        def policy(context, operator, *args, **kwargs):
            asked.append(str(operator))
            kinds = library.CheckpointPolicy
            return kinds.MUST_SAVE if "mm" in str(operator) else kinds.PREFER_RECOMPUTE

        return library.create_selective_checkpoint_contexts(policy)

    layers = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4), nn.Tanh())
    model, x = Checkpointed(layers, context_fn=contexts), rows()
    model(x).sum().backward()
    alone = asked.copy()
    asked.clear()
    with silent(model) as watch:
        model(x).sum().backward()
    assert asked == alone
    assert (watch.compared, watch.findings) == (1, [])


def test_a_difference_warns_once_for_each_place():
    model = Checkpointed(nn.BatchNorm1d(4))
    with rematch.watch(model, 1, turns=0) as watch, pytest.warns(WatchWarning) as told:
        for _ in range(3):
            model(rows()).sum().backward()
    assert len(told) == 1 and str(told[0].message) == str(watch.findings[0])
    assert (watch.findings[0].step, watch.findings[0].times) == (1, 3)


@VARIANTS
def test_a_difference_is_raised_out_of_the_backward_or_given_to_a_function(reentrant):
    real = library.CheckpointFunction
    model = Checkpointed(nn.BatchNorm1d(4), reentrant)
    x = rows()
    with rematch.watch(model, 1, "raise"), pytest.raises(RecomputationDiffers, match="inner: aten.add_") as raised:
        model(x).sum().backward()
    given = []
    with rematch.watch(model, 1, given.append) as watch:
        model(x).sum().backward()
    assert given == watch.findings and raised.value.finding.module == "inner"
    assert library.CheckpointFunction is real


def test_of_long_results_elements_at_equal_distances_are_kept():
    factors = iter([torch.ones(8, 64), torch.arange(512).lt(70).float().view(8, 64)])
    layers = nn.Linear(64, 64), maker(lambda self, x: x * next(factors), None)(), nn.Tanh()
    with silent(model := Checkpointed(nn.Sequential(*layers)), keep_bytes=64) as watch:
        model(torch.randn(8, 64, requires_grad=True)).sum().backward()
    first = watch.findings[0].comparison.first
    assert (first.compared, first.elements, first.element) == (16, 512, 96)
    assert "of 16 that are kept of 512 elements" in str(watch.findings[0])


@VARIANTS
@pytest.mark.parametrize("how", ["a layer", "in place", "the model"])
def test_what_is_compiled_stays_compiled_and_is_said_not_to_be_seen_once(how, reentrant):
    ended = []
    for watches in (False, True):
        torch._dynamo.reset()
        torch.manual_seed(0)
        graphs = []

        def backend(graph, inputs, graphs=graphs):
            graphs.append(graph)
            return graph

        model = Transformer(use_reentrant=reentrant)
        if how == "a layer":
            model.layers[1] = torch.compile(model.layers[1], backend=backend)
        elif how == "in place":
            model.layers[1].compile(backend=backend)
        else:
            model = torch.compile(model, backend=backend)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            watch = silent(model) if watches else None
            train(model, 3)
        ended.append((len(graphs), *(p.detach().clone() for p in model.parameters())))
        assert len([w for w in told if issubclass(w.category, WatchWarning)]) == watches
    assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(*ended, strict=True))
    assert not watch.findings


def test_a_model_that_never_calls_checkpoint_is_said_not_to_be_seen():
    model = nn.Linear(4, 4)
    with rematch.watch(model, 1), pytest.warns(WatchWarning, match="not seen: any call of checkpoint"):
        for _ in range(3):
            model(torch.randn(3, 4)).sum().backward()


def test_wrong_options_are_refused():
    for options in ({"every": 0}, {"keep_bytes": 0}, {"on_difference": "stop"}):
        with pytest.raises(ValueError, match=next(iter(options))):
            rematch.watch(nn.Linear(2, 2), **options)


def test_a_layer_that_is_no_longer_checkpointed_is_named_once_and_one_that_is_left_out_is_not():
    class Fewer(Transformer):
        """Without a checkpoint around the third layer from the second step on; the fourth is dropped from the third."""

        steps = 0

        def forward(self, x):
            self.steps += 1
            for number, layer in enumerate(self.layers[: 3 if self.steps > 2 else 4]):
                run = layer if number == 2 and self.steps > 1 else partial(checkpoint, layer, use_reentrant=False)
                x = run(x)
            return self.head(x)

    model, told = Fewer(), []
    with rematch.watch(model, every=1) as watch, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for regions in (4, 3, 2, 2):
            model(torch.randn(2, 5, WIDTH)).sum().backward()
            assert watch.regions == regions
    texts = [str(w.message) for w in told if issubclass(w.category, WatchWarning)]
    named = "any call of checkpoint() around layers.2.norm1 in step 2, unlike in an earlier watched step"
    assert texts == [f"rematch.watch, not seen: {named}"] and not watch.findings
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_region_that_computes_more_in_each_step_is_named():
    def grows(self, x):
        self.kept = [*self.kept, x.detach()] if torch.is_grad_enabled() else self.kept
        return torch.stack([x, *self.kept]).sum(0)

    model = Checkpointed(nn.Sequential(nn.Linear(4, 4), maker(grows, None, kept=[])()), True)
    model.inner[1].kept = []
    watch = rematch.watch(model, 1, lambda finding: None, turns=0)
    with pytest.warns(WatchWarning, match="the region that begins in inner.0 computes more from look to look: "):
        for _ in range(4):
            model(rows()).sum().backward()
    # What a linear layer, a stack and a sum of three and more rows of 3 x 4 make.
    assert watch.sizes["inner.0"] == 4 * 12 * (1 + 4 + 1)
