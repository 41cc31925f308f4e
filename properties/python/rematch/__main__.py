"""The command line: starts a subject, for `rematch check --subject "python -m rematch ..."`."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from rematch import frameworks
from rematch.library import summary
from rematch.protocol import Subject, serve

FRAMEWORKS = sorted(file.parent.name for file in Path(frameworks.__file__).parent.glob("*/adapter.py"))
"""Names of the folders whose module `adapter` has a function `subject(arguments)`, which makes a subject of
the words that follow its name."""

PRINT = "--print-modules"
EXAMPLES = """\
examples:
  rematch check --subject "python -m rematch pytorch --variant non_reentrant"
  rematch check --subject "python -m rematch my_checkpoint.py:checkpoint"
  python -m rematch mlx --print-modules    (layers of its library that cases have, and why others are not tried)
  python -m rematch safe my_package.blocks:Block
  python -m rematch plan my_package.models:small --budget 8GB    (which blocks to checkpoint)
  python -m rematch zoo --library timm             (models of libraries: zoo --help)
"""


def _subject(what: str, arguments: list[str]) -> Subject:
    try:
        if what in FRAMEWORKS:
            return import_module(f"rematch.frameworks.{what}.adapter").subject(arguments)
        from rematch.frameworks.pytorch.adapter import subject_at
    except ImportError as error:
        raise SystemExit(f"{what}: what it needs cannot be loaded: {error}") from None
    return subject_at(what, arguments)


def main(arguments: list[str] | None = None) -> None:
    """Raises SystemExit: 2 for a wrong argument, 1 with a sentence for what cannot be started."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["safe"]:
        from rematch.safe.cli import main as safe

        return safe(given[1:])
    if given[:1] == ["plan"]:
        from rematch.plan.cli import main as plan

        return plan(given[1:])
    if given[:1] == ["zoo"]:
        from rematch.zoo.cli import main as zoo

        return zoo(given[1:])
    parser = argparse.ArgumentParser(
        prog="python -m rematch",
        description="Starts a subject of the harness, or judges a module by itself.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "what",
        metavar="WHAT",
        help=f"{', '.join(FRAMEWORKS)}, or script.py:function with the signature of "
        "torch.utils.checkpoint.checkpoint(), or safe, or plan, or zoo",
    )
    parser.add_argument(
        "options", nargs=argparse.REMAINDER, help="of the subject; `python -m rematch WHAT --help` lists them"
    )
    words = parser.parse_args(given)
    if PRINT in words.options:
        return print(summary(_subject(words.what, [word for word in words.options if word != PRINT]).found()))
    return serve(_subject(words.what, words.options))


if __name__ == "__main__":
    main()
