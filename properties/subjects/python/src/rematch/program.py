"""The command `rematch` of an installation that carries the program."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

PROGRAM = Path(__file__).parent / "_program" / "bin" / "rematch"


def main() -> None:
    """Becomes the program. Its subject `pytorch` runs in this interpreter, if PyTorch is installed
    here; otherwise the program looks for one that `ci/setup --frameworks` made.

    Raises SystemExit with a sentence where the package was installed without the program.
    """
    if not PROGRAM.exists():
        raise SystemExit(
            f"{PROGRAM} is missing: this is the package alone. To install it with the program, run "
            "`pip install .` in the root of the sources"
        )
    if not os.environ.get("REMATCH_PYTHON") and find_spec("torch") is not None:
        os.environ["REMATCH_PYTHON"] = sys.executable
    os.execv(PROGRAM, sys.argv)


if __name__ == "__main__":
    main()
