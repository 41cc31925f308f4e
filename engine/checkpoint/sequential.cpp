#include "engine/checkpoint/sequential.h"

#include <string>

#include "engine/checkpoint/sequence.h"

namespace rematch {

Function compose(std::span<const Function> functions) { return Sequence(functions); }

Tensors checkpoint_sequential(std::span<const Function> functions, int segments,
                              const Tensors& inputs, LastSegment last,
                              const CheckpointOptions& options) {
  const int layers = static_cast<int>(functions.size());
  if (layers == 0) {
    throw std::invalid_argument("[checkpoint_sequential] at least one function expected, got none");
  }
  if (segments < 1 || segments > layers) {
    throw std::invalid_argument("[checkpoint_sequential] segments must be in 1.." +
                                std::to_string(layers) + ", got " + std::to_string(segments));
  }
  for (int i = 0; i < layers; ++i) {
    if (!functions[static_cast<std::size_t>(i)]) {
      throw std::invalid_argument("[checkpoint_sequential] function " + std::to_string(i) +
                                  " is empty");
    }
  }
  const Mechanics& mechanics = mechanics_of(options);
  Tensors values = inputs;
  for (const Segment& s : mechanics.partition(layers, segments, last)) {
    const auto part = functions.subspan(static_cast<std::size_t>(s.begin),
                                        static_cast<std::size_t>(s.end - s.begin));
    if (s.checkpointed) {
      values = checkpoint(compose(part), values, options);
    } else {
      for (const Function& f : part) values = f(values);
    }
  }
  return values;
}

}  // namespace rematch
