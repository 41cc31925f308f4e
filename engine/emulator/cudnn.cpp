// cuDNN without a device: the real one plans, for an H200 that is described to it, and what it
// planned is computed here. So plans, engines and their notes are real, and the sums are not.

#include <cudnn.h>
#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "engine/cuda/testing/described_devices.h"
#include "engine/emulator/stream.h"
#include "engine/math/bfloat16.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace {

/// Values set on a descriptor, by attribute: numbers as bytes, descriptors as their records, since
/// a descriptor may be destroyed as soon as another one holds it.
struct Record {
  cudnnBackendDescriptorType_t type{};
  std::map<cudnnBackendAttributeName_t, std::vector<std::byte>> values;
  std::map<cudnnBackendAttributeName_t, std::shared_ptr<const Record>> parts;
  /// The second of two: of a graph, what is done with the convolution's sums.
  std::shared_ptr<const Record> second;

  template <typename T>
  [[nodiscard]] std::vector<T> get(cudnnBackendAttributeName_t name) const {
    const std::vector<std::byte>& bytes = values.at(name);
    std::vector<T> numbers(bytes.size() / sizeof(T));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  }
  [[nodiscard]] const Record& part(cudnnBackendAttributeName_t name) const {
    return *parts.at(name);
  }
};

struct Records {
  std::mutex mutex;
  std::map<cudnnBackendDescriptor_t, std::shared_ptr<Record>> map;

  std::shared_ptr<Record> of(cudnnBackendDescriptor_t d) {
    const std::lock_guard hold(mutex);
    return map.at(d);
  }
};
/// Never destroyed: threads may end after everything else.
Records& records() {
  static auto* const all = new Records;
  return *all;
}

template <typename Function>
Function* real(const char* name) {
  void* const found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) {
    std::fprintf(stderr, "emulated device: cuDNN has no %s\n", name);
    std::abort();
  }
  return reinterpret_cast<Function*>(found);
}
#define REMATCH_REAL(name) real<decltype(name)>(#name)

cudnnStatus_t real_set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                       cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
  static auto* const set = REMATCH_REAL(cudnnBackendSetAttribute);
  return set(d, name, type, count, values);
}

/// The device that plans are for.
cudnnBackendDescriptor_t described() {
  static const cudnnBackendDescriptor_t device = [] {
    cudnnBackendDescriptor_t made = nullptr;
    REMATCH_REAL(cudnnBackendCreateDescriptor)(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made);
    const std::string_view properties = rematch::cuda::testing::kH200;
    real_set(made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
             static_cast<std::int64_t>(properties.size()) + 1, properties.data());
    REMATCH_REAL(cudnnBackendFinalize)(made);
    return made;
  }();
  return device;
}

std::size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
      return 8;
    case CUDNN_TYPE_CHAR:
    case CUDNN_TYPE_BOOLEAN:
      return 1;
    default:
      return 4;
  }
}

using Numbers = std::vector<std::int64_t>;

struct Convolution {
  Numbers x;
  Numbers w;
  Numbers y;
  Numbers stride;
  Numbers padding;
};

/// Calls f(x index, w index, y index) for every product of the convolution.
template <typename F>
void for_each_product(const Convolution& c, const F& f) {
  const std::int64_t channels = c.w[1];
  for (std::int64_t n = 0; n < c.y[0]; ++n) {
    for (std::int64_t o = 0; o < c.y[1]; ++o) {
      for (std::int64_t row = 0; row < c.y[2]; ++row) {
        for (std::int64_t col = 0; col < c.y[3]; ++col) {
          const std::int64_t y = ((n * c.y[1] + o) * c.y[2] + row) * c.y[3] + col;
          for (std::int64_t k = 0; k < channels; ++k) {
            for (std::int64_t i = 0; i < c.w[2]; ++i) {
              const std::int64_t r = row * c.stride[0] - c.padding[0] + i;
              if (r < 0 || r >= c.x[2]) continue;
              for (std::int64_t j = 0; j < c.w[3]; ++j) {
                const std::int64_t q = col * c.stride[1] - c.padding[1] + j;
                if (q < 0 || q >= c.x[3]) continue;
                f(((n * c.x[1] + k) * c.x[2] + r) * c.x[3] + q,
                  ((o * channels + k) * c.w[2] + i) * c.w[3] + j, y);
              }
            }
          }
        }
      }
    }
  }
}

