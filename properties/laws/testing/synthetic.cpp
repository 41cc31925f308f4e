#include "properties/laws/testing/synthetic.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "properties/forecast/testing/small_cases.h"
#include "properties/laws/support.h"

namespace rematch::testing {
namespace {

class Maker {
 public:
  Maker(const Case& c, const Geometry& g, const Forecast& f, bool checkpointed, Record& r)
      : c_(c), g_(g), f_(f), checkpointed_(checkpointed), r_(r) {}

  void make() {
    const ProtocolSpec& p = c_.protocol;
    if (p.failure.kind != FailureKind::none) {
      r_.trial = TrialReading{checkpointed_ && f_.trial_fails, "x", 0, ""};
      offset_ = f_.words_of_trial[0];
    }
    // The first layer in a unit of its own, all others in that of the model.
    r_.units = {{0, 0, static_cast<int>(c_.layers.size())}, {1, 0, 1}};
    for (int step = 0; step < p.steps; ++step) {
      for (int microbatch = 0; microbatch < p.microbatches; ++microbatch) {
        forward(step, microbatch);
        if (!p.forwards_first) backward(step, microbatch);
      }
      for (int microbatch = p.microbatches - 1; p.forwards_first && microbatch >= 0; --microbatch) {
        backward(step, microbatch);
      }
      end_of_step(step);
    }
    observe(Quantity::reevaluation, p.steps - 1, 0, 0, g_.outputs.back()[0]);
    events();
  }

 private:
  void collective(int step, int microbatch, CollectiveKind kind, CollectivePhase phase, int unit) {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < g_.parameters.size(); ++i) {
      const bool counts = kind == CollectiveKind::gather || f_.hooks[i] > 0;
      if (counts && unit == (g_.parameters[i].layer == 0 ? 1 : 0)) bytes += 16;
    }
    if (bytes > 0) r_.collectives.push_back({step, microbatch, kind, phase, unit, bytes});
  }

  void forward(int step, int microbatch) {
    const bool waits = c_.protocol.forwards_first;
    for (const int unit : {0, 1}) {
      if (unit == 0 && waits && microbatch > 0) continue;
      collective(step, microbatch, CollectiveKind::gather, CollectivePhase::forward, unit);
    }
    for (int i = 0; i < static_cast<int>(c_.layers.size()); ++i) {
      const auto index = static_cast<std::size_t>(i);
      for (int k = 0; k < static_cast<int>(f_.grad_flags[index].size()); ++k) {
        r_.grad_flags.push_back(
            {step, microbatch, i, k, f_.grad_flags[index][static_cast<std::size_t>(k)]});
      }
      if (f_.layer_draws[index] == 0) continue;
      r_.draws.push_back(
          {step, microbatch, i, 0, 0, offset_, g_.outputs[index][0].elements(), offset_ * 31 + 7});
      offset_ += f_.layer_draws[index];
    }
    for (int k = 0; k < static_cast<int>(g_.live.back().size()); ++k) {
      Observation& o = observe(Quantity::output, step, microbatch, k,
                               g_.shape_of(g_.live.back()[static_cast<std::size_t>(k)], Shape()));
      o.requires_grad = f_.output_flags[static_cast<std::size_t>(k)];
    }
    observe(Quantity::loss, step, microbatch, 0, Shape());
    streams(Moment::after_forward, step, microbatch);
    bytes(Moment::after_forward, step, microbatch, graphs_after_forward(c_.protocol, microbatch));
    for (int i = 0; i < static_cast<int>(c_.layers.size()); ++i) held_layer(step, microbatch, i, 0);
    held(Event::forward, step, microbatch, graphs_after_forward(c_.protocol, microbatch));
  }

