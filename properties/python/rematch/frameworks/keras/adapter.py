"""Starts Keras, whose backend is chosen before it is imported."""

import argparse
import os

from rematch.subjects.protocol import Subject

SCOPES = ("full", "activations", "larger_than", "list_of_layers")


def subject(arguments: list[str]) -> Subject:
    """Keras. Raises ImportError where there is none, or not the backend."""
    parser = argparse.ArgumentParser(prog="python -m rematch keras")
    parser.add_argument("--backend", choices=("tensorflow", "torch", "jax"), default="tensorflow")
    parser.add_argument("--scope", choices=SCOPES, help="segments are layers of that mode")
    parser.add_argument("--keywords", action="store_true", help="segments are called by keyword")
    words = parser.parse_args(arguments)
    os.environ["KERAS_BACKEND"] = words.backend
    from rematch.frameworks.keras.framework import Keras

    made = Keras(words.scope)
    made.by_keyword = words.keywords
    return made
