#pragma once

#include <exception>
#include <thread>
#include <utility>

#include "engine/ambient/ambient.h"

namespace rematch::faulty {

/// Runs `body` on a thread of its own, in the ambient state of this one, and waits for it.
/// Rethrows its exception.
template <class Body>
void on_another_thread(Body body) {
  std::exception_ptr thrown;
  Ambient state = ambient();
  {
    const std::jthread thread([&] {
      ambient() = state;
      try {
        body();
      } catch (...) {
        thrown = std::current_exception();
      }
      ambient() = Ambient();
    });
  }
  if (thrown) std::rethrow_exception(std::move(thrown));
}

}  // namespace rematch::faulty
