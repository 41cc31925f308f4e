"""watch() in jobs of two processes: DDP and FSDP2 over gloo, on the CPU."""

import os
from functools import partial
from multiprocessing import get_context

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel as ddp
from watched import Transformer, batch

import rematch


def fsdp(model, **options):
    for layer in model.layers:
        fully_shard(layer, **options)
    return fully_shard(model, **options)


half = partial(fsdp, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
gathered = partial(fsdp, reshard_after_forward=False)


def layer_of(model, number):
    layer = getattr(model, "module", model).layers[number]
    return getattr(layer, "_checkpoint_wrapped_module", layer)


def noise(model):
    """In one rank alone. Shapes stay what they are, so that the other one is not left waiting."""
    if dist.get_rank() == 1:
        layer_of(model, 3).moe.router.noise = 0.5


def written(model):
    """A weight that is written between the forward and its backward."""

    def write(*_):
        weight = layer_of(model, 2).attention.out_proj.weight
        with torch.no_grad():
            getattr(weight, "_local_tensor", weight).add_(1)

    model.register_forward_hook(write)


def apart(model):
    """Gradients are changed after the reduction; see job()."""


def job(rank, path, answer, parallel, wrapped, reentrant, plant):
    # A forked process has none of its parent's OpenMP threads, and would wait for them.
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=dist.FileStore(path, 2), rank=rank, world_size=2)
    torch.manual_seed(0)
    model = Transformer() if wrapped else Transformer(use_reentrant=reentrant)
    if wrapped:
        kind = wrapper.CheckpointImpl["REENTRANT" if reentrant else "NO_REENTRANT"]
        for number, layer in enumerate(model.layers):
            model.layers[number] = wrapper.checkpoint_wrapper(layer, checkpoint_impl=kind)
    model = parallel(model)
    if plant is not None:
        plant(model)
    optimizer = torch.optim.AdamW(model.parameters())
    ranks = getattr(model, "process_group", None)
    with rematch.watch(model, 1, lambda finding: None, ranks=ranks) as watch:
        for _ in range(1 if plant else 24):
            model(batch()).square().mean().backward()
            if plant is apart:
                model.module.head.bias.grad *= 1 - 2 * dist.get_rank()
            optimizer.step()
            optimizer.zero_grad()
    answer.send(
        (
            watch.rotation.completed,
            [(str(f), [s.name for s in f.comparison.states] if f.comparison else f.ranks) for f in watch.findings],
        )
    )
    os._exit(0)


def in_two_ranks(path, *args):
    """What job() found in each."""
    context, started = get_context("fork"), []
    for rank in range(2):
        ours, theirs = context.Pipe()
        process = context.Process(target=job, args=(rank, str(path / "store"), theirs, *args), daemon=True)
        process.start()
        theirs.close()
        started.append((process, ours))
    try:
        found = []
        for _, ours in started:
            assert ours.poll(60), "a rank does not answer"
            found.append(ours.recv())
        return found
    finally:
        for process, ours in started:
            process.kill()
            process.join()
            ours.close()


WAYS = [(ddp, False), (fsdp, True), (half, False), (gathered, True)]
BOTH = pytest.mark.parametrize("reentrant", [True, False])


@BOTH
@pytest.mark.parametrize(("parallel", "wrapped"), WAYS, ids=["ddp", "fsdp2", "fsdp2-bfloat16", "fsdp2-gathered"])
def test_sound_steps_raise_no_alarm(tmp_path, parallel, wrapped, reentrant):
    for rotations, findings in in_two_ranks(tmp_path, parallel, wrapped, reentrant, None):
        assert (rotations, findings) == (1, [])


BY_NAME = pytest.mark.parametrize(("parallel", "name"), [(ddp, "module.layers"), (fsdp, "layers")], ids=["ddp", "fsdp"])


@BOTH
@BY_NAME
def test_noise_in_one_rank_is_named_there_with_its_number(tmp_path, parallel, name, reentrant):
    (_, other), (_, [(text, _)]) = in_two_ranks(tmp_path, parallel, False, reentrant, noise)
    assert other == []
    assert text.startswith(f"rematch.watch, step 1, rank 1: {name}.3.moe.router: aten.mul.Tensor differs")
    assert f"then {name}.3.moe.router: aten.topk differs" in text


@BOTH
@BY_NAME
def test_a_weight_written_before_the_backward_is_named_in_both(tmp_path, parallel, name, reentrant):
    for rank, (_, [(text, states)]) in enumerate(in_two_ranks(tmp_path, parallel, False, reentrant, written)):
        assert text.startswith(f"rematch.watch, step 1, rank {rank}: {name}.2.attention: aten.addmm differs")
        assert states == [f"{name}.2.attention.out_proj.weight"]


def test_ranks_whose_gradients_or_parameters_differ_are_named_on_all(tmp_path):
    for rank, (_, found) in enumerate(in_two_ranks(tmp_path, ddp, False, False, apart)):
        where = f"rematch.watch, step 1, rank {rank}: module.head.bias"
        texts = [f"{where}: ranks 1 have another {what} than most" for what in ("gradient", "parameter")]
        assert found == [(text, (1,)) for text in texts]
