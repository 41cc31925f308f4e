r"""Plants one trouble in FSDP2's Python code as it is imported, then runs the subject; the installation is not touched.

  build/release/bin/rematch check --law collectives --cases 200 \
      --subject "PYTHON ci/maintain/mutation/planted_fsdp2.py double pytorch --parallel fsdp2"

double: the recomputation gathers its unit again. stray: a recomputation counts as a forward, so that the backward
prefetches a unit that is done. kept: a backward that does not reduce leaves its units gathered. skipped: a parameter
whose gradient comes in several parts, as that of a weight that reentrant segments share, is not reduced.
"""

import importlib.util
import runpy
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

PACKAGE = "torch.distributed.fsdp._fully_shard"
STATE, GROUP = f"{PACKAGE}._fsdp_state", f"{PACKAGE}._fsdp_param_group"
# The module, and texts of it with what takes their place.
TROUBLES = {
    "double": (
        STATE,
        ("if not fsdp_param_group.is_unsharded:", "if fsdp_param_group._to_sharded() is None:"),
    ),
    "stray": (
        GROUP,
        (
            "self.reshard()\n                self._record_post_forward()",
            "self.reshard()\n            self._record_post_forward()",
        ),
    ),
    "kept": (
        GROUP,
        (
            "self._set_unsharded_grad_dtypes(defer_upcast=False)\n                    if self.reshard_after_backward:",
            "self._set_unsharded_grad_dtypes(defer_upcast=False)\n                    if False:",
        ),
    ),
    "skipped": (
        GROUP,
        (
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
        ),
        (
            "        if unsharded_param.grad is not None:\n",
            "        if getattr(unsharded_param, '_parts', 0) > 1:\n            return None\n"
            "        if unsharded_param.grad is not None:\n",
        ),
    ),
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
        for text, other in self.texts:
            if source.count(text) != 1:
                raise SystemExit(f"{self.path}: this version of PyTorch has no such place:\n{text}")
            source = source.replace(text, other)
        return compile(source, self.path, "exec")


sys.meta_path.insert(0, Planter(*TROUBLES[sys.argv.pop(1)]))
runpy.run_module("rematch", run_name="__main__", alter_sys=True)
