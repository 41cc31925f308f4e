"""Selective checkpointing of operators that draw."""

from functools import partial

import torch

from rematch.frameworks.pytorch.contract.probing import directly, judged, probe, ramp, seed
from rematch.frameworks.pytorch.contract.selective import RECOMPUTE, SAVE, aten, saving, selective

native_dropout = aten.native_dropout.default


def masks(*saves):
    """Which mask the recomputation of two dropouts gets, given whether the policy saves each."""
    asked = []

    def policy(ctx, op, *args, **kwargs):
        if op is not native_dropout:
            return RECOMPUTE
        asked.append(1)
        return SAVE if saves[len(asked) - 1] else RECOMPUTE

    drawn = []

    def body(x):
        # Older releases ask in the recomputation, too.
        asked.clear()
        a, mask_a = torch.native_dropout(x, 0.5, True)
        b, mask_b = torch.native_dropout(a * x, 0.5, True)
        drawn.append((mask_a.clone(), mask_b.clone()))
        return torch.tanh(b * x)

    def gradient(call):
        seed(7)
        x = ramp(64)
        call(body, x).sum().backward()
        return [x.grad]

    reference = gradient(directly)
    drawn.clear()
    verdict = judged(lambda: gradient(lambda f, *a: selective(policy, f, *a, early_stop=False)), reference)
    forward = drawn[0]

    def named(mask):
        if torch.equal(mask, forward[0]):
            return "the first's"
        return "the second's" if torch.equal(mask, forward[1]) else "another"

    return {
        "first_mask_in_recomputation": named(drawn[1][0]),
        "second_mask_in_recomputation": named(drawn[1][1]),
        "verdict": verdict,
    }


for name, words, *saves in (
    ("saved_then_recomputed", ": the first is saved, the second drawn again.", True, False),
    ("recomputed_then_saved", ": the first is drawn again, the second saved.", False, True),
    ("both_saved", ", both saved.", True, True),
    ("both_recomputed", ", both drawn again.", False, False),
):
    probe(f"SE9.{name}", f"Two dropouts{words}")(partial(masks, *saves))


@probe("SE9.random_state", "The random state after a backward in which a saved dropout is skipped.")
def random_state():
    def body(x):
        a, _ = torch.native_dropout(x, 0.5, True)
        return torch.tanh(a)

    y = selective(saving(native_dropout), body, ramp(8)).sum()
    before = torch.get_rng_state()
    y.backward()
    return {"kept_by_backward": torch.equal(before, torch.get_rng_state())}
