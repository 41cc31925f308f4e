"""Fixtures that the tests share."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from harness import Copied, Harness

OF_ANY = [f"test_{name}.py" for name in ("bugs", "frameworks", "package", "program", "promises", "protocol")]
OF_RANKS = ("test_collectives.py", "test_data_parallel.py", "test_watch_parallel.py")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leaves out tests of a framework that is not installed, and those of ranks, which are copies of a process."""
    folder, name = collection_path.parts[-2:]
    known = {"tests": "torch", "pytorch": "torch"} | dict.fromkeys(("jax", "mlx", "mindspore", "paddle", "tensorflow"))
    if not name.startswith("test_") or folder not in known or name in OF_ANY:
        return None
    return find_spec(known[folder] or folder) is None or sys.platform != "linux" and name in OF_RANKS or None


@pytest.fixture(scope="module")
def starts(request: pytest.FixtureRequest) -> type[Harness]:
    """How tests of a file start subjects. Subjects on PyTorch would take most of their tests' time to start."""
    return Copied if request.path.parent.name == "pytorch" else Harness


@pytest.fixture
def start(starts: type[Harness]) -> Iterator[Callable[..., Harness]]:
    """Starts subjects, and ends them with the test."""
    with ExitStack() as running:
        yield lambda *command: running.enter_context(starts(*command))


@pytest.fixture
def start_python(start: Callable[..., Harness]) -> Callable[[str], Harness]:
    """Starts a subject from the text of a program."""
    return lambda program: start(sys.executable, "-c", program)


@pytest.fixture(scope="module", params=["ddp", "fsdp2"])
def parallel(request: pytest.FixtureRequest) -> tuple[str, Harness]:
    """The name of a subject that shares batches among ranks, and the subject."""
    return request.param, request.getfixturevalue(request.param)


def for_a_file(name: str, *words: str) -> Any:
    """A fixture of one subject for all tests of a file: it must not remember one case in the next."""

    @pytest.fixture(scope="module", name=name)
    def subject(starts: type[Harness]) -> Iterator[Harness]:
        with starts(sys.executable, "-m", "rematch", *words) as harness:
            yield harness

    return subject


torch_subject = for_a_file("torch_subject", "pytorch")
mlx, paddle, mindspore = (for_a_file(name, name) for name in ("mlx", "paddle", "mindspore"))
ddp, tp, fsdp2, fsdp2_tp = (
    for_a_file(name, "pytorch", "--parallel", name) for name in ("ddp", "tp", "fsdp2", "fsdp2_tp")
)
