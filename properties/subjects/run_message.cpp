#include "properties/subjects/run_message.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "properties/case/features.h"
#include "properties/case/json.h"
#include "properties/record/base64.h"
#include "properties/record/case_data.h"

namespace rematch {
namespace {

/// Appends `write(item)` for each item, as a JSON array.
template <class Items, class Write>
void append_array(std::string& out, const Items& items, const Write& write) {
  out += '[';
  bool first = true;
  for (const auto& item : items) {
    if (!first) out += ',';
    first = false;
    write(item);
  }
  out += ']';
}

/// The case without what makes it legible: a message is one line.
std::string on_one_line(const std::string& text) {
  std::string line;
  bool indenting = false;
  for (const char c : text) {
    indenting = c == '\n' || (indenting && c == ' ');
    if (!indenting) line += c;
  }
  return line;
}

void append_tensor(std::string& out, const Tensor& t, ArrayFile* files) {
  out += fmt::format("{{\"dtype\":\"{}\",\"shape\":", to_string(t.dtype()));
  append_array(out, t.shape().dims(), [&](std::int64_t extent) { out += std::to_string(extent); });
  const std::span bytes(t.raw(), static_cast<std::size_t>(t.bytes()));
  if (files != nullptr && bytes.size() >= kLargeArray) {
    const std::size_t offset = files->append(bytes);
    out += fmt::format(",\"file\":\"{}\",\"offset\":{}}}", files->path(), offset);
    return;
  }
  out += ",\"data\":\"";
  append_base64(bytes, out);
  out += "\"}";
}

/// The shapes that custom layers take; a subject can work out all others.
void append_custom_operands(std::string& out, const Case& c, const Geometry& g) {
  std::vector<int> custom;
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    if (c.layers[i].layer != nullptr) custom.push_back(static_cast<int>(i));
  }
  if (custom.empty()) return;
  const Shape input(c.input);
  out += ",\"custom_operands\":";
  append_array(out, custom, [&](int layer) {
    out += fmt::format("{{\"layer\":{},\"shape\":", layer);
    append_array(out, g.shape_of({layer - 1, 0}, input).dims(),
                 [&](std::int64_t extent) { out += std::to_string(extent); });
    out += '}';
  });
}

void append_model(std::string& out, const Case& c, const Geometry& g) {
  out += ",\"model\":{\"live\":";
  append_array(out, g.live, [&](const std::vector<ValueRef>& values) {
    append_array(out, values,
                 [&](const ValueRef& v) { out += fmt::format("[{},{}]", v.layer, v.output); });
  });
  out += ",\"parameters\":";
  append_array(out, g.parameters, [&](const ParameterInfo& p) {
    out += fmt::format("{{\"layer\":{},\"role\":\"{}\",\"frozen\":{}}}", p.layer, p.role, p.frozen);
  });
  out += ",\"layer_parameters\":";
  append_array(out, g.layer_parameters, [&](const std::vector<int>& used) {
    append_array(out, used, [&](int parameter) { out += std::to_string(parameter); });
  });
  out += ",\"buffers\":";
  append_array(out, g.buffers, [&](const ParameterInfo& b) {
    out += fmt::format("{{\"layer\":{},\"role\":\"{}\"}}", b.layer, b.role);
  });
  append_custom_operands(out, c, g);
  out += '}';
}

/// The arrays of a run, drawn in the order in which the engine draws them.
class Arrays {
 public:
  Arrays(const Case& c, const Geometry& g, ArrayFile* files)
      : c_(c), files_(files), inputs_{c.seed, kInputStream, 0}, targets_{c.seed, kTargetStream, 0} {
    const ValueRef main = g.live.back().front();
    const Shape shape = g.shape_of(main, Shape(c.input));
    output_ = Shape{shape[0], shape[0] == 0 ? 0 : shape.elements() / shape[0]};
  }

