"""Records how PyTorch checkpoints, rule by rule: see golden/make_semantics.

golden/semantics/semantics.json holds
  format, command, torch, python
  errors   by category: class and an excerpt of what PyTorch says; only those that were met
  probes   in order of their rules, each with
    id       the rule and what was tried, such as "RE4.frozen_input"
    rule     "RE4"; properties/README.md says what it states
    tried    a sentence
    seen     facts by name: counts, yes or no, words, lists of these. Errors are told by category
Nothing of it depends on the machine: no floats but exact ones, no addresses, no times.
"""

import argparse
import json
import pathlib
import platform
import re
import sys

import torch

from semantics import differences, probing
from semantics import (  # noqa: F401  (each registers its probes, in this order)
    partition,
    reentrant,
    arguments,
    recomputation,
    lifetime,
    groups,
    errors,
    nesting,
    verdicts,
    ambient,
    autocast,
    selective,
    selective_masks,
    bits,
)

FORMAT = 1
# Partition, reentrant, non-reentrant, ambient state, selective, bits, verdicts.
SECTIONS = ("PT", "RE", "N", "AM", "SE", "B", "V")
RECORD = "golden/semantics/semantics.json"


def place(identifier):
    """PT1 before RE2 before RE10; probes of one rule in the order in which they are written."""
    letters, number = re.match(r"([A-Z]+)(\d*)", identifier).groups()
    return SECTIONS.index(letters), int(number or 0)


def fresh_record():
    probing.errors_seen.clear()
    probes = []
    for identifier in sorted(probing.PROBES, key=place):
        tried, function = probing.PROBES[identifier]
        seen = probing.run_probe(function)
        rule = identifier.split(".")[0]
        probes.append({"id": identifier, "rule": rule, "tried": tried, "seen": seen})
    return {
        "format": FORMAT,
        "command": "golden/make_semantics",
        "torch": torch.__version__.split("+")[0],
        "python": ".".join(platform.python_version_tuple()[:2]),
        "errors": dict(sorted(probing.errors_seen.items())),
        "probes": probes,
    }


def written(record):
    """JSON with one fact a line, so that a difference in the file is a difference in a fact."""

    def entry(key, value, indent):
        return f"{indent}{json.dumps(key)}: {json.dumps(value)}"

    head = [entry(key, record[key], "  ") for key in ("format", "command", "torch", "python")]
    errors = [entry(key, value, "    ") for key, value in record["errors"].items()]
    probes = []
    for p in record["probes"]:
        lines = [entry(key, p[key], "      ") for key in ("id", "rule", "tried")]
        facts = [entry(key, value, "        ") for key, value in p["seen"].items()]
        lines.append('      "seen": {\n' + ",\n".join(facts) + "\n      }")
        probes.append("    {\n" + ",\n".join(lines) + "\n    }")
    head.append('  "errors": {\n' + ",\n".join(errors) + "\n  }")
    head.append('  "probes": [\n' + ",\n".join(probes) + "\n  ]")
    text = "{\n" + ",\n".join(head)
    return text + ",\n" + entry("digest", digest(text), "  ") + "\n}\n"


def digest(text):
    """FNV-1a, 64 bits (draft-eastlake-fnv): detects lines that were edited by hand."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def report(recorded, fresh):
    lines = list(differences.differences(recorded, fresh))
    print(differences.releases(recorded, fresh))
    for line in lines:
        print(line)
    if lines:
        print(f"{len(lines)} differences")
        return 1
    print(f"no difference in {len(fresh['probes'])} probes")
    return 0


def main():
    parser = argparse.ArgumentParser(
        prog="golden/make_semantics", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; say what differs from the record"
    )
    parser.add_argument("--compare", metavar="JSON", help="the same against another record")
    parser.add_argument("--output", metavar="JSON", default=RECORD, help="where to write instead")
    chosen = parser.parse_args()
    fresh = fresh_record()
    # A text that cannot be read back, or says something else, must not become the record.
    reread = json.loads(written(fresh))
    del reread["digest"]
    assert reread == fresh
    if chosen.check or chosen.compare:
        return report(read(chosen.compare or RECORD), fresh)
    pathlib.Path(chosen.output).write_text(written(fresh), encoding="utf-8")
    print(f"{chosen.output}: {len(fresh['probes'])} probes, PyTorch {fresh['torch']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
