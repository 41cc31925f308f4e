#pragma once

#include <cstring>
#include <memory>

#include "engine/ambient/ambient.h"
#include "engine/tensor/tensor.h"

namespace rematch::testing {

/// A fresh ambient state, seeded, with a ledger of its own, for the length of a test.
class FreshAmbient {
 public:
  explicit FreshAmbient(std::uint64_t seed = 7) : outer_(ambient()) {
    ambient() = Ambient();
    ambient().streams.seed(seed);
    ambient().ledger->set_poison(true);
  }
  ~FreshAmbient() { ambient() = outer_; }
  FreshAmbient(const FreshAmbient&) = delete;
  FreshAmbient& operator=(const FreshAmbient&) = delete;

  Ledger& ledger() { return *ambient().ledger; }

 private:
  Ambient outer_;
};

/// Same shape, dtype and bits; two undefined tensors are the same, too.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())) == 0;
}

}  // namespace rematch::testing
