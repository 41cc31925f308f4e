"""Causes of memory that checkpointing does not save, or that it holds in addition."""

from rematch.safe.causes.cause import Cause

KEEPS_MORE = Cause(
    "switch-keeps-more",
    "Its own switch makes the model hold more for the backward, not less",
    "Look for code that makes frozen parts keep a graph, such as hooks that make their outputs require grad, and for "
    "regions that would hold fewer bytes than the inputs that checkpoint() keeps for them.",
)
GROWS = Cause(
    "memory-grows",
    "What stays behind after checkpointed steps grows from step to step; after plain steps it does not",
    "Look for hooks on saved tensors within the region (saved_tensors_hooks that return what they are given), "
    "and for lists that each forward appends to.",
)
COLLECTED = Cause(
    "memory-waits",
    "Checkpointed steps leave memory in reference cycles; it stays until Python's garbage collector frees it",
    "Look for tensors of the region that refer back to themselves, through an attribute, a context or a closure.",
)
NO_LONGER = Cause(
    "no-longer-checkpointed",
    "Later steps checkpoint less than the first",
    "Look for a flag that the forward, or the backward, turns off, and for a step counter.",
)
NOT_CHECKPOINTED = Cause(
    "not-checkpointed",
    "{name}: nothing there is recomputed, so no memory is freed",
    "Look at the condition before the call of checkpoint(): often it checks self.training, or only one of several "
    "kinds of blocks has the call.",
)
PART_IS_KEPT = Cause(
    "part-not-checkpointed",
    "{name}: only parts of these blocks are recomputed; the rest holds over half of the bytes still held",
    "Checkpoint the blocks as a whole, or the rest, too.",
)
MATCHES_NOTHING = Cause(
    "policy-matches-nothing",
    "The policy {name} keeps nothing, so that all is recomputed",
    "Compare the operators that it was asked about with those that it names: overloads differ (a Linear without bias "
    "calls aten.mm.default, one with bias calls aten.addmm.default).",
)
MATCHES_ALL = Cause(
    "policy-keeps-all",
    "The policy {name} keeps the result of every operator, so that no memory is freed",
    "Let it return CheckpointPolicy.PREFER_RECOMPUTE for cheap operators.",
)
