"""Loads functions and classes that the command line names by where they are."""

import importlib.util
import sys
import traceback
from collections.abc import Mapping
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
            # A script finds the modules beside it, as if it were run.
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
    except Exception as error:
        # The innermost line of the file itself; a syntax error names its line already.
        own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).match(where)]
        line = "" if isinstance(error, SyntaxError) or not own else f" (line {own[-1]})"
        raise SystemExit(f"{where}: cannot be loaded: {type(error).__name__}: {error}{line}") from None
    found = getattr(module, name, None)
    if found is None:
        raise SystemExit(f"{where} has no {name}")
    return found


def model_of(what: str, made: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Returns the model, positional arguments and keywords that a function returned: `made` is a model, (model, batch),
    (model, args), (model, args, kwargs) or (model, (args, kwargs)). Raises SystemExit with a sentence."""
    model, *given = made if isinstance(made, tuple) and made else (made,)
    if len(given) == 1 and isinstance(given[0], tuple) and [type(part) for part in given[0]] == [tuple, dict]:
        given = [*given[0]]
    if not given:
        return model, (), {}
    args = given[0]
    if len(given) == 1:
        if isinstance(args, Mapping):
            return model, (), dict(args)
        return model, tuple(args) if isinstance(args, (tuple, list)) else (args,), {}
    if len(given) == 2 and isinstance(args, (tuple, list)) and isinstance(given[1], dict):
        return model, tuple(args), given[1]
    kinds = ", ".join(type(part).__name__ for part in made)
    raise SystemExit(f"{what}: a model, (model, batch) or (model, args, kwargs) expected, got ({kinds})")


def import_lines(place: str) -> str:
    """Returns the lines with which a script imports what load() finds, as `checkpoint`."""
    where, _, name = place.rpartition(":")
    path = Path(where).resolve()
    folder, module = (path.parent, path.stem) if where.endswith(".py") else (Path.cwd(), where)
    found = f"from {module} import {name} as checkpoint"
    return f"\nsys.path.insert(0, {str(folder)!r})\n{found}"
