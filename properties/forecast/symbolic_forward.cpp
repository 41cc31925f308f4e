#include <algorithm>
#include <cstddef>
#include <utility>

#include "properties/case/policy.h"
#include "properties/forecast/symbolic_run.h"

namespace rematch {
namespace {

/// Storage 0 stands for the model input and every parameter: saving them costs nothing.
constexpr int kUncounted = 0;

}  // namespace

void SymbolicRun::bind(const Case& c, const Geometry& geometry) {
  case_ = &c;
  geometry_ = &geometry;
  loss_ = c.protocol.loss;
  input_requires_grad_ = c.protocol.input_requires_grad;
  item_bytes_ = static_cast<std::int64_t>(size_of(c.dtype));
  rules_.clear();
  const int layers = static_cast<int>(c.layers.size());
  for (int i = 0; i < layers; ++i) rules_.push_back(rule_of(c, geometry, i));
}

void SymbolicRun::forward(std::span<const SegmentSpec> segments, std::span<const int> detached,
                          bool offload) {
  offload_ = offload;
  offloaded_bytes_ = 0;
  const std::size_t layers = rules_.size();
  const std::size_t parameters = geometry_->parameters.size();
  values_.assign(2 * (layers + 1), {});
  flags_.assign(2 * (layers + 1), 0);
  executions_.assign(layers, 0);
  computations_.assign(layers, 0);
  detached_.assign(layers, 0);
  for (const int layer : detached) detached_[static_cast<std::size_t>(layer)] = 1;
  hooks_.assign(parameters, 0);
  casts_.assign(parameters, -1);
  on_empty_.assign(parameters, 0);
  on_older_.assign(parameters, 1);
  frozen_.clear();
  nodes_.clear();
  frames_.clear();
  operands_.clear();
  gradients_.clear();
  storages_.assign(1, {});
  frame_ = -1;
  stopped_ = afresh_ = drew_afresh_ = false;
  saved_bytes_ = 0;
  input_gradient_ = 0;

  Node leaves;
  leaves.first_gradient = add_gradients(1);
  leaves.outputs = 1;
  nodes_.push_back(leaves);
  value({-1, 0}) = {kUncounted, leaves.first_gradient, input_requires_grad_};

  const int end = static_cast<int>(layers);
  in_forward_ = true;
  run(0, end, segments, true);

  output_flags_.clear();
  for (const ValueRef& v : geometry_->live[layers]) {
    output_flags_.push_back(value(v).requires_grad ? 1 : 0);
  }
  const Value main = value({end - 1, 0});
  if (main.requires_grad) {
    // mse saves its operand (and the target, an input), widened if it is bfloat16; cross entropy
    // its log-probabilities, as many as the operand has elements.
    if (loss_ == LossKind::mse && !main.half) {
      hold(main.storage);
    } else if (layers > 0) {
      hold(add_storage(geometry_->outputs[layers - 1][0].elements() * item_bytes_));
    }
  }
  in_forward_ = false;
}

void SymbolicRun::run(int begin, int end, std::span<const SegmentSpec> segments, bool grad_mode) {
  int layer = begin;
  for (const SegmentSpec& region : segments) {
    for (; layer < region.begin && !stopped_; ++layer) run_layer(layer, grad_mode);
    if (stopped_) return;
    checkpoint(region, grad_mode);
    layer = region.end;
  }
  for (; layer < end && !stopped_; ++layer) run_layer(layer, grad_mode);
}

void SymbolicRun::run_layer(int layer, bool grad_mode) {
  const auto index = static_cast<std::size_t>(layer);
  const LayerRule& rule = rules_[index];
  ++executions_[index];
  const Frame* frame = frame_ < 0 ? nullptr : &frames_[static_cast<std::size_t>(frame_)];
  const bool keeps = frame != nullptr && kept_by_policy(*case_, *frame->region, layer);
  if (rule.computes && !(keeps && frame->recalls)) ++computations_[index];
  if (rule.words != 0 && afresh_) drew_afresh_ = true;

  // Two at most, which a compiler cannot know.
  const int made = std::min(rule.outputs, 2);
  Value x = values_[static_cast<std::size_t>(rule.operands[0])];
  Value outputs[2] = {x, x};
  if (!rule.identity) {
    Value other =
        rule.operands[1] < 0 ? Value{} : values_[static_cast<std::size_t>(rule.operands[1])];
    x = cast_operand(x, rule, 0);
    other = cast_operand(other, rule, 1);
    const bool weights = rule.trainable && detached_[index] == 0;
    const int weight = rule.low ? cast_weight(rule, weights) : kUncounted;
    const bool records = grad_mode && (x.requires_grad || other.requires_grad || weights);
    for (int k = 0; k < made; ++k) {
      const int storage = rule.aliases_input ? x.storage : add_storage(rule.output_bytes[k]);
      outputs[k] = {storage, -1, records, rule.low || (rule.aliases_input && x.half)};
    }
    const int extra = rule.extra_bytes == 0 ? kUncounted : add_storage(rule.extra_bytes);
    if (keeps && in_forward_) {
      for (int k = 0; k < made; ++k) kept_.push_back(outputs[k].storage);
      kept_.push_back(extra);
    }
    if (records) {
      bool saved = false;
      const auto keep = [&](bool condition, int storage) {
        if (!condition) return;
        save(storage);
        saved = true;
      };
      keep(rule.saves_input == SavesInput::always ||
               (rule.saves_input == SavesInput::for_weight_gradient && weights),
           x.storage);
      keep(rule.extra_bytes != 0, extra);
      keep(rule.saves_weight && x.requires_grad, weight);
      keep(rule.saves_output, outputs[0].storage);
      if (stopped_) return;

      Node node;
      node.layer = layer;
      node.frame = saved ? frame_ : -1;
      node.outputs = made;
      node.first_gradient = add_gradients(made);
      node.first_operand = static_cast<int>(operands_.size());
      node.operands = 2;
      operands_.push_back(x);
      operands_.push_back(other);
      nodes_.push_back(node);
      for (int k = 0; k < made; ++k) outputs[k].gradient = node.first_gradient + k;
    }
  }
  for (int k = 0; k < made; ++k) {
    value({layer, k}) = outputs[k];
    if (in_forward_) {
      flags_[static_cast<std::size_t>(value_index({layer, k}))] = outputs[k].requires_grad ? 1 : 0;
    }
  }
}

void SymbolicRun::checkpoint(const SegmentSpec& region, bool grad_mode) {
  if (!grad_mode) {
    run(region.begin, region.end, region.nested, false);
  } else if (region.choice.variant == Variant::reentrant) {
    checkpoint_reentrant(region);
  } else {
    checkpoint_non_reentrant(region);
  }
}

// The region runs without grad mode. If one of its inputs requires grad it becomes one node, which
// saves all inputs, and all its outputs require grad, those that merely pass through included.
// Otherwise there is no node, and whatever the region has to train is frozen.
void SymbolicRun::checkpoint_reentrant(const SegmentSpec& region) {
  Node node;
  node.region = &region;
  node.first_operand = capture_live(region.begin);
  node.operands = live_count(region.begin);
  run(region.begin, region.end, region.nested, false);

  bool any = false;
  for (int j = 0; j < node.operands; ++j) {
    any = any || operands_[static_cast<std::size_t>(node.first_operand + j)].requires_grad;
  }
  if (!any) {
    if (in_forward_) freeze(region);
    return;
  }
  for (int j = 0; j < node.operands && !stopped_; ++j) {
    save(operands_[static_cast<std::size_t>(node.first_operand + j)].storage);
  }
  if (stopped_) return;
  node.frame = frame_;
  node.outputs = live_count(region.end);
  node.first_gradient = add_gradients(node.outputs);
  nodes_.push_back(node);
  int gradient = node.first_gradient;
  for (const ValueRef& v : geometry_->live[static_cast<std::size_t>(region.end)]) {
    value(v).gradient = gradient++;
    value(v).requires_grad = true;
  }
}

// The region runs as it is, but what it saves becomes placeholders of a frame, which lives, and
// keeps the inputs, for as long as one of its placeholders does. Inside another frame the inputs
// are saved tensors of that one, from before the region runs; they count there even if their own
// frame turns out to save nothing and dies.
void SymbolicRun::checkpoint_non_reentrant(const SegmentSpec& region) {
  const int frame = static_cast<int>(frames_.size());
  Frame fresh;
  fresh.region = &region;
  fresh.parent = frame_;
  fresh.first_input = capture_live(region.begin);
  frames_.push_back(fresh);
  const int inputs = live_count(region.begin);
  const auto each_input = [&](auto&& keep) {
    for (int j = 0; j < inputs && !stopped_; ++j) {
      keep(operands_[static_cast<std::size_t>(fresh.first_input + j)].storage);
    }
  };
  if (frame_ >= 0) each_input([&](int) { count_save(); });
  if (stopped_) return;

  const int outer = std::exchange(frame_, frame);
  kept_.clear();
  run(region.begin, region.end, region.nested, true);
  frame_ = outer;
  const bool alive = frames_[static_cast<std::size_t>(frame)].alive;
  // What a policy keeps is held by the frame itself, whoever surrounds it.
  for (const int storage : kept_) {
    if (alive) hold(storage);
  }
  kept_.clear();
  if (!alive) return;
  if (outer < 0) {
    each_input([&](int storage) { graph_holds(storage); });
  } else {
    frames_[static_cast<std::size_t>(outer)].alive = true;
  }
}

/// Casts are not recorded ops of the model here: they save nothing, and a gradient passes each of
/// them in plain and checkpointed runs alike.
SymbolicRun::Value SymbolicRun::cast_operand(const Value& x, const LayerRule& rule, int position) {
  if (rule.aliases_input || x.half == rule.low) return x;
  Value cast = x;
  cast.half = rule.low;
  cast.cast = true;
  cast.storage = add_storage(rule.operand_elements[position] * (rule.low ? 2 : 4));
  return cast;
}

int SymbolicRun::cast_weight(const LayerRule& rule, bool trains) {
  const std::int64_t bytes = 2 * rule.weight_elements;
  // The cache takes leaves that require grad; a replay has a cache of its own.
  if (!trains || !case_->protocol.cast_cache || !in_forward_) return add_storage(bytes);
  int& cast = casts_[static_cast<std::size_t>(rule.parameters.front())];
  if (cast < 0) cast = add_storage(bytes);
  return cast;
}

void SymbolicRun::graph_holds(int storage) {
  if (!offload_) {
    hold(storage);
    return;
  }
  if (!in_forward_) return;
  Storage& s = storages_[static_cast<std::size_t>(storage)];
  if (!std::exchange(s.offloaded, true)) offloaded_bytes_ += s.bytes;
}

void SymbolicRun::save(int storage) {
  if (frame_ < 0) {
    graph_holds(storage);
    return;
  }
  frames_[static_cast<std::size_t>(frame_)].alive = true;
  count_save();
}

void SymbolicRun::count_save() {
  Frame& frame = frames_[static_cast<std::size_t>(frame_)];
  if (++frame.saves == frame.stop_after) stopped_ = true;
}

// What a replay holds is gone by the end of its backward.
void SymbolicRun::hold(int storage) {
  if (!in_forward_) return;
  Storage& s = storages_[static_cast<std::size_t>(storage)];
  if (!std::exchange(s.held, true)) saved_bytes_ += s.bytes;
}

int SymbolicRun::add_storage(std::int64_t bytes) {
  storages_.push_back({bytes});
  return static_cast<int>(storages_.size()) - 1;
}

int SymbolicRun::add_gradients(int count) {
  const int first = static_cast<int>(gradients_.size());
  gradients_.resize(gradients_.size() + static_cast<std::size_t>(count), 0);
  return first;
}

int SymbolicRun::capture_live(int boundary) {
  const int first = static_cast<int>(operands_.size());
  for (const ValueRef& v : geometry_->live[static_cast<std::size_t>(boundary)]) {
    operands_.push_back(value(v));
  }
  return first;
}

int SymbolicRun::live_count(int boundary) const {
  return static_cast<int>(geometry_->live[static_cast<std::size_t>(boundary)].size());
}

void SymbolicRun::freeze(const SegmentSpec& region) {
  for (int i = region.begin; i < region.end; ++i) {
    if (rules_[static_cast<std::size_t>(i)].trainable) frozen_.push_back(i);
  }
}

}  // namespace rematch