  void backward(int step, int microbatch) {
    const bool waited = c_.protocol.forwards_first && microbatch + 1 < c_.protocol.microbatches;
    for (int call = 0; call < c_.protocol.backwards; ++call) {
      for (const int unit : {0, 1}) {
        if (unit == 0 && !waited && call == 0) continue;
        collective(step, microbatch, CollectiveKind::gather, CollectivePhase::backward, unit);
      }
      for (const int unit : {1, 0}) {
        collective(step, microbatch, CollectiveKind::reduce, CollectivePhase::backward, unit);
      }
    }
    const std::vector<Draw> before = r_.draws;
    for (const Draw& d : before) {
      if (d.step != step || d.microbatch != microbatch || !checkpointed_) continue;
      Draw recomputation = d;
      while (++recomputation.execution < f_.executions[static_cast<std::size_t>(d.layer)]) {
        r_.draws.push_back(recomputation);
      }
    }
    for (int execution = 0; execution < f_.executions[0]; ++execution) {
      r_.values.push_back({step, microbatch, 0, execution, false, 0, "linear", 17});
      r_.values.push_back({step, microbatch, 0, execution, true, 0, "", 23});
    }
    const int roots = static_cast<int>(roots_of(c_, f_.output_flags).size());
    for (int i = 1; i < roots * backward_calls(c_, g_); ++i) {
      bytes(Moment::after_backward, step, microbatch,
            graphs_after_forward(c_.protocol, microbatch));
      r_.bytes.back().retained = true;
    }
    streams(Moment::after_backward, step, microbatch);
    bytes(Moment::after_backward, step, microbatch, graphs_after_backward(c_.protocol, microbatch));
    const std::vector<SegmentSpec> segments = segments_of(c_);
    for (std::size_t s = segments.size(); checkpointed_ && s-- > 0;) {
      const std::int64_t begun = held_;
      for (int i = segments[s].begin; i < segments[s].end; ++i) {
        held_layer(step, microbatch, i, 1);
      }
      held_ = begun;
    }
    for (int i = static_cast<int>(c_.layers.size()); i-- > 0;) {
      held(Event::node, step, microbatch, graphs_after_backward(c_.protocol, microbatch));
      r_.held.back().layer = i;
    }
    held(Event::backward, step, microbatch, graphs_after_backward(c_.protocol, microbatch));
    for (int input = 0; input < g_.inputs; ++input) {
      Observation& o =
          observe(Quantity::input_gradient, step, microbatch, input, Shape(std::span(c_.input)));
      o.present = requires_grad(c_.protocol, input);
    }
    for (int p = 0; p < static_cast<int>(g_.parameters.size()); ++p) {
      r_.hooks.push_back({step, microbatch, p, f_.hooks[static_cast<std::size_t>(p)]});
    }
    for (int i = 0; i < static_cast<int>(c_.layers.size()); ++i) {
      const int count = checkpointed_ ? f_.executions[static_cast<std::size_t>(i)] : 1;
      const int computed = f_.computations[static_cast<std::size_t>(i)];
      r_.executions.push_back(
          {step, microbatch, i, count, checkpointed_ ? computed : std::min(computed, 1)});
    }
  }

  void end_of_step(int step) {
    for (int p = 0; p < static_cast<int>(g_.parameters.size()); ++p) {
      const Shape& shape = g_.parameters[static_cast<std::size_t>(p)].shape;
      Observation& o = observe(Quantity::parameter_gradient, step, 0, p, shape);
      if (f_.hooks[static_cast<std::size_t>(p)] == 0) o.present = false;
      observe(Quantity::parameter, step, 0, p, shape);
    }
    for (int b = 0; b < static_cast<int>(g_.buffers.size()); ++b) {
      observe(Quantity::buffer, step, 0, b, g_.buffers[static_cast<std::size_t>(b)].shape);
    }
    streams(Moment::after_step, step, 0);
    held(Event::step, step, 0, 0);
  }

