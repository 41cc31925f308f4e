"""The command line of TensorFlow."""

import argparse

from rematch.frameworks.tensorflow.framework import TensorFlow
from rematch.frameworks.tensorflow.function import InFunction
from rematch.subjects.framework import Framework


def subject(arguments: list[str]) -> Framework:
    parser = argparse.ArgumentParser(prog="python -m rematch tensorflow")
    parser.add_argument("--function", choices=("step", "forward"), help="what is a tf.function")
    parser.add_argument(
        "--parameters",
        choices=("variables", "arguments", "closure"),
        default="variables",
        help="tf.Variables; or tensors, which segments are given, or close over",
    )
    parser.add_argument("--keywords", action="store_true", help="segments are called by keyword")
    words = parser.parse_args(arguments)
    if words.function:
        return InFunction(words.function, words.parameters)
    made = TensorFlow(words.parameters)
    made.by_keyword = words.keywords
    return made
