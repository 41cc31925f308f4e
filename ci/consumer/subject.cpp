// A subject of Rematch in C++ by the protocol (properties/subjects/PROTOCOL.md): one file to copy,
// which needs nlohmann/json and nothing of Rematch.
//
//   g++ -std=c++20 -O2 ci/consumer/subject.cpp -o build/my_subject
//   rematch check --subject build/my_subject --cases 2000
//
// Its engine is a toy, with a checkpoint that keeps the input of a segment. Replace the part
// between the two lines by yours, and let kImplements and kObserves name what it has and shows.
// `build/my_subject forgets` forgets the random state, which is found: rematch check --subject
// "build/my_subject forgets".
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

using Json = nlohmann::ordered_json;

// -------------------------------------------------------------------------------------------------------------------

/// Rows of `width` numbers.
struct Array {
  std::vector<std::int64_t> shape;
  std::vector<float> data;
  std::size_t width() const { return static_cast<std::size_t>(shape.back()); }
  std::size_t rows() const { return data.size() / width(); }
};

struct Random {
  std::uint64_t state = 0;
  /// Uniform in [0, 1); splitmix64.
  double next() {
    std::uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }
};

struct Layer {
  std::string kind;
  /// Positions of its parameters: a weight of shape [out, in], and a bias if there is one.
  std::vector<std::size_t> parameters;
  double p = 0;
};

struct Parameter {
  Array value;
  bool trains = true;
  /// Empty: there is none.
  std::vector<float> gradient = {};
};

class Engine {
 public:
  std::vector<Layer> layers;
  std::vector<Parameter> parameters;
  Random random;
  bool forgets_random_state = false;
  /// Runs of each layer in a forward and its backward.
  std::vector<int> executions;
  /// Called where a layer has drawn a mask.
  std::function<void(std::size_t layer, const std::vector<float>& mask)> drew;

  /// Layers [begin, end) on `x`, checkpointed as one segment or stored.
  void forward(std::size_t begin, std::size_t end, bool checkpointed, bool x_requires_grad,
               Array& x) {
    graph_.push_back({begin, end, checkpointed, x_requires_grad, random, x, {}});
    compute(graph_.back(), x);
    if (checkpointed) graph_.back().saved.clear();
  }

  /// Takes the gradient of the last output to that of the first input, and empties the graph.
  void backward(Array& gradient) {
    for (; !graph_.empty(); graph_.pop_back()) {
      Node& node = graph_.back();
      if (!requires_grad(node)) continue;
      if (node.checkpointed && saves(node)) recompute(node);
      for (std::size_t i = node.end; i-- > node.begin;) differentiate(node, i, gradient);
    }
  }

  /// Whether the output of layers [begin, end) requires a gradient.
  bool requires_grad(std::size_t begin, std::size_t end, bool x_requires_grad) const {
    bool requires_it = x_requires_grad;
    for (std::size_t i = begin; i < end; ++i) requires_it = requires_it || trains(layers[i]);
    return requires_it;
  }

  void update(double learning_rate) {
    for (Parameter& p : parameters) {
      for (std::size_t i = 0; i < p.gradient.size(); ++i) {
        p.value.data[i] -= static_cast<float>(learning_rate) * p.gradient[i];
      }
      p.gradient.clear();
    }
  }

 private:
  struct Node {
    std::size_t begin;
    std::size_t end;
    bool checkpointed;
    bool x_requires_grad;
    Random random;
    Array x;
    /// For each layer its operand, or the mask of a dropout; nothing until it is recomputed.
    std::vector<Array> saved;
  };

  bool trains(const Layer& layer) const {
    for (const std::size_t p : layer.parameters) {
      if (parameters[p].trains) return true;
    }
    return false;
  }
  bool requires_grad(const Node& node) const {
    return requires_grad(node.begin, node.end, node.x_requires_grad);
  }

  /// Whether a layer keeps something for its backward: what is kept is recomputed.
  bool saves(const Node& node) const {
    for (std::size_t i = node.begin; i < node.end; ++i) {
      if (saves(layers[i]) && requires_grad(node.begin, i + 1, node.x_requires_grad)) return true;
    }
    return false;
  }
  static bool saves(const Layer& layer) { return layer.kind != "dropout" || layer.p > 0; }

