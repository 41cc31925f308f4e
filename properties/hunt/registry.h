#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/memory/resource.h"
#include "properties/record/subject.h"
#include "properties/subjects/process_subject.h"

namespace rematch {

/// A new subject by name: "engine", "engine:R1" for the engine with fault R1, or a command line of
/// at least two words, whose process is judged (properties/subjects/PROTOCOL.md). Throws
/// std::invalid_argument that lists the known names, SubjectBroken for a process that does not say
/// hello, and cuda::DeviceError where there is no such device.
std::unique_ptr<Subject> make_subject(std::string_view name, Device device = Device::cpu,
                                      ProcessLimits limits = {});

std::vector<std::string> subject_names();

}  // namespace rematch
