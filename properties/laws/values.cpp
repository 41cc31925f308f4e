// The laws that compare one quantity of both runs.
#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view name_of(Quantity quantity) {
  switch (quantity) {
    case Quantity::output:
      return "outputs";
    case Quantity::loss:
      return "losses";
    case Quantity::input_gradient:
      return "input-gradients";
    case Quantity::parameter_gradient:
      return "parameter-gradients";
    case Quantity::parameter:
      return "parameters-after-step";
    case Quantity::buffer:
      return "buffers-after-step";
    case Quantity::reevaluation:
      return "reevaluation";
  }
  return {};
}

template <Quantity quantity>
std::optional<Violation> check_values(const Evidence& e) {
  return compare_values(e, quantity, name_of(quantity));
}

bool has_parameters(const Evidence& e) { return !e.geometry.parameters.empty(); }

}  // namespace

extern const Law outputs_law;
const Law outputs_law{.name = name_of(Quantity::output),
                      .statement = "Every forward returns the same bits as the plain run.",
                      .harm = "The model predicts something else as soon as it is checkpointed.",
                      .topic = Topic::numbers,
                      .check = check_values<Quantity::output>,
                      .reads = {Observable::outputs},
                      .compares_values = true};

extern const Law losses_law;
const Law losses_law{.name = name_of(Quantity::loss),
                     .statement = "Every loss has the same bits as in the plain run.",
                     .harm = "The loss that is reported and minimised is wrong.",
                     .topic = Topic::numbers,
                     .check = check_values<Quantity::loss>,
                     .reads = {Observable::losses},
                     .compares_values = true};

extern const Law input_gradients_law;
const Law input_gradients_law{
    .name = name_of(Quantity::input_gradient),
    .statement = "The gradient of the model input has the same bits as in the plain run.",
    .harm = "Whatever comes before the model is trained on wrong gradients.",
    .topic = Topic::numbers,
    .check = check_values<Quantity::input_gradient>,
    .reads = {Observable::input_gradients},
    .applies = [](const Evidence& e) { return e.c.protocol.input_requires_grad; },
    .compares_values = true};

extern const Law parameter_gradients_law;
const Law parameter_gradients_law{
    .name = name_of(Quantity::parameter_gradient),
    .statement = "Every parameter gradient has the same bits as in the plain run.",
    .harm = "The optimizer takes a step in the wrong direction.",
    .topic = Topic::numbers,
    .check = check_values<Quantity::parameter_gradient>,
    .reads = {Observable::parameter_gradients},
    .applies = has_parameters,
    .compares_values = true};

extern const Law parameters_after_step_law;
const Law parameters_after_step_law{
    .name = name_of(Quantity::parameter),
    .statement =
        "After every optimizer step, all parameters have the same bits as in the plain run.",
    .harm = "The model that is trained is another one.",
    .topic = Topic::numbers,
    .check = check_values<Quantity::parameter>,
    .reads = {Observable::parameters},
    .applies = has_parameters,
    .compares_values = true};

extern const Law buffers_after_step_law;
const Law buffers_after_step_law{
    .name = name_of(Quantity::buffer),
    .statement =
        "Each forward updates the running statistics once: after every step they have the "
        "same bits as in the plain run.",
    .harm =
        "Running statistics of BatchNorm and similar layers are wrong, and so is the model in "
        "eval mode.",
    .topic = Topic::state,
    .check = check_values<Quantity::buffer>,
    .reads = {Observable::buffers},
    .applies = [](const Evidence& e) { return !e.geometry.buffers.empty(); },
    .compares_values = true};

extern const Law reevaluation_law;
const Law reevaluation_law{
    .name = name_of(Quantity::reevaluation),
    .statement =
        "On an input that neither has seen, the model trained with checkpointing gives "
        "the same bits as the model trained without it.",
    .harm = "The trained model gives other results when it is used.",
    .topic = Topic::numbers,
    .check = check_values<Quantity::reevaluation>,
    .reads = {Observable::reevaluation},
    .applies = [](const Evidence& e) { return e.c.protocol.reevaluate; },
    .compares_values = true};

}  // namespace rematch
