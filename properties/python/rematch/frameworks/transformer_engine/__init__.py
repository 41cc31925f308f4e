"""Transformer Engine's checkpoint() as a subject."""
