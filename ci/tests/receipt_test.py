"""A receipt of a device says what ran and what did not, and one that was changed, or that lacks something, is told."""

import importlib.machinery
import importlib.util
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "ci/maintain/receipt"
PROGRAMS, EMULATED = (Path(argument) for argument in sys.argv[1:3])

loader = importlib.machinery.SourceFileLoader("receipt", str(TOOL))
spec = importlib.util.spec_from_loader("receipt", loader)
receipt_tool = importlib.util.module_from_spec(spec)
loader.exec_module(receipt_tool)


def whole():
    """A receipt in which everything ran."""
    ran = {"ran": True, "status": 0, "seconds": 1.0, "spec": "[gpu]~[long]", "sees_what_is_planted": True}
    hunted = {**ran, "seed": receipt_tool.SEED, "cases": 3000, "not_judged": 0, "exact_hash": "0" * 16}
    parts = {name: dict(hunted if name.startswith("hunt") else ran) for name in receipt_tool.PARTS}
    made = {"format": 1, "commit": "0" * 40, "tree_changed": False, "date": "", "device": "a card", "parts": parts}
    return {**made, "digest": receipt_tool.digest_of(made)}


class Receipt(unittest.TestCase):
    def complaints(self, change):
        made = whole()
        change(made)
        made["digest"] = receipt_tool.digest_of(made)
        return receipt_tool.complaints(made)

    def test_a_receipt_in_which_everything_ran_has_no_open_point(self):
        self.assertEqual(receipt_tool.complaints(whole()), [])

    def test_each_part_that_is_absent_did_not_run_or_failed_is_told(self):
        for name in receipt_tool.PARTS:
            for change, words in (
                (lambda r, name=name: r["parts"].pop(name), "the receipt does not name it"),
                (lambda r, name=name: r["parts"].update({name: {"ran": False, "why": "no time"}}), "not run: no time"),
                (lambda r, name=name: r["parts"][name].update(status=3), "failed with status 3"),
            ):
                self.assertEqual(len(told := self.complaints(change)), 1)
                self.assertIn(f"{name}: ", told[0])
                self.assertIn(words, told[0])

    def test_a_clean_tool_that_sees_no_planted_fault_says_nothing(self):
        told = self.complaints(lambda r: r["parts"]["racecheck"].update(sees_what_is_planted=False))
        self.assertEqual(len(told), 1)
        self.assertIn("racecheck: clean, but", told[0])

    def test_a_change_by_hand_a_changed_tree_and_few_judged_cases_are_told(self):
        made = whole()
        made["device"] = "another card"
        self.assertIn("changed by hand", receipt_tool.complaints(made)[0])
        self.assertIn("differs from its commit", self.complaints(lambda r: r.update(tree_changed=True))[0])
        short = self.complaints(lambda r: r["parts"]["hunt wide"].update(cases=1))
        self.assertIn("expected at least 3000 cases, got 1", short[0])
        few = self.complaints(lambda r: r["parts"]["hunt wide"].update(not_judged=1501))
        self.assertIn("1501 of 3000 cases were not judged", few[0])

    def test_a_device_draws_the_bits_of_the_cpu_and_another_hash_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "receipt.json"
            write = [TOOL, "write", file, "--programs", EMULATED, "--cases", "40", "--tests", "[device]", "--limit", "120"]
            self.assertEqual(subprocess.run(write, capture_output=True, check=False).returncode, 0)
            made = json.loads(file.read_text(encoding="utf-8"))
            self.assertIn("emulated", made["device"])
            told, equal = receipt_tool.compared(made, PROGRAMS / "rematch")
            changed = [t for t in told if "this tree differs" in t]
            self.assertEqual((told, equal), (changed, 2))
            made["parts"]["hunt standard"]["exact_hash"] = "0" * 16
            told, equal = receipt_tool.compared(made, PROGRAMS / "rematch")
            self.assertEqual((len(told), equal), (1 + len(changed), 1))
            made["commit"] = "0" * 40
            self.assertIn("hashes were not compared", receipt_tool.compared(made, PROGRAMS / "rematch")[0][-1])
            check = [ROOT / "ci/check-receipt", file, "--programs", PROGRAMS]
            checked = subprocess.run(check, capture_output=True, text=True, check=False)
            self.assertEqual(checked.returncode, 1)
            self.assertIn("memcheck: not run", checked.stdout)
            self.assertIn("only [device] ran", checked.stdout)

    def test_what_is_no_receipt_is_a_usage_error(self):
        for text in ("", "[]", "{"):
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "receipt.json"
                file.write_text(text, encoding="utf-8")
                run = subprocess.run([ROOT / "ci/check-receipt", file], capture_output=True, text=True, check=False)
                self.assertEqual(run.returncode, 2)
                self.assertIn("expected a receipt", run.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
