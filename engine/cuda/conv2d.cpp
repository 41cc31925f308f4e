#include "engine/cuda/conv2d.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>

#include "engine/cuda/channel_bias.h"
#include "engine/cuda/conv2d_direct.h"
#include "engine/cuda/cudnn_graph.h"
#include "engine/cuda/libraries.h"

namespace rematch::cuda {

namespace {

using Plans = std::map<ConvolutionProblem, std::unique_ptr<ConvolutionPlan>>;

/// Which of the candidates a problem uses, for the whole process; kNone if cuDNN has none. Never
/// destroyed, for threads may end after everything else.
constexpr int kNone = -1;
struct Choices {
  std::mutex mutex;
  std::map<ConvolutionProblem, int> map;
};
Choices& choices() {
  static Choices* const instance = new Choices;
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

/// cuDNN's attempts may leave an error behind, which must not surface in the next launch; one that
/// cannot be cleared has broken the device context.
void check_context(std::string_view what) {
  (void)cudaGetLastError();
  check(cudaPeekAtLastError(), what);
}

/// Makes this thread's plan, runs it, and for the first thread chooses which candidate that is: the
/// first that runs. A plan may be refused as late as that.
std::unique_ptr<ConvolutionPlan> first_run(const ConvolutionProblem& problem,
                                           const ConvolutionData& data) {
  forbid_capture("the choice of a plan for a convolution");
  // One thread at a time: all must choose alike, and making plans is not something to do often.
  const std::lock_guard lock(choices().mutex);
  const auto known = choices().map.find(problem);
  if (known != choices().map.end() && known->second == kNone) return nullptr;
  ConvolutionCandidates candidates(problem);
  check_context("a search for cuDNN's engines");
  const int first = known == choices().map.end() ? 0 : known->second;
  const int last = known == choices().map.end() ? candidates.count() : first + 1;
  for (int i = first; i < last; ++i) {
    auto plan = i < candidates.count() ? candidates.plan(i) : nullptr;
    check_context("cudnnBackendFinalize");
    if (plan == nullptr) continue;
    if (run(*plan, data) == CUDNN_STATUS_SUCCESS) {
      choices().map.try_emplace(problem, i);
      return plan;
    }
    check_context("cudnnBackendExecute");
  }
  if (known != choices().map.end()) {
    throw DeviceError("[cudnn] the plan that another thread uses for conv2d " +
                      std::string(to_string(problem.pass)) +
                      " cannot be made again; run with one worker, and report the shape");
  }
  choices().map.try_emplace(problem, kNone);
  return nullptr;
}

/// Runs the pass on cuDNN; false if it has to be done otherwise.
template <typename T>
bool on_cudnn(const Conv2dShape& s, ConvolutionPass pass, const T* x, const T* w, const T* y) {
  const std::int64_t products = s.n * s.out_h() * s.out_w() * s.out_c * s.c * s.kh * s.kw;
  if (products <= direct_products()) return false;
  constexpr bool kDouble = std::is_same_v<T, double>;
  const ConvolutionProblem problem{.shape = s,
                                   .pass = pass,
                                   .is_double = kDouble,
                                   .tf32 = !kDouble && precision() == Precision::tf32,
                                   .aligned = aligned16(x, w, y)};
  const ConvolutionData data{x, w, y};
  // cuDNN has been given the stream itself.
  (void)stream();
  Plans& mine = plans();
  auto at = mine.find(problem);
  if (at == mine.end()) {
    at = mine.emplace(problem, first_run(problem, data)).first;
    if (at->second != nullptr) count_call(Backend::cudnn);
    return at->second != nullptr;
  }
  if (at->second == nullptr) return false;
  check(run(*at->second, data), "cudnnBackendExecute");
  count_call(Backend::cudnn);
  return true;
}

template <typename T>
void zero(T* out, std::int64_t n) {
  check(fill_bytes(out, 0, n * static_cast<std::int64_t>(sizeof(T)), stream()),
        "cudaMemsetAsync for an empty sum");
}

}  // namespace

template <typename T>
void conv2d_forward(const Conv2dShape& s, const T* x, const T* w, const T* b, T* /*scratch*/,
                    T* y) {
  const std::int64_t plane = s.out_h() * s.out_w();
  if (s.n == 0 || s.out_c == 0) return;
  if (s.c == 0) {
    zero(y, s.n * s.out_c * plane);
  } else if (!on_cudnn(s, ConvolutionPass::forward, x, w, y)) {
    return direct_forward(s, x, w, b, y);
  }
  if (b != nullptr) add_bias(s.n, s.out_c, plane, b, y);
}

template <typename T>
void conv2d_grad_input(const Conv2dShape& s, const T* gy, const T* w, T* /*scratch*/, T* gx) {
  if (s.n == 0 || s.c == 0) return;
  if (s.out_c == 0) return zero(gx, s.n * s.c * s.h * s.w);
  if (!on_cudnn<T>(s, ConvolutionPass::grad_input, gx, w, gy)) direct_grad_input(s, gy, w, gx);
}

template <typename T>
void conv2d_grad_weight(const Conv2dShape& s, const T* gy, const T* x, T* /*scratch*/, T* gw) {
  if (s.out_c == 0 || s.c == 0) return;
  if (s.n == 0) return zero(gw, s.out_c * s.c * s.kh * s.kw);
  if (!on_cudnn<T>(s, ConvolutionPass::grad_weight, x, gw, gy)) direct_grad_weight(s, gy, x, gw);
}

template <typename T>
void conv2d_grad_bias(const Conv2dShape& s, const T* gy, T* gb) {
  sum_channels(s.n, s.out_c, s.out_h() * s.out_w(), gy, gb);
}

#define REMATCH_INSTANTIATE(T)                                                            \
  template void conv2d_forward(const Conv2dShape&, const T*, const T*, const T*, T*, T*); \
  template void conv2d_grad_input(const Conv2dShape&, const T*, const T*, T*, T*);        \
  template void conv2d_grad_weight(const Conv2dShape&, const T*, const T*, T*, T*);       \
  template void conv2d_grad_bias(const Conv2dShape&, const T*, T*);
REMATCH_INSTANTIATE(float)
REMATCH_INSTANTIATE(double)
#undef REMATCH_INSTANTIATE

}  // namespace rematch::cuda
