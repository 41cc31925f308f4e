#include "properties/cli/program.h"

int main(int argc, char** argv) { return rematch::cli::run_program(argc, argv); }
