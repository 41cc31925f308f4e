"""torch.compile: the planner behind activation_memory_budget keeps more memory than it was given.

dp_knapsack() counts memory in units of 1/10000 and rounds each tensor: what is below half a unit is free.

severity: memory alone: more is saved than the budget allows
promise: torch/_functorch/config.py: it solves a knapsack "to stay below the activation memory budget"
cause: torch/_functorch/_activation_checkpointing/knapsack.py, dp_knapsack: round(m * S), not rounded up
thread: reported https://github.com/pytorch/pytorch/issues/197871
"""

import sys

from torch._functorch._activation_checkpointing.knapsack import dp_knapsack, greedy_knapsack


def is_wrong(name, solve, item, budget=0.02):
    kept = len(solve([item] * 1000, [1.0] * 1000, budget)[1]) * item
    wrong = kept > budget * 1.001
    print(f"{name}: {'WRONG' if wrong else 'right'}: keeps {kept:.4f} of a budget of {budget}")
    return wrong


is_wrong("control: greedy_knapsack", greedy_knapsack, 0.00004)
is_wrong("control: dp_knapsack, whole units", dp_knapsack, 0.0001)
sys.exit(is_wrong("dp_knapsack, 0.4 units each", dp_knapsack, 0.00004))
