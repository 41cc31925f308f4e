"""The command `rematch` of an installation that carries the program."""

from __future__ import annotations

import json
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

PROGRAM = Path(__file__).parent / "_program" / "bin" / "rematch"
FRAMEWORKS = Path(__file__).parent / "frameworks"


def _is_here(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        # Not even the package "mlx" of "mlx.core" is there.
        return False


def main() -> None:
    """Becomes the program. Subjects whose framework is installed here run in this interpreter; for
    others the program looks for one that `ci/setup --frameworks` made.

    Raises SystemExit with a sentence where the package was installed without the program.
    """
    if not PROGRAM.exists():
        raise SystemExit(
            f"{PROGRAM} is missing: this is the package alone. To install it with the program, run "
            "`pip install .` in the root of the sources"
        )
    if not os.environ.get("REMATCH_PYTHON"):
        for file in FRAMEWORKS.glob("*/framework.json"):
            known = json.loads(file.read_text()).get("environments", {})
            for name, environment in known.items():
                if _is_here(environment["module"]):
                    chosen = "REMATCH_PYTHON_" + re.sub(r"[^A-Z0-9]", "_", name.upper())
                    os.environ.setdefault(chosen, sys.executable)
    os.execv(PROGRAM, sys.argv)


if __name__ == "__main__":
    main()