std::int64_t elements(const Numbers& extents) {
  std::int64_t product = 1;
  for (const std::int64_t e : extents) product *= e;
  return product;
}

struct Pass {
  cudnnBackendAttributeName_t convolution;
  cudnnBackendAttributeName_t x;
  cudnnBackendAttributeName_t w;
  cudnnBackendAttributeName_t y;
  cudnnBackendAttributeName_t alpha;
  cudnnBackendAttributeName_t beta;
};

Pass pass_of(cudnnBackendDescriptorType_t type) {
  if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) {
    return {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  }
  if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) {
    return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
  }
  return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

/// Tensors by the pointers that a variant pack has for them.
struct Arrays {
  void* x;
  void* w;
  void* y;
  /// Null where none is added.
  const void* bias;
};

template <typename T>
void compute(cudnnBackendDescriptorType_t type, const Convolution& c, const Arrays& arrays) {
  auto* const x = static_cast<T*>(arrays.x);
  auto* const w = static_cast<T*>(arrays.w);
  auto* const y = static_cast<T*>(arrays.y);
  const bool forward = type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
  const bool to_input = type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
  T* const out = forward ? y : to_input ? x : w;
  std::vector<double> sums(static_cast<std::size_t>(elements(forward    ? c.y
                                                             : to_input ? c.x
                                                                        : c.w)));
  if (arrays.bias != nullptr) {
    const auto* const bias = static_cast<const T*>(arrays.bias);
    const std::int64_t plane = c.y[2] * c.y[3];
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] = static_cast<double>(bias[static_cast<std::int64_t>(i) / plane % c.y[1]]);
    }
  }
  const auto add = [&](std::int64_t at, T a, T b) {
    sums[static_cast<std::size_t>(at)] += static_cast<double>(a) * static_cast<double>(b);
  };
  for_each_product(c, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
    if (forward) {
      add(k, x[i], w[j]);
    } else if (to_input) {
      add(i, y[k], w[j]);
    } else {
      add(j, y[k], x[i]);
    }
  });
  for (std::size_t i = 0; i < sums.size(); ++i) out[i] = static_cast<T>(sums[i]);
}

template <typename T>
bool is_plain_sum(const Record& operation, const Pass& names) {
  return operation.get<T>(names.alpha)[0] == T(1) && operation.get<T>(names.beta)[0] == T(0);
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* made) {
  static auto* const create = REMATCH_REAL(cudnnBackendCreateDescriptor);
  const cudnnStatus_t status = create(type, made);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  auto record = std::make_shared<Record>();
  record->type = type;
  const std::lock_guard hold(records().mutex);
  records().map[*made] = std::move(record);
  return status;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d) {
  static auto* const destroy = REMATCH_REAL(cudnnBackendDestroyDescriptor);
  {
    const std::lock_guard hold(records().mutex);
    records().map.erase(d);
  }
  return destroy(d);
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count,
                                       const void* values) {
  const auto record = records().of(d);
  if (type == CUDNN_TYPE_HANDLE) {
    if (name != CUDNN_ATTR_EXECUTION_PLAN_HANDLE) return CUDNN_STATUS_SUCCESS;
    cudnnBackendDescriptor_t device = described();
    return real_set(d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                    static_cast<const void*>(&device));
  }
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const auto* const given = static_cast<const cudnnBackendDescriptor_t*>(values);
    record->parts[name] = records().of(given[0]);
    if (count == 2) record->second = records().of(given[1]);
  } else {
    const auto* const bytes = static_cast<const std::byte*>(values);
    record->values[name].assign(bytes, bytes + size_of(type) * static_cast<std::size_t>(count));
  }
  return real_set(d, name, type, count, values);
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d) {
  static auto* const finalize = REMATCH_REAL(cudnnBackendFinalize);
  if (records().of(d)->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
    cudnnBackendDescriptor_t device = described();
    const cudnnStatus_t status =
        real_set(d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                 static_cast<const void*>(&device));
    if (status != CUDNN_STATUS_SUCCESS) return status;
  }
  return finalize(d);
}

cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t d,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t wanted,
                                       std::int64_t* count, void* values) {
  static auto* const get = REMATCH_REAL(cudnnBackendGetAttribute);
  const cudnnStatus_t status = get(d, name, type, wanted, count, values);
  if (status != CUDNN_STATUS_SUCCESS || name != CUDNN_ATTR_ENGINEHEUR_RESULTS ||
      values == nullptr) {
    return status;
  }
  // A configuration that was proposed belongs to the graph that it was proposed for.
  const auto graph = records().of(d)->parts.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  for (std::int64_t i = 0; i < *count && i < wanted; ++i) {
    records()
        .of(static_cast<cudnnBackendDescriptor_t*>(values)[i])
        ->parts[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH] = graph;
  }
  return status;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  const auto configured = records().of(plan);
  const auto packed = records().of(pack);
  const Record& graph = configured->part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
                            .part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  const Record& operation = graph.part(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  const Pass names = pass_of(operation.type);
  const Record& convolution = operation.part(names.convolution);
  const Record& x = operation.part(names.x);
  const auto element = x.get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)[0];
  const bool is_double = element == CUDNN_DATA_DOUBLE;
  if (is_double ? !is_plain_sum<double>(operation, names)
                : !is_plain_sum<float>(operation, names)) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }

  const auto ids = packed->get<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = packed->get<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  bool is_aligned = true;
  const auto pointer_of = [&](const Record& tensor) {
    const auto id = tensor.get<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID)[0];
    const auto alignment = tensor.get<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)[0];
    void* found = nullptr;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] == id) found = pointers[i];
    }
    is_aligned = is_aligned && found != nullptr &&
                 reinterpret_cast<std::uintptr_t>(found) % static_cast<std::size_t>(alignment) == 0;
    return found;
  };
  const Record& w = operation.part(names.w);
  const Record* const addition = graph.second.get();
  const Record& y = addition == nullptr ? operation.part(names.y)
                                        : addition->part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  const void* const bias = addition == nullptr
                               ? nullptr
                               : pointer_of(addition->part(CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
  const Arrays arrays{pointer_of(x), pointer_of(w), pointer_of(y), bias};
  if (!is_aligned) return CUDNN_STATUS_BAD_PARAM;

  const Convolution c{x.get<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
                      w.get<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
                      y.get<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
                      convolution.get<std::int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
                      convolution.get<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)};
  // A plan may be refused as late as this. That is rare, so here is a reason for it.
  if (c.padding[0] > c.w[2] || c.padding[1] > c.w[3]) return CUDNN_STATUS_NOT_SUPPORTED;
  std::int64_t scratch_bytes = 0;
  std::int64_t count = 0;
  cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                           &count, &scratch_bytes);
  void* const scratch = packed->get<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE)[0];
  if (scratch_bytes > 0 && scratch == nullptr) return CUDNN_STATUS_BAD_PARAM;
  if (rematch::emulator::outcome() != cudaSuccess) return CUDNN_STATUS_EXECUTION_FAILED;
  rematch::emulator::count(rematch::emulator::Asked::product);
  rematch::emulator::launch_kernel(
      handle->stream, "cudnnBackendExecute",
      [type = operation.type, c, arrays, element, scratch, scratch_bytes] {
        // The ends of what the plan may use are overwritten, so that no code relies on it.
        if (scratch_bytes > 0) {
          auto* const first = static_cast<unsigned char*>(scratch);
          first[0] = 0xff;
          first[scratch_bytes - 1] = 0xff;
        }
        const auto work = element == CUDNN_DATA_DOUBLE     ? compute<double>
                          : element == CUDNN_DATA_BFLOAT16 ? compute<rematch::math::BFloat16>
                                                           : compute<float>;
        work(type, c, arrays);
      });
  return rematch::emulator::outcome() == cudaSuccess ? CUDNN_STATUS_SUCCESS
                                                     : CUDNN_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
