"""Subjects of the Rematch harness in Python.

A subject runs the harness's cases on an implementation of activation checkpointing and writes down
what it sees. Implement `Subject` and call `serve()`; `rematch.pytorch` does so for PyTorch.
`rematch.safe` judges a module or a model, `rematch.observe()` counts what happens in one, and
`rematch.watch()` compares recomputations in a running job.
"""

from typing import Any

from rematch.protocol import Request, Subject, Unsupported, serve
from rematch.record import Record

__all__ = ["Record", "Request", "Subject", "Unsupported", "observe", "serve", "watch"]


def __getattr__(name: str) -> Any:
    """Loads PyTorch only for those who ask for it."""
    module = {"observe": "rematch.observation", "watch": "rematch.watching"}.get(name)
    if module is not None:
        from importlib import import_module

        return getattr(import_module(module), name)
    raise AttributeError(f"module 'rematch' has no attribute {name!r}")
