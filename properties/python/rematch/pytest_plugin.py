"""A pytest plugin: the fixture `checkpoint_safe`, and --rematch-model, which judges models without a test file."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def checkpoint_safe() -> Callable[..., Any]:
    """Returns the function rematch.safe.assert_checkpoint_safe()."""
    pytest.importorskip("torch")
    from rematch.safe import assert_checkpoint_safe

    return assert_checkpoint_safe


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rematch", "activation checkpointing")
    group.addoption(
        "--rematch-model",
        action="append",
        default=[],
        metavar="MODEL",
        help="judge a model with rematch.safe.judge_model(): package.module:function returns it, alone, with a batch, "
        "or as (model, args, kwargs); transformers:LlamaForCausalLM and names of timm, torchvision and diffusers are "
        "built small and random",
    )
    group.addoption(
        "--rematch-switch",
        metavar="NAME",
        help="the attribute that turns these models' own checkpointing on, if it is not found",
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


def _made(what: str) -> tuple[Any, Any, Any, Any]:
    """Returns the model, its arguments and a loss. Raises _Unsafe."""
    from rematch import zoo
    from rematch.loading import load, model_of

    try:
        return zoo.build(what) if zoo.knows(what) else (*model_of(what, load(what)()), None)
    except (SystemExit, zoo.NotBuilt) as error:
        raise _Unsafe(f"{what}: {error}") from None


class _Unsafe(Exception):
    """An error with a report, and a line for the summary."""


class _Model(pytest.Item):
    def __init__(self, what: str, **more: Any) -> None:
        super().__init__(**more)
        self._what = what

    def runtest(self) -> None:
        from rematch.safe import judge_model

        model, args, kwargs, loss = _made(self._what)
        switch = self.config.getoption("--rematch-switch")
        verdict = judge_model(model, *args, kwargs=kwargs, loss=loss, switch=switch)
        if verdict.own is None:
            # Blocks that may be checkpointed do not answer for the model.
            named = "" if switch or verdict.switch else "; name it: --rematch-switch NAME"
            raise _Unsafe(f"not judged: {verdict.why_not.partition(';')[0]}{named}\n\n{verdict}")
        if not verdict.safe:
            # The summary has room for the first line only.
            causes = dict.fromkeys(finding.cause.name for finding in verdict.findings if not finding.remark)
            raise _Unsafe(f"unsafe: {', '.join(causes) or 'nothing was judged'}\n\n{verdict}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return str(excinfo.value) if isinstance(excinfo.value, _Unsafe) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self._what} is safe to checkpoint"
