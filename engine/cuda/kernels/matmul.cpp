#include "engine/cuda/kernels/matmul.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "engine/cuda/kernels/product.h"
#include "engine/cuda/runtime/libraries.h"
#include "engine/math/bfloat16.h"

namespace rematch::cuda {

namespace {

using math::BFloat16;

/// All that an algorithm may depend on, and so the bits.
struct Problem {
  MatmulShape shape;
  std::int64_t a_stride = 0;
  std::int64_t b_stride = 0;
  bool a_transposed = false;
  bool b_transposed = false;
  cudaDataType_t type = CUDA_R_32F;
  bool bias = false;
  /// All pointers are aligned to 16 bytes.
  bool aligned = false;
  bool aligned_bias = false;
  bool tf32 = false;

  [[nodiscard]] auto tied() const {
    return std::tie(shape.rows, shape.cols, shape.depth, a_stride, b_stride, a_transposed,
                    b_transposed, type, bias, aligned, aligned_bias, tf32);
  }
  friend bool operator<(const Problem& x, const Problem& y) { return x.tied() < y.tied(); }

  /// Kernels may read the bias in the widest way, and no preference tells them not to.
  [[nodiscard]] bool can_fuse_bias() const { return bias && aligned && aligned_bias; }
  [[nodiscard]] std::uint32_t alignment() const {
    if (aligned) return 16;
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
  }
  /// Allowed reduction schemes: none that rounds partial sums to bfloat16.
  [[nodiscard]] std::uint32_t reductions() const {
    const std::uint32_t unrounded = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    return type == CUDA_R_16BF ? unrounded : unrounded | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  }
  [[nodiscard]] cudaDataType_t scale_type() const {
    return type == CUDA_R_64F ? CUDA_R_64F : CUDA_R_32F;
  }
  [[nodiscard]] cublasComputeType_t compute_type() const {
    if (type == CUDA_R_64F) return CUBLAS_COMPUTE_64F;
    return tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  }
};

/// The algorithm chosen for a problem; every thread reads it.
struct Choice {
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t scratch = 0;
  bool adds_bias = false;
  cublasLtMatrixLayoutOpaque_t a{};
  cublasLtMatrixLayoutOpaque_t b{};
  cublasLtMatrixLayoutOpaque_t out{};
};

class Operation {
 public:
  Operation(const Problem& p, const void* bias) {
    check(cublaslt().init_operation(&desc_, sizeof desc_, p.compute_type(), p.scale_type()),
          "cublasLtMatmulDescInit");
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (bias != nullptr) {
      // Adds bias[i] to all of row i of the column-major result.
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    }
  }

  [[nodiscard]] cublasLtMatmulDesc_t get() { return &desc_; }

 private:
  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    static_assert(sizeof(Value) == 4 || std::is_pointer_v<Value>);
    check(cublaslt().set_operation_attribute(&desc_, attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  }

  cublasLtMatmulDescOpaque_t desc_{};
};

class Preference {
 public:
  explicit Preference(const Problem& p) {
    check(cublaslt().init_preference(&preference_, sizeof preference_),
          "cublasLtMatmulPreferenceInit");
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(kMaxLibraryScratch));
    // A long sum may be split among thread blocks if their partial sums are added in a step of
    // their own, in a fixed order. INPLACE is left out: there the blocks add to the result one
    // after the other, and cuBLAS does not say that they do so in the same order each time.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, p.reductions());
    const std::uint32_t alignment = p.alignment();
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
  }

  [[nodiscard]] cublasLtMatmulPreference_t get() { return &preference_; }

 private:
  template <typename Value>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
    check(cublaslt().set_preference_attribute(&preference_, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  }

  cublasLtMatmulPreferenceOpaque_t preference_{};
};

/// Whether the algorithm reduces in one of the ways that the problem allows; the preference's mask
/// has been seen to be taken as advice.
bool is_allowed(const Problem& p, const cublasLtMatmulAlgo_t& algorithm) {
  std::uint32_t scheme = 0;
  std::size_t written = 0;
  check(cublaslt().get_algorithm_attribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                           &scheme, sizeof scheme, &written),
        "cublasLtMatmulAlgoConfigGetAttribute");
  return (scheme & ~p.reductions()) == 0;
}

/// The arrays of T that a product is about, and the kernel that writes a bias to all columns of the
/// result.
template <typename T>
struct Operands {
  Matrix<const T> a;
  Matrix<const T> b;
  const T* bias;
  T* out;

