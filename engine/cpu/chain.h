#pragma once

// Dense kernels are made of many sums of products, each one fma chain in a fixed order. A
// chain does not depend on its neighbours, so vector width, tiling, packing and threads only move
// work around; the bits are the same for any of them.

#include <cstdint>
#include <string_view>

namespace rematch::cpu {

/// Instruction sets that kernels exist for.
enum class Vectors : std::uint8_t { avx2, avx512 };
std::string_view to_string(Vectors vectors);

/// The widest that this CPU has.
Vectors best_vectors();
/// Vectors that kernels called from this thread use: best_vectors(), unless set. Threads that help
/// it use the same. Results do not depend on it.
Vectors vectors();
/// Throws std::invalid_argument for vectors that this CPU lacks.
void set_vectors(Vectors vectors);

/// set_vectors() for a scope.
class VectorsScope {
 public:
  explicit VectorsScope(Vectors v) : before_(vectors()) { set_vectors(v); }
  ~VectorsScope() { set_vectors(before_); }
  VectorsScope(const VectorsScope&) = delete;
  VectorsScope& operator=(const VectorsScope&) = delete;

 private:
  Vectors before_;
};

/// The start of a chain: zero, a value of its row or column, or what stands in c. kSum begins with
/// zero and adds the chain to what stands in c.
enum class ChainStart : std::uint8_t { kZero, kRowValue, kColumnValue, kResume, kSum };

/// c[i,j] = fma(a[i,k], b[k,j], ...) over ascending k, for all `rows` and a few vectors of columns.
/// k runs over `runs` runs of `length` terms; in b they lie one after the other.
template <typename T>
struct ChainPanel {
  static constexpr int kMaxVectors = 4;

  std::int64_t rows = 0;
  std::int64_t runs = 1;
  std::int64_t length = 0;
  /// a[i,k] at a_rows[i] (i * a_row without a table) + run * a_run + (k within its run) * a_col.
  const T* a = nullptr;
  const std::int64_t* a_rows = nullptr;
  std::int64_t a_row = 0;
  std::int64_t a_col = 1;
  std::int64_t a_run = 0;
  /// b[k,j] at b_rows[k] (k * b_row without a table) + b_at[vector] + lane.
  const T* b = nullptr;
  const std::int64_t* b_rows = nullptr;
  std::int64_t b_row = 0;
  std::int64_t b_at[kMaxVectors] = {};
  /// c[i,j] at i * c_row + c_at[vector] + lane.
  T* c = nullptr;
  std::int64_t c_row = 0;
  std::int64_t c_at[kMaxVectors] = {};
  int vectors = 0;
  /// Lanes of the last vector; memory of b and c past them is not touched.
  std::int64_t last = 0;
  ChainStart start = ChainStart::kZero;  ///< Not kColumnValue.
  const T* row_values = nullptr;

  /// `count` columns that lie side by side in b and in c.
  void set_columns(std::int64_t width, std::int64_t count) {
    vectors = static_cast<int>((count + width - 1) / width);
    last = count - (vectors - 1) * width;
    for (int v = 0; v < vectors; ++v) b_at[v] = c_at[v] = v * width;
  }
};

template <typename T>
struct PackedBlock;  // engine/cpu/packed.h

/// The kernels for one instruction set.
template <typename T>
struct ChainKernel {
  void (*run)(const ChainPanel<T>& panel);
  void (*run_packed)(const PackedBlock<T>& block);
  std::int64_t width;  ///< Lanes of a vector.
  int vectors;         ///< Vectors of a full panel.

  [[nodiscard]] std::int64_t columns() const { return width * vectors; }
};

template <typename T>
const ChainKernel<T>& chain_kernel(Vectors vectors);

/// For the calling thread's vectors().
template <typename T>
const ChainKernel<T>& chain_kernel() {
  return chain_kernel<T>(vectors());
}

namespace detail {
extern const ChainKernel<float> kChainAvx2Float;
extern const ChainKernel<double> kChainAvx2Double;
extern const ChainKernel<float> kChainAvx512Float;
extern const ChainKernel<double> kChainAvx512Double;
}  // namespace detail

}  // namespace rematch::cpu
