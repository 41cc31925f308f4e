"""No Python modules import each other in a circle, imports within functions and for annotations alone included."""
import ast
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOTS = ("properties/python", "properties/python/tests", "bench/compare", "bench/compare/tests")


def found(name, folders, files):
    """The file of a module, looked for in these folders; None where it is none of ours."""
    for folder in folders:
        stem = "/".join(filter(None, [folder, name.replace(".", "/")]))
        for file in (f"{stem}.py", f"{stem}/__init__.py"):
            if file in files:
                return file
    return None


def imports(file, source, files):
    """The files that a file imports."""
    folders = [str(p) if str(p) != "." else "" for p in Path(file).parents] + list(ROOTS)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (found(alias.name, folders, files) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = folders[node.level - 1].replace("/", ".") if node.level else ""
            module = ".".join(filter(None, [base, node.module]))
            where = [""] if node.level else folders
            for alias in node.names:
                yield found(f"{module}.{alias.name}", where, files) or found(module, where, files)


def circles(sources):
    """The circles of {file: source}, each as the files on the way from one back to itself."""
    arrows = {file: sorted({t for t in imports(file, text, sources) if t}) for file, text in sources.items()}
    done, rings = set(), []

    def walk(file, way):
        if file in way:
            rings.append([*way[way.index(file):], file])
        elif file not in done:
            for target in arrows[file]:
                walk(target, [*way, file])
            done.add(file)

    for file in arrows:
        walk(file, [])
    return rings


class Circles(unittest.TestCase):
    def test_a_circle_is_found_wherever_its_imports_stand(self):
        ways = ("from house import {}", "import house.{}", "def f():\n    from house.{} import x",
                "if TYPE_CHECKING:\n    from house.{} import x", "from . import {}", "from .{} import x")
        for way in ways:
            sources = {"house/__init__.py": "", "house/a.py": way.format("b"), "house/b.py": "from house import a"}
            self.assertEqual(circles(sources), [["house/a.py", "house/b.py", "house/a.py"]], way)

    def test_modules_that_import_one_way_are_no_circle(self):
        self.assertEqual(circles({"a.py": "import b, c", "b.py": "import c\nimport os", "c.py": ""}), [])

    def test_this_tree_has_none(self):
        kept = (p for p in ROOT.rglob("*.py") if not {"build", "_deps"} & set(p.relative_to(ROOT).parts))
        sources = {p.relative_to(ROOT).as_posix(): p.read_text() for p in kept}
        self.assertGreater(len(sources), 100)
        self.assertEqual([" -> ".join(ring) for ring in circles(sources)], [])


if __name__ == "__main__":
    unittest.main()
