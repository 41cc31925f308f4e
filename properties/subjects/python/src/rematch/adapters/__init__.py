"""Adapters of frameworks, one file each. `framework.py` says what an adapter has to say."""
