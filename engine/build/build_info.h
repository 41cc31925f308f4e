#pragma once

#include <string_view>

namespace rematch {

/// "portable (x86-64-v3)": results have the same bits on every machine. "native": they hold on
/// machines with this CPU only.
std::string_view build_kind();

/// Throws std::runtime_error when this CPU lacks an instruction set that the build needs.
void require_cpu();

}  // namespace rematch
