"""Causes of memory that checkpointing does not save, or that it holds in addition."""

from rematch.safe.causes.cause import Cause

KEEPS_MORE = Cause(
    "switch-keeps-more",
    "Its own switch makes the model hold more for the backward, not less",
    "Look for code that makes frozen parts keep a graph, such as hooks that make their outputs require grad, and for "
    "regions that hold less than the inputs that they are given.",
)
GROWS = Cause(
    "memory-grows",
    "What stays behind after checkpointed steps grows from step to step; after plain steps it does not",
    "Look for hooks on saved tensors within the region (saved_tensors_hooks that return what they are given), "
    "and for lists that each forward appends to.",
)
COLLECTED = Cause(
    "memory-waits",
    "What checkpointed steps leave behind is in reference cycles, until Python's garbage collector finds them",
    "Look for tensors of the region that hold themselves: in attributes, on a context, in a closure.",
)
NO_LONGER = Cause(
    "no-longer-checkpointed",
    "Later steps checkpoint less than the first",
    "Look for a flag that the forward, or the backward, turns off, and for a step counter.",
)
NOT_CHECKPOINTED = Cause(
    "not-checkpointed",
    "{name}: nothing is recomputed there, and nothing saved",
    "Look at the condition before the call of checkpoint(): often it checks self.training, or only one of several "
    "kinds of blocks has the call.",
)
PART_IS_KEPT = Cause(
    "part-not-checkpointed",
    "{name}: only parts of them are recomputed, and the rest holds most of the memory that is still held",
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
    "The policy {name} keeps what every operator returned, so that nothing is saved",
    "Let it return CheckpointPolicy.PREFER_RECOMPUTE for cheap operators.",
)