  void spread_bias(const MatmulShape& shape) const {
    // A product without terms is its bias.
    product<T>(shape.cols, shape.rows, 0, {}, {}, bias, out);
  }
};

/// Not const, because cuBLASLt takes layouts that it only reads as if it wrote them.
template <typename T>
cublasStatus_t run(const Problem& p, Choice& choice, const Operands<T>& on) {
  Operation operation(p, choice.adds_bias ? on.bias : nullptr);
  void* const scratch =
      choice.scratch == 0 ? nullptr : workspace(choice.scratch, Scratch::cublaslt);
  // Added to what stands in the result, a bias is a term of the sum, which is rounded once. With a
  // factor of 0 the old content is not read, so NaN there does no harm.
  const bool resumes = p.bias && !choice.adds_bias;
  if (resumes) on.spread_bias(p.shape);
  using Scale = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const Scale one = 1;
  const Scale old = resumes ? 1 : 0;
  return cublaslt().matmul(cublaslt_handle(), operation.get(), &one, on.a.data, &choice.a,
                           on.b.data, &choice.b, &old, on.out, &choice.out, on.out, &choice.out,
                           &choice.algorithm, scratch, choice.scratch, stream());
}

/// Whether another algorithm may do what this status refuses. Throws when nothing can be done:
/// memory is short, or the device context is lost.
bool is_refused(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return false;
  if (status == CUBLAS_STATUS_ALLOC_FAILED) check(status, what);
  check_context(what);
  return true;
}

/// Looks for an algorithm for `choice`, whose layouts are set, and runs it: the first that is
/// allowed and not refused. False when there is none.
template <typename T>
bool first_run(const Problem& p, bool with_bias, Choice& choice, const Operands<T>& on) {
  // The search reads nothing at the bias's address but how it is aligned.
  Operation operation(p, with_bias ? on.bias : nullptr);
  Preference preference(p);
  choice.adds_bias = with_bias;
  std::array<cublasLtMatmulHeuristicResult_t, 16> found{};
  // Best first. The first one nearly always qualifies, and is found in a fraction of the time.
  for (const int wanted : {1, static_cast<int>(found.size())}) {
    int count = 0;
    const cublasStatus_t searched = cublaslt().get_heuristic(
        cublaslt_handle(), operation.get(), &choice.a, &choice.b, &choice.out, &choice.out,
        preference.get(), wanted, found.data(), &count);
    if (is_refused(searched, "cublasLtMatmulAlgoGetHeuristic")) return false;
    for (int i = 0; i < count; ++i) {
      const cublasLtMatmulHeuristicResult_t& result = found[static_cast<std::size_t>(i)];
      if (result.state != CUBLAS_STATUS_SUCCESS || !is_allowed(p, result.algo)) continue;
      choice.algorithm = result.algo;
      choice.scratch = result.workspaceSize;
      if (!is_refused(run(p, choice, on), "cublasLtMatmul")) return true;
    }
  }
  return false;
}

Choice layouts_of(const Problem& p) {
  Choice choice;
  const auto layout = [&](cublasLtMatrixLayoutOpaque_t& to, std::int64_t rows, std::int64_t cols,
                          bool transposed, std::int64_t stride) {
    if (transposed) std::swap(rows, cols);
    check(cublaslt().init_layout(&to, sizeof to, p.type, static_cast<std::uint64_t>(rows),
                                 static_cast<std::uint64_t>(cols), stride),
          "cublasLtMatrixLayoutInit");
  };
  layout(choice.a, p.shape.rows, p.shape.depth, p.a_transposed, p.a_stride);
  layout(choice.b, p.shape.depth, p.shape.cols, p.b_transposed, p.b_stride);
  layout(choice.out, p.shape.rows, p.shape.cols, false, p.shape.rows);
  return choice;
}

/// The process's choices. Never destroyed, for threads may end after everything else.
struct Choices {
  /// Held while a choice is made: all threads must choose alike.
  std::mutex choosing;
  std::shared_mutex mutex;
  std::map<Problem, Choice> map;

  Choice* find(const Problem& p) {
    const std::shared_lock lock(mutex);
    const auto at = map.find(p);
    return at == map.end() ? nullptr : &at->second;
  }
};
Choices& choices() {
  static Choices* const instance = new Choices;
  return *instance;
}

/// Runs the product and keeps what did it.
template <typename T>
void choose(const Problem& p, const Operands<T>& on) {
  forbid_capture("the choice of an algorithm for a matrix product");
  const std::lock_guard alone(choices().choosing);
  if (Choice* const known = choices().find(p); known != nullptr) {
    return check(run(p, *known, on), "cublasLtMatmul");
  }
  Choice choice = layouts_of(p);
  if (!(p.can_fuse_bias() && first_run(p, true, choice, on)) && !first_run(p, false, choice, on)) {
    throw DeviceError(
        "[cublaslt] no deterministic algorithm for a product of " + std::to_string(p.shape.rows) +
        " x " + std::to_string(p.shape.depth) + " by " + std::to_string(p.shape.depth) + " x " +
        std::to_string(p.shape.cols) + "; run this model on the CPU, and report the shape");
  }
  const std::unique_lock lock(choices().mutex);
  choices().map.try_emplace(p, choice);
}

template <typename T>
constexpr cudaDataType_t type_of() {
  if (std::is_same_v<T, double>) return CUDA_R_64F;
  return std::is_same_v<T, float> ? CUDA_R_32F : CUDA_R_16BF;
}

}  // namespace

std::int64_t matmul_choices() {
  const std::shared_lock lock(choices().mutex);
  return static_cast<std::int64_t>(choices().map.size());
}

template <typename T>
void matmul(Matrix<const T> a, Matrix<const T> b, const T* bias, T* out, const MatmulShape& shape) {
  const Problem problem{.shape = shape,
                        .a_stride = a.stride,
                        .b_stride = b.stride,
                        .a_transposed = a.transposed,
                        .b_transposed = b.transposed,
                        .type = type_of<T>(),
                        .bias = bias != nullptr,
                        .aligned = aligned16(a.data, b.data, out),
                        .aligned_bias = aligned16(bias),
                        .tf32 = std::is_same_v<T, float> && precision() == Precision::tf32};
  const Operands<T> on{a, b, bias, out};
  if (Choice* const known = choices().find(problem); known != nullptr) {
    check(run(problem, *known, on), "cublasLtMatmul");
  } else {
    choose(problem, on);
  }
  count_call(Backend::cublaslt);
}

template void matmul(Matrix<const float>, Matrix<const float>, const float*, float*,
                     const MatmulShape&);
template void matmul(Matrix<const double>, Matrix<const double>, const double*, double*,
                     const MatmulShape&);
template void matmul(Matrix<const BFloat16>, Matrix<const BFloat16>, const BFloat16*, BFloat16*,
                     const MatmulShape&);

}  // namespace rematch::cuda
