#include "scenarios/data/dataset.h"

#include <cstdlib>
#include <system_error>

#include "scenarios/report/scenario.h"

namespace rematch::scenarios {
namespace {

namespace fs = std::filesystem;

const char* setting(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

}  // namespace

Dataset open_dataset(const fs::path& installed) {
  if (const char* folder = setting("REMATCH_CIFAR10")) return read_cifar10(folder);
  if (const char* folder = setting("REMATCH_FASHION_MNIST")) return read_fashion_mnist(folder);
  std::error_code error;
  if (!fs::is_directory(installed, error)) {
    throw Unavailable(
        "Fashion-MNIST is not installed: run ci/setup, or install the package "
        "dataset-fashion-mnist of Debian or Ubuntu, or let REMATCH_FASHION_MNIST name a folder "
        "with "
        "its four .gz files (or REMATCH_CIFAR10 one with CIFAR-10's binary version)");
  }
  return read_fashion_mnist(installed);
}

}  // namespace rematch::scenarios
