#include "properties/forecast/measured_facts.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace rematch {
namespace {

using What = SavedTensorFact::What;

/// The first forward of the plain run, layer by layer.
class Measurement {
 public:
  Measurement(const Case& c, const Geometry& geometry, const Record& plain, Facts& facts)
      : c_(c), geometry_(geometry), plain_(plain), facts_(facts) {}

  void measure_saved() {
    if (c_.protocol.autocast != AutocastSpan::off) {
      // Saved tensors may be casts, which belong to no layer and may be shared.
      facts_.saves_unknown = true;
      facts_.measured = true;
      return;
    }
    Facts measured;
    measured.measured = true;
    outputs_.resize(c_.layers.size());
    for (int i = 0; i < static_cast<int>(c_.layers.size()); ++i) {
      LayerFacts f = facts_.of(i);
      // Nothing but what it saves is known to be kept.
      f.state_bytes = 0;
      f.first_saved = static_cast<int>(measured.saved_tensors.size());
      f.first_own = static_cast<int>(measured.own_bytes.size());
      note_outputs(i);
      own_.clear();
      for (const LayerValue& v : plain_.values) {
        if (!is_first(v) || v.layer != i) continue;
        // A tensor that an op makes beside its outputs, saved or not.
        const bool beside = !v.saved && v.index >= static_cast<int>(outputs_[index(i)].size());
        if (beside) own_tensor(v, measured);
        if (v.saved) add(i, v, measured);
      }
      f.saved = static_cast<int>(measured.saved_tensors.size()) - f.first_saved;
      f.own = static_cast<int>(measured.own_bytes.size()) - f.first_own;
      measured.layers.push_back(f);
    }
    facts_ = std::move(measured);
  }

  void measure_drawn() {
    for (LayerFacts& f : facts_.layers) f.drawn = 0;
    for (const Draw& d : plain_.draws) {
      if (is_first(d) && known(d.layer)) {
        facts_.layers[static_cast<std::size_t>(d.layer)].drawn += d.elements;
      }
    }
  }

  void measure_computations() {
    for (const ExecutionCount& x : plain_.executions) {
      if (x.step != 0 || x.microbatch != 0 || !known(x.layer)) continue;
      facts_.layers[static_cast<std::size_t>(x.layer)].ops = x.computed;
    }
  }

 private:
  template <class Entry>
  static bool is_first(const Entry& entry) {
    return entry.step == 0 && entry.microbatch == 0 && entry.execution == 0;
  }
  bool known(int layer) const { return layer >= 0 && layer < static_cast<int>(c_.layers.size()); }

  /// The memory of a value of the model; 0 for that of its input.
  std::uint64_t memory_of(ValueRef v) const {
    if (v.layer < 0) return 0;
    const auto& outputs = outputs_[static_cast<std::size_t>(v.layer)];
    return outputs[static_cast<std::size_t>(v.output)];
  }

  /// A layer's results are its outputs; a layer without results hands on its operand's memory.
  void note_outputs(int layer) {
    const auto index = static_cast<std::size_t>(layer);
    outputs_[index].assign(geometry_.outputs[index].size(), memory_of({layer - 1, 0}));
    for (const LayerValue& v : plain_.values) {
      const bool output = is_first(v) && v.layer == layer && !v.saved && v.index >= 0 &&
                          v.index < static_cast<int>(outputs_[index].size());
      if (output) outputs_[index][static_cast<std::size_t>(v.index)] = v.memory;
    }
  }

  static std::size_t index(int layer) { return static_cast<std::size_t>(layer); }

  /// The number of the layer's own tensor in that memory.
  int own_tensor(const LayerValue& v, Facts& measured) {
    const auto known = std::find(own_.begin(), own_.end(), v.memory);
    if (known != own_.end()) return static_cast<int>(known - own_.begin());
    own_.push_back(v.memory);
    measured.own_bytes.push_back(v.bytes);
    return static_cast<int>(own_.size()) - 1;
  }

  /// The first operand of the layer in that memory, or -1.
  int operand_in(int layer, std::uint64_t memory) const {
    if (memory == memory_of({layer - 1, 0})) return 0;
    const std::vector<ValueRef>& from = c_.layers[index(layer)].from;
    const auto found =
        std::find_if(from.begin(), from.end(), [&](ValueRef v) { return memory == memory_of(v); });
    return found == from.end() ? -1 : static_cast<int>(found - from.begin()) + 1;
  }

  void add(int layer, const LayerValue& v, Facts& measured) {
    const std::vector<std::uint64_t>& outputs = outputs_[index(layer)];
    SavedTensorFact fact;
    const auto output = std::find(outputs.begin(), outputs.end(), v.memory);
    if (v.memory == 0 && !geometry_.layer_parameters[index(layer)].empty()) {
      // A parameter of the model, or its input: neither counts.
      fact.what = What::parameter;
    } else if (const int operand = operand_in(layer, v.memory); operand >= 0) {
      fact.what = What::operand;
      fact.index = operand;
    } else if (output != outputs.end()) {
      fact.what = What::output;
      fact.index = static_cast<int>(output - outputs.begin());
    } else {
      fact.index = own_tensor(v, measured);
    }
    measured.saved_tensors.push_back(fact);
  }

  const Case& c_;
  const Geometry& geometry_;
  const Record& plain_;
  Facts& facts_;
  /// Memory of each layer's outputs, and of the own tensors of the layer at hand.
  std::vector<std::vector<std::uint64_t>> outputs_;
  std::vector<std::uint64_t> own_;
};

}  // namespace

void measure_facts(const Case& c, const Geometry& geometry, const Record& plain,
                   const Observables& observed, Facts& facts) {
  Measurement measurement(c, geometry, plain, facts);
  if (observed.contains(Observable::saved_tensors)) measurement.measure_saved();
  if (observed.contains(Observable::draws)) measurement.measure_drawn();
  if (observed.contains(Observable::computations)) measurement.measure_computations();
}

void save_in_every_layer(Facts& facts) {
  facts.saved_tensors.clear();
  facts.own_bytes.clear();
  facts.bytes_unknown = true;
  for (LayerFacts& f : facts.layers) {
    f.identity = f.aliases_operand = false;
    f.ops = std::max(f.ops, 1);
    f.backward = BackwardUse::pointwise;
    f.first_saved = f.first_own = static_cast<int>(facts.saved_tensors.size());
    f.saved = f.own = 1;
    f.state_bytes = 0;
    facts.saved_tensors.push_back({What::own, 0, SavedTensorFact::When::always, 0});
    facts.own_bytes.push_back(1);
  }
}

}  // namespace rematch
