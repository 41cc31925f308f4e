#pragma once

// A convolution, with or without its bias, or one of its gradients as a graph in cuDNN's backend
// API, which is what its C++ front end wraps; four kinds of node do not need 40,000 lines of
// headers.

#include <cudnn.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/cuda/runtime/device.h"
#include "engine/kernels/conv2d.h"

namespace rematch::cuda {

enum class ConvolutionPass : std::uint8_t { forward, grad_input, grad_weight };
std::string_view to_string(ConvolutionPass pass);

/// All that a plan may depend on, and so the bits.
struct ConvolutionProblem {
  Conv2dShape shape;
  ConvolutionPass pass = ConvolutionPass::forward;
  /// Type of all arrays. Sums of bfloat16 products are float32's, and rounded once.
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  bool tf32 = false;
  /// All pointers are aligned to 16 bytes, else to an element's size.
  bool aligned = false;
  /// A bias is added to the sums of a forward pass before they are rounded.
  bool bias = false;

  friend bool operator<(const ConvolutionProblem& a, const ConvolutionProblem& b);
};

/// The arrays of a pass, one of them its result; the bias's is read where the problem has one.
struct ConvolutionData {
  const void* x;
  const void* weight;
  const void* y;
  const void* bias = nullptr;
};

/// An owned descriptor of the backend API.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);

  [[nodiscard]] cudnnBackendDescriptor_t get() const { return owned_.get(); }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const void* values,
           std::int64_t count = 1);
  void set(cudnnBackendAttributeName_t name, const Descriptor& value);
  void finalize(std::string_view what);
  /// For what cuDNN may not support: nothing is thrown then.
  [[nodiscard]] bool try_finalize();

 private:
  struct Destroy {
    void operator()(void* descriptor) const { cudnnBackendDestroyDescriptor(descriptor); }
  };
  std::unique_ptr<void, Destroy> owned_;
};

/// A plan of one thread for a problem, made from an engine configuration that cuDNN proposed.
class ConvolutionPlan {
 public:
  /// Its engine's number among cuDNN's engines for the pass.
  [[nodiscard]] std::int64_t engine() const { return number_; }
  [[nodiscard]] std::int64_t scratch_bytes() const { return scratch_bytes_; }

  /// Queues the work on stream().
  [[nodiscard]] cudnnStatus_t run(const ConvolutionData& data, void* scratch) const;

 private:
  friend class ConvolutionCandidates;
  ConvolutionPlan(std::int64_t number, Descriptor engine, Descriptor plan, bool bias);

  std::int64_t number_;
  bool bias_;
  Descriptor engine_;
  Descriptor plan_;
  std::int64_t scratch_bytes_ = 0;
};

/// The engine configurations that cuDNN proposes for a problem: those of its heuristic (mode A),
/// best first, then its fallbacks. In one process a problem has the same list every time.
class ConvolutionCandidates {
 public:
  /// For the calling thread's device; or, with a finalized description of one (cuDNN's "device
  /// properties"), for a device that need not be there: such plans can be looked at, and not run.
  /// The description has to outlive this.
  explicit ConvolutionCandidates(const ConvolutionProblem& problem,
                                 const Descriptor* described = nullptr);

  [[nodiscard]] int count() const { return static_cast<int>(engines_.size()); }
  /// The number of candidate `i`'s engine, before plan() has taken it.
  [[nodiscard]] std::int64_t engine(int i) const;
  /// The plan of candidate `i`; nullptr if its engine is not deterministic, less precise than the
  /// problem asks for, not able to run it, or in want of too much scratch. Once a candidate.
  std::unique_ptr<ConvolutionPlan> plan(int i);

 private:
  ConvolutionProblem problem_;
  const Descriptor* described_;
  std::vector<Descriptor> engines_;
};

}  // namespace rematch::cuda
