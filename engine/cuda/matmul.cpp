#include "engine/cuda/matmul.h"

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "engine/cuda/libraries.h"

namespace rematch::cuda {

namespace {

/// All that an algorithm may depend on, and so the bits.
struct Problem {
  MatmulShape shape;
  std::int64_t a_stride = 0;
  std::int64_t b_stride = 0;
  bool a_transposed = false;
  bool b_transposed = false;
  bool bias = false;
  bool is_double = false;
  bool tf32 = false;
  bool aligned = false;

  [[nodiscard]] auto tied() const {
    return std::tie(shape.rows, shape.cols, shape.depth, a_stride, b_stride, a_transposed,
                    b_transposed, bias, is_double, tf32, aligned);
  }
  friend bool operator<(const Problem& x, const Problem& y) { return x.tied() < y.tied(); }

  [[nodiscard]] std::uint32_t alignment() const { return aligned ? 16 : is_double ? 8 : 4; }
  [[nodiscard]] cudaDataType_t type() const { return is_double ? CUDA_R_64F : CUDA_R_32F; }
  [[nodiscard]] cublasComputeType_t compute_type() const {
    if (is_double) return CUBLAS_COMPUTE_64F;
    return tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  }
};

/// What was chosen for a problem; every thread reads it.
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
    check(cublaslt().init_operation(&desc_, sizeof desc_, p.compute_type(), p.type()),
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
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
                                   CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE));
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

bool is_deterministic(const cublasLtMatmulAlgo_t& algorithm) {
  std::uint32_t scheme = 0;
  std::size_t written = 0;
  check(cublaslt().get_algorithm_attribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                           &scheme, sizeof scheme, &written),
        "cublasLtMatmulAlgoConfigGetAttribute");
  return (scheme & CUBLASLT_REDUCTION_SCHEME_INPLACE) == 0;
}

/// Looks for an algorithm for `choice`, whose layouts are set; false when there is none.
bool find_algorithm(const Problem& p, bool with_bias, Choice& choice) {
  // The search reads nothing at the bias's address but how it is aligned, and a real one may happen
  // to be aligned better than the next.
  alignas(256) static constexpr std::array<char, 256> kAddresses{};
  const void* const address = kAddresses.data() + p.alignment();
  Operation operation(p, with_bias ? address : nullptr);
  Preference preference(p);
  // Best first; the first one nearly always qualifies.
  std::array<cublasLtMatmulHeuristicResult_t, 16> found{};
  int count = 0;
  const cublasStatus_t status = cublaslt().get_heuristic(
      cublaslt_handle(), operation.get(), &choice.a, &choice.b, &choice.out, &choice.out,
      preference.get(), static_cast<int>(found.size()), found.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return false;
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = found[static_cast<std::size_t>(i)];
    if (result.state != CUBLAS_STATUS_SUCCESS || !is_deterministic(result.algo)) continue;
    choice.algorithm = result.algo;
    choice.scratch = result.workspaceSize;
    choice.adds_bias = with_bias;
    return true;
  }
  return false;
}

Choice choose(const Problem& p) {
  Choice choice;
  const auto layout = [&](cublasLtMatrixLayoutOpaque_t& to, std::int64_t rows, std::int64_t cols,
                          bool transposed, std::int64_t stride) {
    if (transposed) std::swap(rows, cols);
    check(cublaslt().init_layout(&to, sizeof to, p.type(), static_cast<std::uint64_t>(rows),
                                 static_cast<std::uint64_t>(cols), stride),
          "cublasLtMatrixLayoutInit");
  };
  layout(choice.a, p.shape.rows, p.shape.depth, p.a_transposed, p.a_stride);
  layout(choice.b, p.shape.depth, p.shape.cols, p.b_transposed, p.b_stride);
  layout(choice.out, p.shape.rows, p.shape.cols, false, p.shape.rows);
  if (p.bias && find_algorithm(p, true, choice)) return choice;
  if (find_algorithm(p, false, choice)) return choice;
  throw DeviceError("[cublaslt] no deterministic algorithm for a product of " +
                    std::to_string(p.shape.rows) + " x " + std::to_string(p.shape.depth) + " by " +
                    std::to_string(p.shape.depth) + " x " + std::to_string(p.shape.cols) +
                    "; run this model on the CPU, and report the shape");
}

/// The process's choices. Never destroyed, for threads may end after everything else.
struct Choices {
  std::shared_mutex mutex;
  std::map<Problem, Choice> map;
};

/// Not const, because cuBLASLt takes layouts that it only reads as if it wrote them.
Choice& choice_for(const Problem& p) {
  static Choices* const choices = new Choices;
  {
    const std::shared_lock lock(choices->mutex);
    if (const auto at = choices->map.find(p); at != choices->map.end()) return at->second;
  }
  forbid_capture("the choice of an algorithm for a matrix product");
  // Two threads may both get here; all use what the first one keeps.
  const Choice choice = choose(p);
  const std::unique_lock lock(choices->mutex);
  return choices->map.try_emplace(p, choice).first->second;
}

}  // namespace

template <typename T>
bool matmul(Matrix<const T> a, Matrix<const T> b, const T* bias, T* out, const MatmulShape& shape) {
  constexpr bool kDouble = std::is_same_v<T, double>;
  const Problem problem{.shape = shape,
                        .a_stride = a.stride,
                        .b_stride = b.stride,
                        .a_transposed = a.transposed,
                        .b_transposed = b.transposed,
                        .bias = bias != nullptr,
                        .is_double = kDouble,
                        .tf32 = !kDouble && precision() == Precision::tf32,
                        .aligned = aligned16(a.data, b.data, bias, out)};
  Choice& choice = choice_for(problem);
  Operation operation(problem, choice.adds_bias ? bias : nullptr);
  void* const scratch =
      choice.scratch == 0 ? nullptr : workspace(choice.scratch, Scratch::cublaslt);
  const T one = 1;
  const T none = 0;
  // With a factor of 0 the result's old content is not read, so NaN there does no harm.
  check(cublaslt().matmul(cublaslt_handle(), operation.get(), &one, a.data, &choice.a, b.data,
                          &choice.b, &none, out, &choice.out, out, &choice.out, &choice.algorithm,
                          scratch, choice.scratch, stream()),
        "cublasLtMatmul");
  count_call(Backend::cublaslt);
  return choice.adds_bias;
}

template bool matmul(Matrix<const float>, Matrix<const float>, const float*, float*,
                     const MatmulShape&);
template bool matmul(Matrix<const double>, Matrix<const double>, const double*, double*,
                     const MatmulShape&);

}  // namespace rematch::cuda
