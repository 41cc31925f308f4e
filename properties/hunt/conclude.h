#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "properties/hunt/hunt.h"
#include "properties/hunt/tally.h"

namespace rematch {

/// Whether the hunt ends with these cases.
bool is_over(const HuntOptions& options, const Tally& tally);

/// What the cases came to, before anything is shrunk.
HuntResult result_of(const HuntOptions& options, const Tally& total, const Scope& scope,
                     const Versions& versions);

/// Shrinks these cases, and with keep_going one for each entry of the profile that some case
/// showed, into the findings of `result`. Calls `report(done, of)` now and then.
void shrink_into(HuntResult& result, const HuntOptions& options, const Tally& total,
                 std::vector<ViolatingCase> to_shrink,
                 const std::function<void(std::size_t done, std::size_t of)>& report);

}  // namespace rematch
