#pragma once

#include "properties/case/case.h"
#include "properties/case/geometry.h"
#include "properties/record/facts.h"

namespace rematch {

/// What the reference engine's layers save, draw and compute. A layer that records (grad mode on,
/// an operand or a parameter requires grad) saves, in this order and after its kernel has run:
///
///     layer             saves
///     linear, conv2d    x if the weight requires grad, weight if x requires grad
///     max_pool2d        index of each maximum, int32
///     batch_norm        x, mean[C], 1 / std[C], weight if x requires grad (train and eval alike)
///     layer_norm        x, mean[rows], 1 / std[rows], weight if x requires grad
///     gelu              x
///     rrelu             its noise in training; x in eval
///     relu, tanh, sigmoid, softmax    their output
///     dropout           its mask, uint8
///     all others        nothing
///
/// x and weight as they are after a cast (autocast); casts save nothing.
///
/// dropout and gaussian_noise without effect (eval, or p = 0), a flatten of rank 2 and duplicate
/// are identities: they return the very tensor that they got.
///
/// `host_kernels`: convolutions run on the CPU, with workspace from the ledger, for which its
/// kernels are asked (golden/steps holds them to what was approved); a device has its own.
void engine_facts(const Case& c, const Geometry& geometry, bool host_kernels, Facts& facts);

}  // namespace rematch
