#include "engine/cuda/runtime/cudnn_graph.h"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <utility>

#include "engine/cuda/runtime/libraries.h"

namespace rematch::cuda {

namespace {

// How the plan and the data that it is given name the arrays.
constexpr std::int64_t kX = 'x';
constexpr std::int64_t kWeight = 'w';
constexpr std::int64_t kY = 'y';
constexpr std::int64_t kBias = 'b';
constexpr std::int64_t kSum = 's';

/// The type that sums are made in.
cudnnDataType_t sum_type(const ConvolutionProblem& p) {
  return p.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

std::int64_t size_of(cudnnDataType_t type) {
  return type == CUDNN_DATA_DOUBLE ? 8 : type == CUDNN_DATA_FLOAT ? 4 : 2;
}

/// An array of the problem; kSum stays within the graph.
Descriptor tensor(const ConvolutionProblem& p, std::int64_t id,
                  const std::array<std::int64_t, 4>& extents) {
  std::array<std::int64_t, 4> strides{};
  std::int64_t stride = 1;
  for (std::size_t i = 4; i-- > 0; stride *= extents[i]) strides[i] = stride;
  const bool is_virtual = id == kSum;
  const cudnnDataType_t type = is_virtual ? sum_type(p) : p.type;
  const std::int64_t alignment = p.aligned ? 16 : size_of(type);
  Descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, &type);
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, extents.data(), 4);
  d.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides.data(), 4);
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, &id);
  d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, &alignment);
  if (is_virtual) d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, &is_virtual);
  d.finalize("a tensor");
  return d;
}

/// Not finalized yet, as below: y = sum + bias.
Descriptor bias_operation(const ConvolutionProblem& p, const Descriptor& sum, const Descriptor& y) {
  const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
  const cudnnDataType_t type = sum_type(p);
  Descriptor add(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  add.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, &mode);
  add.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, &type);
  add.finalize("an addition");
  Descriptor d(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, add);
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, sum);
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensor(p, kBias, {1, p.shape.out_c, 1, 1}));
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  return d;
}

/// Not finalized yet: cuDNN may not support it.
Descriptor convolution(const ConvolutionProblem& p) {
  const Conv2dShape& s = p.shape;
  const cudnnDataType_t type = sum_type(p);
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  const std::int64_t dimensions = 2;
  const std::array<std::int64_t, 2> strides{s.stride_h, s.stride_w};
  const std::array<std::int64_t, 2> padding{s.pad_h, s.pad_w};
  const std::array<std::int64_t, 2> dilation{1, 1};
  Descriptor d(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  d.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &type);
  d.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, &mode);
  d.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, &dimensions);
  d.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, padding.data(), 2);
  d.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, padding.data(), 2);
  d.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, dilation.data(), 2);
  d.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, strides.data(), 2);
  return d;
}

/// The names that the three passes give to the same attributes.
struct PassNames {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t convolution;
  cudnnBackendAttributeName_t x;
  cudnnBackendAttributeName_t weight;
  cudnnBackendAttributeName_t y;
  cudnnBackendAttributeName_t alpha;
  cudnnBackendAttributeName_t beta;
};