  Observation& observe(Quantity quantity, int step, int microbatch, int index, const Shape& shape) {
    Observation o;
    o.quantity = quantity;
    o.step = step;
    o.microbatch = microbatch;
    o.index = index;
    o.shape = shape;
    o.offset = r_.data.size();
    o.bytes = static_cast<std::size_t>(shape.elements()) * sizeof(float);
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      next_ += 0.25F;
      r_.data.resize(r_.data.size() + sizeof(float));
      std::memcpy(r_.data.data() + r_.data.size() - sizeof(float), &next_, sizeof(float));
    }
    return r_.observations.emplace_back(o);
  }

  /// As forecast: the forecast's second step stands for all later ones.
  void events() {
    for (int step = 0; step < c_.protocol.steps; ++step) {
      for (LiveReading r : checkpointed_ ? f_.live : f_.plain_live) {
        if (r.step != std::min(step, 1)) continue;
        r.step = step;
        r_.live.push_back(r);
      }
    }
  }

  /// Every layer adds 8 bytes to what is held.
  void held_layer(int step, int microbatch, int layer, int execution) {
    r_.held.push_back({Event::layer, step, microbatch, layer, execution, held_, held_ + 8});
    held_ += 8;
  }
  void held(Event event, int step, int microbatch, int graphs) {
    held_ = graphs * (checkpointed_ ? f_.saved_bytes : f_.plain_saved_bytes);
    r_.held.push_back({event, step, microbatch, -1, 0, 0, held_});
  }

  void streams(Moment moment, int step, int microbatch) {
    r_.streams.push_back({moment, step, microbatch, 0, c_.seed, offset_});
    r_.streams.push_back({moment, step, microbatch, 1, c_.seed, 0});
  }

  void bytes(Moment moment, int step, int microbatch, int graphs) {
    const std::int64_t saved = checkpointed_ ? f_.saved_bytes : f_.plain_saved_bytes;
    r_.bytes.push_back({moment, step, microbatch, saved * graphs,
                        moment == Moment::after_forward || graphs > 0 ? 64 : 0, false,
                        checkpointed_ ? f_.offloaded_bytes * graphs : 0});
  }

  const Case& c_;
  const Geometry& g_;
  const Forecast& f_;
  bool checkpointed_;
  Record& r_;
  float next_ = 0;
  std::uint64_t offset_ = 0;
  std::int64_t held_ = 0;
};

}  // namespace

Case synthetic_case() {
  Case c = case_of({2, 3},
                   {dense(3), layer("dropout"), layer("batch_norm"), layer("dropout"), dense(2)});
  c.plan.sequential = SequentialSpec{3, true, {}};
  c.protocol.steps = 3;
  c.protocol.microbatches = 2;
  c.protocol.input_requires_grad = true;
  c.protocol.reevaluate = true;
  c.protocol.failure = {FailureKind::recomputation_throws, 0};
  return c;
}

Synthetic::Synthetic(Case made)
    : c(std::move(made)), geometry(validate(c)), forecast(rematch::forecast(c, geometry)) {
  c.plan.promise = promise_of(forecast);
  Maker(c, geometry, forecast, false, plain).make();
  Maker(c, geometry, forecast, true, checkpointed).make();
}

std::optional<Violation> Synthetic::judge(std::string_view law) const {
  const Verdicts verdicts = rematch::judge(evidence(), laws_named({law}));
  return verdicts.kept() ? std::nullopt : std::optional(*verdicts.first());
}

Verdict Synthetic::verdict(std::string_view law) const {
  return rematch::judge(evidence(), laws_named({law})).by_law[index_of(*find_law(law))];
}

Observation& observation(Record& record, Quantity quantity, int index) {
  for (Observation& o : record.observations) {
    if (o.quantity == quantity && o.index == index) return o;
  }
  throw std::invalid_argument("no such observation");
}

void put(Record& record, const Observation& o, int element, float value) {
  std::memcpy(record.data.data() + o.offset + static_cast<std::size_t>(element) * sizeof(float),
              &value, sizeof(float));
}

}  // namespace rematch::testing
