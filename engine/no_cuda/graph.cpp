#include "engine/cuda/runtime/graph.h"

#include "engine/cuda/runtime/device.h"

namespace rematch::cuda {

struct Graph::State {};

Graph::Graph(Streams& /*streams*/, const std::function<void()>& /*step*/) {
  require_device("graph");
}
Graph::~Graph() = default;
void Graph::run() {}

}  // namespace rematch::cuda
