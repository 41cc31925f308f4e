"""rematch-compare, in the environment that has its libraries."""

import errno
import os
import sys
from argparse import Namespace

from .environment import Failure, failures
from .options import parse
from .sides import read_sides


def report(o: Namespace) -> int:
    from .compare import compare
    from .reports import json_report, markdown_report, text_report

    c = compare(read_sides(o.base or o.files[:1], o.new or o.files[1:], o.labels), o)
    write = json_report if o.json else markdown_report if o.markdown else text_report
    sys.stdout.write(write(c))
    sys.stdout.flush()
    return c.exit_status


def main(arguments: list[str]) -> int:
    with failures("rematch-compare"):
        try:
            return report(parse(arguments))
        except OSError as e:
            # Nothing more is written, not even at the end of the process.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            if e.errno != errno.EPIPE:  # A reader that went away is no error.
                raise Failure(f"{e.filename or 'standard output'}: {e.strerror}") from None
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
