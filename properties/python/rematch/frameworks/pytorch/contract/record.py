"""Record of how PyTorch checkpoints, rule by rule: semantics.json, beside this file.

  format, command, torch, python
  errors   by category: class and an excerpt of what PyTorch says; only those that were met
  rules    what each states, in order: whoever adds one writes it there, and then all probes anew
  probes   in order of their rules, one a line, each with
    id        the rule and what was tried, such as "RE4.frozen_input"
    rule      "RE4"
    tried     a sentence
    seen      facts by name: counts, yes or no, words, lists of these. Errors are told by category
    promised  facts that the documentation promises, and that this release does not keep
    earlier   by older release: the facts in which it differs, null for one that it does not have
Nothing of it depends on the machine: no floats but exact ones, no addresses, no times.
"""

import json
import platform
from functools import cache
from pathlib import Path

import torch

from rematch.frameworks.pytorch.contract import probing


def words(name):
    return name.replace("_", " ")


def shown(value):
    if value is True or value is False:
        return "yes" if value else "no"
    if isinstance(value, list):
        return "[" + ", ".join(shown(v) for v in value) + "]"
    return str(value)


def same(a, b):
    """Whether facts are the same; yes is not 1."""
    return json.dumps(a) == json.dumps(b)


def facts(old, new):
    """A fact at a time, what is told of it, in words."""
    if "not_available" in new and "not_available" not in old:
        yield f"not available ({new['not_available']})"
        return
    for name in list(old) + [n for n in new if n not in old]:
        if name not in new:
            yield f"{words(name)}: {shown(old[name])} recorded, not seen now"
        elif name not in old:
            yield f"{words(name)}: not recorded, {shown(new[name])} now"
        elif not same(old[name], new[name]):
            yield f"{words(name)}: {shown(old[name])} recorded, {shown(new[name])} now"


def changed(expected, got):
    """How a broken promise is told behind its name, "" for none that is broken."""
    lines = [line.replace(" recorded", " expected") for line in facts(expected, got)]
    return lines and ": " + "; ".join(lines) or ""


def by_id(record):
    return {entry["id"]: entry for entry in record["probes"]}


def differences(recorded, fresh, expected=lambda entry, got: entry["seen"], older=False):
    """A line for each fact that differs. That the versions differ is not one of them, nor is an
    error that an older release does not have."""
    if recorded["format"] != fresh["format"]:
        yield f"format: {recorded['format']} recorded, {fresh['format']} now"
        return
    old, new = by_id(recorded), by_id(fresh)
    for identifier in list(old) + [i for i in new if i not in old]:
        if identifier not in new:
            yield f"{identifier}: recorded, not tried now"
        elif identifier not in old:
            yield f"{identifier}: tried now, not recorded"
        else:
            was, now = old[identifier], new[identifier]
            for what in ("rule", "tried", "promised"):
                if was.get(what) != now.get(what):
                    yield f"{identifier}: the record says another {what}"
            for line in facts(expected(was, now["seen"]), now["seen"]):
                yield f"{identifier}: {line}"
    for name in {**recorded["errors"], **fresh["errors"]}:
        was, now = recorded["errors"].get(name), fresh["errors"].get(name)
        if was is None or (now is None and not older):
            told = "not recorded, met now" if was is None else "recorded, not met now"
            yield f"error '{name}': {told}"
        for line in facts(was or {}, now or {}) if was and now else ():
            yield f"error '{name}': {line}"
    if recorded["rules"] != fresh["rules"]:
        yield "rules: the record states others"


def releases(recorded, fresh):
    """A line that says which releases are compared."""
    return f"recorded with PyTorch {recorded['torch']}, now {fresh['torch']}"


FORMAT = 2
PATH = Path(__file__).with_name("semantics.json")
RELEASE = torch.__version__.split("+")[0]


def read(path=PATH):
    return json.loads(Path(path).read_text(encoding="utf-8"))


RULES = read()["rules"]
"""What is known of checkpointing, rule by rule; the probes of each find out if it holds."""


@cache
def recorded():
    """The probes of the record, by id, its errors, and its release."""
    record = read()
    return {p["id"]: p for p in record["probes"]}, record["errors"], record["torch"]


def place(identifier):
    """The rule of a probe, as a number: probes of one rule stay in the order that they have."""
    return list(RULES).index(identifier.split(".")[0])


def fresh():
    """The record of the PyTorch that is installed."""
    probing.errors_seen.clear()
    probes = []
    for identifier in sorted(probing.PROBES, key=place):
        one = probing.PROBES[identifier]
        entry = {"id": identifier, "rule": identifier.split(".")[0], "tried": one.tried}
        entry["seen"] = plain(probing.facts_of(one.function))
        if one.promised:
            entry["promised"] = one.promised
        probes.append(entry)
    return {
        "format": FORMAT,
        "command": "golden/make_semantics",
        "torch": RELEASE,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "errors": dict(sorted(probing.errors_seen.items())),
        "rules": {rule: RULES[rule] for rule in dict.fromkeys(p["rule"] for p in probes)},
        "probes": probes,
    }


def plain(facts):
    """Facts as JSON has them."""
    return json.loads(json.dumps(facts))


def older(release, than):
    """Whether a release is older than another, such as "2.9.1" than "2.15.0"."""
    numbers = lambda text: [int(part) for part in text.split(".")[:2]]
    return numbers(release) < numbers(than)


def expected(entry, got, release=RELEASE, of=None):
    """The facts that a release should show for a probe of the record, given what came.

    A release that is recorded shows what it showed then; one between two shows, of each fact, what
    either did, and none shows what it does not have. What the documentation promises comes first.
    """
    of = of or recorded()[2]
    if "not_available" in got and older(release, of):
        return got
    wanted = dict(entry["seen"])
    for other, facts in entry.get("earlier", {}).items():
        for fact, value in facts.items() if older(release, of) else ():
            same = not (older(release, other) or older(other, release))
            if same or older(release, other) or got.get(fact) == value:
                wanted[fact] = value
    wanted |= entry.get("promised", {})
    return {fact: value for fact, value in wanted.items() if value is not None}


def written(record):
    """JSON with one probe a line, so that a difference in the file is one in a probe."""

    def entry(key, value):
        return f"{json.dumps(key)}: {json.dumps(value)}"

    head = [entry(key, record[key]) for key in ("format", "command", "torch", "python")]
    for key in ("errors", "rules"):
        lines = ",\n    ".join(entry(k, v) for k, v in record[key].items())
        head.append(f'"{key}": {{\n    {lines}\n  }}')
    lines = ",\n    ".join(json.dumps(p) for p in record["probes"])
    head.append(f'"probes": [\n    {lines}\n  ]')
    text = "{\n  " + ",\n  ".join(head)
    return text + ",\n  " + entry("digest", digest(text)) + "\n}\n"


def digest(text):
    """FNV-1a, 64 bits (draft-eastlake-fnv): detects lines that were edited by hand."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def with_earlier(record, earlier):
    """Adds to each probe that both records have what the older release shows differently; returns the record."""
    seen = {p["id"]: p["seen"] for p in earlier["probes"]}
    for probe in record["probes"]:
        old, new = seen.get(probe["id"], {}), probe["seen"]
        differing = {f: old.get(f) for f in [*new, *old] if old.get(f) != new.get(f)}
        probe.setdefault("earlier", {}).pop(earlier["torch"], None)
        if differing and old and "not_available" not in old:
            probe["earlier"][earlier["torch"]] = differing
        if not probe["earlier"]:
            del probe["earlier"]
    return record
