"""Tries every probe on the PyTorch that is installed, and compares or writes the record of them.

python -m rematch.frameworks.pytorch.contract            says what differs from the record
golden/make_semantics                         writes the record, with the release that it names
"""

import argparse
import json
import sys

from rematch.frameworks.pytorch.contract import record
from rematch.frameworks.pytorch.contract.record import differences, releases


def report(known, fresh):
    older = record.older(fresh["torch"], known["torch"])
    expected = lambda entry, got: seen(entry, got, known["torch"])
    lines = list(differences(known, fresh, expected, older))
    print(releases(known, fresh))
    for line in lines:
        print(line)
    if lines:
        print(f"{len(lines)} differences")
        return 1
    print(f"no difference in {len(fresh['probes'])} probes")
    return 0


def seen(entry, got, release):
    """Returns the facts that the record expects of the installed PyTorch, promised by its documentation or not."""
    return record.expected({**entry, "promised": {}}, got, of=release)


def write(fresh, path):
    """Writes the record, or, of an older release, its differences into the record."""
    known = record.read()
    if record.older(fresh["torch"], known["torch"]):
        fresh = record.with_earlier(known, fresh)
        fresh.pop("digest", None)
    elif known["format"] == fresh["format"]:
        earlier = {p["id"]: p["earlier"] for p in known["probes"] if "earlier" in p}
        for probe in fresh["probes"]:
            if probe["id"] in earlier:
                probe["earlier"] = earlier[probe["id"]]
    text = record.written(fresh)
    # A text that cannot be read back, or says something else, must not become the record.
    again = json.loads(text)
    del again["digest"]
    assert again == fresh
    path.write_text(text, encoding="utf-8")
    print(f"{path}: {len(fresh['probes'])} probes, PyTorch {fresh['torch']}")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the record instead")
    parser.add_argument("--output", metavar="JSON", help="write it to that file")
    parser.add_argument("--compare", metavar="JSON", help="compare with another record")
    chosen = parser.parse_args()
    fresh = record.fresh()
    if chosen.write or chosen.output:
        return write(fresh, record.Path(chosen.output or record.PATH))
    return report(record.read(chosen.compare or record.PATH), fresh)


if __name__ == "__main__":
    sys.exit(main())
