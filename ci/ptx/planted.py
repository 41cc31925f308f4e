"""Faults of kernels, each a change of one text in one file. `python3 ci/ptx/planted.py` says whether all texts are there."""
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNELS = "engine/cuda/kernels/"


@dataclass
class Fault:
    name: str
    kind: str
    source: str
    """The .cu file that is built with it."""
    file: str
    """The file that it changes, which the source may include."""
    old: str
    new: str
    nth: int = 0
    """Which of several places it is."""
    why_not: str = ""
    """Why it changes nothing, where that is so."""

    def applied(self, text):
        parts = text.split(self.old)
        if len(parts) < self.nth + 2:
            raise ValueError(f"{self.name}: {self.file} has no place {self.nth + 1} with {self.old!r}")
        return self.old.join(parts[:self.nth + 1]) + self.new + self.old.join(parts[self.nth + 1:])


def fault(name, kind, source, old, new, header=None, nth=0, why_not=""):
    return Fault(name, kind, source, (KERNELS + (header or f"{source}.cu")) if "/" not in (header or "") else header,
                 old, new, nth, why_not)


SYNC = "      __syncthreads();\n"
FAULTS = [
    fault("one row more", "bounds", "spectral_norm", "r < rows; r += step", "r <= rows; r += step", "reduce.h"),
    fault("one token more", "bounds", "embedding", "i < elements; i +=", "i <= elements; i +="),
    fault("a token below 0 has a row", "bounds", "embedding", "row >= 0 && row < rows", "row < rows"),
    fault("a tile is stored beyond the last column", "bounds", "product", "if (row < rows && col < cols) c[",
          "if (row < rows) c["),
    fault("a tile is loaded beyond the matrix", "bounds", "product", "element < elements && depth < count",
          "depth < count"),
    fault("a window has a row more", "bounds", "pool2d", "row < rows.end; ++row", "row <= rows.end; ++row"),
    fault("a convolution reads below the image", "bounds", "conv2d_direct", "row >= 0 && row < s.h;",
          "row >= 0 && row <= s.h;"),
    fault("a class beyond the last has a score", "bounds", "loss", "hit >= 0 && hit < cols ?", "hit >= 0 ?"),
    fault("no barrier before sums are read", "barrier", "spectral_norm", SYNC + "      for (std::int64_t j = 0;",
          "      for (std::int64_t j = 0;", "reduce.h"),
    fault("no barrier before sums are overwritten", "barrier", "spectral_norm",
          "      // The next round, and the next call, overwrite sums.\n" + SYNC, "", "reduce.h"),
    fault("no barrier behind the largest", "barrier", "loss", "    __syncthreads();\n    return top;",
          "    return top;", "reduce.h"),
    fault("no barrier between magnitudes", "barrier", "delayed_scaling", "  __syncthreads();\n", ""),
    fault("no barrier behind a slice", "barrier", "product", SYNC, "", nth=1),
    fault("no barrier behind a channel's loads", "barrier", "batch_norm", "    __syncthreads();\n    const T centre =",
          "    const T centre =", "whole_channels.h"),
    fault("no barrier before losses are added", "barrier", "loss", "  __syncthreads();\n  if (threadIdx.x >= 32) return;",
          "  if (threadIdx.x >= 32) return;"),
    fault("a barrier for leaders", "barrier", "delayed_scaling",
          "if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = top;\n  __syncthreads();",
          "if (threadIdx.x % 32 == 0) {\n    tops[threadIdx.x / 32] = top;\n    __syncthreads();\n  }"),
    fault("every lane stores a sum", "race", "conv2d_direct", "if (lane == 0) gw[at]", "gw[at]"),
    fault("every lane stores the same sum", "race", "spectral_norm", "if (Row::leads()) s[r]", "s[r]"),
    fault("lanes of a half-warp do not meet", "race", "spectral_norm",
          "    __syncwarp(detail::half_warp_mask());\n", "", "reduce.h",
          why_not="rows that are summed here are written by no kernel before, or by the lane that reads them"),
    fault("half a warp waits for the whole", "mask", "spectral_norm", "return 0xffffU << (threadIdx.x & 16U);",
          "return 0xffffffffU;", "reduce.h"),
    fault("the upper half names the lower", "mask", "spectral_norm", "return 0xffffU << (threadIdx.x & 16U);",
          "return 0xffffU;", "reduce.h"),
    fault("a shuffle reaches into the other half", "mask", "spectral_norm",
          "__shfl_down_sync(half_warp_mask(), value, distance, kHalfWarp)",
          "__shfl_down_sync(half_warp_mask(), value, distance)", "reduce.h"),
    fault("an image of 32 bits", "index width", "conv2d_direct", "static_cast<std::int64_t>(row) * s.w + col",
          "row * s.w + col"),
    fault("a token's feature of 16 bits", "index width", "embedding", "weight[row * features + i % features]",
          "weight[static_cast<short>(row * features + i % features)]"),
    fault("sums of tokens go down", "order", "embedding", "for (std::int64_t i = 0; i < n; ++i) {",
          "for (std::int64_t i = n - 1; i >= 0; --i) {"),
    fault("the tree of a sum grows", "order", "spectral_norm",
          "for (int half = kHalfWarp / 2; half > 0; half /= 2) lane +=",
          "for (int half = 1; half < kHalfWarp; half *= 2) lane +=", "reduce.h"),
    fault("a score's chain rounds twice", "rounding", "attention", "sum = std::fma(x[c], m[c], sum);",
          "sum += x[c] * m[c];"),
    fault("a column's terms are fused", "rounding", "spectral_norm", "sums[0] += w[r * cols + col] * u[r];",
          "sums[0] = std::fma(w[r * cols + col], u[r], sums[0]);"),
    fault("division by a reciprocal", "rounding", "attention", "row[j] /= total;", "row[j] *= 1 / total;"),
    fault("half of the magnitudes are not shared", "unwritten", "delayed_scaling",
          "if (threadIdx.x % 32 == 0) tops", "if (threadIdx.x % 64 == 0) tops"),
    fault("vectors at any address", "alignment", "elementwise",
          "if ((detail::aligned<kWidth>(arrays) && ...)) {", "if (n % kWidth == 0) {", "engine/cuda/runtime/launch.h"),
]


if __name__ == "__main__":
    for each in FAULTS:
        each.applied((ROOT / each.file).read_text())
    print(f"{len(FAULTS)} faults")
    sys.exit(len({f.name for f in FAULTS}) != len(FAULTS))
