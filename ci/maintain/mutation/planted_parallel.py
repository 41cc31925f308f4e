r"""Plants one trouble in the Python code of FSDP2 or of tensor parallel as it is imported, then runs the subject; the
installation is not touched.

  build/release/bin/rematch check --law collectives --cases 200 \
      --subject "PYTHON ci/maintain/mutation/planted_parallel.py double pytorch --parallel fsdp2"

double: the recomputation gathers its unit again. stray: a recomputation counts as a forward, so that the backward
prefetches a unit that is done. kept: a backward that does not reduce leaves its units gathered. skipped: a parameter
whose gradient comes in several parts, as that of a weight that reentrant segments share, is not reduced.

unsummed: the recomputation of a row-wise layer does not add up its output. alone: nor does one rank's. twice: that of a
column-wise layer gathers its output twice. regathered: that of a layer that has some rows gathers all of them.
one_sided: gradients of operands are not added up. unadded: within fully_shard(), nor are those of norms on some rows.
These two and kept are in the plain run as well: ranks then differ, or the adapter's tests see it, and no law does.
"""

import importlib.util
import runpy
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

PACKAGE = "torch.distributed.fsdp._fully_shard"
STATE, GROUP = f"{PACKAGE}._fsdp_state", f"{PACKAGE}._fsdp_param_group"
PARAMETER = f"{PACKAGE}._fsdp_param"
TENSOR = "torch.distributed.tensor"
STYLE = f"{TENSOR}.parallel.style"
SENDS = "outputs = outputs.redistribute(placements=output_layouts, async_op=True)\n"
ROWS_MADE = "def _prepare_output_fn(use_local_output, mod, outputs, device_mesh):\n"
COLUMNS = "# outputs is a shard on last dimension DTensor, i.e. Shard(-1)\n"
ROWS = "# 2. to shard -> reduce_scatter\n"
IF = "        if outputs.placements != output_layouts:\n            "
AGAIN = "torch._C._current_graph_task_id() >= 0"
SPEC = "target_spec = DTensorSpec(\n                forward_input_device_mesh,\n                "
GATHERS = f"        if {AGAIN}:\n            outputs.full_tensor()\n"


def unsummed(when):
    """Rows that are taken for whole in a recomputation."""
    taken = "DTensor.from_local(outputs.to_local(), device_mesh, output_layouts, run_check=False)"
    return ROWS + IF + SENDS, f"{ROWS}        if {when}:\n            outputs = {taken}\n{IF}{SENDS}"


# The module, and texts of it, each before what takes its place.
TROUBLES = {
    "double": (STATE, "if not fsdp_param_group.is_unsharded:", "if fsdp_param_group._to_sharded() is None:"),
    "stray": (
        GROUP,
        "self.reshard()\n                self._record_post_forward()",
        "self.reshard()\n            self._record_post_forward()",
    ),
    "kept": (
        GROUP,
        "self._set_unsharded_grad_dtypes(defer_upcast=False)\n                    if self.reshard_after_backward:",
        "self._set_unsharded_grad_dtypes(defer_upcast=False)\n                    if False:",
    ),
    "skipped": (
        GROUP,
        "            self._set_unsharded_grad_dtypes(defer_upcast=True)\n",
        """            self._set_unsharded_grad_dtypes(defer_upcast=True)
            for fsdp_param in self.fsdp_params:
                param = fsdp_param._unsharded_param
                if param.requires_grad and not hasattr(param, "_parts"):
                    def count(param):
                        param._parts += 1
                    param.register_post_accumulate_grad_hook(count)
                param._parts = 0
""",
        "        if unsharded_param.grad is not None:\n",
        "        if getattr(unsharded_param, '_parts', 0) > 1:\n            return None\n"
        "        if unsharded_param.grad is not None:\n",
    ),
    "unsummed": (STYLE, *unsummed(AGAIN)),
    "alone": (STYLE, *unsummed(f"{AGAIN} and device_mesh.get_rank() == 1")),
    "twice": (STYLE, COLUMNS + IF + SENDS, COLUMNS + GATHERS + IF + SENDS),
    "regathered": (STYLE, ROWS_MADE, ROWS_MADE + GATHERS),
    "unadded": (PARAMETER, "grad = grad.redistribute(placements=placements)", "pass"),
    "one_sided": (f"{TENSOR}._api", SPEC + "normalized_placements", SPEC + "current_spec.placements"),
}


class Planter(SourceFileLoader):
    """Loads a module with the texts replaced; also finds it."""

    def __init__(self, name, *texts):
        super().__init__(name, "")
        self.texts = texts

    def find_spec(self, name, path, target=None):
        if name != self.name:
            return None
        self.path = str(Path(path[0]) / f"{name.rpartition('.')[2]}.py")
        return importlib.util.spec_from_file_location(name, self.path, loader=self)

    def get_code(self, name):
        source = Path(self.path).read_text()
        for text, other in zip(self.texts[::2], self.texts[1::2], strict=True):
            if source.count(text) != 1:
                raise SystemExit(f"{self.path}: this version of PyTorch has no such place:\n{text}")
            source = source.replace(text, other)
        return compile(source, self.path, "exec")


sys.meta_path.insert(0, Planter(*TROUBLES[sys.argv.pop(1)]))
runpy.run_module("rematch", run_name="__main__", alter_sys=True)
