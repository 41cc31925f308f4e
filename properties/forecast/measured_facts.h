#pragma once

#include "properties/case/case.h"
#include "properties/case/geometry.h"
#include "properties/layers/facts.h"
#include "properties/record/observable.h"
#include "properties/record/record.h"

namespace rematch {

/// Replaces in `facts` what the plain run shows of each layer, as far as the subject observes it:
/// the tensors that it saves (saved_tensors), the numbers that it draws (draws), and whether it
/// computes (computations). The rest stays, above all which layers are identities or views.
void measure_facts(const Case& c, const Geometry& geometry, const Record& plain,
                   const Observables& observed, Facts& facts);

/// Lets every layer compute, and save something that its backward wants: for subjects that
/// recompute a segment whatever its layers save (Declaration::whole_segments). Bytes then mean
/// nothing.
void save_in_every_layer(Facts& facts);

}  // namespace rematch
