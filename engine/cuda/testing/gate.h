#pragma once

#include <cuda_runtime_api.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <future>

#include "engine/cuda/runtime/context.h"

namespace rematch::cuda::testing {

/// Holds up the thread's stream until it is opened. A test that waits for the stream before that
/// would wait for ever: then the gate opens itself, late, and the test fails.
class Gate {
 public:
  Gate() { check(cudaLaunchHostFunc(stream(), wait, &opened_), "cudaLaunchHostFunc"); }
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open() {
    if (done_) return;
    done_ = true;
    open_.set_value();
    CHECK(cudaStreamSynchronize(stream()) == cudaSuccess);
    CHECK_FALSE(opened_.late);
  }

 private:
  struct Opened {
    std::shared_future<void> future;
    bool late = false;
  };
  static void wait(void* opened) {
    auto& mine = *static_cast<Opened*>(opened);
    mine.late = mine.future.wait_for(std::chrono::seconds(30)) == std::future_status::timeout;
  }

  std::promise<void> open_;
  Opened opened_{open_.get_future().share()};
  bool done_ = false;
};

}  // namespace rematch::cuda::testing
