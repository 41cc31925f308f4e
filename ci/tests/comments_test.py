"""Comments and docstrings begin with a noun or a verb: no sentence in them begins with "Of" or, unless it is a
question, with "What". Such sentences name no subject, and a reader has to guess what they are about.

Folders in comments.txt were written before this rule and may still have some; one that has none left has to leave
the list."""
import ast
import io
import re
import subprocess
import tokenize
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TODO = "ci/tests/comments.txt"
# Text up to the end of a sentence; a full stop inside of a word, as in `x.y`, ends none.
SENTENCE = re.compile(r"[^\s].*?(?:[.!?](?=\s|$)|$)", re.S)


def blocks_of_cpp(text):
    """Pairs of a line number and the text of a comment, successive lines joined."""
    start, lines, indent = 0, [], -1
    for number, line in enumerate(text.splitlines() + [""], 1):
        found = re.match(r"(.*?)//+(?!/)<? ?(.*)", line)
        alone = found and not found[1].strip()
        if lines and not (alone and len(found[1]) == indent):
            yield start, "\n".join(lines)
            lines = []
        if found and (alone or re.search(r"[;,{}()]\s+$", found[1])):
            if not lines:
                start, indent = number, len(found[1]) if alone else -1
            lines.append(found[2])


def blocks_of_python(text):
    """The same for Python's comments and docstrings."""
    comments = [(t.start, t.string) for t in tokenize.generate_tokens(io.StringIO(text).readline)
                if t.type == tokenize.COMMENT]
    start, lines, last = 0, [], None
    for (row, column), comment in comments:
        if lines and last != (row - 1, column):
            yield start, "\n".join(lines)
            lines = []
        if not lines:
            start = row
        lines.append(comment.lstrip("#").strip())
        last = (row, column)
    if lines:
        yield start, "\n".join(lines)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if ast.get_docstring(node) is not None:
                yield node.body[0].lineno, ast.get_docstring(node)


def headless(text):
    """Sentences of a comment that begin as none should: pairs of the lines before them, and their text."""
    for sentence in SENTENCE.finditer(text):
        words = sentence[0]
        if re.match(r"Of\s|What\s(?!.*\?$)", words, re.S):
            yield text.count("\n", 0, sentence.start()), " ".join(words.split())


def findings(path, text):
    blocks = blocks_of_python if path.endswith(".py") else blocks_of_cpp
    for start, comment in blocks(text):
        for below, sentence in headless(comment):
            yield f"{path}:{start + below}: {sentence}"


def broken(sources, todo):
    """Such sentences of sources {path: text} outside of the folders of todo, and folders that need not be there."""
    errors, still = [], set()
    for path, text in sorted(sources.items()):
        found = list(findings(path, text))
        folder = max((f for f in todo if path.startswith(f + "/")), key=len, default=None)
        if found and folder:
            still.add(folder)
        else:
            errors += found
    return errors + [f"{TODO}: {f} has no such comment left; drop its line" for f in todo if f not in still]


class Comments(unittest.TestCase):
    def finds(self, text, path, *expected):
        self.assertEqual([e.partition(": ")[2] for e in broken({path: text}, [])], list(expected))

    def test_sentences_of_cpp_are_found_wherever_they_begin(self):
        self.finds("/// Of the process.\n", "a.h", "Of the process.")
        self.finds("int a;  ///< Of two.\n", "a.h", "Of two.")
        self.finds("// A heap. What it\n// holds is read.\nint a;", "a.h", "What it holds is read.")

    def test_sentences_of_python_are_found_in_comments_and_docstrings(self):
        self.finds('def f():\n    """Of this process."""\n', "a.py", "Of this process.")
        self.finds("# What is left goes.\n", "a.py", "What is left goes.")

    def test_questions_code_and_other_words_pass(self):
        self.finds("// What is left? Often nothing; of two, one. Whatever x.What is.\n", "a.h")
        self.finds('auto s = "// Of";\nf("What is this.");\n', "a.cpp")
        self.finds('print("""Of a text.""")\n', "a.py")

    def test_a_folder_to_do_passes_while_it_needs_to(self):
        self.assertEqual(broken({"b/a.h": "// Of two.\n"}, ["b"]), [])
        self.assertIn("drop its line", broken({"b/a.h": "// Two.\n"}, ["b"])[0])

    def test_the_tree_follows_the_rule(self):
        files = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.h", "*.cpp", "*.cu",
                                "*.py"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
        sources = {f: (ROOT / f).read_text() for f in files if (ROOT / f).exists()}
        todo = [line for line in (ROOT / TODO).read_text().splitlines() if line and not line.startswith("#")]
        self.maxDiff = None
        self.assertEqual("\n".join(broken(sources, todo)), "")


if __name__ == "__main__":
    unittest.main()
