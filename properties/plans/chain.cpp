#include "properties/plans/chain.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "properties/case/rules.h"
#include "properties/forecast/engine_facts.h"
#include "properties/forecast/forecast.h"

namespace rematch {
namespace {

[[noreturn]] void refuse(const std::string& expected, const std::string& got,
                         const std::string& instead) {
  throw std::invalid_argument("[plan] expected " + expected + ", got " + got + "; " + instead);
}

void check_chain(const Case& c, const Geometry& geometry, const Facts& facts) {
  const std::string own = "write the plan by hand, and see it with `rematch show`";
  if (c.further_inputs > 0) refuse("one model input", std::to_string(1 + c.further_inputs), own);
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    const std::string name = "layer " + std::to_string(i);
    if (!c.layers[i].from.empty()) {
      refuse("a chain, in which each layer reads the one before", name + " with \"from\"", own);
    }
    if (geometry.outputs[i].size() != 1) {
      refuse("a chain of layers with one output",
             name + " with " + std::to_string(geometry.outputs[i].size()), own);
    }
    if (facts.layers[i].state_bytes > 0) {
      refuse("layers that read no state", name + ", which does", own);
    }
  }
  const ProtocolSpec& p = c.protocol;
  const std::string simpler = "plan for a simpler protocol, and judge the plan under this one";
  if (p.backwards > 1 || p.partial) refuse("one backward per forward", "several", simpler);
  if (p.forwards_first && p.microbatches > 1) {
    refuse("a backward after each forward", "forwards_first", simpler);
  }
  if (p.autocast != AutocastSpan::off) refuse("no autocast", "autocast", simpler);
  if (p.failure.kind != FailureKind::none) refuse("no injected failure", "one", simpler);
  if (c.plan.offload) refuse("a plan without offload", "offload", "leave it out");
}

/// Which values the plain run holds when layers [0, count) have run, in bytes.
class Held {
 public:
  explicit Held(const Chain& chain) : chain_(chain) {
    std::int64_t sum = 0;
    bool held = true;
    bytes_.push_back(0);
    next_.push_back(true);
    for (std::size_t i = 0; i < chain.layers.size(); ++i) {
      const ChainLayer& l = chain.layers[i];
      const bool reads = l.saves_operand || (l.alias && l.saves_output);
      if (reads && !held) sum += chain.value[i];
      if (!l.alias && l.saves_output) sum += chain.value[i + 1];
      held = l.alias ? held || reads : l.saves_output;
      sum += l.own;
      bytes_.push_back(sum);
      next_.push_back(held);
    }
  }
  std::int64_t bytes(int count) const { return bytes_[static_cast<std::size_t>(count)]; }
  bool output() const { return next_.back(); }

 private:
  const Chain& chain_;
  std::vector<std::int64_t> bytes_;
  std::vector<bool> next_;
};

std::int64_t bytes_of_parameter(const Case& c, const Geometry& g, std::size_t layer,
                                std::size_t position) {
  const std::vector<int>& used = g.layer_parameters[layer];
  if (position >= used.size()) return 0;
  const ParameterInfo& p = g.parameters[static_cast<std::size_t>(used[position])];
  return p.frozen ? 0 : p.shape.elements() * static_cast<std::int64_t>(size_of(c.dtype));
}

/// Bytes and savings of the layers, from their facts.
void describe_layers(Chain& chain, const Case& c, const Geometry& g, const Facts& facts) {
  const auto item = static_cast<std::int64_t>(size_of(c.dtype));
  bool grad = c.protocol.input_requires_grad;
  bool of_input = true;
  chain.value.push_back(0);
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    const LayerFacts& f = facts.layers[i];
    ChainLayer l;
    l.alias = f.identity || f.aliases_operand;
    of_input = of_input && l.alias;
    chain.value.push_back(of_input ? 0 : g.outputs[i][0].elements() * item);
    std::vector<bool> trains;
    for (const int p : g.layer_parameters[i]) {
      trains.push_back(!g.parameters[static_cast<std::size_t>(p)].frozen);
    }
    const bool records =
        !f.identity && (grad || std::find(trains.begin(), trains.end(), true) != trains.end());
    for (const SavedTensorFact& s : facts.saved_by(f)) {
      using What = SavedTensorFact::What;
      using When = SavedTensorFact::When;
      const bool wanted =
          s.when == When::always ||
          (s.when == When::operand_requires_grad ? grad : trains[static_cast<std::size_t>(s.of)]);
      if (!records || !wanted) continue;
      l.saves = true;
      l.saves_operand = l.saves_operand || s.what == What::operand;
      l.saves_output = l.saves_output || s.what == What::output;
      if (s.what == What::own) l.own += facts.own_of(f)[static_cast<std::size_t>(s.index)];
    }
    if (!l.alias) {
      l.running = g.outputs[i][0].elements() * item + f.workspace;
      for (const std::int64_t bytes : facts.own_of(f)) l.running += bytes;
    }
    l.has_node = records;
    grad = grad || records;
    chain.layers.push_back(l);
  }
  // An in-place layer and the one whose output it overwrites lie in the same segments.
  for (std::size_t i = 1; i < c.layers.size(); ++i) {
    Case cut = c;
    const int at = static_cast<int>(i);
    cut.plan = {};
    cut.plan.segments = {{at, at + 1, {}, {}}};
    for (int j = at; j < static_cast<int>(c.layers.size()); ++j) {
      const bool in_place = c.layers[static_cast<std::size_t>(j)].in_place;
      if (in_place && in_place_hazard(cut, j) != nullptr) chain.layers[i].may_begin = false;
    }
  }
}

