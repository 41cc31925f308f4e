"""What changed between two records, in words."""


def words(name):
    return name.replace("_", " ")


def shown(value):
    if value is True or value is False:
        return "yes" if value else "no"
    if isinstance(value, list):
        return "[" + ", ".join(shown(v) for v in value) + "]"
    return str(value)


def by_id(record):
    return {entry["id"]: entry for entry in record["probes"]}


def changed_fields(identifier, old, new):
    if "not_available" in new and "not_available" not in old:
        yield f"{identifier}: recorded, not available now ({new['not_available']})"
        return
    for name in list(old) + [n for n in new if n not in old]:
        where = f"{identifier}: {words(name)}"
        if name not in new:
            yield f"{where}: {shown(old[name])} recorded, not seen now"
        elif name not in old:
            yield f"{where}: not recorded, {shown(new[name])} now"
        elif type(old[name]) is not type(new[name]) or old[name] != new[name]:
            yield f"{where}: {shown(old[name])} recorded, {shown(new[name])} now"


def differences(recorded, fresh):
    """A line for each fact that differs. That the versions differ is not one of them."""
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
            for what in ("rule", "tried"):
                if old[identifier][what] != new[identifier][what]:
                    yield f"{identifier}: the record says another {what}"
            yield from changed_fields(identifier, old[identifier]["seen"], new[identifier]["seen"])
    for name in list(recorded["errors"]) + [
        e for e in fresh["errors"] if e not in recorded["errors"]
    ]:
        was, now = recorded["errors"].get(name), fresh["errors"].get(name)
        if was is None or now is None:
            yield f"error '{name}': {'not recorded' if was is None else 'recorded'}, " + (
                "met now" if was is None else "not met now"
            )
        elif was != now:
            yield from changed_fields(f"error '{name}'", was, now)


def releases(recorded, fresh):
    """A line that says which releases are compared."""
    return f"recorded with PyTorch {recorded['torch']}, now {fresh['torch']}"
