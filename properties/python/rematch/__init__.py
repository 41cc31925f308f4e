"""Judges activation checkpointing, and runs subjects of the Rematch harness in Python.

`judge()` and `assert_checkpoint_safe()` judge a module, `judge_model()` a model, `plan_model()` chooses what to
checkpoint within a budget, `observe()` counts what happens, and `watch()` compares recomputations in a running job.
`record()` writes a run into a file, which `judge_journal()` judges anywhere. A subject runs the harness's cases on an
implementation of activation checkpointing, and writes down what it sees. Implement `Subject` and call `serve()`;
`rematch.pytorch` does so for PyTorch.
"""

from typing import Any

_HOMES = {
    "Record": "subjects.records",
    "Request": "subjects.protocol",
    "Subject": "subjects.protocol",
    "Unsupported": "subjects.protocol",
    "assert_checkpoint_safe": "safe",
    "judge": "safe",
    "judge_journal": "recording",
    "judge_model": "safe",
    "observe": "observation",
    "plan_model": "plan",
    "record": "recording",
    "serve": "subjects.protocol",
    "watch": "watching",
}
"""The module of each public name."""

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Loads the module of a public name, so that NumPy and PyTorch are imported only if needed: help needs neither."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"rematch.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'rematch' has no attribute {name!r}")
