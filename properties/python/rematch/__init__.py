"""Subjects of the Rematch harness in Python.

A subject runs the harness's cases on an implementation of activation checkpointing and writes down
what it sees. Implement `Subject` and call `serve()`; `rematch.pytorch` does so for PyTorch.
"""

from rematch.protocol import Request, Subject, Unsupported, serve
from rematch.record import Record

__all__ = ["Record", "Request", "Subject", "Unsupported", "serve"]
