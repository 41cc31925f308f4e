"""What PyTorch does, rule by rule, and what its documentation promises of torch.utils.checkpoint.

Probes try one thing each; `semantics.json` has the facts that they saw on the release which was
recorded. A probe is kept where the PyTorch that is installed shows the same, or what is promised
where that release breaks it. `python -m rematch.frameworks.pytorch.contract` tries all; a
checkpointed run of a hunt tries one.
"""

from functools import partial
from importlib import import_module

from rematch.frameworks.pytorch.contract import probing, record
from rematch.frameworks.pytorch.contract.record import RULES, changed
from rematch.subjects.promises import Promise, named, script

__all__ = ["PROMISES", "broken", "script_of"]

_PROBES = "ambient arguments autocast bits decorator devices groups helpers lifetime messages mismatches nesting "
_PROBES += "partition policies recomputation reentrant selective selective_masks verdicts"
for _module in _PROBES.split():
    # Each registers its probes.
    import_module(f"{__name__}.{_module}")


def _attempt(name, function):
    entries, errors, _ = record.recorded()
    probing.errors_seen.clear()
    got = record.plain(probing.facts_of(function))
    for category, error in probing.errors_seen.items():
        if errors.get(category) != error:
            got[f"error '{category}'"] = error["class"]
    return record.expected(entries[name], got), got


def _promise(name, probe):
    sentence = f"{RULES[name.split('.')[0]]}. {probe.tried}"
    attempt = partial(_attempt, name, probe.function)
    return Promise(name, sentence, probe.function, attempt, changed)


PROMISES = {name: _promise(name, probe) for name, probe in probing.PROBES.items()}
"""By the name of its probe, such as "N3.stop"."""


def broken(name):
    """What became of a promise, "" if it was kept. Random and other settings are left as found."""
    return PROMISES[name].broken()


def script_of(finding):
    """The script for a finding of broken(). Raises Unsupported for any other."""
    promise = named(finding, PROMISES.values())
    function, given = promise.function, ()
    if isinstance(function, partial):
        function, given = function.func, function.args
    arguments = "".join(f", {a.__name__ if callable(a) else repr(a)}" for a in given)
    call = f"partial({function.__name__}{arguments})" if arguments else function.__name__
    return script(
        finding,
        label=f"torch {record.RELEASE}",
        attempt=f"{promise.attempt()[0]!r}, facts_of({call})",
        same="expected == got",
        words=("expected", "got"),
        uses=[function, *filter(callable, given), probing.facts_of],
        imports="from functools import partial" if arguments else "",
    )
