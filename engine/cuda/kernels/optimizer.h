#pragma once

#include <cstdint>
#include <span>

#include "engine/math/update.h"

namespace rematch::cuda {

// engine/cpu/optimizer.h on the device: pointers, those to step counts too, are the device's,
// scalars the host's, work goes to stream(). Element-wise, so the bits are the CPU's. All items of
// a step take one launch, Adam's two, up to 64 of them; nothing in it depends on the host's state,
// so it can be captured.

template <typename T>
void sgd_steps(std::span<const math::SgdItem<T>> items, T lr, T momentum);

template <typename T>
void adam_steps(std::span<const math::AdamItem<T>> items, double lr, double b1, double b2,
                double eps);

}  // namespace rematch::cuda
