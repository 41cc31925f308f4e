"""The command line, `rematch` or `python -m rematch`. It judges modules and starts subjects; all other commands are
those of the program."""

from __future__ import annotations

import difflib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from rematch.cli import refuse
from rematch.program import COMMANDS, DISTRIBUTION, PACKAGE, become, how_to_get_it, program

if TYPE_CHECKING:
    from rematch.subjects.protocol import Subject

FRAMEWORKS = sorted(file.parent.name for file in (PACKAGE / "frameworks").glob("*/adapter.py"))
"""The frameworks: folders whose module `adapter` has a function `subject(arguments)`, which makes a subject from the
words after the framework's name."""

OURS = {
    "safe": "say whether a module computes the same when it is checkpointed, and why not",
    "judge": "say which recomputations differ in a run that rematch.record() recorded",
    "plan": "say which blocks of a model to checkpoint, for a budget of bytes",
    "zoo": "judge small random models of libraries such as timm",
    "report": "print the facts of a known bug of a framework, for its tracker",
}
"""Commands that are written in Python, in modules of rematch.cli; main() of each gets the words after its name."""

PRINT = "--print-modules"
HELP = """\
usage: rematch COMMAND ...    (python -m rematch COMMAND ... is the same)

Finds silent faults in activation checkpointing.

In Python:
{ours}

  FRAMEWORK           answer as a subject, for the program: {frameworks}
  mine.py:FUNCTION    the same for a checkpoint() function of your own
                      ({print} lists the layers of a framework's library that cases have)

The program, {where}:
{theirs}

`rematch COMMAND --help` explains each.
Exit status 0: nothing new; 1: a violation, or no law had anything to judge; 2: wrong usage, bad input, or an error.

Examples:
  rematch safe torch.nn:TransformerEncoderLayer --arg 32 --arg nhead=4 --arg batch_first=True --input 2x8x32
  rematch plan my_package.models:small --budget 8GB
  rematch check --subject pytorch --cases 300
  rematch check --subject mine.py:my_checkpoint
"""


def _help() -> str:
    def lines(commands: dict[str, str]) -> str:
        return "\n".join(f"  {name:18}  {what}" for name, what in commands.items())

    found = program()
    beside = sorted(file.name.partition("-")[2] for file in found.parent.glob("rematch-*")) if found else []
    theirs = {**COMMANDS, **{name: "a program beside it" for name in beside if name not in COMMANDS}}
    return HELP.format(
        ours=lines(OURS),
        frameworks=", ".join(FRAMEWORKS),
        print=PRINT,
        where=found or f"which is not here: {how_to_get_it()}",
        theirs=lines(theirs),
    )


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"rematch {version(DISTRIBUTION)}, the Python package alone"
    except PackageNotFoundError:
        return "rematch, the Python package alone, not installed"


def _subject(what: str, arguments: list[str]) -> Subject:
    try:
        if what in FRAMEWORKS:
            return import_module(f"rematch.frameworks.{what}.adapter").subject(arguments)
        from rematch.frameworks.pytorch.adapter import subject_at

        return subject_at(what, arguments)
    except ImportError as error:
        refuse("rematch", f"{what}: what it needs cannot be loaded: {error}")


def _serve(what: str, options: list[str]) -> None:
    subject = _subject(what, [word for word in options if word != PRINT])
    if PRINT in options:
        from rematch.subjects.library import summary

        return print(summary(subject.found()))
    from rematch.subjects.protocol import serve

    return serve(subject)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command. Raises SystemExit: 2 for a wrong argument or a failed start; commands have further statuses."""
    try:
        _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe. Python would report that again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(128 + signal.SIGPIPE) from None


def _run(arguments: Sequence[str] | None) -> None:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words:
        print(_help(), file=sys.stderr)
        raise SystemExit(2)
    what, options = words[0], words[1:]
    if what in ("-h", "--help"):
        return print(_help())
    if what in OURS:
        try:
            return import_module(f"rematch.cli.{what}").main(options)
        except ImportError as error:
            if sys.modules.get("torch") is not None:
                raise
            refuse("rematch", f"{what} needs PyTorch in this Python: {error}")
        except BrokenPipeError:
            raise
        except Exception:
            # Python would end with 1, which is for a violation.
            traceback.print_exc()
            refuse("rematch", f"{what} failed by itself: the lines above say where")
    if what in FRAMEWORKS or ":" in what or what.endswith(".py"):
        try:
            return _serve(what, options)
        except SystemExit as ended:
            # An exit that says what is wrong has no status of its own.
            refuse("rematch", ended.code) if isinstance(ended.code, str) else sys.exit(ended.code)
    if found := program():
        return become(found, words)
    if what == "--version":
        return print(_version())
    if what in COMMANDS:
        refuse("rematch", f"{what} is a command of the program, which is not here: {how_to_get_it()}")
    near = difflib.get_close_matches(what, [*OURS, *COMMANDS, *FRAMEWORKS], 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    refuse("rematch", f'no command is named "{what}"{hint} (`rematch --help` lists them)')


if __name__ == "__main__":
    main()
