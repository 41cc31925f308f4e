"""Summaries of results as ctest writes them."""

import sys
import xml.etree.ElementTree as xml
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from summary import summary  # noqa: E402

RESULTS = """<testsuite>
<testcase name="one" time="0.5" status="run"><system-out>fine</system-out></testcase>
<testcase name="slow" time="70.25" status="run"/>
<testcase name="gpu a" time="0" status="notrun"><skipped message="SKIP"/>
<system-out>x_test.cpp:23: SKIPPED:
explicitly with message:
  no CUDA device was found</system-out></testcase>
<testcase name="gpu b" time="0" status="notrun"><system-out>no CUDA device was found</system-out></testcase>
<testcase name="py" time="0" status="notrun"><system-out>skipped: no chromium</system-out></testcase>
<testcase name="a (b) fails" time="1" status="fail"><failure message=""/>
<system-out>E  1 is 2

1 failed</system-out></testcase>
</testsuite>"""


def main():
    lines = summary(xml.fromstring(RESULTS)).splitlines()
    expected = [
        "",
        "2 passed, 1 failed, 3 skipped",
        "  skipped 2: no CUDA device was found",
        "  skipped 1: no chromium",
        "    70.2 s  slow",
        "     1.0 s  a (b) fails",
        "     0.5 s  one",
        "FAILED a (b) fails",
        "    E  1 is 2",
        "    1 failed",
        "again: ctest --preset release -R 'a .b. fails'",
    ]
    if lines != expected:
        print("expected", *expected, "got", *lines, sep="\n  ")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
