#include <array>
#include <map>

#include "properties/faults/families.h"
#include "properties/faults/support.h"
#include "properties/faults/threads.h"

namespace rematch {
namespace faulty {
namespace {

/// C2: segments take turns between two buffers.
struct SlotByParity {
  using Buffer = std::vector<std::vector<std::byte>>;

  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) {
    if (ambient().backward_id != 0) return checkpoint(f, in, options);
    Buffer& slot = slots[calls++ % 2];
    slot.clear();
    for (const Tensor& t : in) slot.push_back(bytes_of(t));
    return checkpoint(around(f, run_function,
                             [&slot](const Function& g, const Tensors& x) {
                               for (std::size_t i = 0; i < x.size() && i < slot.size(); ++i) {
                                 Tensor same = x[i];
                                 const auto bytes = static_cast<std::size_t>(same.bytes());
                                 if (slot[i].size() == bytes) same.copy_from_host(slot[i]);
                               }
                               return g(x);
                             }),
                      in, options);
  }

  std::size_t calls = 0;
  std::array<Buffer, 2> slots;
};

/// C4: each of two threads finds no recomputation and makes one.
Tensors recomputed_by_two_threads(const Function& g, const Tensors& x) {
  on_another_thread([&] {
    const GradMode no_grad(false);
    const HookScope no_hooks(nullptr);
    ambient().ops = nullptr;
    g(x);
  });
  return g(x);
}

}  // namespace
}  // namespace faulty

std::span<const Fault> concurrency_faults() {
  using namespace faulty;
  constexpr std::string_view kStreams = "a GPU, where copy and computation overlap";
  constexpr std::string_view kCapture = "a GPU, and a step captured in a graph";
  static const std::array table{
      Fault{"C1", "No event orders a copy to the host before the memory is used again.",
            "meta-pytorch/torchtune#1867", nullptr, "", kStreams},
      Fault{"C2", "Two alternating buffers hold the inputs of all segments.", "",
            with_checkpoint<SlotByParity>},
      Fault{"C3", "The computation waits for a different stream than the one that copies.", "",
            nullptr, "", kStreams},
      Fault{"C4", "Two threads both find no recomputation, and each starts one.", "",
            with_runs<recomputed_by_two_threads>},
      Fault{"C5", "The host waits for the device within a step that is being captured.",
            "pytorch/pytorch#162504", nullptr, "", kCapture},
      Fault{"C6", "A recomputation runs on another stream, and nothing waits for it.", "", nullptr,
            "", kStreams},
      Fault{"C7", "A captured step draws the same masks each time it is launched.",
            "pytorch/pytorch#162504", nullptr, "", kCapture},
  };
  return table;
}

}  // namespace rematch
