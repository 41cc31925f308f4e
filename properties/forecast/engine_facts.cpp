#include "properties/forecast/engine_facts.h"

#include <cstddef>
#include <initializer_list>
#include <span>

#include "engine/cpu/conv2d.h"
#include "properties/case/policy.h"

namespace rematch {
namespace {

using What = SavedTensorFact::What;
using When = SavedTensorFact::When;

/// Writes the facts of one layer behind those before it.
class LayerWriter {
 public:
  LayerWriter(const Case& c, const Geometry& geometry, int layer, bool host_kernels, Facts& facts)
      : spec_(c.layers[static_cast<std::size_t>(layer)]),
        train_(c.protocol.train),
        item_(static_cast<std::int64_t>(size_of(c.dtype))),
        x_(layer == 0 ? Shape(std::span(c.input))
                      : geometry.outputs[static_cast<std::size_t>(layer) - 1][0]),
        y_(geometry.outputs[static_cast<std::size_t>(layer)][0]),
        host_kernels_(host_kernels),
        facts_(facts) {
    f_.computes = !op_of(c, layer).empty();
    f_.low_precision = c.protocol.autocast != AutocastSpan::off &&
                       (spec_.kind == LayerKind::linear || spec_.kind == LayerKind::conv2d);
    f_.first_saved = static_cast<int>(facts.saved_tensors.size());
    f_.first_own = static_cast<int>(facts.own_bytes.size());
  }

  void write() {
    set_kind();
    f_.saved = static_cast<int>(facts_.saved_tensors.size()) - f_.first_saved;
    f_.own = static_cast<int>(facts_.own_bytes.size()) - f_.first_own;
    facts_.layers.push_back(f_);
  }

 private:
  void save(What what, int index = 0, When when = When::always, int of = 0) {
    facts_.saved_tensors.push_back({what, index, when, of});
  }
  void own(std::int64_t bytes) {
    facts_.own_bytes.push_back(bytes);
    save(What::own, static_cast<int>(facts_.own_bytes.size()) - f_.first_own - 1);
  }

  void set_kind() {
    switch (spec_.kind) {
      case LayerKind::linear:
      case LayerKind::conv2d:
        f_.backward = BackwardUse::product;
        save(What::operand, 0, When::parameter_requires_grad, 0);
        save(What::parameter, 0, When::operand_requires_grad, 0);
        if (spec_.kind == LayerKind::conv2d && host_kernels_) f_.workspace = conv_workspace();
        return;
      case LayerKind::max_pool2d:
        return own(y_.elements() * static_cast<std::int64_t>(sizeof(std::int32_t)));
      case LayerKind::batch_norm:
        return normalise(x_[1]);
      case LayerKind::layer_norm: {
        const std::int64_t width = x_[x_.rank() - 1];
        return normalise(width == 0 ? 0 : x_.elements() / width);
      }
      case LayerKind::relu:
        f_.aliases_operand = spec_.in_place;
        return save(What::output);
      case LayerKind::gelu:
        return save(What::operand);
      case LayerKind::tanh:
      case LayerKind::sigmoid:
      case LayerKind::softmax:
        return save(What::output);
      case LayerKind::dropout:
        if (draws_or_is_identity()) own(x_.elements());
        return;
      case LayerKind::gaussian_noise:
        f_.backward = BackwardUse::share;
        draws_or_is_identity();
        return;
      case LayerKind::rrelu:
        if (!train_) return save(What::operand);
        f_.drawn = x_.elements();
        return own(x_.elements() * item_);
      case LayerKind::flatten:
        f_.identity = x_.rank() == 2;
        f_.aliases_operand = true;
        return;
      case LayerKind::duplicate:
        f_.identity = true;
        return;
      case LayerKind::add:
        f_.backward = BackwardUse::share;
        return;
      case LayerKind::split:
        f_.backward = BackwardUse::join;
        return;
      case LayerKind::avg_pool2d:
      case LayerKind::concat:
        return;
    }
  }

  /// Statistics of `rows` means and as many 1 / std.
  void normalise(std::int64_t rows) {
    save(What::operand);
    own(rows * item_);
    own(rows * item_);
    save(What::parameter, 0, When::operand_requires_grad, 0);
  }

  bool draws_or_is_identity() {
    f_.identity = !train_ || spec_.p == 0;
    if (!f_.identity) f_.drawn = x_.elements();
    return !f_.identity;
  }

  std::int64_t conv_workspace() const {
    return item_ * cpu::conv2d_scratch_elements({.n = x_[0],
                                                 .c = x_[1],
                                                 .h = x_[2],
                                                 .w = x_[3],
                                                 .out_c = y_[1],
                                                 .kh = spec_.kernel,
                                                 .kw = spec_.kernel,
                                                 .stride_h = spec_.stride,
                                                 .stride_w = spec_.stride,
                                                 .pad_h = spec_.padding,
                                                 .pad_w = spec_.padding});
  }

  const LayerSpec& spec_;
  bool train_;
  std::int64_t item_;
  const Shape x_;
  const Shape& y_;
  bool host_kernels_;
  Facts& facts_;
  LayerFacts f_;
};

}  // namespace

void engine_facts(const Case& c, const Geometry& geometry, bool host_kernels, Facts& facts) {
  facts.clear();
  for (int i = 0; i < static_cast<int>(c.layers.size()); ++i) {
    LayerWriter(c, geometry, i, host_kernels, facts).write();
  }
}

}  // namespace rematch
