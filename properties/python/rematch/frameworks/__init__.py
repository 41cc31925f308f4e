"""Subjects by their names: a module for each framework or library, with `subject(arguments)`, and a
line in the table of rematch/__main__.py. `framework.py` says what the adapter of a framework has to
say."""
