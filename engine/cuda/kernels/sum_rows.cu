#include "engine/kernels/linear.h"

#include "engine/cuda/kernels/reduce.h"

namespace rematch::cuda {

namespace {

template <typename T>
struct Term {
  std::int64_t cols;
  const T* gy;
  __device__ void operator()(std::int64_t r, std::int64_t col, T (&sums)[1]) const {
    sums[0] += gy[r * cols + col];
  }
};

template <typename T>
struct Store {
  T* gb;
  __device__ void operator()(std::int64_t col, double total) const {
    gb[col] = static_cast<T>(total);
  }
};

}  // namespace

template <typename T>
void sum_rows(const T* gy, T* gb, std::int64_t n, std::int64_t m) {
  column_sums<1, T>("sum_rows", n, m, Term<T>{m, gy}, scratch_doubles(column_scratch(n, m, 1)),
                    Store<T>{gb});
}

REMATCH_INSTANTIATE(sum_rows);

}  // namespace rematch::cuda