  void recompute(Node& node) {
    const Random now = random;
    if (!forgets_random_state) random = node.random;
    Array x = node.x;
    compute(node, x);
    random = now;
  }

  void compute(Node& node, Array& x) {
    for (std::size_t i = node.begin; i < node.end; ++i) {
      ++executions[i];
      node.saved.push_back(x);
      x = layers[i].kind == "linear" ? linear(layers[i], x) : elementwise(i, x, node.saved.back());
    }
  }

  Array linear(const Layer& layer, const Array& x) const {
    const Array& w = parameters[layer.parameters[0]].value;
    Array y{x.shape, std::vector<float>(x.rows() * w.rows())};
    y.shape.back() = static_cast<std::int64_t>(w.rows());
    for (std::size_t row = 0; row < x.rows(); ++row) {
      for (std::size_t out = 0; out < w.rows(); ++out) {
        float sum =
            layer.parameters.size() > 1 ? parameters[layer.parameters[1]].value.data[out] : 0;
        for (std::size_t in = 0; in < x.width(); ++in) {
          sum += x.data[row * x.width() + in] * w.data[out * x.width() + in];
        }
        y.data[row * w.rows() + out] = sum;
      }
    }
    return y;
  }

  Array elementwise(std::size_t at, const Array& x, Array& saved) {
    const Layer& layer = layers[at];
    Array y = x;
    const bool is_dropout = layer.kind == "dropout";
    for (std::size_t i = 0; i < x.data.size(); ++i) {
      if (is_dropout) {
        const bool kept = layer.p == 0 || random.next() >= layer.p;
        saved.data[i] = kept ? static_cast<float>(1 / (1 - layer.p)) : 0.0F;
        y.data[i] *= saved.data[i];
      } else {
        y.data[i] = std::tanh(x.data[i]);
      }
    }
    if (is_dropout && layer.p > 0) drew(at, saved.data);
    return y;
  }

  void differentiate(const Node& node, std::size_t at, Array& gradient) {
    const Layer& layer = layers[at];
    if (!saves(layer)) return;
    const Array& saved = node.saved[at - node.begin];
    if (layer.kind == "linear") return differentiate_linear(layer, saved, gradient);
    for (std::size_t i = 0; i < saved.data.size(); ++i) {
      float slope = saved.data[i];
      if (layer.kind == "tanh") slope = 1 - std::tanh(slope) * std::tanh(slope);
      gradient.data[i] *= slope;
    }
  }

  void differentiate_linear(const Layer& layer, const Array& x, Array& gradient) {
    Parameter& weight = parameters[layer.parameters[0]];
    const Array& w = weight.value;
    Array of_w{w.shape, std::vector<float>(w.data.size())};
    Array of_bias{{}, std::vector<float>(w.rows())};
    Array of_x{x.shape, std::vector<float>(x.data.size())};
    for (std::size_t row = 0; row < x.rows(); ++row) {
      for (std::size_t out = 0; out < w.rows(); ++out) {
        const float g = gradient.data[row * w.rows() + out];
        of_bias.data[out] += g;
        for (std::size_t in = 0; in < x.width(); ++in) {
          of_w.data[out * x.width() + in] += g * x.data[row * x.width() + in];
          of_x.data[row * x.width() + in] += g * w.data[out * x.width() + in];
        }
      }
    }
    accumulate(weight, of_w.data);
    if (layer.parameters.size() > 1) accumulate(parameters[layer.parameters[1]], of_bias.data);
    gradient = of_x;
  }

  static void accumulate(Parameter& p, const std::vector<float>& gradient) {
    if (!p.trains) return;
    if (p.gradient.empty()) p.gradient.resize(gradient.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) p.gradient[i] += gradient[i];
  }

  std::vector<Node> graph_;
};

