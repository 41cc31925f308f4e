"""Frameworks keep the promises of their checkpoint functions, but for those that profiles know."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1]
SUBJECTS = [
    ("mlx", "mlx", "profile", []),
    ("paddle", "paddle", "profile", ["--variant", "reentrant"]),
    ("paddle", "paddle", "profile", ["--variant", "non_reentrant"]),
    ("tensorflow", "tensorflow", "profile", []),
    ("tensorflow", "keras", "profile_tensorflow", []),
    ("jax", "jax", "profile", []),
    ("mindspore", "mindspore", "profile", []),
    ("flax", "nnx", "profile", []),
    ("equinox", "equinox", "profile", []),
    ("torch", "keras", "profile_torch", ["--backend", "torch"]),
    ("jax", "keras", "profile_jax", ["--backend", "jax"]),
]
# The backend of Keras is chosen once in a process.
TRY = """
import ast, importlib, json, sys
sys.path.insert(0, sys.argv.pop(1))
from rematch.subjects.promises import broken, script_of
adapter = importlib.import_module(f"rematch.frameworks.{sys.argv[1]}.adapter")
framework = adapter.subject(sys.argv[2:])
found = {p.__name__: broken(framework, p) for p in framework.promises}
for finding in filter(None, found.values()):
    script = script_of(framework, finding)
    compile(script, "<script>", "exec")
    # A type that an annotation names would have to be imported.
    for node in ast.walk(ast.parse(script)):
        assert not getattr(node, "annotation", None), ast.unparse(node)
        assert not getattr(node, "returns", None), ast.unparse(node)
print(json.dumps(found))
"""


def entries_of(profile: Path) -> list[dict]:
    read = json.loads(profile.read_text())
    base = entries_of(profile.parent / read["extends"]) if "extends" in read else []
    return [*base, *read["known"]]


@pytest.mark.parametrize(("package", "framework", "profile", "arguments"), SUBJECTS)
def test_promises_are_kept_but_for_those_that_the_profile_knows(package, framework, profile, arguments):
    if find_spec(package) is None or (framework == "keras" and find_spec("keras") is None):
        pytest.skip(f"needs {package}")
    done = subprocess.run([sys.executable, "-c", TRY, SOURCE, framework, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    known = entries_of(SOURCE / "rematch" / "frameworks" / framework / f"{profile}.json")
    quotes = [quote for entry in known for quote in entry.get("got", []) if quote[0] == "("]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found
    unknown = {n: said for n, said in found.items() if said and not any(q in said for q in quotes)}
    assert unknown == {}
    kept = [n for n, said in found.items() if not said]
    other = {"reentrant", "non_reentrant"} - set(arguments)
    stale = [n for n in kept for q in quotes if q[1:].split(")")[0] == n and q.split()[-1] not in other]
    assert stale == []
