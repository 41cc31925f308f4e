"""Implementations under test: what the harness asks of them, and what makes one of a framework.

`protocol` and `records` are all that a subject in Python needs. `framework` makes one from an adapter's tables: it
writes the model of a case as source code (`source`), runs it (`adapter_run`, `steps`), and exports it (`script`).
"""
