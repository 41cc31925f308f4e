#pragma once

#include <catch2/catch_test_macros.hpp>

#include "engine/autograd/offload.h"
#include "engine/testing/ledger_scope.h"

namespace rematch::testing {

/// A LedgerScope with an offload, whose ledger must be left empty as well.
class OffloadFixture : public LedgerScope {
 public:
  OffloadFixture() { host().set_poison(true); }
  ~OffloadFixture() { CHECK(host().live() == 0); }
  OffloadFixture(const OffloadFixture&) = delete;
  OffloadFixture& operator=(const OffloadFixture&) = delete;

  Ledger& host() const { return offload_.ledger(); }
  Offload& offload() { return offload_; }

 private:
  Offload offload_;
};

}  // namespace rematch::testing
