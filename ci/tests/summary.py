"""The end of ci/test: what passed, why tests were skipped, which failed and what to do next.

  ci/tests/summary.py FILE        FILE: what ctest --output-junit wrote
"""

import re
import shlex
import sys
import xml.etree.ElementTree as xml
from collections import Counter

SLOWEST = 3
LAST_LINES = 20
# Texts that tests print when they skip themselves, in the order in which they are looked for.
REASONS = (
    (r"no CUDA device was found", "no CUDA device was found"),
    (r"no Python (?:with it was found|for (\S+))", "a framework is not set up; ci/setup --frameworks all"),
    (r"skipped: (.+)", None),
)


def reason_of(text):
    for pattern, reason in REASONS:
        if found := re.search(pattern, text):
            return reason or found[1].strip()
    found = re.search(r"SKIPPED:\s*(?:explicitly with message:\s*)?(.+)", text)
    return found[1].strip() if found else "no reason was given"


def last_lines(text):
    return ["    " + line for line in text.splitlines() if line.strip()][-LAST_LINES:]


def summary(root):
    tests = root.findall("testcase")
    failed = [t for t in tests if t.find("failure") is not None]
    # ctest says "notrun" of a test that skipped itself.
    skipped = [t for t in tests if t not in failed and t.get("status") in ("notrun", "disabled")]
    passed = len(tests) - len(failed) - len(skipped)
    lines = ["", f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped"]
    reasons = Counter(reason_of(t.findtext("system-out") or "") for t in skipped)
    lines += [f"  skipped {count}: {reason}" for reason, count in reasons.most_common()]
    slowest = sorted(tests, key=lambda t: -float(t.get("time") or 0))[:SLOWEST]
    lines += [f"  {float(t.get('time') or 0):6.1f} s  {t.get('name')}" for t in slowest]
    for test in failed:
        lines += [f"FAILED {test.get('name')}", *last_lines(test.findtext("system-out") or "")]
    if failed:
        again = re.sub(r"([^\w ])", r".", failed[0].get("name"))
        lines.append(f"again: ctest --preset release -R {shlex.quote(again)}")
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    # Tests print what they like; XML has no control characters.
    with open(sys.argv[1], encoding="utf-8", errors="replace") as file:
        text = re.sub(r"[\x00-\x08\x0b-\x1f]", "", file.read())
    print(summary(xml.fromstring(text)))
