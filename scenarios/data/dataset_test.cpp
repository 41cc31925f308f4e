#include "scenarios/data/dataset.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <optional>

#include "scenarios/data/testing/folder.h"
#include "scenarios/report/scenario.h"

namespace rematch::scenarios {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using testing::Bytes;
using testing::Folder;
using testing::gzip;
using testing::idx;

constexpr std::size_t kGrey = 28 * 28;
constexpr std::size_t kColour = 3 * 32 * 32;

/// Three pictures to train with and two to test with; picture i is filled with i.
void write_fashion_mnist(const Folder& folder) {
  const auto pictures = [](std::uint32_t count) {
    Bytes values;
    for (std::uint32_t i = 0; i < count; ++i) {
      values.insert(values.end(), kGrey, static_cast<std::uint8_t>(i));
    }
    return gzip(idx({count, 28, 28}, values));
  };
  folder.write("train-images-idx3-ubyte.gz", pictures(3));
  folder.write("train-labels-idx1-ubyte.gz", gzip(idx({3}, {9, 0, 4})));
  folder.write("t10k-images-idx3-ubyte.gz", pictures(2));
  folder.write("t10k-labels-idx1-ubyte.gz", gzip(idx({2}, {5, 6})));
}

/// One record a file, its label the number of the file.
void write_cifar10(const Folder& folder) {
  for (std::uint8_t i = 1; i <= 6; ++i) {
    Bytes record(1 + kColour, static_cast<std::uint8_t>(10 * i));
    record[0] = i;
    folder.write(i < 6 ? "data_batch_" + std::to_string(i) + ".bin" : "test_batch.bin", record);
  }
}

/// An environment variable for a scope.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    set(value);
  }
  ~Setting() { set(before_ ? before_->c_str() : nullptr); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  void set(const char* value) const {
    if (value != nullptr) {
      setenv(name_, value, 1);
    } else {
      unsetenv(name_);
    }
  }
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace

TEST_CASE("Fashion-MNIST's four files become its two parts") {
  const Folder folder;
  write_fashion_mnist(folder);
  const Dataset data = read_fashion_mnist(folder.path());
  CHECK(data.name == "Fashion-MNIST");
  CHECK(data.train.count() == 3);
  CHECK(data.train.bytes_each() == 784);
  CHECK(data.train.labels == Bytes{9, 0, 4});
  CHECK(data.train.values[kGrey * 2] == 2);
  CHECK(data.test.labels == Bytes{5, 6});
  CHECK(data.test.values.size() == 2 * kGrey);
}

TEST_CASE("Fashion-MNIST with a part that does not fit is refused by the name of the file") {
  const Folder folder;
  const auto refused_for = [&](const char* text) {
    CHECK_THROWS_MATCHES(read_fashion_mnist(folder.path()), DataError,
                         MessageMatches(ContainsSubstring(text)));
  };
  refused_for("train-images-idx3-ubyte.gz");
  write_fashion_mnist(folder);
  folder.write("t10k-labels-idx1-ubyte.gz", gzip(idx({3}, {1, 2, 3})));
  refused_for("expected 2 labels, one for each picture of t10k-images-idx3-ubyte.gz, got 3");
  folder.write("t10k-labels-idx1-ubyte.gz", gzip(idx({2}, {1, 10})));
  refused_for("expected labels below 10, got 10 for picture 1");
  folder.write("t10k-images-idx3-ubyte.gz", gzip(idx({1, 2, 2}, {0, 0, 0, 0})));
  refused_for("expected pictures of 28 x 28, got extents [1, 2, 2]");
  folder.write("t10k-images-idx3-ubyte.gz", gzip(idx({0, 28, 28}, {})));
  refused_for("got extents [0, 28, 28]");
}

TEST_CASE("CIFAR-10's six files become its two parts") {
  const Folder folder;
  write_cifar10(folder);
  const Dataset data = read_cifar10(folder.path(), 1);
  CHECK(data.name == "CIFAR-10");
  CHECK(data.train.labels == Bytes{1, 2, 3, 4, 5});
  CHECK(data.train.bytes_each() == 3072);
  CHECK(data.train.values.size() == 5 * kColour);
  CHECK(data.train.values[4 * kColour] == 50);
  CHECK(data.test.labels == Bytes{6});
}

TEST_CASE("CIFAR-10 with a file that is missing, cut off, too long or mislabelled is refused") {
  const Folder folder;
  const auto refused_for = [&](const char* text) {
    CHECK_THROWS_MATCHES(read_cifar10(folder.path(), 1), DataError,
                         MessageMatches(ContainsSubstring(text)));
  };
  refused_for("data_batch_1.bin: expected a file of CIFAR-10's binary version, got none");
  write_cifar10(folder);
  folder.write("data_batch_5.bin", Bytes(kColour, 0));
  refused_for("data_batch_5.bin: expected 1 records of 3073 bytes, 3073 bytes in all, got 3072");
  folder.write("data_batch_5.bin", Bytes(2 * kColour + 2, 0));
  refused_for("got 6146 bytes");
  folder.write("data_batch_5.bin", Bytes(1 + kColour, 10));
  refused_for("expected a label below 10 in record 0, got 10");
}

TEST_CASE("the environment chooses the dataset, and what it names must be there") {
  const Folder fashion;
  const Folder cifar;
  write_fashion_mnist(fashion);
  const Setting none("REMATCH_CIFAR10", nullptr);
  const Setting named("REMATCH_FASHION_MNIST", fashion.path().c_str());
  CHECK(open_dataset().name == "Fashion-MNIST");
  const Setting both("REMATCH_CIFAR10", cifar.path().c_str());
  // Asked for by name and not there: an error, never the other dataset.
  CHECK_THROWS_MATCHES(open_dataset(), DataError,
                       MessageMatches(ContainsSubstring("data_batch_1.bin")));
}

TEST_CASE("without a dataset the text says what to install") {
  const Folder folder;
  const Setting cifar("REMATCH_CIFAR10", nullptr);
  const Setting fashion("REMATCH_FASHION_MNIST", "");
  CHECK_THROWS_MATCHES(open_dataset(folder.path() / "none"), Unavailable,
                       MessageMatches(ContainsSubstring("run ci/setup") &&
                                      ContainsSubstring("dataset-fashion-mnist")));
  write_fashion_mnist(folder);
  CHECK(open_dataset(folder.path()).train.count() == 3);
}

}  // namespace rematch::scenarios
