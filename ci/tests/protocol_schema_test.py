#!/usr/bin/env python3
"""The schema of the protocol describes what the harness and its subjects really say.

  protocol_schema_test.py REMATCH    the built program
"""
import json
import random
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

import jsonschema

ROOT = Path(__file__).resolve().parents[2]
SUBJECTS = ROOT / "properties" / "subjects"
REMATCH = str(Path(sys.argv.pop()).resolve())
SCHEMA = json.loads(subprocess.run([REMATCH, "serve", "--schema"], capture_output=True, check=True).stdout)
PYTORCH = shlex.join([sys.executable, "-m", "rematch", "pytorch"])

LARGE = {"format": 1, "seed": 3, "input": [1, 300000], "layers": [{"kind": "tanh"}, {"kind": "dropout", "p": 0.5}],
         "plan": {"segments": [{"begin": 0, "end": 2, "variant": "non_reentrant"}]}}

WRITER = """
from rematch import Subject, Unsupported, serve

class Writer(Subject):
    name, exports = "writer", True
    def observes(self, observables):
        return []
    def run(self, request, record):
        if request.arrays.inputs[0].size < 100000:
            raise Unsupported("too small")
    def export(self, request, finding):
        return "print()"

serve(Writer())
"""

# Each is wrong in one place.
WRONG_ANSWERS = [
    {},
    {"run": {}},
    {"hello": {"protocol": 1, "name": "x", "implements": [], "observes": []}, "answer": {"id": 1, "error": "x"}},
    {"hello": {"protocol": 2, "name": "x", "implements": [], "observes": []}},
    {"hello": {"protocol": 1, "implements": [], "observes": []}},
    {"hello": {"protocol": 1, "name": "x", "implements": [], "observes": [], "hobby": 1}},
    {"hello": {"protocol": 1, "name": "x", "implements": [], "observes": [], "versions": {"torch": 2}}},
    {"answer": {"record": {"format": 1}}},
    {"answer": {"id": -1, "record": {"format": 1}}},
    {"answer": {"id": 1}},
    {"answer": {"id": 1, "unsupported": "x", "record": {"format": 1}}},
    {"answer": {"id": 1, "record": {}}},
    {"answer": {"id": 1, "record": {"format": 1, "spam": 1}}},
    {"answer": {"id": 1, "record": {"format": 1, "draws": {}}}},
    {"answer": {"id": 1, "record": {"format": 1, "draws": [{"layer": -1}]}}},
    {"answer": {"id": 1, "record": {"format": 1, "draws": [{"hash": "0xg"}]}}},
    {"answer": {"id": 1, "record": {"format": 1, "draws": [{"colour": 1}]}}},
    {"answer": {"id": 1, "record": {"format": 1, "observations": [{"data": "AAA"}]}}},
    {"answer": {"id": 1, "record": {"format": 1, "observations": [{"dtype": "float16"}]}}},
    {"answer": {"id": 1, "record": {"format": 1, "streams": [{"moment": "later"}]}}},
]
WRONG_REQUESTS = [
    {"answer": {"id": 1, "error": "x"}},
    {"run": {"id": 1, "checkpointed": True, "layer_values": False}},
    {"run": {"id": 1, "checkpointed": True, "layer_values": False, "detached_layers": [], "case": LARGE}},
    {"export": {"id": 1, "finding": "x", "detached_layers": []}},
]


def part(name):
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]})


class ProtocolSchema(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def messages(self, arguments, subject, export=False):
        """Messages on each pipe while the program judges a subject."""
        for name in ("request", "answer"):
            (self.folder / name).unlink(missing_ok=True)
        listening = f"tee -a request <&3 | {subject} 3<&0 4>&1 >/dev/null | tee -a answer >&4"
        arguments = [*arguments, "--subject", listening, *(["--export", listening] if export else [])]
        ran = subprocess.run([REMATCH, *arguments], cwd=self.folder,
                             capture_output=True, text=True, check=False)
        self.assertIn(ran.returncode, (0, 1), ran.stdout + ran.stderr)
        self.assertNotRegex(ran.stdout, r"VIOLATED\s+survives")
        said = {name: [json.loads(line) for line in (self.folder / name).read_text().splitlines()]
                for name in ("request", "answer")}
        self.assertEqual(len(said["request"]), len(said["answer"]))
        return said

    def check(self, said):
        for name, messages in said.items():
            validator = part(name)
            for message in messages:
                validator.validate(message)

    def hunt(self, cases, subject):
        seed = random.SystemRandom().randrange(2**32)
        with self.subTest(seed=seed):
            said = self.messages(["check", "--jobs", "1", "--cases", str(cases), "--seed", str(seed),
                                  "--no-regressions", "--keep-going"], subject)
            self.assertGreater(len(said["answer"]), cases)
            self.check(said)

    def replay(self, subject, case=LARGE, **options):
        (self.folder / "case.json").write_text(json.dumps(case))
        said = self.messages(["replay", "case.json"], subject, **options)
        self.check(said)
        return said

    def test_the_schema_is_one(self):
        jsonschema.Draft202012Validator.check_schema(SCHEMA)

    def test_the_engine_behind_pipes_speaks_it(self):
        self.hunt(60, f"{shlex.quote(REMATCH)} serve")

    def test_the_python_package_speaks_it(self):
        self.hunt(25, PYTORCH)

    def test_large_arrays_go_by_file_to_those_who_read_files(self):
        for subject in (f"{shlex.quote(REMATCH)} serve", PYTORCH):
            run = self.replay(subject)["request"][1]["run"]
            self.assertIn("file", run["arrays"]["inputs"][0])

    def test_scripts_and_refusals_are_part_of_it(self):
        (self.folder / "writer.py").write_text(WRITER)
        subject = f"{sys.executable} writer.py"
        said = self.messages(["check", "--jobs", "1", "--cases", "8", "--no-regressions"], subject)
        self.check(said)
        self.assertIn("unsupported", said["answer"][1]["answer"])
        self.assertIn("script", self.replay(subject, export=True)["answer"][-1]["answer"])

    def test_the_conversation_on_the_page_is_what_is_said(self):
        readme = (ROOT / "properties" / "python" / "ADAPTERS.md").read_text()
        program = re.search(r"`relu.py`[^\n]*\n\n((?:    [^\n]*\n|\n)+?    serve\(.*\n)", readme)[1]
        (self.folder / "relu.py").write_text(textwrap.dedent(program))
        section = (SUBJECTS / "PROTOCOL.md").read_text().split("\n## ")[2]
        lines = re.findall(r"^    ([<>] .*(?:\n {8}.*)*)", section, re.MULTILINE)
        written = {"request": [line for line in lines if line[0] == ">"],
                   "answer": [line for line in lines if line[0] == "<"]}
        # Names and versions are those of the day.
        written = {name: [json.loads(line[2:]) for line in all[1:]] for name, all in written.items()}
        said = self.replay(f"{sys.executable} relu.py", written["request"][0]["run"]["case"])
        self.assertEqual({name: messages[1:] for name, messages in said.items()}, written)

    def test_wrong_messages_are_refused(self):
        for name, wrong in (("answer", WRONG_ANSWERS), ("request", WRONG_REQUESTS)):
            for message in wrong:
                with self.subTest(message=message):
                    self.assertFalse(part(name).is_valid(message))


if __name__ == "__main__":
    unittest.main()
