#include "engine/kernels/embedding.h"

#include <algorithm>

#include "engine/cpu/threads.h"

namespace rematch::cpu {

template <typename T>
void rows_of_tokens(std::int64_t n, std::int64_t /*rows*/, std::int64_t features,
                    const std::int32_t* tokens, const T* weight, T* y) {
  parallel(n, kGrain / std::max<std::int64_t>(features, 1), 1,
           [=](std::int64_t begin, std::int64_t end) {
             for (std::int64_t i = begin; i < end; ++i) {
               std::copy_n(weight + tokens[i] * features, features, y + i * features);
             }
           });
}

template <typename T>
void sum_rows_of_tokens(std::int64_t n, std::int64_t rows, std::int64_t features,
                        const std::int32_t* tokens, const T* gy, T* gw) {
  // Each share looks at all tokens and has some of the rows: a sum is never shared.
  const std::int64_t work = n * features / std::max<std::int64_t>(rows, 1) + features;
  parallel(rows, (kGrain + n) / std::max<std::int64_t>(work, 1), 1,
           [=](std::int64_t begin, std::int64_t end) {
             std::fill_n(gw + begin * features, (end - begin) * features, T{0});
             for (std::int64_t i = 0; i < n; ++i) {
               if (tokens[i] < begin || tokens[i] >= end) continue;
               const T* from = gy + i * features;
               T* to = gw + tokens[i] * features;
               for (std::int64_t c = 0; c < features; ++c) to[c] += from[c];
             }
           });
}

REMATCH_EMBEDDING_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cpu
