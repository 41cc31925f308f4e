"""The Python environment of maintainers' tools, which `ci/setup --tools` or its first use makes in
~/.cache/rematch/tools (below $XDG_CACHE_HOME, where that is set). `environment.py` prints the path of its Python; with
--print it makes none, and its exit status is 1 where there is none."""

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SIZE = "about 35 MB to download"
REQUIREMENTS = Path(__file__).resolve().parent / "requirements.txt"
FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rematch" / "tools"
PYTHON = FOLDER / "bin" / "python"


class Failure(Exception):
    """Ends a program in exit status 2 with this text."""


@contextlib.contextmanager
def failures(program: str) -> Iterator[None]:
    try:
        yield
    except (Failure, KeyboardInterrupt) as e:
        print(f"{program}: {e if isinstance(e, Failure) else 'interrupted'}", file=sys.stderr)
        sys.exit(2 if isinstance(e, Failure) else 130)


def pins(requirements: Path) -> list[str]:
    """Requirements without comments, whose change installs nothing."""
    lines = (line.partition("#")[0].strip() for line in requirements.read_text().splitlines())
    return [line for line in lines if line]


def is_ready() -> bool:
    """The stamp is written last, so that an installation that was interrupted does not count."""
    stamp = FOLDER / "stamp"
    return PYTHON.exists() and stamp.exists() and pins(stamp) == pins(REQUIREMENTS)


def make() -> Path:
    """The path of the environment's Python, which is made where it is missing."""
    if is_ready():
        return PYTHON
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        with open(FOLDER.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not is_ready():
                print(f"installing libraries into {FOLDER} ({SIZE})", file=sys.stderr)
                quiet = ["--quiet", "--disable-pip-version-check"]
                install = [PYTHON, "-m", "pip", "install", *quiet, "-r", REQUIREMENTS]
                subprocess.run([sys.executable, "-m", "venv", "--clear", FOLDER], check=True)
                subprocess.run(install, check=True, stdout=sys.stderr)
                (FOLDER / "stamp").write_text(REQUIREMENTS.read_text())
    except OSError as e:
        raise Failure(f"{e.filename}: {e.strerror}") from None
    except subprocess.CalledProcessError:
        raise Failure("no environment was made; is python3-venv installed? ci/setup does") from None
    return PYTHON


if __name__ == "__main__":
    with failures("environment.py"):
        if sys.argv[1:] == ["--print"] and not is_ready():
            sys.exit("there is no environment of tools; ci/setup --tools makes it")
        print(make())
