#include "properties/subjects/subject.h"

#include "properties/subjects/layer_agreement.h"

namespace rematch {

std::vector<LayerAgreement> Subject::compare_layers(const Case& /*c*/,
                                                    const Geometry& /*geometry*/) {
  return {};
}

}  // namespace rematch
