"""Megatron-core's tensor_parallel.checkpoint(), a reentrant checkpoint.

It preserves the random states of a CUDA device, too, and so needs one. It has not been run yet."""

from __future__ import annotations

from typing import Any

import torch

from rematch.frameworks.pytorch.adapter import options_of, parser_of
from rematch.frameworks.pytorch.subject import TorchSubject

LACKS = {
    "preserve_rng_off": "random state is always preserved",
    "no_check": "there is no determinism check that could be left out",
}


def checkpoint(function: Any, *inputs: Any, use_reentrant: bool) -> Any:
    """Without distributing what is saved over several devices."""
    from megatron.core import tensor_parallel

    return tensor_parallel.checkpoint(function, False, *inputs)


def subject(arguments: list[str]) -> TorchSubject:
    """Raises ImportError without the library, and SystemExit without a device."""
    import megatron.core
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    given = parser_of("megatron", ["reentrant"]).parse_args(arguments)
    if not torch.cuda.is_available():
        raise SystemExit("megatron: its checkpoint() needs a CUDA device, and there is none")
    model_parallel_cuda_manual_seed(0, tp_rank=0, ep_rank=0, etp_rank=0)
    name = f"megatron-core {megatron.core.__version__}"
    return TorchSubject(name, checkpoint, lacks=LACKS, **options_of(given))
