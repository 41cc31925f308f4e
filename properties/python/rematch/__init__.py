"""Subjects of the Rematch harness in Python.

A subject runs the harness's cases on an implementation of activation checkpointing and writes down
what it sees. Implement `Subject` and call `serve()`; `rematch.pytorch` does so for PyTorch.
`judge()` and `assert_checkpoint_safe()` judge a module, `judge_model()` a model, `plan_model()` chooses what to
checkpoint within a budget, `observe()` counts what happens, and `watch()` compares recomputations in a running job.
`record()` writes a run into a file, which `judge_journal()` judges anywhere.
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
"""Modules of the public names."""

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Loads NumPy and PyTorch only for those who ask for them: help needs neither."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"rematch.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'rematch' has no attribute {name!r}")
