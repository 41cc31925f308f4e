"""A plugin of pytest: the fixture `checkpoint_safe`, and --rematch-model, which judges models without a test file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def checkpoint_safe() -> Callable[..., Any]:
    """The function rematch.safe.assert_checkpoint_safe()."""
    pytest.importorskip("torch")
    from rematch.safe import assert_checkpoint_safe

    return assert_checkpoint_safe


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rematch", "activation checkpointing")
    group.addoption(
        "--rematch-model",
        action="append",
        default=[],
        metavar="package.module:function",
        help="judge the model that a function returns, as (model, args, kwargs), with rematch.safe.judge_model()",
    )


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    for what in config.getoption("--rematch-model"):
        items.extend(_Models.from_parent(session, path=Path(str(config.rootpath)), what=what).collect())


class _Models(pytest.Collector):
    def __init__(self, what: str, **more: Any) -> None:
        super().__init__(name=what, **more)
        self._what = what

    def collect(self) -> Iterator[pytest.Item]:
        yield _Model.from_parent(self, name="checkpoint", what=self._what)


class _Unsafe(Exception):
    """Carries a report, and a line for the summary."""


class _Model(pytest.Item):
    def __init__(self, what: str, **more: Any) -> None:
        super().__init__(**more)
        self._what = what

    def runtest(self) -> None:
        from rematch.place import load
        from rematch.safe import judge_model

        try:
            made = load(self._what)()
        except SystemExit as error:
            raise _Unsafe(str(error)) from None
        model, args, kwargs = made if isinstance(made, tuple) else (made, (), {})
        verdict = judge_model(model, *args, kwargs=kwargs)
        if not verdict.safe:
            # The first line is what the summary has room for.
            causes = dict.fromkeys(finding.cause.name for finding in verdict.findings if not finding.remark)
            raise _Unsafe(f"unsafe: {', '.join(causes) or 'nothing was judged'}\n\n{verdict}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return str(excinfo.value) if isinstance(excinfo.value, _Unsafe) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self._what} is safe to checkpoint"
