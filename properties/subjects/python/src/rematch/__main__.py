"""The command line: starts a subject, for `rematch check --subject "python -m rematch ..."`."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rematch.protocol import serve

EXAMPLES = """\
examples:
  rematch check --subject "python -m rematch pytorch --variant non_reentrant"
  rematch check --subject "python -m rematch my_checkpoint.py:checkpoint"
  python -m rematch safe my_package.blocks:Block
"""


def load(place: str) -> Any:
    """What `script.py:name` or `package.module:name` names. Raises SystemExit with a sentence."""
    where, _, name = place.rpartition(":")
    if not where or not name:
        raise SystemExit(f"{place}: script.py:function or package.module:function expected")
    try:
        if where.endswith(".py"):
            path = Path(where).resolve()
            # A script finds what lies beside it, as if it were run.
            sys.path.insert(0, str(path.parent))
            spec = importlib.util.spec_from_file_location(path.stem, path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[path.stem] = module
            spec.loader.exec_module(module)
        else:
            sys.path.insert(0, "")
            module = importlib.import_module(where)
    except (ImportError, FileNotFoundError) as error:
        raise SystemExit(f"{where}: cannot be loaded: {error}") from None
    found = getattr(module, name, None)
    if found is None:
        raise SystemExit(f"{where} has no {name}")
    return found


def import_lines(place: str) -> str:
    """The lines by which a script imports what load() finds, as `checkpoint`."""
    where, _, name = place.rpartition(":")
    path = Path(where).resolve()
    folder, module = (path.parent, path.stem) if where.endswith(".py") else (Path.cwd(), where)
    found = f"from {module} import {name} as checkpoint"
    return f"\nsys.path.insert(0, {str(folder)!r})\n{found}"


def _torch_subject(arguments: argparse.Namespace, **options: Any) -> Any:
    variant = arguments.variant
    try:
        from rematch.pytorch import MODULES, TorchSubject

        if arguments.compile is not None:
            from rematch.pytorch.compiled import CompiledSubject, Compilation

            how = Compilation(arguments.compile, arguments.around, arguments.budget)
            return CompiledSubject(how, variant)
        if arguments.what == "pytorch" and arguments.wrapper is not None:
            from rematch.pytorch.wrappers import WRAPPERS

            name = f"torch {arguments.wrapper}"
            options |= {"name": name, "checkpoint": WRAPPERS[arguments.wrapper]}
            if arguments.wrapper == "composable":
                variant = "non_reentrant"
    except ImportError as error:
        raise SystemExit(f"PyTorch cannot be loaded ({error}); pip install torch") from None
    layers = [] if arguments.no_modules else list(MODULES)
    if arguments.layers:
        layers += load(arguments.layers)
    return TorchSubject(variant=variant, observe=arguments.observe, layers=layers, **options)


def _serve(arguments: argparse.Namespace) -> None:
    if arguments.what == "pytorch":
        return serve(_torch_subject(arguments))
    function: Callable[..., Any] = load(arguments.what)
    if not callable(function):
        raise SystemExit(f"{arguments.what}: a function expected, got {type(function).__name__}")
    imported = import_lines(arguments.what)
    subject = _torch_subject(arguments, name=arguments.what, checkpoint=function, imported=imported)
    return serve(subject)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rematch",
        description="Starts a subject of the harness, or judges a module by itself.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "what",
        metavar="WHAT",
        help="pytorch, or script.py:function with the signature of "
        "torch.utils.checkpoint.checkpoint(), or safe",
    )
    parser.add_argument(
        "--variant",
        choices=["reentrant", "non_reentrant", "both"],
        default="both",
        help="variants of checkpointing that cases may have (both)",
    )
    parser.add_argument(
        "--wrapper",
        choices=["fsdp", "composable"],
        help="with pytorch: FSDP's checkpoint_wrapper(), or the composable checkpoint(), which has "
        "the non-reentrant variant only",
    )
    parser.add_argument(
        "--compile",
        choices=["aot_eager", "inductor"],
        help="with pytorch: compile models with checkpoint() in them, by this backend",
    )
    parser.add_argument(
        "--around",
        action="store_true",
        help="with --compile: compile segments, with checkpoint() around them",
    )
    parser.add_argument(
        "--budget",
        type=float,
        metavar="SHARE",
        help="with --compile: no checkpoint(), but this activation_memory_budget",
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
        "--no-modules",
        action="store_true",
        help="leave out the modules of rematch.pytorch.modules",
    )
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Raises SystemExit: 2 for a wrong argument, 1 with a sentence for what cannot be started."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["safe"]:
        from rematch.safe.cli import main as safe

        return safe(given[1:])
    return _serve(_parser().parse_args(given))


if __name__ == "__main__":
    main()
