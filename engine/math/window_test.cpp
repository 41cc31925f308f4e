#include "engine/math/window.h"

#include <catch2/catch_test_macros.hpp>
#include <vector>

namespace rematch::math {
namespace {

TEST_CASE("an input lies in exactly the windows that meet it") {
  for (int size = 1; size <= 9; ++size) {
    for (int kernel = 1; kernel <= 4; ++kernel) {
      for (int stride = 1; stride <= 4; ++stride) {
        for (int pad = 0; pad <= kernel / 2; ++pad) {
          if (size + 2 * pad < kernel) continue;
          const int out = (size + 2 * pad - kernel) / stride + 1;
          const WindowAxis<int> axis{size, out, kernel, stride, pad};
          CAPTURE(size, kernel, stride, pad);
          std::vector<std::vector<int>> by_input(static_cast<std::size_t>(size));
          for (int o = 0; o < out; ++o) {
            const Range<int> inputs = axis.inputs_of(o);
            std::vector<int> want;
            for (int k = 0; k < kernel; ++k) {
              const int at = o * stride - pad + k;
              if (at >= 0 && at < size) want.push_back(at);
            }
            std::vector<int> got;
            for (int i = inputs.begin; i < inputs.end; ++i) got.push_back(i);
            CHECK(got == want);
            for (const int i : want) by_input[static_cast<std::size_t>(i)].push_back(o);
          }
          for (int i = 0; i < size; ++i) {
            const Range<int> windows = axis.windows_of(i);
            std::vector<int> got;
            for (int o = windows.begin; o < windows.end; ++o) got.push_back(o);
            CHECK(got == by_input[static_cast<std::size_t>(i)]);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace rematch::math
