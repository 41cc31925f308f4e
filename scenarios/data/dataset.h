#pragma once

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace rematch::scenarios {

/// Pictures with their classes. Values are bytes, picture by picture, channel by channel, row by
/// row; labels are below `kClasses`.
struct Pictures {
  static constexpr int kClasses = 10;
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> values;
  std::vector<std::uint8_t> labels;

  std::int64_t count() const { return static_cast<std::int64_t>(labels.size()); }
  std::int64_t bytes_each() const { return channels * height * width; }
};

/// What is trained on, and what the training is judged by.
struct Dataset {
  std::string name;  ///< "Fashion-MNIST"
  Pictures train;
  Pictures test;
};

/// A file of a dataset is not what it should be. The text names the file, what was expected there
/// and what came.
class DataError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Where the package dataset-fashion-mnist of Debian and Ubuntu puts its files.
inline constexpr const char* kInstalledFashionMnist = "/usr/share/datasets/fashion-mnist";

/// CIFAR-10 where the environment variable REMATCH_CIFAR10 names a folder; else Fashion-MNIST, from
/// the folder that REMATCH_FASHION_MNIST names, or from `installed`. Throws DataError, and
/// Unavailable when nothing was asked for by name and there is no folder `installed`.
Dataset open_dataset(const std::filesystem::path& installed = kInstalledFashionMnist);

/// The four files of Fashion-MNIST, compressed as they are published, in `folder`. Throws
/// DataError.
Dataset read_fashion_mnist(const std::filesystem::path& folder);

/// CIFAR-10's binary version: data_batch_1.bin to data_batch_5.bin and test_batch.bin in `folder`.
/// Throws DataError.
Dataset read_cifar10(const std::filesystem::path& folder, std::int64_t records_a_file = 10'000);

}  // namespace rematch::scenarios
