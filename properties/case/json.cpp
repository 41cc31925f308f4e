#include "properties/case/json.h"

#include <array>
#include <charconv>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "properties/case/geometry.h"
#include "properties/case/json_fields.h"

namespace rematch {
namespace {

using Json = nlohmann::json;

constexpr std::array kKinds{
    LayerKind::linear,     LayerKind::conv2d,         LayerKind::max_pool2d, LayerKind::avg_pool2d,
    LayerKind::batch_norm, LayerKind::layer_norm,     LayerKind::relu,       LayerKind::gelu,
    LayerKind::tanh,       LayerKind::sigmoid,        LayerKind::softmax,    LayerKind::dropout,
    LayerKind::rrelu,      LayerKind::gaussian_noise, LayerKind::flatten,    LayerKind::add,
    LayerKind::concat,     LayerKind::split,          LayerKind::duplicate};
constexpr std::array kVariants{Variant::reentrant, Variant::non_reentrant};
constexpr std::array kChecks{CheckKind::none, CheckKind::metadata, CheckKind::values};
constexpr std::array kLosses{LossKind::mse, LossKind::cross_entropy};
constexpr std::array kOptimizers{OptimizerKind::sgd, OptimizerKind::adam};
constexpr std::array kMishaps{MishapKind::none,           MishapKind::input_changed,
                              MishapKind::weight_changed, MishapKind::op_exchanged,
                              MishapKind::forward_throws, MishapKind::replay_throws,
                              MishapKind::graph_dropped};
constexpr std::array kSpans{AutocastSpan::off, AutocastSpan::forward, AutocastSpan::both};
constexpr std::array kData{DataKind::normal, DataKind::small_integers};
constexpr std::array kDTypes{DType::float32, DType::float64};

constexpr std::string_view kWhat = "case";

[[noreturn]] void fail(const std::string& path, const std::string& expected,
                       const std::string& got) {
  json_fail(kWhat, path, expected, got);
}

class Fields : public JsonFields {
 public:
  Fields(const Json& object, std::string path) : JsonFields(kWhat, object, std::move(path)) {}
};

LayerSpec read_layer(const Json& json, const std::string& path) {
  LayerSpec layer;
  Fields f(json, path);
  if (!json.contains("kind")) fail(f.path("kind"), "a kind of layer", "none");
  f.read("kind", layer.kind, std::span<const LayerKind>(kKinds));
  f.read("features", layer.features);
  f.read("kernel", layer.kernel);
  f.read("stride", layer.stride);
  f.read("padding", layer.padding);
  f.read("p", layer.p);
  f.read("bias", layer.bias);
  f.read("in_place", layer.in_place);
  f.read("frozen", layer.frozen);
  f.read("tied_to", layer.tied_to);
  f.read("stream", layer.stream);
  if (const Json* from = f.find("from")) {
    const std::string where = f.path("from");
    if (!from->is_array() || from->size() != 2) fail(where, "[layer, output]", show_json(*from));
    layer.from = ValueRef{f.integer<int>((*from)[0], indexed(where, 0)),
                          f.integer<int>((*from)[1], indexed(where, 1))};
  }
  f.finish();
  return layer;
}

void read_choice(Fields& f, CheckpointChoice& choice) {
  f.read("variant", choice.variant, std::span<const Variant>(kVariants));
  f.read("preserve_rng", choice.preserve_rng);
  f.read("early_stop", choice.early_stop);
  f.read("determinism", choice.determinism, std::span<const CheckKind>(kChecks));
  const Json* keep = f.find("keep");
  if (keep == nullptr) return;
  need_array(kWhat, *keep, f.path("keep"), kMaxKeep);
  for (std::size_t i = 0; i < keep->size(); ++i) {
    Fields spec((*keep)[i], indexed(f.path("keep"), i));
    KeepSpec& k = choice.keep.emplace_back();
    if (!(*keep)[i].contains("op")) fail(spec.path("op"), "a kind of layer", "none");
    spec.read("op", k.kind, std::span<const LayerKind>(kKinds));
    spec.read("index", k.index);
    spec.finish();
  }
}

std::vector<SegmentSpec> read_segments(const Json& json, const std::string& path) {
  need_array(kWhat, json, path, static_cast<std::size_t>(kMaxLayers));
  std::vector<SegmentSpec> segments;
  segments.reserve(json.size());
  for (std::size_t i = 0; i < json.size(); ++i) {
    Fields f(json[i], indexed(path, i));
    SegmentSpec s;
    s.begin = f.integer<int>(f.need("begin"), f.path("begin"));
    s.end = f.integer<int>(f.need("end"), f.path("end"));
    read_choice(f, s.choice);
    if (const Json* nested = f.find("nested")) s.nested = read_segments(*nested, f.path("nested"));
    f.finish();
    segments.push_back(std::move(s));
  }
  return segments;
}

PlanSpec read_plan(const Json& json) {
  PlanSpec plan;
  Fields f(json, "plan");
  if (const Json* sequential = f.find("sequential")) {
    Fields s(*sequential, f.path("sequential"));
    plan.sequential.emplace();
    plan.sequential->segments = s.integer<int>(s.need("segments"), s.path("segments"));
    s.read("last_stored", plan.sequential->last_stored);
    read_choice(s, plan.sequential->choice);
    s.finish();
  }
  if (const Json* segments = f.find("segments")) {
    plan.segments = read_segments(*segments, f.path("segments"));
  }
  f.read("offload", plan.offload);
  f.finish();
  return plan;
}

ProtocolSpec read_protocol(const Json& json) {
  ProtocolSpec p;
  Fields f(json, "protocol");
  f.read("steps", p.steps);
  f.read("microbatches", p.microbatches);
  f.read("forwards_first", p.forwards_first);
  f.read("backwards", p.backwards);
  f.read("prior_gradients", p.prior_gradients);
  f.read("zero_grad", p.zero_grad);
  f.read("train", p.train);
  f.read("input_requires_grad", p.input_requires_grad);
  f.read("loss", p.loss, std::span<const LossKind>(kLosses));
  f.read("optimizer", p.optimizer, std::span<const OptimizerKind>(kOptimizers));
  f.read("learning_rate", p.learning_rate);
  f.read("momentum", p.momentum);
  f.read("reevaluate", p.reevaluate);
  f.read("autocast", p.autocast, std::span<const AutocastSpan>(kSpans));
  f.read("cast_cache", p.cast_cache);
  f.read("mishap", p.mishap.kind, std::span<const MishapKind>(kMishaps));
  f.read("mishap_layer", p.mishap.layer);
  f.finish();
  return p;
}

std::uint64_t read_seed(const Fields& f, const Json& json) {
  if (!json.is_string()) return f.integer<std::uint64_t>(json, "seed");
  const std::string& text = json.get_ref<const std::string&>();
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    fail("seed", "decimal digits of an integer below 2^64", show_json(json));
  }
  return seed;
}

void check_format(const Fields& f, const Json& json) {
  const int format = f.integer<int>(json, "format");
  if (format == Case::kFormat) return;
  const bool newer = format > Case::kFormat;
  fail("format", std::to_string(Case::kFormat),
       std::to_string(format) +
           (newer ? ", which a newer program wrote" : ", which this program no longer reads"));
}

}  // namespace

Case case_from_json(std::string_view text) {
  const Json json = parse_json(kWhat, text, kMaxCaseTextBytes, kMaxCaseTextNesting);
  Fields f(json, "");
  check_format(f, f.need("format"));
  Case c;
  if (const Json* seed = f.find("seed")) c.seed = read_seed(f, *seed);
  f.read("dtype", c.dtype, std::span<const DType>(kDTypes));
  f.read("data", c.data, std::span<const DataKind>(kData));
  const Json& input = f.need("input");
  need_array(kWhat, input, "input", Shape::kMaxRank);
  for (std::size_t i = 0; i < input.size(); ++i) {
    c.input.push_back(f.integer<std::int64_t>(input[i], indexed("input", i)));
  }
  const Json& layers = f.need("layers");
  need_array(kWhat, layers, "layers", static_cast<std::size_t>(kMaxLayers));
  c.layers.reserve(layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    c.layers.push_back(read_layer(layers[i], indexed("layers", i)));
  }
  if (const Json* plan = f.find("plan")) c.plan = read_plan(*plan);
  if (const Json* protocol = f.find("protocol")) c.protocol = read_protocol(*protocol);
  f.finish();
  validate(c);
  return c;
}

}  // namespace rematch
