"""Command line of rematch-compare, read without any library, and the kinds of values that
ci/compare has in common with it."""

import argparse
import re
import sys
from collections.abc import Callable

EPILOG = """\
Exit status: 0 no regression, 1 regression, 2 wrong usage or unreadable input, 3 no regression
was found, but some times could not be judged.
ci/compare builds two commits, measures them in turn and calls this program."""
Wrong = argparse.ArgumentTypeError


class Parser(argparse.ArgumentParser):
    """Refuses abbreviations, and says what is wrong in one line that begins with the option."""

    def __init__(self, prog: str, usage: str, description: str, epilog: str) -> None:
        form = argparse.RawDescriptionHelpFormatter
        super().__init__(prog, usage, description, epilog, formatter_class=form, allow_abbrev=False)

    def parse_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def, override]
        # An unknown option comes before what is missing.
        for text in sys.argv[1:] if args is None else args:
            option = text.split("=")[0]
            if option.startswith("--") and option not in self._option_string_actions:
                self.error(f"{option}: no such option")
        return super().parse_args(args, namespace)

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"{self.prog}: {message.removeprefix('argument ')}; see --help\n")


def duration(text: str) -> float:
    """In seconds. A number without a unit is refused: it could be seconds or minutes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|min|h)", text)
    seconds = match and float(match[1]) * {"s": 1, "m": 60, "min": 60, "h": 3600}[match[2]]
    if not seconds or not 1 <= seconds <= 24 * 3600:
        raise Wrong(f'expected a duration from 1s to 24h with its unit, such as 10m, got "{text}"')
    return seconds


def regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as e:
        raise Wrong(f"not a regular expression: {e}") from None
    return text


def whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if text.isdecimal() and low <= int(text) <= high:
            return int(text)
        raise Wrong(f'expected a whole number from {low} to {high}, got "{text}"')
    return read


def between(low: float, high: float, scale: float = 1) -> Callable[[str], float]:
    def read(text: str) -> float:
        digits = re.fullmatch(r"(\d+(?:\.\d+)?)%?", text)
        if not digits or not low <= float(digits[1]) <= high:
            raise Wrong(f'expected a number from {low:g} to {high:g}, got "{text}"')
        return float(digits[1]) / scale

    return read


def add_shared(add: Callable[..., object]) -> None:
    """Options of rematch-compare and of ci/compare."""
    text = "smallest difference of times to report; default 2"
    add("--min-effect", type=between(0.1, 1000, 100), default=0.02, metavar="PERCENT", help=text)
    text = "only benchmarks whose name matches"
    add("--filter", type=regex, default="", metavar="REGEX", help=text)
    text = "clock to compare; auto: cpu if single-threaded processes had to wait for a core"
    add("--clock", choices=["auto", "real", "cpu"], default="auto", help=text)
    text = "do not count what the new side lacks as a regression"
    add("--allow-missing", action="store_true", help=text)
    add("--json", action="store_true", help="JSON instead of text")
    add("--markdown", action="store_true", help="Markdown for a comment on a pull request")


def parse(arguments: list[str]) -> argparse.Namespace:
    what = "Compares the results of two commits: exact counters exactly, times statistically."
    p = Parser("rematch-compare", "rematch-compare BASE NEW [OPTIONS]", what, EPILOG)
    add = p.add_argument
    add("files", nargs="*", metavar="FILE", help="result files, or folders of them: BASE NEW")
    text = "files of the base, in the order in which they ran"
    add("--base", nargs="+", default=[], metavar="FILE", help=text)
    text = "files of the new side, each paired with that of the base at its position"
    add("--new", nargs="+", default=[], metavar="FILE", help=text)
    add_shared(add)
    text = "how often these measurements are judged at most; default 1"
    add("--looks", type=whole(1, 100), default=1, metavar="N", help=text)
    add("--no-time", action="store_true", help="compare exact counters only")
    add("--labels", nargs=2, metavar="TEXT", help="names of the two sides")
    o = p.parse_args(arguments)
    if o.json and o.markdown:
        p.error("--json and --markdown exclude each other")
    lists = [bool(o.base), bool(o.new)]
    if (len(o.files), lists) not in ((2, [False] * 2), (0, [True] * 2)):
        p.error("expected BASE NEW, or --base FILE... --new FILE...")
    return o
