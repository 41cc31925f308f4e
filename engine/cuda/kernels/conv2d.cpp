#include "engine/kernels/conv2d.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>

#include "engine/cuda/kernels/channel_bias.h"
#include "engine/cuda/kernels/conv2d_direct.h"
#include "engine/cuda/runtime/cudnn_graph.h"
#include "engine/cuda/runtime/libraries.h"
#include "engine/math/bfloat16.h"

namespace rematch::cuda {

namespace {

using Plans = std::map<ConvolutionProblem, std::unique_ptr<ConvolutionPlan>>;

/// Which of the candidates a problem uses, for the whole process; kNone if cuDNN has none. Never
/// destroyed, for threads may end after everything else.
constexpr int kNone = -1;
struct PlanChoices {
  std::mutex mutex;
  std::map<ConvolutionProblem, int> map;
};
PlanChoices& plan_choices() {
  static PlanChoices* const instance = new PlanChoices;
  return *instance;
}

/// The calling thread's plans; nullptr stands for a problem that cuDNN cannot do.
Plans& plans() {
  Context& mine = context();
  if (mine.convolution_plans == nullptr) mine.convolution_plans = std::make_shared<Plans>();
  return *static_cast<Plans*>(mine.convolution_plans.get());
}

cudnnStatus_t run(const ConvolutionPlan& plan, const ConvolutionData& data) {
  void* const scratch =
      plan.scratch_bytes() == 0
          ? nullptr
          : workspace(static_cast<std::size_t>(plan.scratch_bytes()), Scratch::cudnn);
  return plan.run(data, scratch);
}

/// Makes this thread's plan, runs it, and for the first thread chooses which candidate that is: the
/// first that runs. A plan may be refused as late as that.
std::unique_ptr<ConvolutionPlan> first_run(const ConvolutionProblem& problem,
                                           const ConvolutionData& data) {
  forbid_capture("the choice of a plan for a convolution");
  // One thread at a time: all must choose alike, and making plans is not something to do often.
  const std::lock_guard lock(plan_choices().mutex);
  const auto known = plan_choices().map.find(problem);
  if (known != plan_choices().map.end() && known->second == kNone) return nullptr;
  ConvolutionCandidates candidates(problem);
  check_context("a search for cuDNN's engines");
  const int first = known == plan_choices().map.end() ? 0 : known->second;
  const int last = known == plan_choices().map.end() ? candidates.count() : first + 1;
  for (int i = first; i < last; ++i) {
    auto plan = i < candidates.count() ? candidates.plan(i) : nullptr;
    check_context("cudnnBackendFinalize");
    if (plan == nullptr) continue;
    const cudnnStatus_t status = run(*plan, data);
    if (status == CUDNN_STATUS_SUCCESS) {
      plan_choices().map.try_emplace(problem, i);
      return plan;
    }
    // The choice must not depend on how much memory is left.
    if (is_out_of_memory(status)) check(status, "cudnnBackendExecute");
    check_context("cudnnBackendExecute");
  }
  if (known != plan_choices().map.end()) {
    throw DeviceError("[cudnn] the plan that another thread uses for conv2d " +
                      std::string(to_string(problem.pass)) +
                      " cannot be made again; run with one worker, and report the shape");
  }
  plan_choices().map.try_emplace(problem, kNone);
  return nullptr;
}

template <typename T>
constexpr cudnnDataType_t cudnn_type_of() {
  if (std::is_same_v<T, double>) return CUDNN_DATA_DOUBLE;
  return std::is_same_v<T, float> ? CUDNN_DATA_FLOAT : CUDNN_DATA_BFLOAT16;
}

/// Runs the pass on cuDNN, with the bias if the data has one; false if it has no plan for that.
template <typename T>
bool on_cudnn(const Conv2dShape& s, ConvolutionPass pass, const ConvolutionData& data) {
  const ConvolutionProblem problem{
      .shape = s,
      .pass = pass,
      .type = cudnn_type_of<T>(),
      .tf32 = std::is_same_v<T, float> && precision() == Precision::tf32,
      .aligned = aligned16(data.x, data.weight, data.y, data.bias),
      .bias = data.bias != nullptr};
  // cuDNN has been given the stream itself.
  (void)stream();
  Plans& mine = plans();
  auto at = mine.find(problem);
  if (at == mine.end()) {
    at = mine.emplace(problem, first_run(problem, data)).first;
  } else if (at->second != nullptr) {
    check(run(*at->second, data), "cudnnBackendExecute");
  }
  if (at->second == nullptr) return false;
  count_call(Backend::cudnn);
  return true;
}

bool is_large(const Conv2dShape& s) {
  return s.n * s.out_h() * s.out_w() * s.out_c * s.c * s.kh * s.kw > direct_products();
}

}  // namespace

template <typename T>
void conv2d_forward(const Conv2dShape& s, const T* x, const T* w, const T* b, T* /*scratch*/,
                    T* y) {
  if (s.n == 0 || s.out_c == 0) return;
  if (is_large(s)) {
    if (b != nullptr && on_cudnn<T>(s, ConvolutionPass::forward, {x, w, y, b})) return;
    // A bias cannot be added after the result was rounded to bfloat16.
    if constexpr (std::is_same_v<T, math::BFloat16>) {
      if (b == nullptr && on_cudnn<T>(s, ConvolutionPass::forward, {x, w, y})) return;
    } else if (on_cudnn<T>(s, ConvolutionPass::forward, {x, w, y})) {
      if (b != nullptr) add_bias(s.n, s.out_c, s.out_h() * s.out_w(), b, y);
      return;
    }
    ++context().operations.slow_convolutions;
  }
  direct_forward(s, x, w, b, y);
}

template <typename T>
void conv2d_grad_input(const Conv2dShape& s, const T* gy, const T* w, T* /*scratch*/, T* gx) {
  if (s.n == 0 || s.c == 0) return;
  if (is_large(s)) {
    if (on_cudnn<T>(s, ConvolutionPass::grad_input, {gx, w, gy})) return;
    ++context().operations.slow_convolutions;
  }
  direct_grad_input(s, gy, w, gx);
}

template <typename T>
void conv2d_grad_weight(const Conv2dShape& s, const T* gy, const T* x, T* /*scratch*/, T* gw) {
  if (s.out_c == 0 || s.c == 0) return;
  if (is_large(s)) {
    if (on_cudnn<T>(s, ConvolutionPass::grad_weight, {x, gw, gy})) return;
    ++context().operations.slow_convolutions;
  }
  direct_grad_weight(s, gy, x, gw);
}

template <typename T>
void conv2d_grad_bias(const Conv2dShape& s, const T* gy, T* gb) {
  sum_channels(s.n, s.out_c, s.out_h() * s.out_w(), gy, gb);
}

std::int64_t conv2d_scratch_elements(const Conv2dShape& /*shape*/) { return 0; }

REMATCH_CONV2D_KERNELS(REMATCH_INSTANTIATE);
REMATCH_CONV2D_KERNELS(REMATCH_INSTANTIATE_BFLOAT16);
REMATCH_INSTANTIATE(conv2d_grad_bias);

}  // namespace rematch::cuda
