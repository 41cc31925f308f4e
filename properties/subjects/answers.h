#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "properties/case/geometry.h"
#include "properties/record/subject.h"

namespace rematch {

/// Reads what a process answers, by PROTOCOL.md. The text may be anything: what is not by the
/// protocol is a std::invalid_argument with the place, what was expected and what came.

inline constexpr int kProtocol = 1;

/// The JSON schema of every message of the protocol, requests included.
std::string protocol_schema();

/// The first answer of a process.
struct Hello {
  Declaration declaration;
  /// Large arrays may be passed by file.
  bool files = false;
};

Hello read_hello(std::string_view text);

/// Reads the record of a run of `c`, whose request had this id. `before` is the record that the
/// process gave for the same case before, or nullptr. Throws NotJudged and SubjectBroken, in the
/// name of `subject`, where the answer says so.
void read_run_answer(std::string_view text, std::uint64_t id, const std::string& subject,
                     const Case& c, const Geometry& geometry, const Record* before, Record& record);

/// The script of an answer to an export request. Throws as read_run_answer() does.
std::string read_export_answer(std::string_view text, std::uint64_t id, const std::string& subject);

}  // namespace rematch
