// Bits that the device shares with the CPU depend on what the compiler made of the kernels.
#include "golden/approvals/testing/machine_code.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

#include "properties/testing/shell.h"

namespace rematch::golden {
namespace {

/// Everything else promises that each operation rounds by itself.
const std::vector<FusedFamily> kFused{
    {"activation", "gelu", "erf and exp are polynomials in chains of fused multiply-adds"},
    {"activation", "silu", "exp"},
    {"activation", "tanh", "tanh; its gradient is 1 - y * y in one rounding"},
    {"activation", "sigmoid", "exp"},
    {"activation", "softmax_kernel", "exp"},
    {"attention", "softmax_kernel", "exp and log"},
    {"attention", "pair_kernel", "sums of products are the CPU's chains, and exp"},
    {"attention", "over_", "sums of products are the CPU's chains"},
    {"loss", "cross_entropy", "exp and log"},
    {"random", "Normals", "log, sin and cos of Box and Muller"},
    {"random", "Uniform", "a draw is scaled and moved in one rounding"},
    {"random", "Rrelu", "its slopes are such draws"},
    {"product", "product_kernel", "sums of products are the CPU's chains of fused multiply-adds"},
    {"moe", "moe_kernel", "sums of products are the CPU's chains, and exp"},
    {"recurrent", "_weight_kernel", "sums of products are the CPU's chains"},
    {"recurrent", "input_kernel", "sums of products are the CPU's chains"},
    {"recurrent", "step_", "sums of products are the CPU's chains, exp and tanh"},
    {"rotary", "rotary_kernel", "sin and cos"},
    {"stochastic_depth", "visit_kernel", "sums of products are the CPU's chains"},
    {"conv2d_direct", "", "sums of products are chains of fused multiply-adds in double"},
};

/// The assembler keeps a few values on the stack rather than run fewer threads.
constexpr int kMostStack = 32;

#ifdef REMATCH_CUOBJDUMP
/// This build's, or one with a planted fault (ci/maintain/ptx).
std::string engine_library() {
  const char* const other = std::getenv("REMATCH_MACHINE_CODE_OF");
  return other == nullptr ? REMATCH_ENGINE_LIBRARY : other;
}

MachineCode of_the_engine() {
  const auto text = [](const std::string& option, const std::string& lines) {
    const testing::Outcome out =
        testing::run_line(std::string("'" REMATCH_CUOBJDUMP "' ") + option + " '" +
                          engine_library() + "' 2>/dev/null | grep -E '" + lines + "'");
    REQUIRE(out.status == 0);
    return out.out;
  };
  return machine_code(text("-ptx", "^member |[.]entry |[.]f(32|64)"),
                      text("-sass", "^member |arch = |Function : | (FADD|FMUL)[.]FTZ| [FD]FMA"),
                      text("-res-usage", "^member |arch = |Function |REG:"));
}
#endif

constexpr std::string_view kPtx = R"(member lib.a:some.cu.o:
.visible .entry _ZN7rematch4cuda3addEv(
	add.rn.f32 	%f3, %f1, %f2;
.visible .entry _ZN7rematch4cuda6divideEv(
	div.rn.f32 	%f3, %f1, %f2;
)";
constexpr std::string_view kSass = R"(member lib.a:some.cu.o:
arch = sm_90
		Function : _ZN7rematch4cuda3addEv
        /*0000*/                   FADD R4, R2, R3 ;
        /*0010*/                   HFMA2.MMA R1, -RZ, RZ, 0, 0 ;
		Function : _ZN7rematch4cuda6divideEv
        /*0000*/                   FFMA R4, R2, R3, R4 ;
        /*0010*/                   FADD.FTZ R4, R2, R3 ;
)";
constexpr std::string_view kUsage = R"(member lib.a:some.cu.o:
arch = sm_90
 Function _ZN7rematch4cuda3addEv:
  REG:10 STACK:0 SHARED:0 LOCAL:0
 Function _ZN7rematch4cuda6divideEv:
  REG:30 STACK:16 SHARED:0 LOCAL:0
)";

std::string with(std::string_view text, std::string_view part, std::string_view by) {
  std::string changed(text);
  return changed.replace(changed.find(part), part.size(), by);
}

std::vector<std::string> found(std::string_view ptx, std::string_view sass,
                               std::string_view usage = kUsage) {
  return broken_promises(machine_code(ptx, sass, usage), {{"some", "fused", "of the test"}},
                         kMostStack);
}

}  // namespace

TEST_CASE("every way to break a promise of machine code is seen") {
  using Lines = std::vector<std::string>;
  CHECK(found(kPtx, kSass).empty());
  CHECK(machine_code(kPtx, kSass, kUsage).sass.at({"sm_90", "some: divide"}).stack == 16);
  CHECK(found(with(kPtx, "add.rn.f32", "fma.rn.f32"), kSass) ==
        Lines{"some: add has 1 fused multiply-adds, and no family asks for any there"});
  CHECK(found(with(kPtx, "add.rn.f32", "add.f32"), kSass) ==
        Lines{"some: add has 1 sums and products that may be fused"});
  CHECK(found(with(kPtx, "add.rn.f32", "@%p1 mul.rn.ftz.f32"), kSass) ==
        Lines{"some: add has 1 operations that flush denormals or approximate"});
  CHECK(found(kPtx, with(kSass, "FADD R4", "FFMA R4")) ==
        Lines{"some: add for sm_90 has 1 fused multiply-adds that its PTX has not"});
  CHECK(found(kPtx, with(kSass, "FADD R4", "DFMA R4")) ==
        Lines{"some: add for sm_90 has 1 fused multiply-adds that its PTX has not"});
  CHECK(found(kPtx, with(kSass, "FADD R4", "FMUL.FTZ R4")) ==
        Lines{"some: add for sm_90 flushes denormals 1 times"});
  CHECK(found(kPtx, kSass, with(kUsage, "STACK:16", "STACK:40")) ==
        Lines{"some: divide for sm_90 takes 40 B of stack a thread, 32 are allowed"});
  CHECK(found(with(kPtx, "6divide", "5other"), kSass) ==
        Lines{"some: divide for sm_90 has no PTX to compare it with"});
}

// One test: to take the library apart takes longer than all else.
TEST_CASE("machine code keeps the CPU's bits") {
#ifdef REMATCH_CUOBJDUMP
  const MachineCode code = of_the_engine();
  if (code.ptx.empty()) SKIP("this build's architectures leave no PTX to compare with");
  CHECK(code.ptx.size() > 200);
  CHECK(code.sass.size() >= code.ptx.size());
  std::string broken;
  for (const std::string& line : broken_promises(code, kFused, kMostStack)) broken += line + "\n";
  if (!broken.empty()) FAIL(broken);
  // A family that asks for nothing any more has to go from the list.
  for (std::size_t i = 0; i < kFused.size(); ++i) {
    INFO(kFused[i].source << ": " << kFused[i].part);
    std::vector<FusedFamily> others = kFused;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    CHECK_FALSE(broken_promises(code, others, kMostStack).empty());
  }
#else
  SKIP("this build has no CUDA, or no cuobjdump was found; ci/setup installs it");
#endif
}

}  // namespace rematch::golden
