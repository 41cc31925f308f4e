#pragma once

#include <string>

namespace rematch {

/// The JSON schema of every message of the protocol, as PROTOCOL.md describes them.
std::string protocol_schema();

}  // namespace rematch
