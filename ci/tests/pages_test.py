"""Pages keep up with the tree: links lead somewhere, commands and their options exist, files that are named are there,
and pages for readers are short.

  pages_test.py REMATCH    the built program
"""
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REMATCH = sys.argv.pop() if len(sys.argv) > 1 and not sys.argv[-1].startswith("-") else None
# Most words, code included.
LONGEST = {
    "properties/python/README.md": 1500, "properties/README.md": 1500, "ci/consumer/README.md": 1500,
    "ci/CONTRIBUTING.md": 1500, "properties/python/PLAN.md": 700, "properties/python/WATCH.md": 700,
}
README_LINES = 120
SUFFIXES = "h|cpp|cu|py|json|jsonl|md|txt|cmake|yml|sh|svg|png"
# Names that stand for any file.
STAND_INS = re.compile(r"[A-Z]{3,}|^ID\.|<|\*|^(x|x_test|mine|check|my_\w+|relu|small|layers|case|report|base|new|bytes|page|bug|test_\w+|[abr]\d?|part\d)\.")

# Files of other projects, and those that a build makes.
OTHERS = ("/", "build/", "page/", "torch/")


def prose_of(page):
    """A page without its code blocks."""
    return re.sub(r"(?m)^(    |\t).*$", "", re.sub(r"(?ms)^```.*?^```", "", page))


def anchors_of(page):
    """Anchors of the headings, as GitHub makes them, and those that the page sets itself."""
    headings = re.findall(r"(?m)^#+ (.+)$", prose_of(page))
    own = re.findall(r'<a id="([\w-]+)"></a>', page)
    return {re.sub(r"[^\w\- ]", "", h.strip().lower()).replace(" ", "-") for h in headings} | {*own}


def links_of(page):
    text = re.sub(r"`[^`\n]*`", "", prose_of(page))
    return [re.sub(r"\s+", "", link) for link in re.findall(r"\]\(([^)]+)\)", text)]


def code_of(page):
    """Commands in blocks and between backticks, continued lines as one."""
    blocks = re.findall(r"(?m)^(?:    |\t)(.*)$", page)
    blocks = "\n".join(blocks).replace("\\\n", " ").split("\n")
    return [line.strip() for line in [*blocks, *re.findall(r"`([^`]+)`", prose_of(page))]]


class Tree:
    """Everything that pages may refer to: files, texts of scripts, helps of commands."""

    def __init__(self, files, read, help_of):
        self.files, self.read, self.help_of = set(files), read, help_of
        self.folders = {str(parent) for f in self.files for parent in Path(f).parents}

    def has(self, path):
        return path in self.files or path.rstrip("/") in self.folders

    def broken_links(self, name, page):
        for link in links_of(page):
            if re.match(r"https?:", link):
                continue
            target, _, anchor = link.partition("#")
            path = name if not target else normal(Path(name).parent / target)
            if not self.has(path):
                yield f"{name}: no {path}, to which a link leads"
            elif anchor and path.endswith(".md") and anchor not in anchors_of(self.read(path)):
                yield f"{name}: {path} has no heading #{anchor}"

    def broken_commands(self, name, page):
        for line in code_of(page):
            for script, rest in re.findall(r"(?<![\w/.])((?:ci|bench/peers|golden)/[\w/-]+)(?![\w/.*<-])((?: [^|&;#]*)?)", line):
                if not self.has(script) and not STAND_INS.search(script):
                    yield f"{name}: no script {script}"
                elif script in self.files and script.startswith("ci/") and script not in ("ci/check", "ci/test", "ci/hunt", "ci/maintain/conform"):
                    for option in re.findall(r"(?<!\S)--[a-z][a-z-]+", rest):
                        # Those of helpers count: the script's own text is not all that it reads.
                        if option not in self.read(script) + self.read("ci/maintain/frameworks"):
                            yield f"{name}: {script} has no {option}"
            for command, rest in re.findall(r"(?<![\w-])rematch ([a-z]+)(?![\w.:/-])((?: [^|&;#]*)?)", line):
                told = self.help_of(command)
                if told is None:
                    # Words of a sentence between backticks are no command.
                    if line.split("rematch", 1)[0].strip(" $(") in ("", "build/release/bin/", "build/program/bin/"):
                        yield f"{name}: rematch has no command {command}"
                    continue
                for option in re.findall(r"(?<!\S)--[a-z][a-z-]+", re.sub(r'"[^"]*"|\'[^\']*\'', "", rest)):
                    if option not in told:
                        yield f"{name}: rematch {command} has no {option}"

    def missing_files(self, name, page):
        for code in re.findall(r"`([\w./-]+)`", prose_of(page)):
            if not re.search(rf"\w\.({SUFFIXES})$", code) or STAND_INS.search(Path(code).name) or code.startswith(OTHERS):
                continue
            if not any(f == code or f.endswith("/" + code) for f in self.files):
                yield f"{name}: no file {code}"

    def faults_of(self, name, page):
        yield from self.broken_links(name, page)
        yield from self.broken_commands(name, page)
        yield from self.missing_files(name, page)
        if len(page.split()) > LONGEST.get(name, 10**9):
            yield f"{name}: {len(page.split())} words, at most {LONGEST[name]}"
        if name == "README.md" and page.count("\n") > README_LINES:
            yield f"{name}: {page.count(chr(10))} lines, at most {README_LINES}"


