// cuBLASLt as far as the engine uses it: it proposes algorithms, the forbidden one and some that
// cannot be run among them, and refuses calls that do not fit the algorithm that they name.

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/emulator/stream.h"
#include "engine/math/bfloat16.h"

namespace {

using rematch::math::BFloat16;

/// The most that an algorithm asks of a pointer.
constexpr std::uint32_t kWidestAccess = 16;

struct Layout {
  cudaDataType_t type;
  std::uint64_t rows;
  std::uint64_t cols;
  std::int64_t stride;

  [[nodiscard]] bool operator==(const Layout&) const = default;
};

struct Operation {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  std::int32_t a_transposed;
  std::int32_t b_transposed;
  std::int32_t epilogue;
  const void* bias;
};

struct Preference {
  std::uint64_t most_scratch;
  std::uint32_t schemes;
  std::array<std::uint32_t, 4> alignment;
};

struct Algorithm {
  std::uint32_t scheme;
  std::uint32_t alignment;
  std::uint64_t scratch;
  /// Proposed in good faith, and refused when it is run.
  bool fails;
  /// Hash of the problem that it was proposed for.
  std::uint64_t problem;
};

template <typename Own, typename Theirs>
Own read(const Theirs* opaque) {
  static_assert(sizeof(Own) <= sizeof(Theirs));
  Own own;
  std::memcpy(&own, opaque, sizeof own);
  return own;
}

template <typename Theirs, typename Own>
void write(Theirs* opaque, const Own& own) {
  static_assert(sizeof(Own) <= sizeof(Theirs));
  std::memcpy(static_cast<void*>(opaque), &own, sizeof own);
}

template <typename T>
bool take(T& to, const void* from, std::size_t bytes) {
  if (bytes != sizeof to) return false;
  std::memcpy(&to, from, sizeof to);
  return true;
}

std::uint64_t number_of(const Operation& o, const Layout& a, const Layout& b, const Layout& d) {
  std::uint64_t hash = 1469598103934665603ULL;
  const auto mix = [&](std::uint64_t value) { hash = (hash ^ value) * 1099511628211ULL; };
  for (const Layout& l : {a, b, d}) {
    mix(static_cast<std::uint64_t>(l.type));
    mix(l.rows);
    mix(l.cols);
    mix(static_cast<std::uint64_t>(l.stride));
  }
  mix(static_cast<std::uint64_t>(o.compute));
  mix(static_cast<std::uint64_t>(o.a_transposed * 2 + o.b_transposed));
  mix(static_cast<std::uint64_t>(o.epilogue));
  return hash;
}

/// Whether the matrices fit each other and the operation's types.
bool fits(const Operation& o, const Layout& a, const Layout& b, const Layout& d) {
  const auto rows = [](const Layout& l, bool turned) { return turned ? l.cols : l.rows; };
  const bool ta = o.a_transposed == CUBLAS_OP_T;
  const bool tb = o.b_transposed == CUBLAS_OP_T;
  const bool is_double = d.type == CUDA_R_64F;
  const bool types =
      a.type == d.type && b.type == d.type && o.scale == (is_double ? CUDA_R_64F : CUDA_R_32F) &&
      (d.type == CUDA_R_16BF ? o.compute == CUBLAS_COMPUTE_32F
       : is_double           ? o.compute == CUBLAS_COMPUTE_64F
                   : o.compute == CUBLAS_COMPUTE_32F || o.compute == CUBLAS_COMPUTE_32F_FAST_TF32);
  const auto strides = [](const Layout& l) {
    return l.stride >= static_cast<std::int64_t>(std::max<std::uint64_t>(l.rows, 1));
  };
  return types && rows(a, ta) == d.rows && rows(b, !tb) == d.cols && rows(a, !ta) == rows(b, tb) &&
         strides(a) && strides(b) && strides(d) && d.rows * d.cols > 0;
}

template <typename T>
struct Product {
  Operation operation;
  Layout la;
  Layout lb;
  Layout ld;
  double alpha;
  double beta;
  const T* a;
  const T* b;
  const T* c;
  T* d;