  void append(std::string& out, const Geometry& g) {
    out += ",\"arrays\":{\"parameters\":";
    Generator generator{c_.seed, kParameterStream, 0};
    append_array(out, g.parameters, [&](const ParameterInfo& info) {
      Tensor p = Tensor::empty(info.shape, c_.dtype);
      fill_data(p, c_.data, info.low, info.high, generator);
      append_tensor(out, p, files_);
    });
    out += ",\"buffers\":";
    append_array(out, g.buffers, [&](const ParameterInfo& info) {
      append_tensor(out, Tensor::full(info.shape, c_.dtype, info.low), files_);
    });
    append_data(out);
    out += '}';
  }

 private:
  /// The first input, and to `further` the list of the others.
  void append_inputs(std::string& out, std::string& further) {
    append_tensor(out, make_input(c_, inputs_), files_);
    const std::vector<int> others(static_cast<std::size_t>(c_.further_inputs));
    append_array(further, others,
                 [&](int) { append_tensor(further, make_input(c_, inputs_), files_); });
  }

  void append_further(std::string& out, std::string_view name, const std::string& inputs) const {
    if (c_.further_inputs > 0) out += fmt::format(",\"{}\":{}", name, inputs);
  }

  void append_data(std::string& out) {
    const ProtocolSpec& p = c_.protocol;
    if (p.failure.kind != FailureKind::none) {
      out += ",\"trial_input\":";
      std::string further;
      append_inputs(out, further);
      append_further(out, "further_trial_inputs", further);
      // A forward that throws never comes to its target.
      if (p.failure.kind != FailureKind::forward_throws) {
        out += ",\"trial_target\":";
        append_tensor(out, make_target(c_, output_, targets_), files_);
      }
    }
    const std::vector<int> forwards(static_cast<std::size_t>(p.steps * p.microbatches));
    out += ",\"inputs\":";
    std::string further = "[";
    append_array(out, forwards, [&](int) {
      if (further.size() > 1) further += ',';
      append_inputs(out, further);
    });
    append_further(out, "further_inputs", further + ']');
    out += ",\"targets\":";
    append_array(out, forwards,
                 [&](int) { append_tensor(out, make_target(c_, output_, targets_), files_); });
    if (p.reevaluate) {
      out += ",\"reevaluation\":";
      std::string others;
      append_inputs(out, others);
      append_further(out, "further_reevaluation_inputs", others);
    }
  }

  const Case& c_;
  ArrayFile* files_;
  Generator inputs_;
  Generator targets_;
  Shape output_;
};

void append_case(std::string& out, const Case& c, const Geometry& geometry, ArrayFile* files) {
  Case told = c;
  told.options.erase(kRepeat);
  told.plan.promise = {};
  out += ",\"case\":" + on_one_line(to_json(told));
  append_model(out, c, geometry);
  Arrays(c, geometry, files).append(out, geometry);
  if (files != nullptr) files->seal();
}

void append_layers(std::string& out, const std::vector<int>& layers) {
  out += ",\"detached_layers\":";
  append_array(out, layers, [&](int layer) { out += std::to_string(layer); });
}

}  // namespace

std::string run_message(std::uint64_t id, const Case& c, const Geometry& geometry,
                        const RunRequest& request, bool same_case, ArrayFile* files) {
  std::string out = fmt::format("{{\"run\":{{\"id\":{}", id);
  if (!same_case) append_case(out, c, geometry, files);
  out += fmt::format(",\"checkpointed\":{},\"layer_values\":{}", request.checkpointed,
                     request.layer_values);
  append_layers(out, request.detached_layers);
  return out + "}}";
}

std::string export_message(std::uint64_t id, const Case& c, const Geometry& geometry,
                           std::string_view finding, ArrayFile* files) {
  std::string out = fmt::format("{{\"export\":{{\"id\":{}", id);
  append_case(out, c, geometry, files);
  append_layers(out, frozen_layers(c, geometry));
  out += ",\"finding\":" +
         nlohmann::json(finding).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return out + "}}";
}

}  // namespace rematch
