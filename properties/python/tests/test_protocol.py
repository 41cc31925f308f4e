"""The protocol's loop, with small subjects that need no framework."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from cases import chain, run_of
from harness import FEATURES, SOURCES

from rematch.subjects.case import Case, Protocol, shape_of
from rematch.subjects.records import Record, bits_of, decode, encode, hash64

DOUBLES = """
import numpy as np
from rematch import Record, Request, Subject, serve

class Doubles(Subject):
    name = "doubles"
    def observes(self, observables):
        return [o for o in observables if o == "outputs"]
    def run(self, request, record):
        {body}
        record.observe("output", 2 * request.arrays.inputs[0])

serve(Doubles())
"""
CASE = run_of(chain("linear"))


def doubles(body="pass"):
    return DOUBLES.format(body=body)


def alone(program, **env):
    """Runs it as no harness does."""
    env = {**os.environ, "PYTHONPATH": str(SOURCES), **env}
    return subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)


def test_hello_says_what_the_subject_can_do(start_python):
    hello = start_python(doubles()).hello()
    assert (hello["protocol"], hello["name"], hello["may_vary"]) == (1, "doubles", False)
    assert (hello["observes"], hello["implements"]) == (["outputs"], FEATURES)
    assert "profile" not in hello
    assert hello["versions"]["python"] == sys.version.split()[0]


def test_an_array_that_is_observed_comes_back_bit_by_bit(start_python):
    record = start_python(doubles()).record(**CASE)
    given = decode(CASE["arrays"]["inputs"][0])
    (observation,) = record["observations"]
    assert record["format"] == 1
    assert decode(observation).tobytes() == (2 * given).tobytes()
    assert "step" not in observation and "requires_grad" not in observation


def test_bits_of_the_run_before_are_not_sent_again_but_for_another_case(start_python):
    harness = start_python(doubles())
    assert "data" in harness.record(**CASE)["observations"][0]
    again = harness.record(checkpointed=True)["observations"][0]
    assert again["as"] is True and "data" not in again
    assert again["shape"] == [4, 6] and again["dtype"] == "float32"
    assert "data" in harness.record(**CASE)["observations"][0]


def test_prints_of_any_kind_do_no_harm(start_python):
    body = 'import os; print("hello"); os.system("echo from a program"); os.write(1, b"raw\\n")'
    harness = start_python(doubles(body))
    harness.record(**CASE)
    harness.record(checkpointed=True)
    status, out, err = harness.close()
    assert (status, out) == (0, "")
    assert err.count("hello") == err.count("from a program") == err.count("raw") == 2


def test_a_program_that_outlives_the_subject_does_not_hold_the_pipe_open(start_python):
    body = 'import subprocess; subprocess.Popen(["sleep", "30"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)'
    harness = start_python(doubles(body))
    harness.record(**CASE)
    harness.process.kill()
    with pytest.raises(EOFError):
        harness.receive()


EMPTY = """
from rematch import Subject, serve
serve(type('Empty', (Subject,), {'observes': lambda self, all: []})())
"""


@pytest.mark.parametrize(
    ("program", "error"),
    [
        (
            doubles("return request.case.no_such_field"),
            r"(?s)^doubles: AttributeError: 'Case' object has no attribute.*\(<string>:10\).*record\.error\(\)",
        ),
        (EMPTY, r"Define run\(\)"),
        (doubles('record.observe("loss", np.float16([1]))'), "float32, float64, int32, uint8 expected, got float16"),
        (doubles("record.executions([object()])"), "the record cannot be written"),
        (doubles('record.add("draws", colour=1)'), "KeyError: 'colour'"),
    ],
)
def test_an_adapter_that_is_wrong_is_told_where_and_what_to_do(start_python, program, error):
    assert re.search(error, start_python(program).ask(**CASE)["error"])


def test_a_subject_that_is_broken_once_goes_on(start_python):
    harness = start_python(doubles("assert request.checkpointed, 'plain'"))
    assert "AssertionError: plain" in harness.ask(**CASE)["error"]
    harness.record(checkpointed=True)


def test_a_case_that_cannot_be_run_is_unsupported(start_python):
    body = 'from rematch import Unsupported; raise Unsupported("no images")'
    assert start_python(doubles(body)).ask(**CASE) == {"unsupported": "no images"}


def test_an_error_of_the_implementation_stands_in_the_record(start_python):
    record = start_python(doubles('record.error("OutOfMemory", "8 GiB")')).record(**CASE)
    assert record["error"] == {"kind": "OutOfMemory", "message": "8 GiB"}
    assert record["observations"]


def test_a_field_that_the_package_does_not_know_asks_for_a_newer_one(start_python):
    case = {**CASE["case"], "protocol": {"warp": 9}}
    error = start_python(doubles()).ask(**{**CASE, "case": case})["error"]
    assert "unknown field 'warp'" in error and "install the package" in error


def test_an_interrupt_ends_quietly(start_python):
    harness = start_python(doubles())
    harness.record(**CASE)
    os.kill(harness.process.pid, signal.SIGINT)
    with pytest.raises(EOFError):
        harness.receive()
    assert harness.close() == (130, "", "")


def test_a_subject_that_is_started_by_hand_says_who_starts_it():
    ended = alone(doubles())
    assert ended.returncode == 1
    assert "rematch check --subject" in ended.stderr and "Traceback" not in ended.stderr


def test_large_arrays_come_from_files(start_python, tmp_path):
    array = np.arange(7, dtype="float32")
    path = tmp_path / "arrays"
    path.write_bytes(b"pad!" + array.tobytes())
    inputs = [{"dtype": "float32", "shape": [7], "file": str(path), "offset": 4}]
    run = {**CASE, "arrays": {**CASE["arrays"], "inputs": inputs}}
    (observation,) = start_python(doubles()).record(**run)["observations"]
    assert decode(observation).tolist() == (2 * array).tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
def test_arrays_survive_the_way_there_and_back(dtype):
    array = np.arange(6).reshape(2, 3).T.astype(dtype)
    assert decode(json.loads(json.dumps(encode(array)))).tolist() == array.tolist()
    assert decode(encode(np.zeros((), dtype))).shape == ()
    assert decode(encode(np.zeros((0, 3), dtype))).shape == (0, 3)


def test_data_that_does_not_fill_the_shape_is_refused():
    with pytest.raises(ValueError, match="3 elements of float32 expected, got 2"):
        decode({**encode(np.zeros(2, "float32")), "shape": [3]})


def test_zeros_of_either_sign_differ_and_all_nans_are_one():
    zeros, nans = np.float32([0.0, -0.0]), np.float32([np.nan, -np.nan])
    assert bits_of(zeros[:1]) != bits_of(zeros[1:])
    assert bits_of(nans[:1]) == bits_of(nans[1:])
    assert hash64(bits_of(zeros[:1])) != hash64(bits_of(zeros[1:]))


def test_hashes_are_the_same_in_every_process():
    program = "from rematch.subjects.records import hash64; print(hash64(b'mask'))"
    assert alone(program, PYTHONHASHSEED="5").stdout.strip() == hash64(b"mask")


def test_a_trial_forgets_what_was_noted_before_it():
    record = Record()
    record.observe("loss", np.zeros((), "float32"))
    record.executions([1, 2])
    record.trial(True, "changed", "grad mode")
    told = {"failed": True, "message": "changed", "left_behind": "grad mode"}
    assert record.to_json() == {"format": 1, "trial": told}


def test_an_absent_gradient_has_neither_shape_nor_data():
    record = Record()
    record.observe("input_gradient", None, step=1)
    assert record.to_json()["observations"] == [{"quantity": "input_gradient", "step": 1, "present": False}]


def test_equal_bits_of_another_shape_are_sent_again():
    first = Record()
    first.observe("output", np.ones((1, 2), np.float32))
    second = Record(first.bits)
    second.observe("output", np.ones(2, np.float32))
    (sent,) = second.to_json()["observations"]
    assert "as" not in sent and list(sent["shape"]) == [2]


def test_the_shape_of_a_case_leaves_out_what_the_protocol_says_differs_within_one():
    told = (Path(__file__).parents[2] / "subjects" / "PROTOCOL.md").read_text()
    (listed,) = re.findall(r"these fields of the protocol: ([^.]*)\.", told)
    said = {"seed", "data"} | set(re.findall("`([a-z_]+)`", listed))
    # Every field has a value that it has in no shape.
    protocol = Protocol(**{field.name: field.name for field in fields(Protocol)})
    options = {"mode": "static_graph", "promise": "nested"}
    case = Case(**{field.name: field.name for field in fields(Case)} | {"protocol": protocol, "options": options})
    shape = shape_of(case)
    assert shape.options == {"mode": "static_graph"}
    left_out = {f.name for f in fields(Case) if getattr(shape, f.name) != f.name} - {"protocol", "options"}
    left_out |= {f.name for f in fields(Protocol) if getattr(shape.protocol, f.name) != f.name}
    assert left_out == said
