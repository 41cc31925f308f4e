"""`rematch plan`: chooses which blocks of a model to checkpoint, from the command line."""

import argparse
import json
import sys
from pathlib import Path

from rematch.cli import parser_of, refuse
from rematch.cli.safe import add_module, inputs_of, made, with_batch

OPTIMIZERS = ("adamw", "adam", "sgd")
EXAMPLE = """\
examples:
  rematch plan models.py:small --budget 8GB --optimizer adamw
  rematch plan torch.nn:Transformer --arg d_model=32 --arg nhead=4 --input 9x2x32 --input 9x2x32

MODEL is a class, made with --arg and called with --input, or a function that returns a model, or (model, args, kwargs).
"""


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(
        "plan",
        "Says which blocks of a model to checkpoint, so that a training step fits into a number of bytes "
        "with the least recomputation; what checkpointing can save; and where the peak is.",
        EXAMPLE,
    )
    add_module(parser, "MODEL")
    parser.add_argument(
        "--budget", help="bytes that a step may take: 8GB, 500MiB, 60%% of the plain peak; default: the least possible"
    )
    parser.add_argument("--optimizer", choices=OPTIMIZERS, help="the optimizer, whose states and step are counted, too")
    parser.add_argument("--blocks", action="append", help='a pattern of names, such as "layers.*"; may be repeated')
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="time limit of each of the three rounds of timing (default: 10)"
    )
    parser.add_argument("--compare", action="store_true", help="also measures what people do without a plan")
    parser.add_argument("--code", metavar="FILE", help="writes the plan as a module that needs PyTorch alone")
    parser.add_argument("--chart", action="store_true", help="prints the bytes over the step, plain and planned")
    parser.add_argument("--snapshot", metavar="FILE", help="writes the planned step's memory for PyTorch's viewer")
    parser.add_argument("--json", action="store_true", help="prints the plan as JSON")
    return parser


def main(arguments: list[str]) -> None:
    """Raises SystemExit: 2 for a wrong argument, for a model that cannot be measured, and if nothing fits."""
    parser = _parser()
    given = parser.parse_args(arguments)
    given_inputs = inputs_of(parser, given.input)
    model, inputs, kwargs = with_batch(parser, given.what, made(given.what, given.arg), *given_inputs)
    from rematch.plan import plan_model

    try:
        plan = plan_model(
            model,
            *inputs,
            budget=given.budget,
            kwargs=kwargs,
            optimizer=given.optimizer,
            blocks=given.blocks,
            seconds=given.seconds,
            progress=sys.stderr.isatty(),
            compared=given.compare,
        )
    except (RuntimeError, TypeError, ValueError) as error:
        refuse(given.what, str(error))
    code = lambda file: Path(file).write_text(plan.code(), encoding="utf-8")  # noqa: E731
    for option, file, write in (("snapshot", given.snapshot, plan.snapshot), ("code", given.code, code)):
        try:
            if file:
                write(file)
        except (OSError, ValueError) as error:
            parser.error(f"--{option}: {error}")
    print(json.dumps(plan.to_json(), indent=2) if given.json else plan)
    if given.chart and not given.json:
        print(plan.chart())