  void operator()() const {
    const bool ta = operation.a_transposed == CUBLAS_OP_T;
    const bool tb = operation.b_transposed == CUBLAS_OP_T;
    const auto m = static_cast<std::int64_t>(ld.rows);
    const auto n = static_cast<std::int64_t>(ld.cols);
    const auto k = static_cast<std::int64_t>(ta ? la.rows : la.cols);
    std::vector<double> column(static_cast<std::size_t>(m));
    for (std::int64_t j = 0; j < n; ++j) {
      std::fill(column.begin(), column.end(), 0.0);
      for (std::int64_t p = 0; p < k; ++p) {
        const auto factor = static_cast<double>(tb ? b[p * lb.stride + j] : b[j * lb.stride + p]);
        for (std::int64_t i = 0; i < m; ++i) {
          column[static_cast<std::size_t>(i)] +=
              factor * static_cast<double>(ta ? a[i * la.stride + p] : a[p * la.stride + i]);
        }
      }
      for (std::int64_t i = 0; i < m; ++i) {
        double value = alpha * column[static_cast<std::size_t>(i)];
        if (beta != 0) value += beta * static_cast<double>(c[j * ld.stride + i]);
        if (operation.epilogue == CUBLASLT_EPILOGUE_BIAS) {
          value += static_cast<double>(static_cast<const T*>(operation.bias)[i]);
        }
        d[j * ld.stride + i] = static_cast<T>(value);
      }
    }
  }
};

/// A factor, which has the type that products are scaled in.
double factor_at(const void* from, cudaDataType_t type) {
  return type == CUDA_R_64F ? *static_cast<const double*>(from)
                            : static_cast<double>(*static_cast<const float*>(from));
}

template <typename T>
void run(cudaStream_t stream, const Operation& o, const Layout& a, const Layout& b, const Layout& d,
         const void* alpha, const void* beta, const void* pa, const void* pb, const void* pc,
         void* pd) {
  rematch::emulator::launch_kernel(
      stream, "cublasLtMatmul",
      Product<T>{o, a, b, d, factor_at(alpha, o.scale), factor_at(beta, o.scale),
                 static_cast<const T*>(pa), static_cast<const T*>(pb), static_cast<const T*>(pc),
                 static_cast<T*>(pd)});
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static int one = 0;
  *handle = reinterpret_cast<cublasLtHandle_t>(&one);
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    default:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
  }
}

