"""What differs between two records, in words."""

import json


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