PassNames names_of(ConvolutionPass pass) {
  switch (pass) {
    case ConvolutionPass::forward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case ConvolutionPass::grad_input:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case ConvolutionPass::grad_weight:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

/// The problem as a graph; nullopt if cuDNN does not take it, such as a padding wider than the
/// kernel.
std::optional<Descriptor> graph(const ConvolutionProblem& p, bool for_this_device) {
  const Conv2dShape& s = p.shape;
  const PassNames names = names_of(p.pass);
  const Descriptor x = tensor(p, kX, {s.n, s.c, s.h, s.w});
  const Descriptor weight = tensor(p, kWeight, {s.out_c, s.c, s.kh, s.kw});
  const std::array<std::int64_t, 4> outputs{s.n, s.out_c, s.out_h(), s.out_w()};
  const Descriptor y = tensor(p, kY, outputs);
  const Descriptor sum = tensor(p, kSum, outputs);
  Descriptor conv = convolution(p);
  if (!conv.try_finalize()) return std::nullopt;
  Descriptor operation(names.operation);
  operation.set(names.convolution, conv);
  operation.set(names.x, x);
  operation.set(names.weight, weight);
  operation.set(names.y, p.bias ? sum : y);
  // The factors have the type that sums are made in.
  const double one = 1;
  const double none = 0;
  const float one_float = 1;
  const float none_float = 0;
  const bool is_double = p.type == CUDNN_DATA_DOUBLE;
  const auto type = is_double ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
  operation.set(names.alpha, type,
                is_double ? static_cast<const void*>(&one) : static_cast<const void*>(&one_float));
  operation.set(
      names.beta, type,
      is_double ? static_cast<const void*>(&none) : static_cast<const void*>(&none_float));
  if (!operation.try_finalize()) return std::nullopt;

  Descriptor d(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (for_this_device) {
    const cudnnHandle_t handle = cudnn_handle();
    d.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, &handle);
  }
  if (!p.bias) {
    d.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
    if (!d.try_finalize()) return std::nullopt;
    return d;
  }
  Descriptor addition = bias_operation(p, sum, y);
  if (!addition.try_finalize()) return std::nullopt;
  const std::array<cudnnBackendDescriptor_t, 2> both{operation.get(), addition.get()};
  d.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        static_cast<const void*>(both.data()), 2);
  if (!d.try_finalize()) return std::nullopt;
  return d;
}

/// Appends what a heuristic proposes; nothing if it knows nothing.
void append_proposals(const Descriptor& graph, const Descriptor* described,
                      cudnnBackendHeurMode_t mode, std::vector<Descriptor>& engines) {
  Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode);
  if (described != nullptr) heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *described);
  if (!heuristic.try_finalize()) return;
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
        "the number of a heuristic's results");
  std::vector<Descriptor> found;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < count; ++i) {
    raw.push_back(found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  }
  if (count == 0) return;
  std::int64_t filled = 0;
  check(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &filled,
                                 static_cast<void*>(raw.data())),
        "a heuristic's results");
  for (std::int64_t i = 0; i < std::min(filled, count); ++i) {
    engines.push_back(std::move(found[static_cast<std::size_t>(i)]));
  }
}

/// The engine that a configuration is for.
Descriptor engine_of(const Descriptor& config) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.get();
  std::int64_t count = 0;
  check(
      cudnnBackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, static_cast<void*>(&raw)),
      "the engine of a configuration");
  return engine;
}

std::int64_t number_of(const Descriptor& engine) {
  std::int64_t number = 0;
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                                 &count, &number),
        "the number of an engine");
  return number;
}

/// Whether the engine's notes allow it for the problem.
bool is_allowed(const ConvolutionProblem& p, const Descriptor& engine) {
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  std::int64_t noted = 0;
  check(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                 CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &noted,
                                 notes.data()),
        "the notes of an engine");
  const auto has = [&](cudnnBackendNumericalNote_t note) {
    const auto end = notes.begin() + std::min<std::int64_t>(noted, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
    return std::find(notes.begin(), end, note) != end;
  };
  // Among these are BwdFilter's algorithms 0 and 3 and BwdData's algorithm 0, which add atomically.
  if (has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) return false;
  if (has(CUDNN_NUMERICAL_NOTE_FFT) || has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)) {
    return false;
  }
  if (has(CUDNN_NUMERICAL_NOTE_WINOGRAD) || has(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6) ||
      has(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13)) {
    // conv2d.h derives the bound for the 4 x 4 tile of these two passes.
    const bool small_tile = has(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4) &&
                            !has(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6) &&
                            !has(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13);
    if (!small_tile || p.pass == ConvolutionPass::grad_weight) return false;
    // Operands that were transformed are no bfloat16 any more, and must not be rounded to it.
    if (p.type == CUDNN_DATA_BFLOAT16) return false;
  }
  if (p.tf32) return true;
  // With float64 operands tensor cores compute in float64, products of bfloat16 are exact there.
  return !has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) &&
         (p.type != CUDNN_DATA_FLOAT || !has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
}

}  // namespace