const char* cublasLtGetStatusString(cublasStatus_t /*status*/) { return "emulated"; }

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  if (size != sizeof *desc) return CUBLAS_STATUS_INVALID_VALUE;
  write(desc,
        Operation{compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  auto o = read<Operation>(desc);
  bool taken = false;
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      taken = take(o.a_transposed, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      taken = take(o.b_transposed, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      taken = take(o.epilogue, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      taken = take(o.bias, value, bytes);
      break;
    default:
      break;
  }
  write(desc, o);
  return taken ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t cols,
                                                 int64_t stride) {
  if (size != sizeof *layout) return CUBLAS_STATUS_INVALID_VALUE;
  write(layout, Layout{type, rows, cols, stride});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                                     size_t size) {
  if (size != sizeof *preference) return CUBLAS_STATUS_INVALID_VALUE;
  write(preference, Preference{0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  auto p = read<Preference>(preference);
  bool taken = false;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      taken = take(p.most_scratch, value, bytes);
      break;
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      taken = take(p.schemes, value, bytes);
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      taken = take(p.alignment[0], value, bytes);
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      taken = take(p.alignment[1], value, bytes);
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      taken = take(p.alignment[2], value, bytes);
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      taken = take(p.alignment[3], value, bytes);
      break;
    default:
      break;
  }
  write(preference, p);
  return taken ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t /*handle*/,
                                              cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t la,
                                              cublasLtMatrixLayout_t lb,
                                              cublasLtMatrixLayout_t /*lc*/,
                                              cublasLtMatrixLayout_t ld,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* found, int* count) {
  const auto o = read<Operation>(desc);
  const auto a = read<Layout>(la);
  const auto b = read<Layout>(lb);
  const auto d = read<Layout>(ld);
  const auto p = read<Preference>(preference);
  *count = 0;
  if (!fits(o, a, b, d)) return CUBLAS_STATUS_INVALID_VALUE;
  const bool adds_bias = o.epilogue == CUBLASLT_EPILOGUE_BIAS;
  // Not all of the real one's algorithms can do it either.
  if (adds_bias && d.type == CUDA_R_64F) return CUBLAS_STATUS_NOT_SUPPORTED;
  // Nor is that the only way in which a search may fail.
  if (adds_bias && d.cols == 1) return CUBLAS_STATUS_INTERNAL_ERROR;
  const std::uint32_t alignment = *std::min_element(p.alignment.begin(), p.alignment.end());
  if (adds_bias && reinterpret_cast<std::uintptr_t>(o.bias) % alignment != 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const std::uint64_t problem = number_of(o, a, b, d);
  const std::uint64_t split = 4 * d.rows * d.cols * 8;
  const auto propose = [&](cublasStatus_t state, const Algorithm& algorithm) {
    if (*count == wanted || algorithm.scratch > p.most_scratch) return;
    // The mask is advice: the first shows whether the caller looks for itself.
    cublasLtMatmulHeuristicResult_t& result = found[(*count)++];
    result = {};
    write(&result.algo, algorithm);
    result.workspaceSize = algorithm.scratch;
    result.state = state;
  };
  const auto plain = CUBLASLT_REDUCTION_SCHEME_NONE;
  propose(CUBLAS_STATUS_SUCCESS, {CUBLASLT_REDUCTION_SCHEME_INPLACE, alignment, 0, false, problem});
  propose(CUBLAS_STATUS_NOT_SUPPORTED, {plain, alignment, 0, false, problem});
  // Two that pass the search and not the run: one asks for more than the preference promises.
  propose(CUBLAS_STATUS_SUCCESS, {plain, alignment, 0, true, problem});
  propose(CUBLAS_STATUS_SUCCESS, {plain, kWidestAccess, 0, d.rows % 2 == 0, problem});
  if ((p.schemes & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0 && a.rows * a.cols > 4096) {
    propose(CUBLAS_STATUS_SUCCESS,
            {CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, alignment, split, false, problem});
  }
  propose(CUBLAS_STATUS_SUCCESS, {plain, alignment, 0, false, problem});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value, size_t bytes, size_t* written) {
  if (attribute != CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME || bytes != sizeof(std::uint32_t)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const auto a = read<Algorithm>(algorithm);
  std::memcpy(value, &a.scheme, sizeof a.scheme);
  *written = sizeof a.scheme;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t desc,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t la,
                              const void* b, cublasLtMatrixLayout_t lb, const void* beta,
                              const void* c, cublasLtMatrixLayout_t lc, void* d,
                              cublasLtMatrixLayout_t ld, const cublasLtMatmulAlgo_t* algorithm,
                              void* scratch, size_t scratch_bytes, cudaStream_t stream) {
  if (rematch::emulator::outcome() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  const auto o = read<Operation>(desc);
  const auto da = read<Layout>(la);
  const auto db = read<Layout>(lb);
  const auto dd = read<Layout>(ld);
  const auto chosen = read<Algorithm>(algorithm);
  if (!fits(o, da, db, dd) || !(read<Layout>(lc) == dd) ||
      chosen.problem != number_of(o, da, db, dd) || chosen.scratch > scratch_bytes ||
      chosen.scheme == CUBLASLT_REDUCTION_SCHEME_INPLACE) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool adds_bias = o.epilogue == CUBLASLT_EPILOGUE_BIAS;
  if (chosen.fails) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (const void* p : {a, b, c, static_cast<const void*>(d)}) {
    if (p == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    if (reinterpret_cast<std::uintptr_t>(p) % chosen.alignment != 0) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
  }
  // No preference speaks of the bias: kernels read it in the widest way, wherever it is.
  if (adds_bias && reinterpret_cast<std::uintptr_t>(o.bias) % kWidestAccess != 0) {
    rematch::emulator::enqueue(stream, [] { rematch::emulator::lose(cudaErrorMisalignedAddress); });
    return CUBLAS_STATUS_SUCCESS;
  }
  if (chosen.scratch > 0) {
    // Overwrites workspace that is not the caller's; what is left in the caller's is of no use.
    rematch::emulator::enqueue(stream,
                               [scratch, chosen] { std::memset(scratch, 0xff, chosen.scratch); });
  }
  rematch::emulator::count(rematch::emulator::Asked::product);
  const auto launch = dd.type == CUDA_R_64F    ? run<double>
                      : dd.type == CUDA_R_16BF ? run<BFloat16>
                                               : run<float>;
  launch(stream, o, da, db, dd, alpha, beta, a, b, c, d);
  return rematch::emulator::outcome() == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                     : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
