"""`rematch judge`: says from the journal of a run what `watch` would have said of it."""

import json
from zipfile import is_zipfile

from rematch.cli import parser_of, refuse

EXAMPLE = """\
A journal is what `with rematch.record(model, "run.journal"):` around a training step writes, on any machine. A snapshot
is what `rematch.watch(model, snapshot=FILE)` writes of an operator: it runs again here.

Exit status 0: every recomputation computed what its forward did, or the operator computes what it did in the step; 1:
one differs, or the recording is incomplete; 2: FILE is neither.
"""


def main(arguments: list[str]) -> None:
    """Raises SystemExit: 1 if a recomputation differs or was not seen, 2 for a wrong argument or no journal."""
    parser = parser_of("judge", "Compares the recomputations of a recorded run with their forwards.", EXAMPLE)
    parser.add_argument("journal", metavar="FILE", help="a journal, or a snapshot")
    parser.add_argument("--json", action="store_true", help="prints JSON")
    given = parser.parse_args(arguments)
    from rematch.journal.twice import replay
    from rematch.recording import judge_journal

    try:
        if is_zipfile(given.journal):
            text, same = replay(given.journal)
            print(json.dumps({"replay": text, "same": same}, indent=2) if given.json else text)
            raise SystemExit(not same)
        judged = judge_journal(given.journal)
    except (OSError, ValueError) as error:
        refuse(given.journal, str(error))
    print(json.dumps(judged.to_json(), indent=2) if given.json else judged)
    if judged.findings or judged.not_seen:
        raise SystemExit(1)
