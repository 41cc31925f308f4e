#include "engine/cpu/chain.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "engine/cpu/pack.h"
#include "engine/cpu/testing/values.h"
#include "engine/cpu/testing/vectors.h"
#include "engine/cpu/transpose.h"

namespace rematch::cpu {
namespace {

using namespace testing;

/// Columns [0, cols) of a panel's contract, an element at a time.
template <typename T>
void chains(const ChainPanel<T>& p, std::int64_t width) {
  for (std::int64_t i = 0; i < p.rows; ++i) {
    for (int v = 0; v < p.vectors; ++v) {
      for (std::int64_t lane = 0; lane < (v == p.vectors - 1 ? p.last : width); ++lane) {
        T& c = p.c[i * p.c_row + p.c_at[v] + lane];
        T sum = p.start == ChainStart::kRowValue ? p.row_values[i]
                : p.start == ChainStart::kResume ? c
                                                 : T(0);
        for (std::int64_t k = 0; k < p.runs * p.length; ++k) {
          const std::int64_t a = (p.a_rows == nullptr ? i * p.a_row : p.a_rows[i]) +
                                 k / p.length * p.a_run + k % p.length * p.a_col;
          const std::int64_t b =
              (p.b_rows == nullptr ? k * p.b_row : p.b_rows[k]) + p.b_at[v] + lane;
          sum = std::fma(p.a[a], p.b[b], sum);
        }
        c = p.start == ChainStart::kSum ? c + sum : sum;
      }
    }
  }
}

template <typename T>
void check_panels(Vectors vectors) {
  const ChainKernel<T>& kernel = chain_kernel<T>(vectors);
  const auto a = values<T>(4000, 1);
  const auto b = values<T>(4000, 2);
  const auto before = values<T>(4000, 3);
  std::vector<std::int64_t> a_rows;
  std::vector<std::int64_t> b_rows;
  for (std::int64_t i = 0; i < 40; ++i) {
    a_rows.push_back(i * 17 % 40 * 11);
    b_rows.push_back(i * 23 % 40 * 65);
  }
  for (std::int64_t rows = 1; rows <= 15; ++rows) {
    for (int count = 1; count <= kernel.vectors; ++count) {
      for (const std::int64_t last : {std::int64_t{1}, kernel.width - 1, kernel.width}) {
        for (const int form : {0, 1, 2, 3}) {
          CAPTURE(rows, count, last, form);
          ChainPanel<T> p;
          p.rows = rows;
          p.runs = form == 2 ? 3 : 1;
          p.length = form == 3 ? 0 : 7;
          p.a = a.data();
          p.a_row = 31;
          p.a_col = form == 1 ? 3 : 1;
          p.a_run = 9;
          p.b = b.data();
          p.b_row = 70;
          if (form == 1) p.b_rows = b_rows.data();
          if (form == 2) p.a_rows = a_rows.data();
          p.c_row = 90;
          p.vectors = count;
          p.last = last;
          for (int v = 0; v < count; ++v) {
            p.b_at[v] = v * (kernel.width + 1);
            p.c_at[v] = v * (kernel.width + 2);
          }
          p.row_values = a.data() + 100;
          for (const ChainStart start :
               {ChainStart::kZero, ChainStart::kRowValue, ChainStart::kResume, ChainStart::kSum}) {
            p.start = start;
            std::vector<T> want = before;
            std::vector<T> got = before;
            p.c = want.data();
            chains(p, kernel.width);
            p.c = got.data();
            kernel.run(p);
            // All of c: what is not the panel's stays as it was.
            CHECK(same_bits(got, want));
          }
        }
      }
    }
  }
}

TEST_CASE("a panel's elements are fma chains, to the bit, for every instruction set") {
  for (const Vectors v : all_vectors()) {
    INFO(to_string(v));
    check_panels<float>(v);
    check_panels<double>(v);
  }
}

TEST_CASE("the vectors that kernels use belong to the thread that set them, and are ones it has") {
  CHECK(vectors() == best_vectors());
  const VectorsScope scope(Vectors::avx2);
  CHECK(vectors() == Vectors::avx2);
  CHECK(chain_kernel<float>().width == 8);
  if (best_vectors() == Vectors::avx512) {
    set_vectors(Vectors::avx512);
    CHECK(chain_kernel<float>().width == 16);
  } else {
    CHECK_THROWS_AS(set_vectors(Vectors::avx512), std::invalid_argument);
    CHECK(vectors() == Vectors::avx2);
  }
}

template <typename T>
void check_transposes() {
  const auto from = values<T>(60 * 61, 1);
  for (const std::int64_t rows : {0, 1, 7, 8, 17, 40}) {
    for (const std::int64_t cols : {0, 1, 8, 9, 33, 48}) {
      for (const std::int64_t to_row : {40, 61}) {
        std::vector<T> to(61 * 61, T(7));
        std::vector<T> want = to;
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t c = 0; c < cols; ++c) {
            want[static_cast<std::size_t>(c * to_row + r)] =
                from[static_cast<std::size_t>(r * 50 + c)];
          }
        }
        transpose(rows, cols, from.data(), 50, to.data(), to_row);
        CAPTURE(rows, cols, to_row);
        CHECK(same_bits(to, want));
      }
    }
  }
}

TEST_CASE("a transpose moves every element and nothing else") {
  check_transposes<float>();
  check_transposes<double>();
}

template <typename T>
void check_packing(std::int64_t rows, std::int64_t depth, bool side_by_side) {
  CAPTURE(rows, depth, side_by_side);
  const std::int64_t apart = 41;
  const auto from = values<T>(50 * apart, 1);
  const Strided<T> a =
      side_by_side ? Strided<T>{from.data(), 1, apart} : Strided<T>{from.data(), apart, 1};
  const auto count = static_cast<std::size_t>(rows * depth);
  std::vector<T> want;
  for (std::int64_t i = 0; i < rows;) {
    const std::int64_t height = tile_rows(rows - i);
    for (std::int64_t k = 0; k < depth; ++k) {
      for (std::int64_t r = i; r < i + height; ++r) want.push_back(a.data[r * a.row + k * a.col]);
    }
    i += height;
  }
  // Another thread packs what stands behind.
  want.resize(count + 20, T(7));
  std::vector<T> packed(count + 20, T(7));
  pack_rows(rows, depth, a, packed.data());
  CHECK(same_bits(packed, want));
}

TEST_CASE("rows are packed a tile after the other, and nothing is written past them") {
  for (std::int64_t rows = 1; rows <= 19; ++rows) {
    for (const std::int64_t depth : {1, 7, 8, 9, 16, 33, 40}) {
      for (const bool side_by_side : {false, true}) {
        check_packing<float>(rows, depth, side_by_side);
        check_packing<double>(rows, depth, side_by_side);
      }
    }
  }
}

}  // namespace
}  // namespace rematch::cpu
