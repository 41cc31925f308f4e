#pragma once

#include "properties/case/case.h"
#include "properties/layers/draw_source.h"

namespace rematch {

/// The pieces of generate_case(); each leaves the case's seed alone.
void draw_standard(DrawSource& draw, Case& c);

/// Protocol, data and dtype come first, the model relies on `train`; the plan needs the model; the
/// last pass sets `in_place` where model and plan allow it.
void draw_wide_protocol(DrawSource& draw, Case& c);
/// `sizes`, if any, draws extents at which kernels work in more than one block, for few layers, and
/// `dimensions` further ones.
void draw_wide_model(DrawSource& draw, Case& c, DrawSource* sizes = nullptr,
                     DrawSource* dimensions = nullptr);
void draw_wide_plan(DrawSource& draw, Case& c);
void draw_in_place(DrawSource& draw, Case& c);
/// In the place of model, plan and protocol: a small case with more than a few of something.
void draw_wide_tail(DrawSource& draw, Case& c);
/// The same with a large tensor, the last value of which only a check on values sees change.
void draw_large_check(DrawSource& draw, Case& c);
/// After all that it needs: model, plan and protocol. Of that kind, if any, where it can happen.
void draw_failure(DrawSource& draw, Case& c, FailureKind kind = FailureKind::none);
/// After the plan, which must allow it.
void draw_partial(DrawSource& draw, Case& c);
void draw_losses(DrawSource& draw, Case& c);
/// So late that all else is the same in cases of subjects that take no structures.
void draw_structures(DrawSource& draw, Case& c);
/// Last: sometimes nothing requires grad, and there is no backward.
void draw_without_gradient(DrawSource& draw, Case& c);
/// Nothing requires grad, nor is there anything that needs a backward.
void leave_out_gradients(Case& c);

/// Does the loss of the plain run require grad: some parameter is trainable or the input requires
/// grad.
bool loss_requires_grad(const Case& c);
/// Sees to it: the input requires grad, or, as tokens have no gradient, every parameter does.
void require_grad(Case& c);

}  // namespace rematch
