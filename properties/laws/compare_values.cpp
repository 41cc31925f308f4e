#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <span>

#include "properties/laws/support.h"
#include "properties/rounding/reference.h"

namespace rematch {
namespace {

bool is_gradient(Quantity q) {
  return q == Quantity::input_gradient || q == Quantity::parameter_gradient;
}

/// Whether no gradient has a part in it yet.
bool precedes_gradients(Quantity q, int step) {
  return step == 0 && (q == Quantity::output || q == Quantity::loss || q == Quantity::buffer);
}

/// Whether the forecast has equal bits here.
bool comparable(const Evidence& e, Quantity quantity, int step, int microbatch, int index) {
  const Forecast& f = e.forecast;
  const bool of_forward = quantity == Quantity::output || quantity == Quantity::loss;
  if (!f.values_comparable) return of_forward && comparable_forward(e, step, microbatch);
  if (quantity == Quantity::input_gradient && !f.exact_inputs) return false;
  if (quantity == Quantity::reevaluation) return f.exact_until_step >= e.c.protocol.steps;
  if (step != f.exact_until_step) return step < f.exact_until_step;
  // A value that depends on all gradients differs when one of them does.
  const ProtocolSpec& p = e.c.protocol;
  if (quantity == Quantity::parameter && (p.clip != 0 || p.loss_scale != 0)) return false;
  const bool of_parameter =
      quantity == Quantity::parameter_gradient || quantity == Quantity::parameter;
  return !of_parameter || f.exact_parameters[static_cast<std::size_t>(index)];
}

template <class Value, class Bits>
std::string element_text(const std::byte* at, const char* format) {
  Value value{};
  Bits bits{};
  std::memcpy(&value, at, sizeof(value));
  std::memcpy(&bits, at, sizeof(bits));
  char text[64];
  std::snprintf(text, sizeof(text), format, static_cast<double>(value),
                static_cast<unsigned long long>(bits));
  return text;
}

std::string element_text(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::float32:
      return element_text<float, std::uint32_t>(at, "%.9g (0x%08llx)");
    case DType::float64:
      return element_text<double, std::uint64_t>(at, "%.17g (0x%016llx)");
    case DType::int32:
      return element_text<std::int32_t, std::uint32_t>(at, "%.0f (0x%08llx)");
    case DType::uint8:
      return element_text<std::uint8_t, std::uint8_t>(at, "%.0f (0x%02llx)");
    case DType::bfloat16:
      return element_text<math::BFloat16, std::uint16_t>(at, "%.9g (0x%04llx)");
  }
  return "?";
}

std::string form_of(const Observation& o) {
  if (!o.present) return "absent";
  return std::string(to_string(o.dtype)) + " " + to_string(o.shape) + ", " +
         std::to_string(o.bytes) + " bytes";
}

/// Both hold bytes of equal form that are not all equal.
Violation first_difference(const Evidence& e, const Observation& a, const Observation& b,
                           std::string_view law, std::string place) {
  const std::byte* expected = e.plain.bytes_of(a).data();
  const std::byte* got = e.checkpointed.bytes_of(b).data();
  const std::size_t item = size_of(a.dtype);
  const std::size_t elements = a.bytes / item;
  std::size_t first = elements;
  std::size_t differing = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    if (std::memcmp(expected + i * item, got + i * item, item) == 0) continue;
    if (first == elements) first = i;
    ++differing;
  }
  place += ", element " + std::to_string(first) + " (first of " + std::to_string(differing) +
           " that differ, of " + std::to_string(elements) + ")";
  return {law, std::move(place), element_text(a.dtype, expected + first * item),
          element_text(b.dtype, got + first * item)};
}

/// Judges by the reference: what the plain run misses it by, for whatever reason, is no fault of
/// checkpointing, and rounding may take the checkpointed run further by the bound.
std::optional<Violation> compare_rounded(const Evidence& e, const Observation& a,
                                         const Observation& b, std::string_view law,
                                         std::string place) {
  const std::vector<Observation>& known = e.reference->run.observations;
  const auto found = std::find_if(known.begin(), known.end(), [&](const Observation& o) {
    return o.quantity == a.quantity && o.step == a.step && o.microbatch == a.microbatch &&
           o.index == a.index;
  });
  if (found == known.end() || !found->present || !(found->shape == a.shape)) return std::nullopt;
  const std::vector<double> plain = elements_of(e.plain, a);
  const auto m = misfit(*e.reference, static_cast<std::size_t>(found - known.begin()),
                        e.checkpointed, b, plain);
  if (!m) return std::nullopt;
  return Violation{law, std::move(place) + ", element " + std::to_string(m->element),
                   fmt::format("{:.9g} within {:.2g}", m->expected, m->bound),
                   fmt::format("{:.9g}, in the plain run {:.9g}", m->got, plain[m->element])};
}