def normal(path):
    parts = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts) or "."


class Anything:
    def __contains__(self, _):
        return True


def help_of(command, known={}):
    """Help of a command of the program; None where there is no such command."""
    if command not in known and os.path.exists(Path(REMATCH).parent / f"rematch-{command}"):
        # A program beside it, whose options are its own.
        known[command] = Anything()
    package = ROOT / "properties/python/rematch"
    if command not in known and ((package / "frameworks" / command).is_dir() or (package / "cli" / f"{command}.py").exists()):
        # In Python; its help would take the import of PyTorch.
        known[command] = Anything()
    if command not in known:
        ran = subprocess.run([REMATCH, command, "--help"], capture_output=True, text=True, timeout=60)
        known[command] = ran.stdout if ran.returncode == 0 else None
    return known[command]


def repository():
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    files = [f for f in listed.stdout.decode().split("\0") if f and (ROOT / f).exists()]
    return Tree(files, lambda f: (ROOT / f).read_text(), help_of)


class Pages(unittest.TestCase):
    PAGE = "# A page\n\n[there](b.md#two-words) `ci/run --fast`, `a.h`\n\n    rematch check --cases 3\n"

    def setUp(self):
        files = {"x/a.h": "", "x/page.md": self.PAGE, "x/b.md": "## Two words\n", "ci/run": "--fast",
                 "ci/maintain/frameworks": ""}
        self.tree = Tree(files, files.get, {"check": "--cases N"}.get)

    def finds(self, expected, old="", new=""):
        page = self.PAGE.replace(old, new) if old else self.PAGE
        self.assertEqual([f.split(": ", 1)[1] for f in self.tree.faults_of("x/page.md", page)], expected)

    def test_a_page_that_keeps_up_has_no_fault(self):
        self.finds([])

    def test_links_that_lead_nowhere_are_found(self):
        self.finds(["no x/c.md, to which a link leads"], "b.md#two-words", "c.md")
        self.finds(["x/b.md has no heading #three-words"], "two-words", "three-words")

    def test_scripts_commands_options_and_files_that_are_gone_are_found(self):
        self.finds(["no script ci/walk"], "ci/run --fast", "ci/walk")
        self.finds(["ci/run has no --slow"], "--fast", "--slow")
        self.finds(["rematch has no command chekc"], "check", "chekc")
        self.finds(["rematch check has no --casse"], "--cases", "--casse")
        self.finds(["no file c.h"], "a.h", "c.h")

    def test_long_pages_are_found(self):
        LONGEST["x/page.md"] = 5
        self.addCleanup(LONGEST.pop, "x/page.md")
        self.finds([f"{len(self.PAGE.split())} words, at most 5"])

    @unittest.skipUnless(REMATCH and (ROOT / ".git").exists(), "without the program and git nothing is compared")
    def test_every_page_keeps_up(self):
        tree = repository()
        pages = [f for f in tree.files if f.endswith(".md")]
        faults = [fault for name in sorted(pages) for fault in tree.faults_of(name, tree.read(name))]
        self.assertEqual(faults, [], "\n" + "\n".join(faults))


if __name__ == "__main__":
    unittest.main()
