#include "engine/kernels/recurrent.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/device.h"

namespace rematch::cuda {
namespace {

using math::Cell;
using math::RecurrentGradients;
using math::RecurrentShape;
using math::RecurrentState;
using math::RecurrentWeights;
using testing::DeviceArray;
using testing::holds;
using testing::need_device;
using testing::values;

constexpr RecurrentShape kRecurrentShapes[] = {
    {},
    {.batch = 3, .steps = 1, .width = 2, .features = 5},
    {.batch = 2, .steps = 7, .width = 5, .features = 3},
    // More units than a block has threads, and more samples than the host works on at a time.
    {.batch = 9, .steps = 4, .width = 33, .features = 40},
    {.batch = 3, .steps = 600, .width = 1, .features = 40}};

TEMPLATE_TEST_CASE("recurrent cells give the CPU's bits on the device", "[gpu][sums]", float,
                   double) {
  using T = TestType;
  need_device();
  for (RecurrentShape s : kRecurrentShapes) {
    for (const Cell cell : {Cell::gru, Cell::lstm}) {
      for (const bool bias : {false, true}) {
        s.cell = cell;
        CAPTURE(s.batch, s.steps, s.width, s.features, bias, cell == Cell::lstm);
        const std::int64_t states = s.batch * s.steps * s.features;
        const auto x = values<T>(s.batch * s.steps * s.width, 1);
        const auto gy = values<T>(states, 2);
        const auto input = values<T>(s.rows() * s.width, 3);
        const auto hidden = values<T>(s.rows() * s.features, 4);
        const auto input_bias = values<T>(s.rows(), 5);
        const auto hidden_bias = values<T>(s.rows(), 6);
        const auto zeros = [](const std::vector<T>& like) { return std::vector<T>(like.size()); };
        std::vector<T> y = zeros(gy);
        std::vector<T> gates(4 * y.size());
        std::vector<T> cells = zeros(gy);
        std::vector<T> gx = zeros(x);
        std::vector<T> ginput = zeros(input);
        std::vector<T> ghidden = zeros(hidden);
        std::vector<T> ginput_bias = zeros(input_bias);
        std::vector<T> ghidden_bias = zeros(hidden_bias);
        const RecurrentWeights<T> w{input.data(), hidden.data(), bias ? input_bias.data() : nullptr,
                                    bias ? hidden_bias.data() : nullptr};
        const RecurrentState<T> state{gates.data(), cell == Cell::lstm ? cells.data() : nullptr};
        cpu::recurrent_forward(s, x.data(), w, state, y.data());
        cpu::recurrent_backward(
            s, gy.data(), x.data(), w, y.data(), state,
            {gx.data(), ginput.data(), ghidden.data(), bias ? ginput_bias.data() : nullptr,
             bias ? ghidden_bias.data() : nullptr});

        const DeviceArray<T> dx(x);
        const DeviceArray<T> dgy(gy);
        const DeviceArray<T> dinput(input);
        const DeviceArray<T> dhidden(hidden);
        const DeviceArray<T> dinput_bias(input_bias);
        const DeviceArray<T> dhidden_bias(hidden_bias);
        const DeviceArray<T> dy(states);
        const DeviceArray<T> dgates(4 * states);
        const DeviceArray<T> dcells(cells);
        const DeviceArray<T> dgx(gx);
        const DeviceArray<T> dginput(input);
        const DeviceArray<T> dghidden(hidden);
        const DeviceArray<T> dginput_bias(zeros(input_bias));
        const DeviceArray<T> dghidden_bias(zeros(hidden_bias));
        const RecurrentWeights<T> dw{dinput.data(), dhidden.data(),
                                     bias ? dinput_bias.data() : nullptr,
                                     bias ? dhidden_bias.data() : nullptr};
        const RecurrentState<T> there{dgates.data(), cell == Cell::lstm ? dcells.data() : nullptr};
        recurrent_forward(s, dx.data(), dw, there, dy.data());
        recurrent_backward(
            s, dgy.data(), dx.data(), dw, dy.data(), there,
            {dgx.data(), dginput.data(), dghidden.data(), bias ? dginput_bias.data() : nullptr,
             bias ? dghidden_bias.data() : nullptr});
        CHECK(holds(dy, y));
        CHECK(holds(dgates, gates));
        CHECK(holds(dcells, cells));
        CHECK(holds(dgx, gx));
        CHECK(holds(dginput, ginput));
        CHECK(holds(dghidden, ghidden));
        CHECK(holds(dginput_bias, ginput_bias));
        CHECK(holds(dghidden_bias, ghidden_bias));
      }
    }
  }
}

}  // namespace
}  // namespace rematch::cuda
