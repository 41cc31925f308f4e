"""Frameworks and libraries, a folder each, whose name is that of its subjects and of `python -m rematch NAME`.

A folder has `adapter.py`, with `subject(arguments)`; `framework.json`, which names its subjects and the environments
that they need; a page, README.md; and as far as there are any, profiles, promises, layers and tests. Nothing else lists
frameworks: programs that need the list read the folders.
"""
