"""Rules of checkpointing in the order of the record; the probes of each find out if it holds."""

_TABLE = """
PT1   checkpoint_sequential: k - 1 checkpointed segments of floor(n / k) layers; the rest is stored
PT2   one segment: nothing is checkpointed
PT3   k > n, k = 0, n = 0 are errors; PyTorch takes k < 0 for a plain run
PT4   segments are recomputed in reverse order
PT5   one value passes between segments, of any structure; few options pass through
PT6   the last segment is never checkpointed, its draws never recomputed
RE1   reentrant: the forward runs without recording, in one node that saves the inputs
RE2   reentrant: `.grad()` and `inputs=` are refused, and later backwards work
RE3   reentrant: all of the function is recomputed on detached inputs; weights get their gradients
RE4   reentrant: no input requires grad, so weights inside get no gradient, with a warning
RE5   reentrant: every floating output requires grad
RE6   reentrant: only tensors at the top level take part in autograd
RE7   reentrant: keywords, contexts, debug are refused, early stop and determinism check ignored
RE8   reentrant: hooks of a weight fire once for each checkpoint that uses it
RE9   reentrant: an input changed after the forward is an error
RE10  reentrant: a function that writes to its input fails in backward, or goes wrong silently
RE11  reentrant: identity returns a new tensor over the same memory
RE12  reentrant: one recomputation for each backward; at depth d the innermost runs d + 1 times
RE13  reentrant: no second derivatives
N1    saved tensors become placeholders with shape, dtype and device, in the order of saving
N2    one recomputation for each backward that needs it
N3    early stop: a recomputation ends at the last saved tensor; scopes override the option
N4    PyTorch: an op that saves a buffer before it fills it gives garbage under early stop
N5    a recomputed tensor belongs to one backward and is gone once it was read
N6    fewer, more, or differently shaped saved tensors are errors; values, strides are not compared
N7    the determinism check is default or none, done once after a recomputation
N8    debug: an error carries the operators of both runs, and nothing else changes
N9    inputs by position are version-checked and seen by hooks; by keyword, nested, captured not
N10   weights are captured, so a changed one is used silently
N11   a function that changes its own argument in place is an error
N12   an output may be changed in place, where a plain graph forbids it
N13   nesting: the innermost checkpoint owns what is saved, its inputs belong to the one around it
N14   a function may differentiate inside
N15   second derivatives, `.grad()`, `inputs=`, several roots all work
N16   GraphExecGroup: backwards that share a recomputation, must not overlap, do not nest
N17   with recording off the function just runs
N18   exceptions pass through and leave random state, hooks and modes as they were
N19   outputs may be unused, integers, any objects; hooks of a weight inside and outside fire once
N20   recomputations on the CPU run on the thread of the caller
AM1   the random state at entry is recomputed, the surrounding one put back
AM2   generators of others are not preserved
AM3   recomputations record
AM4   autocast is recomputed as it was, its cache of casts is not
AM5   torch.device contexts are recomputed without reentrance, other modes are not
AM6   default dtype, switches, training, hooks, globals are not recomputed
SE1   selective: a policy answers save or recompute for each operator
SE2   selective: policies are asked in the forward, by operator and index
SE3   selective: detach and metadata are ignored
SE4   selective: a saved result serves one recomputation
SE5   selective: a recomputation that runs another operator is an error
SE6   selective: a saved result changed in place is an error
SE7   selective: what is saved is kept and not run again; saving all keeps more than a plain run
SE8   selective: saved results bypass the surrounding hooks, unless asked otherwise
SE9   selective: in PyTorch a saved draw does not advance the generator: a later mask is wrong
SE10  selective: checkpoints nest, each with its policy
SE11  selective: operators with an ordered effect are saved, unless a policy insists otherwise
B1    gradients of untied weights have the bits of the plain run
B2    tied weights: the reentrant variant adds in another order when .grad was filled
DE    without a function, checkpoint() makes a decorator of functions and methods
DV    random states of devices are stashed and restored as that of the CPU is
HE    helpers: what they return, warn of and refuse
V     what users change between forward and backward: plain against both variants
"""

RULES = dict(line.split(maxsplit=1) for line in _TABLE.strip().splitlines())