/// Bases of live bytes, from the events of the plain run.
void read_events(Chain& chain, const Case& c, const std::vector<LiveReading>& events) {
  const Held held(chain);
  const int layers = static_cast<int>(chain.layers.size());
  const std::int64_t output = held.output() ? 0 : chain.value.back();
  // The loss holds the output where its gradient needs it.
  const bool squares = c.protocol.loss == LossKind::mse;
  const std::int64_t read = squares ? output : 0;
  int at = -1;  // Layer of the last node.
  std::int64_t live = 0;
  const auto most = [](std::int64_t& of, std::int64_t value) { of = std::max(of, value); };
  for (const LiveReading& e : events) {
    const bool of_layer = e.event == Event::node && e.layer >= 0;
    if (e.event == Event::layer) {
      at = layers;
      if (e.layer == 0) most(chain.forward, e.entered);
    } else if (of_layer) {
      at = e.layer;
      ChainLayer& l = chain.layers[static_cast<std::size_t>(at)];
      most(l.before, live - held.bytes(at + 1));
      most(l.backward, e.peak - live);
    } else if (e.event == Event::gradient && at < layers) {
      most(chain.layers[static_cast<std::size_t>(at)].after, e.peak - held.bytes(at));
    } else if (e.event == Event::forward) {
      most(chain.with_output, e.peak - held.bytes(layers) - output);
    } else if (e.event == Event::node) {
      std::int64_t& base = squares ? chain.with_output : chain.without_output;
      most(base, e.peak - held.bytes(layers) - read);
    } else {
      most(chain.rest, e.peak);
    }
    live = e.live;
  }
}

}  // namespace

Chain chain_of(const Case& c, const Geometry& geometry) {
  Facts facts;
  engine_facts(c, geometry, true, facts);
  check_chain(c, geometry, facts);
  Case plain = c;
  plain.plan = {};
  Chain chain;
  describe_layers(chain, c, geometry, facts);
  read_events(chain, c, forecast(plain, geometry).live);
  for (std::size_t i = 0; i < chain.layers.size(); ++i) {
    ChainLayer& l = chain.layers[i];
    l.backward_freeing = l.backward;
    if (facts.layers[i].backward != BackwardUse::product || !l.saves_operand) continue;
    // x, then w, then the bias: see SymbolicGraph::differentiate_product().
    const std::int64_t w = bytes_of_parameter(c, geometry, i, 0);
    const std::int64_t bias = bytes_of_parameter(c, geometry, i, 1);
    const std::int64_t workspace = facts.layers[i].workspace;
    bool grad = c.protocol.input_requires_grad;
    for (std::size_t j = 0; j < i; ++j) grad = grad || chain.layers[j].has_node;
    const std::int64_t x = grad
                               ? (i == 0 ? Shape(c.input) : geometry.outputs[i - 1][0]).elements() *
                                     static_cast<std::int64_t>(size_of(c.dtype))
                               : 0;
    l.backward_freeing =
        std::max({x + workspace, x + workspace + w, x + w + bias - chain.value[i]});
  }
  return chain;
}

}  // namespace rematch
