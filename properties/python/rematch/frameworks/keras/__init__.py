"""Keras on each of its backends as a subject."""
