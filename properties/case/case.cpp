#include "properties/case/case.h"

#include "properties/case/names.h"

namespace rematch {

std::string_view to_string(Variant variant) { return name_of(variant); }
std::string_view to_string(CheckKind check) { return name_of(check); }
std::string_view to_string(Arguments arguments) { return name_of(arguments); }
std::string_view to_string(LossKind loss) { return name_of(loss); }
std::string_view to_string(OptimizerKind optimizer) { return name_of(optimizer); }
std::string_view to_string(AutocastSpan span) { return name_of(span); }
std::string_view to_string(DataKind data) { return name_of(data); }
std::string_view to_string(FailureKind kind) { return name_of(kind); }

}  // namespace rematch