/// Features that cases may have (`ci/maintain/reference` prints them), and what records show.
constexpr const char* kImplements =
    R"(["linear","tanh","dropout","odd_size","draws_in_checkpointed_segment","two_drawing_segments",
    "non_reentrant","early_stop_off","no_check","explicit_segments","trainable_input","frozen_input",
    "frozen_parameters","frozen_prefix","without_gradient","several_steps","accumulation","sgd",
    "mse","float32"])";
constexpr const char* kObserves =
    R"(["outputs","losses","input_gradients","parameter_gradients","absent_gradients","parameters",
    "draws","rng_state","executions"])";

// -------------------------------------------------------------------------------------------------------------------

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// base64 of the elements, little-endian as the machine is.
std::string encoded(const std::vector<float>& numbers) {
  std::string bytes(numbers.size() * sizeof(float), '\0');
  if (!numbers.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k)
      text += i + k > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * k) & 63];
  }
  return text;
}

Array decoded(const Json& array) {
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : array.at("data").get_ref<const std::string&>()) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<std::uint32_t>(kDigits.find(c));
    count += 6;
    if (count >= 8) bytes += static_cast<char>(bits >> (count -= 8) & 255);
  }
  Array decoded{array.at("shape"), std::vector<float>(bytes.size() / sizeof(float))};
  if (!bytes.empty()) std::memcpy(decoded.data.data(), bytes.data(), bytes.size());
  return decoded;
}

/// FNV-1a, cut to 53 bits: equal contents have equal hashes.
std::uint64_t hash_of(const void* data, std::size_t size) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (std::size_t i = 0; i < size; ++i) {
    hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3;
  }
  return hash >> 11;
}

/// One run of a case: the training steps, and the record of what is seen of them.
class Run {
 public:
  Run(const Json& request, const Json& known, bool forgets)
      : request_(request), known_(known), record_{{"format", 1}} {
    const Json& c = known.at("case");
    protocol_ = c.value("protocol", Json::object());
    engine_.drew = [this](std::size_t layer, const std::vector<float>& mask) {
      add("draws", {{"layer", layer},
                    {"execution", engine_.executions[layer] - 1},
                    {"elements", mask.size()},
                    {"hash", hash_of(mask.data(), mask.size() * sizeof(float))}});
    };
    engine_.forgets_random_state = forgets;
    const Json& seed = c.at("seed");
    engine_.random.state = seed.is_string()
                               ? std::strtoull(seed.get<std::string>().c_str(), nullptr, 0)
                               : seed.get<std::uint64_t>();
    const Json& model = known.at("model");
    for (std::size_t i = 0; i < model.at("parameters").size(); ++i) {
      engine_.parameters.push_back({decoded(known.at("arrays").at("parameters").at(i)),
                                    !model.at("parameters").at(i).value("frozen", false)});
    }
    for (std::size_t i = 0; i < c.at("layers").size(); ++i) {
      const Json& layer = c.at("layers").at(i);
      engine_.layers.push_back(
          {layer.at("kind"), model.at("layer_parameters").at(i), layer.value("p", 0.0)});
    }
    for (const std::size_t layer : request.at("detached_layers")) {
      for (const std::size_t p : engine_.layers[layer].parameters)
        engine_.parameters[p].trains = false;
    }
  }

  Json record() {
    const int steps = protocol_.value("steps", 1);
    const int microbatches = protocol_.value("microbatches", 1);
    for (step_ = 0; step_ < steps; ++step_) {
      for (microbatch_ = 0; microbatch_ < microbatches; ++microbatch_) {
        const auto at = static_cast<std::size_t>(step_ * microbatches + microbatch_);
        train(decoded(known_.at("arrays").at("inputs").at(at)),
              decoded(known_.at("arrays").at("targets").at(at)));
      }
      microbatch_ = 0;
      for (std::size_t i = 0; i < engine_.parameters.size(); ++i) {
        const Parameter& p = engine_.parameters[i];
        observe("parameter_gradient", p.gradient.empty() ? nullptr : &p.gradient, p.value.shape, i);
      }
      engine_.update(protocol_.value("learning_rate", 0.05));
      for (std::size_t i = 0; i < engine_.parameters.size(); ++i) {
        observe("parameter", &engine_.parameters[i].value.data, engine_.parameters[i].value.shape,
                i);
      }
      note_random_state("after_step");
    }
    return record_;
  }

