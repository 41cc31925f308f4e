"""judge(compile=) tries a compiled step, and tells a fault of the compiler from one of the module."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from planted_states import schedules  # noqa: E402
from torch import nn  # noqa: E402

from rematch.safe import judge  # noqa: E402


def a_backend_that_doubles_what_is_checkpointed(graph, inputs):
    wrong = any("checkpoint" in str(node.target) for node in graph.graph.nodes)
    return (lambda *given: [2 * out for out in graph(*given)]) if wrong else graph


def test_a_compiled_step_is_tried_on_request():
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 4))
    verdict = judge(block, torch.randn(2, 4), compile="aot_eager")
    assert verdict.safe and "compiled by aot_eager" in verdict.tried["non_reentrant"]
    verdict = judge(block, torch.randn(2, 4), compile=a_backend_that_doubles_what_is_checkpointed)
    assert [finding.cause.name for finding in verdict.findings] == ["compiler"]


def test_what_differs_without_the_compiler_is_not_its_fault():
    verdict = judge(schedules(), torch.randn(2, 4), compile="aot_eager", variants="non_reentrant")
    assert [finding.cause.name for finding in verdict.findings] == ["counter"]
    assert "compiled by aot_eager" in [scenario.name for _, scenario in verdict.findings[0].shown]
