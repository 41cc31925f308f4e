"""A model of tokens with a tied head, and a layer in eval mode, in any adapter."""

from __future__ import annotations

import numpy as np
from cases import chain, observed, run_of, segment
from harness import Harness

from rematch.subjects.arrays import decode


def looks_tokens_up(subject: Harness, begin: int = 1, **options: object) -> None:
    """Checks outputs and gradients of the plain run, and that a checkpointed one has their bits.
    `begin`: the layer at which the segment begins; `options` are of its checkpoint."""
    layers = [
        {"kind": "embedding", "vocabulary": 5, "features": 2},
        {"kind": "dropout", "p": 0.5, "eval": True},
        {"kind": "linear", "features": 5, "bias": False, "tied_to": 0},
    ]
    plan = {"segments": [segment(begin, 3, **options)]}
    dtype = getattr(subject, "dtype", "float32")
    sent = run_of(chain(*layers, input=(3, 4), dtype=dtype, plan=plan))
    plain = subject.record(**sent, checkpointed=False)
    assert "error" not in plain, plain["error"]
    seen = {key: decode(value) for key, value in observed(plain).items() if "data" in value}
    arrays = sent["arrays"]
    tokens, target = (decode(arrays[name][0]) for name in ("inputs", "targets"))
    weight = decode(arrays["parameters"][0]).astype("float64")
    rows = weight[tokens]
    output = rows @ weight.T
    np.testing.assert_allclose(seen["output", 0, 0, 0], output, rtol=1e-5, atol=1e-6)
    upstream = 2 * (output - target.reshape(output.shape)) / output.size
    gradient = np.einsum("nto,ntf->of", upstream, rows)
    np.add.at(gradient, tokens, upstream @ weight)
    np.testing.assert_allclose(seen["parameter_gradient", 0, 0, 0], gradient, rtol=1e-4, atol=1e-6)
    checkpointed = subject.record(checkpointed=True)
    assert "error" not in checkpointed, checkpointed["error"]
    for key, value in observed(checkpointed).items():
        assert value.get("as") or not value.get("present", True), key
