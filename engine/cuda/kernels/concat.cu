#include "engine/kernels/concat.h"

#include <limits>

#include "engine/cuda/runtime/launch.h"

namespace rematch::cuda {

namespace {

/// `whole` is rows of a beside rows of b; thread i moves element i of it. A null part is left out.
template <bool kJoin, typename Item, typename Index>
__global__ void __launch_bounds__(kThreads)
    move_kernel(std::int64_t outer, Index inner_a, Index inner_b, Item* whole, Item* a, Item* b) {
  const Index inner = inner_a + inner_b;
  const std::int64_t n = outer * inner;
  for (std::int64_t i = global_thread(); i < n; i += global_threads()) {
    const Index row = static_cast<Index>(i) / inner;
    const Index col = static_cast<Index>(i) - row * inner;
    Item* part = col < inner_a ? a : b;
    if (part == nullptr) continue;
    part += col < inner_a ? static_cast<std::int64_t>(row) * inner_a + col
                          : static_cast<std::int64_t>(row) * inner_b + (col - inner_a);
    if constexpr (kJoin) {
      whole[i] = *part;
    } else {
      *part = whole[i];
    }
  }
}

template <bool kJoin, typename Item>
void move(const char* kernel, std::int64_t outer, std::int64_t inner_a, std::int64_t inner_b,
          Item* whole, Item* a, Item* b) {
  const std::int64_t n = outer * (inner_a + inner_b);
  if (n <= 0) return;
  const unsigned blocks = grid_for(n);
  // Division of 32 bits is many times faster than of 64.
  if (n <= std::numeric_limits<std::int32_t>::max()) {
    move_kernel<kJoin, Item, std::uint32_t>
        <<<blocks, kThreads, 0, stream()>>>(outer, static_cast<std::uint32_t>(inner_a),
                                            static_cast<std::uint32_t>(inner_b), whole, a, b);
  } else {
    move_kernel<kJoin, Item, std::int64_t>
        <<<blocks, kThreads, 0, stream()>>>(outer, inner_a, inner_b, whole, a, b);
  }
  check_launch(kernel);
}

/// `move` in 128-bit items where every row of every array is whole such items.
template <bool kJoin, typename T>
void move_widest(const char* kernel, std::int64_t outer, std::int64_t inner_a, std::int64_t inner_b,
                 T* whole, T* a, T* b) {
  constexpr int kWidth = kVector<T>;
  using Wide = Pack<T, kWidth>;
  if (inner_a % kWidth == 0 && inner_b % kWidth == 0 && detail::aligned<kWidth>(Out<T>{whole}) &&
      detail::aligned<kWidth>(Out<T>{a}) && detail::aligned<kWidth>(Out<T>{b})) {
    move<kJoin>(kernel, outer, inner_a / kWidth, inner_b / kWidth, reinterpret_cast<Wide*>(whole),
                reinterpret_cast<Wide*>(a), reinterpret_cast<Wide*>(b));
  } else {
    move<kJoin>(kernel, outer, inner_a, inner_b, whole, a, b);
  }
}

}  // namespace

template <typename T>
void concat2(std::int64_t outer, std::int64_t inner_a, std::int64_t inner_b, const T* a, const T* b,
             T* out) {
  // Joining reads its parts alone.
  move_widest<true>("concat2", outer, inner_a, inner_b, out, const_cast<T*>(a), const_cast<T*>(b));
}

template <typename T>
void split2(std::int64_t outer, std::int64_t inner_a, std::int64_t inner_b, const T* x, T* a,
            T* b) {
  move_widest<false>("split2", outer, inner_a, inner_b, const_cast<T*>(x), a, b);
}

REMATCH_CONCAT_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cuda
