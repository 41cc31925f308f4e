#include "golden/approvals/testing/machine_code.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <memory>

#include "properties/testing/shell.h"

namespace rematch::golden {
namespace {

using testing::contains;

template <typename Line>
void each_line(std::string_view text, const Line& line) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    line(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

/// The text that follows `before` in the line, up to one of `until`; empty if it is not there.
std::string_view after(std::string_view line, std::string_view before, std::string_view until) {
  const std::size_t at = line.find(before);
  if (at == std::string_view::npos) return {};
  line.remove_prefix(at + before.size());
  return line.substr(0, line.find_first_of(until));
}

int number_after(std::string_view line, std::string_view before) {
  const std::string_view digits = after(line, before, " ");
  int value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

std::string demangled(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 ? name.get() : symbol;
}

std::string plain_name(std::string_view symbol) {
  std::string name = demangled(std::string(symbol));
  for (const std::string_view part :
       {"void ", "(anonymous namespace)::", "rematch::", "cuda::", "detail::", "math::"}) {
    for (std::size_t at = 0; (at = name.find(part)) != std::string::npos;) {
      name.erase(at, part.size());
    }
  }
  // Before the arguments; a value of an enumeration is written with parentheses, too.
  int depth = 0;
  for (std::size_t at = 0; at < name.size(); ++at) {
    depth += name[at] == '<' ? 1 : name[at] == '>' ? -1 : 0;
    if (name[at] == '(' && depth == 0) return name.substr(0, at);
  }
  return name;
}

/// Where the lines are: in which object of the library, for which card, in which kernel.
struct Place {
  std::string source;
  std::string arch;
  std::string kernel;

  /// True for a line that says where the next ones are.
  bool moves(std::string_view line, std::string_view kernel_mark) {
    if (const std::string_view member = after(line, "member ", " \r"); !member.empty()) {
      source = after(member.substr(member.find_last_of("/:", member.rfind(".cu")) + 1), "", ".");
      return true;
    }
    if (const std::string_view card = after(line, "arch = ", " \r"); !card.empty()) {
      arch = card;
      return true;
    }
    if (const std::string_view symbol = after(line, kernel_mark, "(: \r"); !symbol.empty()) {
      kernel = source + ": " + plain_name(symbol);
      return true;
    }
    return false;
  }
};

bool is_sum_or_product(std::string_view operation) {
  return operation.starts_with("add.") || operation.starts_with("sub.") ||
         operation.starts_with("mul.");
}

void read_ptx(std::string_view line, Ptx& kernel) {
  // A guard may stand before the operation.
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  if (line.starts_with("@")) line.remove_prefix(std::min(line.find(' ') + 1, line.size()));
  const std::string_view operation = line.substr(0, line.find_first_of(" \t;"));
  if (!contains(operation, ".f32") && !contains(operation, ".f64")) return;
  if (contains(operation, ".ftz") || contains(operation, ".approx")) ++kernel.flushed;
  if (operation.starts_with("fma.") || operation.starts_with("mad.")) ++kernel.fused;
  if (operation.starts_with("div.") || operation.starts_with("sqrt.") ||
      operation.starts_with("rcp.")) {
    ++kernel.helped;
  }
  // Those that name their rounding are left alone.
  if (is_sum_or_product(operation) && !contains(operation, ".rn")) ++kernel.loose;
}

void read_sass(std::string_view line, Sass& kernel) {
  const auto is = [&](std::string_view operation) { return contains(line, operation); };
  if (is(" FFMA") || is(" DFMA")) ++kernel.fused;
  if (is(" FADD.FTZ") || is(" FMUL.FTZ") || is(" FFMA.FTZ")) ++kernel.flushed;
}

const FusedFamily* family_of(const std::string& name, const std::vector<FusedFamily>& families) {
  for (const FusedFamily& family : families) {
    if (name.starts_with(std::string(family.source) + ":") && contains(name, family.part)) {
      return &family;
    }
  }
  return nullptr;
}

}  // namespace

MachineCode machine_code(std::string_view ptx, std::string_view sass, std::string_view usage) {
  MachineCode code;
  Place in_ptx;
  each_line(ptx, [&](std::string_view line) {
    if (in_ptx.moves(line, ".entry ")) {
      if (contains(line, ".entry ")) code.ptx[in_ptx.kernel];
    } else if (!in_ptx.kernel.empty()) {
      read_ptx(line, code.ptx[in_ptx.kernel]);
    }
  });
  Place in_sass;
  each_line(sass, [&](std::string_view line) {
    if (in_sass.moves(line, "Function : ")) {
      if (contains(line, "Function : ")) code.sass[{in_sass.arch, in_sass.kernel}];
    } else if (!in_sass.kernel.empty()) {
      read_sass(line, code.sass[{in_sass.arch, in_sass.kernel}]);
    }
  });
  Place in_usage;
  each_line(usage, [&](std::string_view line) {
    if (in_usage.moves(line, "Function ") || !contains(line, "REG:")) return;
    code.sass[{in_usage.arch, in_usage.kernel}].stack = number_after(line, "STACK:");
  });
  return code;
}

std::vector<std::string> broken_promises(const MachineCode& code,
                                         const std::vector<FusedFamily>& families, int most_stack) {
  std::vector<std::string> broken;
  for (const auto& [name, ptx] : code.ptx) {
    if (ptx.fused > 0 && family_of(name, families) == nullptr) {
      broken.push_back(fmt::format(
          "{} has {} fused multiply-adds, and no family asks for any there", name, ptx.fused));
    }
    if (ptx.loose > 0) {
      broken.push_back(
          fmt::format("{} has {} sums and products that may be fused", name, ptx.loose));
    }
    if (ptx.flushed > 0) {
      broken.push_back(fmt::format("{} has {} operations that flush denormals or approximate", name,
                                   ptx.flushed));
    }
  }
  for (const auto& [key, sass] : code.sass) {
    const auto& [arch, name] = key;
    const auto source = code.ptx.find(name);
    if (source == code.ptx.end()) {
      broken.push_back(fmt::format("{} for {} has no PTX to compare it with", name, arch));
      continue;
    }
    const Ptx& ptx = source->second;
    if (sass.fused > 0 && ptx.fused + ptx.helped == 0) {
      broken.push_back(fmt::format("{} for {} has {} fused multiply-adds that its PTX has not",
                                   name, arch, sass.fused));
    }
    if (sass.flushed > 0 && ptx.helped == 0) {
      broken.push_back(
          fmt::format("{} for {} flushes denormals {} times", name, arch, sass.flushed));
    }
    if (sass.stack > most_stack) {
      broken.push_back(fmt::format("{} for {} takes {} B of stack a thread, {} are allowed", name,
                                   arch, sass.stack, most_stack));
    }
  }
  return broken;
}

}  // namespace rematch::golden
