#include <array>
#include <charconv>
#include <concepts>
#include <span>
#include <string>
#include <string_view>

#include "properties/case/json.h"

namespace rematch {
namespace {

/// Fields of one JSON object on one line; those with their default value are left out.
class Line {
 public:
  explicit Line(std::string& out) : out_(out) { out_ += '{'; }

  /// Starts a field and returns where its value goes.
  std::string& field(std::string_view name) {
    if (!first_) out_ += ", ";
    first_ = false;
    out_ += '"';
    out_ += name;
    out_ += "\": ";
    return out_;
  }

  template <class Value>
  void put(std::string_view name, const Value& value) {
    std::string& out = field(name);
    if constexpr (std::same_as<Value, bool>) {
      out += value ? "true" : "false";
    } else if constexpr (std::is_enum_v<Value>) {
      out += '"';
      out += to_string(value);
      out += '"';
    } else if constexpr (std::floating_point<Value>) {
      std::array<char, 32> text{};
      // The shortest digits that read back as the same number.
      out.append(text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr);
    } else {
      out += std::to_string(value);
    }
  }

  template <class Value>
  void put(std::string_view name, const Value& value, const Value& usual) {
    if (!(value == usual)) put(name, value);
  }

  void close() { out_ += '}'; }

 private:
  std::string& out_;
  bool first_ = true;
};

void write_layer(const LayerSpec& l, std::string& out) {
  const LayerSpec usual;
  Line line(out);
  line.put("kind", l.kind);
  line.put("features", l.features, usual.features);
  line.put("kernel", l.kernel, usual.kernel);
  line.put("stride", l.stride, usual.stride);
  line.put("padding", l.padding, usual.padding);
  line.put("p", l.p, usual.p);
  line.put("bias", l.bias, usual.bias);
  line.put("in_place", l.in_place, usual.in_place);
  line.put("frozen", l.frozen, usual.frozen);
  line.put("tied_to", l.tied_to, usual.tied_to);
  line.put("stream", l.stream, usual.stream);
  if (l.from) {
    line.field("from") +=
        "[" + std::to_string(l.from->layer) + ", " + std::to_string(l.from->output) + "]";
  }
  line.close();
}

void write_choice(const CheckpointChoice& c, Line& line) {
  const CheckpointChoice usual;
  line.put("variant", c.variant);
  line.put("preserve_rng", c.preserve_rng, usual.preserve_rng);
  line.put("early_stop", c.early_stop, usual.early_stop);
  line.put("determinism", c.determinism, usual.determinism);
  if (c.keep.empty()) return;
  std::string& out = line.field("keep");
  out += '[';
  for (const KeepSpec& k : c.keep) {
    if (&k != c.keep.data()) out += ", ";
    Line spec(out);
    spec.put("op", k.kind);
    spec.put("index", k.index, KeepSpec{}.index);
    spec.close();
  }
  out += ']';
}

/// `[` one segment a line `]`, its lines indented by `indent` + 2.
void write_segments(std::span<const SegmentSpec> segments, std::size_t indent, std::string& out) {
  const std::string margin(indent, ' ');
  out += '[';
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const SegmentSpec& s = segments[i];
    out += (i == 0 ? "\n  " : ",\n  ") + margin;
    Line line(out);
    line.put("begin", s.begin);
    line.put("end", s.end);
    write_choice(s.choice, line);
    if (!s.nested.empty()) write_segments(s.nested, indent + 2, line.field("nested"));
    line.close();
  }
  out += "\n" + margin + "]";
}

void write_plan(const PlanSpec& plan, std::string& out) {
  Line line(out);
  if (plan.sequential) {
    Line sequential(line.field("sequential"));
    sequential.put("segments", plan.sequential->segments);
    sequential.put("last_stored", plan.sequential->last_stored, SequentialSpec{}.last_stored);
    write_choice(plan.sequential->choice, sequential);
    sequential.close();
  }
  line.put("offload", plan.offload, PlanSpec{}.offload);
  if (!plan.segments.empty()) write_segments(plan.segments, 2, line.field("segments"));
  line.close();
}

void write_protocol(const ProtocolSpec& p, std::string& out) {
  const ProtocolSpec usual;
  Line line(out);
  line.put("steps", p.steps, usual.steps);
  line.put("microbatches", p.microbatches, usual.microbatches);
  line.put("forwards_first", p.forwards_first, usual.forwards_first);
  line.put("backwards", p.backwards, usual.backwards);
  line.put("prior_gradients", p.prior_gradients, usual.prior_gradients);
  line.put("zero_grad", p.zero_grad, usual.zero_grad);
  line.put("train", p.train, usual.train);
  line.put("input_requires_grad", p.input_requires_grad, usual.input_requires_grad);
  line.put("loss", p.loss, usual.loss);
  line.put("optimizer", p.optimizer, usual.optimizer);
  line.put("learning_rate", p.learning_rate, usual.learning_rate);
  line.put("momentum", p.momentum, usual.momentum);
  line.put("reevaluate", p.reevaluate, usual.reevaluate);
  line.put("autocast", p.autocast, usual.autocast);
  line.put("cast_cache", p.cast_cache, usual.cast_cache);
  line.put("mishap", p.mishap.kind, usual.mishap.kind);
  line.put("mishap_layer", p.mishap.layer, usual.mishap.layer);
  line.close();
}

}  // namespace

std::string to_json(const Case& c) {
  constexpr std::uint64_t kExactInDouble = std::uint64_t{1} << 53;
  const std::string quote = c.seed > kExactInDouble ? "\"" : "";
  std::string out = "{\n  \"format\": " + std::to_string(Case::kFormat);
  out += ",\n  \"seed\": " + quote + std::to_string(c.seed) + quote;
  out += ",\n  \"dtype\": \"" + std::string(to_string(c.dtype)) + "\"";
  if (c.data != DataKind::normal)
    out += ",\n  \"data\": \"" + std::string(to_string(c.data)) + "\"";
  out += ",\n  \"input\": [";
  for (std::size_t i = 0; i < c.input.size(); ++i) {
    out += (i == 0 ? "" : ", ") + std::to_string(c.input[i]);
  }
  out += "],\n  \"layers\": [";
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    out += i == 0 ? "\n    " : ",\n    ";
    write_layer(c.layers[i], out);
  }
  out += "\n  ]";
  if (!c.plan.empty()) write_plan(c.plan, out += ",\n  \"plan\": ");
  if (c.protocol != ProtocolSpec{}) write_protocol(c.protocol, out += ",\n  \"protocol\": ");
  return out + "\n}\n";
}

}  // namespace rematch
