#include "properties/case/case.h"

namespace rematch {

std::string_view to_string(LayerKind kind) {
  switch (kind) {
    case LayerKind::linear:
      return "linear";
    case LayerKind::conv2d:
      return "conv2d";
    case LayerKind::max_pool2d:
      return "max_pool2d";
    case LayerKind::avg_pool2d:
      return "avg_pool2d";
    case LayerKind::batch_norm:
      return "batch_norm";
    case LayerKind::layer_norm:
      return "layer_norm";
    case LayerKind::relu:
      return "relu";
    case LayerKind::gelu:
      return "gelu";
    case LayerKind::tanh:
      return "tanh";
    case LayerKind::sigmoid:
      return "sigmoid";
    case LayerKind::softmax:
      return "softmax";
    case LayerKind::dropout:
      return "dropout";
    case LayerKind::rrelu:
      return "rrelu";
    case LayerKind::gaussian_noise:
      return "gaussian_noise";
    case LayerKind::flatten:
      return "flatten";
    case LayerKind::add:
      return "add";
    case LayerKind::concat:
      return "concat";
    case LayerKind::split:
      return "split";
    case LayerKind::duplicate:
      return "duplicate";
  }
  return "?";
}

std::string_view to_string(Variant variant) {
  switch (variant) {
    case Variant::reentrant:
      return "reentrant";
    case Variant::non_reentrant:
      return "non_reentrant";
  }
  return "?";
}

std::string_view to_string(CheckKind check) {
  switch (check) {
    case CheckKind::none:
      return "none";
    case CheckKind::metadata:
      return "metadata";
    case CheckKind::values:
      return "values";
  }
  return "?";
}

std::string_view to_string(LossKind loss) {
  switch (loss) {
    case LossKind::mse:
      return "mse";
    case LossKind::cross_entropy:
      return "cross_entropy";
  }
  return "?";
}

std::string_view to_string(OptimizerKind optimizer) {
  switch (optimizer) {
    case OptimizerKind::sgd:
      return "sgd";
    case OptimizerKind::adam:
      return "adam";
  }
  return "?";
}

std::string_view to_string(AutocastSpan span) {
  switch (span) {
    case AutocastSpan::off:
      return "off";
    case AutocastSpan::forward:
      return "forward";
    case AutocastSpan::both:
      return "both";
  }
  return "?";
}

std::string_view to_string(MishapKind kind) {
  switch (kind) {
    case MishapKind::none:
      return "none";
    case MishapKind::input_changed:
      return "input_changed";
    case MishapKind::weight_changed:
      return "weight_changed";
    case MishapKind::op_exchanged:
      return "op_exchanged";
    case MishapKind::forward_throws:
      return "forward_throws";
    case MishapKind::replay_throws:
      return "replay_throws";
    case MishapKind::graph_dropped:
      return "graph_dropped";
  }
  return "?";
}

std::string_view to_string(DataKind data) {
  switch (data) {
    case DataKind::normal:
      return "normal";
    case DataKind::small_integers:
      return "small_integers";
  }
  return "?";
}

}  // namespace rematch
