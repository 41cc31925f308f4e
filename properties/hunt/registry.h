#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/memory/resource.h"
#include "properties/record/subject.h"
#include "properties/subjects/process_subject.h"

namespace rematch {

/// A new subject by name: "engine", "engine:R1" for the engine with fault R1, one that was added,
/// a framework or a function that `python` runs (framework_command()), the path of a
/// program, or a command line of at least two words, whose process is judged
/// (properties/subjects/PROTOCOL.md). Throws
/// std::invalid_argument that names the nearest, SubjectBroken for a process that does not say
/// hello, and cuda::DeviceError where there is no such device.
std::unique_ptr<Subject> make_subject(std::string_view name, Device device = Device::cpu,
                                      ProcessLimits limits = {}, const std::string& python = "");

std::vector<std::string> subject_names();

/// Makes a subject that runs on the device. Throws where it cannot.
using SubjectMaker = std::function<std::unique_ptr<Subject>(Device)>;

/// Adds a subject of the program's own. To be called before any other thread is started. Throws
/// std::invalid_argument for a name that is taken, empty, or no single word.
void add_subject(const std::string& name, SubjectMaker make);

/// The subject that is meant where none is named: the first that was added, or the engine.
std::string default_subject();

/// Whether the subject runs in this process, on the device that make_subject() is given; a subject
/// in another process chooses its own.
bool is_in_process(std::string_view name);

}  // namespace rematch
