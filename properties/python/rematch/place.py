"""Functions and classes that the command line names by where they lie."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any


def load(place: str) -> Any:
    """Loads what `script.py:name` or `package.module:name` names. Raises SystemExit with a sentence."""
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
