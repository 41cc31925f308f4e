"""The commands that are written in Python, and the functions that they share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from argparse import ArgumentParser


def parser_of(command: str, says: str, epilog: str) -> ArgumentParser:
    """Returns the parser of a command; `says` is what the command does."""
    from argparse import ArgumentParser, RawDescriptionHelpFormatter

    return ArgumentParser(
        prog=f"rematch {command}", description=says, epilog=epilog, formatter_class=RawDescriptionHelpFormatter
    )


def sentence(error: BaseException) -> str:
    """Returns the text of an error, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def refuse(who: str, why: str) -> NoReturn:
    """Prints a reason, and ends the program with exit status 2."""
    print(f"{who}: {why}", file=sys.stderr)
    raise SystemExit(2)
