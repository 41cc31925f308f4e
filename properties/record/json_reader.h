#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "properties/record/record.h"

namespace rematch {

/// How much there is of what the entries of a record name.
struct RecordBounds {
  int layers = kMostCounted;
  int steps = kMostCounted;
  int microbatches = kMostCounted;
  int parameters = kMostCounted;

  static constexpr int kMostCounted = 1 << 24;
};

/// Reads a record that is part of other JSON, where `path` leads to it. An array may be given as
/// that of the same observation in `before`, unless that is nullptr. Throws as record_from_json().
void read_record(const nlohmann::json& json, const std::string& path, const RecordBounds& bounds,
                 const Record* before, Record& record);

}  // namespace rematch
