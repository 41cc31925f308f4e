"""DeepSpeed's two checkpoint functions, on the CPU."""

import os
from inspect import getsource
from typing import Any

# DeepSpeed looks for a device when it is imported.
os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed  # noqa: E402

from rematch.frameworks.pytorch.adapter import options_of, parser_of  # noqa: E402
from rematch.frameworks.pytorch.subject import TorchSubject  # noqa: E402

LACKS = {
    "preserve_rng_off": "random state is always preserved",
    "early_stop": "a recomputation runs to the end",
    "metadata_check": "there is no determinism check",
    "selective": "there are no policies",
}

UNSEEN = {"saved_bytes": "inputs are kept in attributes, where hooks on saved tensors do not see them"}


def checkpoint(function: Any, *inputs: Any, use_reentrant: bool, **options: Any) -> Any:
    """`options` can hold only determinism_check="none", which is ignored: there is no such check."""
    if use_reentrant:
        return deepspeed.checkpointing.checkpoint(function, *inputs)
    return deepspeed.checkpointing.non_reentrant_checkpoint(function, *inputs)


SCRIPT = f"""
from typing import Any

import deepspeed


{getsource(checkpoint)}"""


def subject(arguments: list[str]) -> TorchSubject:
    """DeepSpeed. Raises ImportError where there is none."""
    given = parser_of("deepspeed").parse_args(arguments)
    name = f"deepspeed {deepspeed.__version__}"
    lacks = LACKS if given.variant != "reentrant" else {**LACKS, "no_check": "likewise"}
    made = TorchSubject(name, checkpoint, imported=SCRIPT, lacks=lacks, unseen=UNSEEN, **options_of(given))
    made.versions["deepspeed"] = deepspeed.__version__
    return made