/// Losses of one forward: one, or one for each output. The runs say how many.
std::size_t count_losses(const Evidence& e) {
  int last = 0;
  for (const Record* record : {&e.plain, &e.checkpointed}) {
    for (const Observation& o : record->observations) {
      if (o.quantity == Quantity::loss) last = std::max(last, o.index);
    }
  }
  return static_cast<std::size_t>(last) + 1;
}

}  // namespace

std::string input_gradient_name(int input) {
  if (input == 0) return "gradient of the model input";
  return "gradient of further model input " + std::to_string(input);
}

std::string value_name(const Evidence& e, Quantity quantity, int index) {
  switch (quantity) {
    case Quantity::output:
      return "output " + std::to_string(index);
    case Quantity::loss:
      return index == 0 ? "loss" : "further loss " + std::to_string(index);
    case Quantity::input_gradient:
      return input_gradient_name(index);
    case Quantity::parameter_gradient:
      return "gradient of " + parameter_name(e.c, e.geometry, index);
    case Quantity::parameter:
      return parameter_name(e.c, e.geometry, index);
    case Quantity::buffer: {
      const ParameterInfo& info = e.geometry.buffers[static_cast<std::size_t>(index)];
      return "buffer " + std::to_string(index) + " (layer " + std::to_string(info.layer) + " " +
             std::string(info.role) + ")";
    }
    case Quantity::reevaluation:
      return "reevaluation";
  }
  return "?";
}

std::optional<Violation> compare_values(const Evidence& e, Quantity quantity,
                                        std::string_view law) {
  const ProtocolSpec& p = e.c.protocol;
  const bool per_forward = quantity == Quantity::output || quantity == Quantity::loss ||
                           quantity == Quantity::input_gradient;
  std::size_t count = 1;
  if (quantity == Quantity::output) count = e.geometry.live.back().size();
  if (quantity == Quantity::loss) count = count_losses(e);
  if (quantity == Quantity::input_gradient) count = static_cast<std::size_t>(e.geometry.inputs);
  if (quantity == Quantity::buffer) count = e.geometry.buffers.size();
  if (quantity == Quantity::parameter || quantity == Quantity::parameter_gradient) {
    count = e.geometry.parameters.size();
  }
  const int first_step = quantity == Quantity::reevaluation ? p.steps - 1 : 0;
  const int microbatches = per_forward ? p.microbatches : 1;

  std::optional<Violation> violation;
  Finder plain(e.plain.observations);
  Finder checkpointed(e.checkpointed.observations);
  for (int step = first_step; step < p.steps; ++step) {
    for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
      for (int index = 0; index < static_cast<int>(count); ++index) {
        const auto here = [&](const Observation& o) {
          return o.quantity == quantity && o.step == step && o.microbatch == microbatch &&
                 o.index == index;
        };
        const Observation* a = plain.find(here);
        const Observation* b = checkpointed.find(here);
        const auto place = [&] {
          return (per_forward ? place_of(step, microbatch) : "step " + std::to_string(step)) +
                 ", " + value_name(e, quantity, index);
        };
        if (a == nullptr) return Violation{law, place(), "a value", "none in the plain run"};
        if (b == nullptr) return Violation{law, place(), form_of(*a), std::string(kNotRecorded)};
        if (is_gradient(quantity) && (!a->present || !b->present)) continue;
        if (a->present != b->present || a->dtype != b->dtype || !(a->shape == b->shape) ||
            a->bytes != b->bytes) {
          return Violation{law, place(), form_of(*a), form_of(*b)};
        }
        if (a->bytes == 0 || !comparable(e, quantity, step, microbatch, index)) continue;
        const auto expected = e.plain.bytes_of(*a);
        const auto got = e.checkpointed.bytes_of(*b);
        if (std::memcmp(expected.data(), got.data(), a->bytes) == 0) continue;
        if (e.rounds_differently || (e.sums_differently && !precedes_gradients(quantity, step))) {
          if (e.reference == nullptr) continue;
          if (auto v = compare_rounded(e, *a, *b, law, place())) return v;
          continue;
        }
        if (!violation) violation = first_difference(e, *a, *b, law, place());
        violation->sites.push_back({step, microbatch, index});
        violation->distances.push_back(
            distance(elements_of(e.plain, *a), elements_of(e.checkpointed, *b)));
        violation->distance =
            std::max(violation->distance.value_or(0), violation->distances.back());
      }
    }
  }
  return violation;
}

}  // namespace rematch
