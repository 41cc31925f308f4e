"""The machine as PyTorch uses it, and memory that an operator did not write."""

import pytest
import torch
from cases import chain, observed, run_of, segment

from rematch.frameworks.pytorch.machine import Unwritten, instructions, unwritten
from rematch.frameworks.pytorch.subject import TorchSubject

SERVED = """
from rematch import serve
from rematch.pytorch import CustomLayer, TorchSubject
layer = CustomLayer("unwritten", "N C -> N C", "nn.Identity()", "x + torch.empty_like(x)")
serve(TorchSubject(layers=[layer]))
"""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_memory_that_was_not_written_differs_from_one_run_of_a_case_to_the_next(dtype):
    fills = Unwritten()
    seen = []
    for case in ("one", "one", "one", "another"):
        with fills.filled(case):
            seen.append(torch.empty(5, dtype=dtype).view(torch.uint8).tolist())
    assert seen[0] == seen[2] == seen[3] != seen[1] == [0] * len(seen[1])
    if dtype == torch.float32:
        assert torch.tensor(seen[0], dtype=torch.uint8).view(dtype).isnan().all()


def test_memory_is_filled_in_runs_alone():
    flags = unwritten._flags
    assert len(flags) == 2
    with pytest.raises(KeyError), unwritten.filled("a case"):
        assert [flag.value for flag in flags] == [True, False]
        raise KeyError
    assert [flag.value for flag in flags] == [False, False]


def test_a_layer_that_reads_unwritten_memory_gives_other_outputs_in_the_next_run(start_python):
    case = chain("linear", {"kind": "custom", "layer": "unwritten: N C -> N C"}, plan={"segments": [segment(0, 1)]})
    subject = start_python(SERVED)
    outputs = [observed(record)["output", 0, 0, 0] for record in subject.both(run_of(case))]
    assert "as" not in outputs[1]


def test_a_subject_tells_its_instruction_sets():
    told = instructions()
    assert told["ATen"] in ("DEFAULT", "AVX2", "AVX512")
    assert not torch.backends.mkldnn.is_available() or told["oneDNN"]
    assert told.items() <= TorchSubject().versions.items()