std::string_view to_string(ConvolutionPass pass) {
  constexpr std::array<std::string_view, 3> names{"forward", "grad_input", "grad_weight"};
  return names[static_cast<std::size_t>(pass)];
}

bool operator<(const ConvolutionProblem& a, const ConvolutionProblem& b) {
  const auto tied = [](const ConvolutionProblem& p) {
    const Conv2dShape& s = p.shape;
    return std::tie(s.n, s.c, s.h, s.w, s.out_c, s.kh, s.kw, s.stride_h, s.stride_w, s.pad_h,
                    s.pad_w, p.pass, p.type, p.tf32, p.aligned, p.bias);
  };
  return tied(a) < tied(b);
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t made = nullptr;
  check(cudnnBackendCreateDescriptor(type, &made), "cudnnBackendCreateDescriptor");
  owned_.reset(made);
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                     const void* values, std::int64_t count) {
  check(cudnnBackendSetAttribute(get(), name, type, count, values), "cudnnBackendSetAttribute");
}

void Descriptor::set(cudnnBackendAttributeName_t name, const Descriptor& value) {
  cudnnBackendDescriptor_t raw = value.get();
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<const void*>(&raw));
}

void Descriptor::finalize(std::string_view what) { check(cudnnBackendFinalize(get()), what); }

bool Descriptor::try_finalize() {
  const cudnnStatus_t status = cudnnBackendFinalize(get());
  // That memory is short does not mean that another engine should be chosen.
  if (is_out_of_memory(status)) check(status, "cudnnBackendFinalize");
  return status == CUDNN_STATUS_SUCCESS;
}

ConvolutionPlan::ConvolutionPlan(std::int64_t number, Descriptor engine, Descriptor plan, bool bias)
    : number_(number), bias_(bias), engine_(std::move(engine)), plan_(std::move(plan)) {
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                 CUDNN_TYPE_INT64, 1, &count, &scratch_bytes_),
        "the workspace size of a plan");
}

cudnnStatus_t ConvolutionPlan::run(const ConvolutionData& data, void* scratch) const {
  constexpr std::array<std::int64_t, 4> ids{kX, kWeight, kY, kBias};
  const std::array<const void*, 4> pointers{data.x, data.weight, data.y, data.bias};
  const std::int64_t count = bias_ ? 4 : 3;
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
           static_cast<const void*>(pointers.data()), count);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids.data(), count);
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
           static_cast<const void*>(&scratch));
  pack.finalize("a variant pack");
  return cudnnBackendExecute(cudnn_handle(), plan_.get(), pack.get());
}

ConvolutionCandidates::ConvolutionCandidates(const ConvolutionProblem& problem,
                                             const Descriptor* described)
    : problem_(problem), described_(described) {
  const std::optional<Descriptor> operations = graph(problem, described == nullptr);
  if (!operations) return;
  append_proposals(*operations, described, CUDNN_HEUR_MODE_A, engines_);
  append_proposals(*operations, described, CUDNN_HEUR_MODE_FALLBACK, engines_);
}

std::int64_t ConvolutionCandidates::engine(int i) const {
  return number_of(engine_of(engines_[static_cast<std::size_t>(i)]));
}

std::unique_ptr<ConvolutionPlan> ConvolutionCandidates::plan(int i) {
  Descriptor& config = engines_[static_cast<std::size_t>(i)];
  const Descriptor engine = engine_of(config);
  if (!is_allowed(problem_, engine)) return nullptr;
  Descriptor made(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (described_ == nullptr) {
    const cudnnHandle_t handle = cudnn_handle();
    made.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, &handle);
  } else {
    made.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *described_);
  }
  made.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (!made.try_finalize()) return nullptr;
  std::unique_ptr<ConvolutionPlan> plan(
      new ConvolutionPlan(number_of(engine), std::move(config), std::move(made), problem_.bias));
  if (plan->scratch_bytes() > kMaxLibraryScratch) return nullptr;
  return plan;
}

}  // namespace rematch::cuda
