#include "properties/layers/blocks.h"
#include "properties/layers/branch.h"

namespace rematch {

// A sample whose first value is positive exits: its values decide, and nothing is drawn.
constinit const Layer early_exit_layer{
    .name = "early_exit",
    .fields = {"frozen"},
    .shape = branch_shape,
    .facts = [](FactsWriter& w) { branch_facts(w, true); },
    .in_blocks = [](const FactsWriter& w) { return linear_in_blocks(w, w.x[w.x.rank() - 1]); },
    .bounds = [](rounding::LayerRun& l) { return rounding::branch_bounds(l, true); },
    .saves_vary = [](const LayerSpec&, bool) { return true; },
    .has_products = true,
    .has_parameters = true,
    .overwritable = true,
    .weights = {.rows = 8, .sequences = 8},
    .wide_floor = 1,
};

}  // namespace rematch
