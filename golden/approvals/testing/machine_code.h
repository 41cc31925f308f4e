#pragma once

// Compiled kernels, read from the text of `cuobjdump -ptx`, `-sass` and `-res-usage` of a
// library. PTX is what the compiler of the source wrote: there an operation is one instruction, and
// division and square root are. SASS is what the card runs: there they are chains of fused
// multiply-adds, with a scaling of their own.

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rematch::golden {

/// A kernel in PTX.
struct Ptx {
  int fused = 0;    ///< Fused multiply-adds.
  int helped = 0;   ///< Divisions, roots and reciprocals, correctly rounded.
  int loose = 0;    ///< Sums and products that the assembler may fuse.
  int flushed = 0;  ///< Operations that flush denormals or approximate.
};

/// A kernel in SASS, for one architecture.
struct Sass {
  int stack = 0;    ///< Bytes a thread.
  int fused = 0;    ///< Fused multiply-adds.
  int flushed = 0;  ///< Sums and products that flush denormals.
};

/// By the name of the source and the kernel, without its arguments and the engine's namespaces:
/// "loss: cross_entropy_kernel<BlockRow, float>".
struct MachineCode {
  std::map<std::string, Ptx> ptx;
  /// By architecture and name.
  std::map<std::pair<std::string, std::string>, Sass> sass;
};

MachineCode machine_code(std::string_view ptx, std::string_view sass, std::string_view usage);

/// A family of kernels whose source asks for fused multiply-adds, on the CPU as well, and why.
struct FusedFamily {
  std::string_view source;
  std::string_view part;  ///< Part of the kernel's name.
  std::string_view why;
};

/// Every fused multiply-add that no family asks for, every operation that may become one, every
/// flush of denormals, and every kernel with more than `most_stack` bytes of stack: one sentence
/// each.
std::vector<std::string> broken_promises(const MachineCode& code,
                                         const std::vector<FusedFamily>& families, int most_stack);

}  // namespace rematch::golden
