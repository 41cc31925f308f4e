"""The command line of subjects on PyTorch."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from rematch.frameworks.pytorch.library import library
from rematch.frameworks.pytorch.modules import MODULES
from rematch.frameworks.pytorch.subject import VARIANTS, TorchSubject
from rematch.loading import import_lines, load

NOT_IN_PARALLEL = ("layers", "no_modules", "observe", "wrapper", "compile", "around", "budget", "defaults")


def parser_of(what: str, variants: Sequence[str] = VARIANTS) -> argparse.ArgumentParser:
    """The options that all subjects on PyTorch have; `variants` are those that cases may have, the
    last one by default."""
    parser = argparse.ArgumentParser(prog=f"python -m rematch {what}")
    parser.add_argument(
        "--variant",
        choices=variants,
        default=variants[-1],
        help=f"variants of checkpointing that cases may have ({variants[-1]})",
    )
    parser.add_argument(
        "--observe",
        choices=["cheap", "all"],
        default="all",
        help="all: masks, executions and saved bytes, too; cheap is twice as fast (all)",
    )
    parser.add_argument(
        "--layers",
        metavar="SCRIPT:LIST",
        help="a list of rematch.pytorch.CustomLayer, modules that cases are to have as well",
    )
    parser.add_argument(
        "--no-modules", action="store_true", help="leave out PyTorch's modules and operators, and those of modules.py"
    )
    return parser


def options_of(given: argparse.Namespace) -> dict[str, Any]:
    """Arguments of TorchSubject that they stand for."""
    layers = [] if given.no_modules else [*MODULES, *library()]
    if given.layers:
        layers += load(given.layers)
    return {"variant": given.variant, "observe": given.observe, "layers": layers}


def _refuse(parser: argparse.ArgumentParser, given: argparse.Namespace, names: Sequence[str], why: str) -> None:
    """Ends with an error where one of these options is not at its default."""
    for name in names:
        if getattr(given, name) != parser.get_default(name):
            parser.error(f"--{name.replace('_', '-')} means nothing {why} --parallel")


def subject(arguments: list[str]) -> TorchSubject:
    """PyTorch's own checkpoint(), or one of its wrappers."""
    parser = parser_of("pytorch")
    parser.add_argument(
        "--wrapper",
        choices=["fsdp", "composable", "transformers"],
        help="FSDP's checkpoint_wrapper(), the composable checkpoint(), which has the non-reentrant variant only, or "
        "GradientCheckpointingLayer of transformers",
    )
    parser.add_argument(
        "--compile",
        choices=["aot_eager", "inductor"],
        help="compile models, with checkpoint() in them, by this backend",
    )
    parser.add_argument(
        "--around", action="store_true", help="with --compile: compile segments, with checkpoint() around them"
    )
    parser.add_argument(
        "--budget",
        type=float,
        metavar="SHARE",
        help="with --compile: no checkpoint(), but this activation_memory_budget",
    )
    parser.add_argument(
        "--defaults",
        action="store_true",
        help="with --compile: the backend's own kernels and random numbers, judged within bounds",
    )
    parser.add_argument(
        "--parallel",
        choices=["ddp", "fsdp2", "tp", "fsdp2_tp"],
        help="several processes: share each batch, within DistributedDataParallel or fully_shard(), or layers (tp), or "
        "both",
    )
    parser.add_argument(
        "--rank-limit",
        type=float,
        default=30,
        metavar="SECONDS",
        help="with --parallel: how long a run may take before it counts as a hang (30)",
    )
    given = parser.parse_args(arguments)
    if given.parallel is None:
        _refuse(parser, given, ["rank_limit"], "without")
    else:
        _refuse(parser, given, NOT_IN_PARALLEL, "with")
        from rematch.frameworks.pytorch.data_parallel import DataParallelSubject

        return DataParallelSubject(given.parallel, given.variant, given.rank_limit)
    if given.compile is not None:
        from rematch.frameworks.pytorch.compiled import Compilation, CompiledSubject

        how = Compilation(given.compile, given.around, given.budget, given.defaults)
        return CompiledSubject(how, given.variant)
    if given.wrapper is None:
        return TorchSubject(**options_of(given))
    from rematch.frameworks.pytorch.wrappers import WRAPPERS, WrappedSubject

    if given.wrapper == "transformers":
        from rematch.frameworks.pytorch.transformers_layer import LAYER

        return WrappedSubject(LAYER, **options_of(given))
    if given.wrapper == "composable":
        given.variant = "non_reentrant"
    return WrappedSubject(WRAPPERS[given.wrapper], **options_of(given))


def subject_at(place: str, arguments: list[str]) -> TorchSubject:
    """A checkpoint() of the user's. Raises SystemExit where there is none at `place`."""
    given = parser_of(place).parse_args(arguments)
    function: Callable[..., Any] = load(place)
    if not callable(function):
        raise SystemExit(f"{place}: a function expected, got {type(function).__name__}")
    return TorchSubject(place, function, imported=import_lines(place), **options_of(given))
