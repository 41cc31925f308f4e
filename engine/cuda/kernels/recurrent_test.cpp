#include "engine/kernels/recurrent.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/twin.h"

namespace rematch::cuda {
namespace {

using math::Cell;
using math::RecurrentGradients;
using math::RecurrentShape;
using math::RecurrentState;
using math::RecurrentWeights;
using namespace testing;

constexpr RecurrentShape kRecurrentShapes[] = {
    {},
    {.batch = 3, .steps = 1, .width = 2, .features = 5},
    {.batch = 2, .steps = 7, .width = 5, .features = 3},
    // More units than a block has threads, and more samples than the host works on at a time.
    {.batch = 9, .steps = 4, .width = 33, .features = 40},
    {.batch = 3, .steps = 600, .width = 1, .features = 40}};

TYPED_DEVICE_TEST_CASE("recurrent cells give the CPU's bits on the device", "[sums]") {
  using T = TestType;
  for (RecurrentShape s : kRecurrentShapes) {
    for (const Cell cell : {Cell::gru, Cell::lstm}) {
      for (const bool bias : {false, true}) {
        s.cell = cell;
        CAPTURE(s.batch, s.steps, s.width, s.features, bias, cell == Cell::lstm);
        const std::int64_t states = s.batch * s.steps * s.features;
        const Twin<T> x(values<T>(s.batch * s.steps * s.width, 1));
        const Twin<T> gy(values<T>(states, 2));
        const Twin<T> input(values<T>(s.rows() * s.width, 3));
        const Twin<T> hidden(values<T>(s.rows() * s.features, 4));
        const Twin<T> input_bias(values<T>(s.rows(), 5));
        const Twin<T> hidden_bias(values<T>(s.rows(), 6));
        const auto zeros = [](const Twin<T>& like) { return std::vector<T>(like.host().size()); };
        const Twin<T> y(states);
        const Twin<T> gates(4 * states);
        const Twin<T> cells(zeros(gy));
        const Twin<T> gx(zeros(x));
        const Twin<T> ginput(zeros(input));
        const Twin<T> ghidden(zeros(hidden));
        const Twin<T> ginput_bias(zeros(input_bias));
        const Twin<T> ghidden_bias(zeros(hidden_bias));
        const auto weights = [&](auto at) {
          return RecurrentWeights<T>{at(input), at(hidden), bias ? at(input_bias) : nullptr,
                                     bias ? at(hidden_bias) : nullptr};
        };
        const auto state = [&](auto at) {
          return RecurrentState<T>{at(gates), cell == Cell::lstm ? at(cells) : nullptr};
        };
        const auto gradients = [&](auto at) {
          return RecurrentGradients<T>{at(gx), at(ginput), at(ghidden),
                                       bias ? at(ginput_bias) : nullptr,
                                       bias ? at(ghidden_bias) : nullptr};
        };
        REMATCH_CALL_BOTH(recurrent_forward<T>, s, x, weights, state, y);
        REMATCH_CALL_BOTH(recurrent_backward<T>, s, gy, x, weights, y, state, gradients);
        check_alike(y, gates, cells, gx, ginput, ghidden, ginput_bias, ghidden_bias);
      }
    }
  }
}

}  // namespace
}  // namespace rematch::cuda
