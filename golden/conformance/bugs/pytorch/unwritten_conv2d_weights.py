"""On a CPU with AMX the weight gradient of a bfloat16 conv2d reads memory that no operator wrote.

Seen with a 3x3 kernel, stride 2 and padding 1 on one pixel. ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 avoids it. The same in float32 is the control. No checkpoint is needed.

severity: silent, wrong gradients
versions: torch 2.15.0
promise: none; in float32 equal runs on one thread are equal
cause: oneDNN's weight gradient for AMX
"""

import itertools
import sys
from pathlib import Path

import torch

if not (cpus := Path("/proc/cpuinfo")).exists() or "amx_bf16" not in cpus.read_text():
    sys.exit("this CPU has no AMX")

torch.set_num_threads(1)
torch.manual_seed(0)


def leave_nan_behind():
    """Memory that is free now is what an operator gets next."""
    freed = [torch.full((size,), float("nan")) for size in (7, 90, 1000, 5000, 20000)]
    del freed


def gradient(conv, x, dtype):
    conv.zero_grad()
    leave_nan_behind()
    with torch.autocast("cpu", dtype, enabled=dtype == torch.bfloat16):
        loss = conv(x).float().sum()
    loss.backward()
    return conv.weight.grad.clone()


def count(kernel, stride, padding, extent, dtype):
    conv = torch.nn.Conv2d(2, 5, kernel, stride=stride, padding=padding)
    x = torch.randn(1, 2, extent, extent)
    first = gradient(conv, x, dtype)
    others = [gradient(conv, x, dtype) for _ in range(100)]
    return sum(not torch.equal(first, other) for other in others), sum(bool(other.isnan().any()) for other in others)


print("ATen:", torch.backends.cpu.get_cpu_capability())
print("kernel stride padding extent   bfloat16: differ  NaN   float32: differ  NaN")
found = varied = 0
for kernel, stride, padding, extent in itertools.product((1, 3, 5), (1, 2), (0, 1, 2), (1, 2, 3, 8)):
    if extent + 2 * padding < kernel:
        continue
    rows = [count(kernel, stride, padding, extent, dtype) for dtype in (torch.bfloat16, torch.float32)]
    found += rows[0][0] > 0
    varied += rows[1][0] > 0
    if any(rows[0]) or any(rows[1]):
        print(
            f"{kernel:6} {stride:6} {padding:7} {extent:6} {rows[0][0]:19} {rows[0][1]:4} {rows[1][0]:17} {rows[1][1]:4}"
        )
print(f"control: {'WRONG' if varied else 'right'}: equal runs differ in float32 for {varied} shapes")
print(f"{'WRONG' if found else 'right'}: equal runs differ in bfloat16 for {found} shapes")
sys.exit(found > 0)
