#pragma once

namespace rematch::cli {

/// The program `rematch`: runs the command that `argv` names and returns the exit status. Subjects
/// that were added before (add_subject(), properties/hunt/registry.h) are judged like the engine;
/// the first of them is the default of `--subject`.
int run_program(int argc, char** argv);

}  // namespace rematch::cli