 private:
  /// A forward and its backward.
  void train(Array x, const Array& target) {
    const std::size_t layers = engine_.layers.size();
    engine_.executions.assign(layers, 0);
    const bool input_requires_grad = protocol_.value("input_requires_grad", false);
    const auto shape = x.shape;
    const Json plan = known_.at("case").value("plan", Json::object());
    const Json segments =
        request_.at("checkpointed") ? plan.value("segments", Json::array()) : Json::array();
    std::size_t at = 0;
    const auto forward = [&](std::size_t end, bool checkpointed) {
      if (at < end)
        engine_.forward(at, end, checkpointed, engine_.requires_grad(0, at, input_requires_grad),
                        x);
      at = end;
    };
    for (const Json& segment : segments) {
      forward(segment.at("begin"), false);
      forward(segment.at("end"), true);
    }
    forward(layers, false);
    observe("output", &x.data, x.shape);
    std::vector<float> loss(1);
    const auto count = static_cast<float>(x.data.size());
    for (std::size_t i = 0; i < x.data.size(); ++i) {
      const float error = x.data[i] - target.data[i];
      loss[0] += error * error / count;
      x.data[i] = 2 * error / count;
    }
    observe("loss", &loss, {});
    note_random_state("after_forward");
    engine_.backward(x);
    note_random_state("after_backward");
    observe("input_gradient", input_requires_grad ? &x.data : nullptr, shape);
    for (std::size_t i = 0; i < layers; ++i)
      add("executions", {{"layer", i}, {"count", engine_.executions[i]}});
  }

  /// Adds an entry to a list of the record.
  void add(const char* list, Json entry) {
    entry["step"] = step_;
    entry["microbatch"] = microbatch_;
    record_[list].push_back(std::move(entry));
  }

  void observe(const char* quantity, const std::vector<float>* data,
               const std::vector<std::int64_t>& shape, std::size_t index = 0) {
    Json entry{{"quantity", quantity}, {"index", index}};
    if (data == nullptr) entry["present"] = false;
    if (data != nullptr) {
      entry["dtype"] = "float32";
      entry["shape"] = shape;
      entry["data"] = encoded(*data);
    }
    add("observations", std::move(entry));
  }

  void note_random_state(const char* moment) {
    add("streams", {{"moment", moment},
                    {"seed", hash_of(&engine_.random.state, sizeof engine_.random.state)}});
  }

  const Json& request_;
  const Json& known_;
  Json protocol_;
  Engine engine_;
  Json record_;
  int step_ = 0;
  int microbatch_ = 0;
};

/// Answers requests on descriptors 3 and 4 until there are no more.
int main(int argc, char** argv) {
  const bool forgets = argc > 1 && std::string_view(argv[1]) == "forgets";
  std::FILE* const requests = fdopen(3, "r");
  std::FILE* const answers = fdopen(4, "w");
  if (requests == nullptr || answers == nullptr) {
    std::fputs("to be started by `rematch check --subject`, which talks on descriptors 3 and 4\n",
               stderr);
    return 2;
  }
  char* line = nullptr;
  std::size_t capacity = 0;
  // The case, the model and the arrays of the last request that had them.
  Json known;
  while (getline(&line, &capacity, requests) > 0) {
    Json request = Json::parse(line);
    Json answer;
    if (request.contains("hello")) {
      answer["hello"] = {{"protocol", 1},
                         {"name", "a toy in C++"},
                         {"versions", {{"toy", "1"}}},
                         {"implements", Json::parse(kImplements)},
                         {"observes", Json::parse(kObserves)},
                         {"may_vary", false}};
    } else {
      const Json& run = request.at("run");
      if (run.contains("case")) known = run;
      answer["answer"]["id"] = run.at("id");
      try {
        answer["answer"]["record"] = Run(run, known, forgets).record();
      } catch (const std::exception& error) {
        answer["answer"]["error"] = error.what();
      }
    }
    std::fputs((answer.dump() + "\n").c_str(), answers);
    std::fflush(answers);
  }
  std::free(line);
  return 0;
}
