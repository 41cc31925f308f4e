"""The commands that are written in Python, and what they have in common."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from argparse import ArgumentParser


def parser_of(command: str, says: str, epilog: str) -> ArgumentParser:
    """The parser of a command: `says` is what it does."""
    from argparse import ArgumentParser, RawDescriptionHelpFormatter

    return ArgumentParser(
        prog=f"rematch {command}", description=says, epilog=epilog, formatter_class=RawDescriptionHelpFormatter
    )


def sentence(error: BaseException) -> str:
    """What an error says, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def refuse(who: str, why: str) -> NoReturn:
    """Ends the program: 2."""
    print(f"{who}: {why}", file=sys.stderr)
    raise SystemExit(2)
