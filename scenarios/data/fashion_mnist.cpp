#include <fmt/format.h>

#include <algorithm>

#include "scenarios/data/dataset.h"
#include "scenarios/data/idx_file.h"

namespace rematch::scenarios {
namespace {

/// Twice what the larger part has: a header that asks for more is not of this dataset.
constexpr std::int64_t kMaxPictures = 120'000;
constexpr std::int64_t kFashionSide = 28;

Pictures read_part(const std::filesystem::path& folder, const char* prefix) {
  const auto picture_file = folder / fmt::format("{}-images-idx3-ubyte.gz", prefix);
  const auto label_file = folder / fmt::format("{}-labels-idx1-ubyte.gz", prefix);
  IdxArray pictures = read_idx_file(picture_file, 3, kMaxPictures * kFashionSide * kFashionSide);
  IdxArray labels = read_idx_file(label_file, 1, kMaxPictures);
  const std::int64_t count = pictures.extents[0];
  if (count == 0 || pictures.extents[1] != kFashionSide || pictures.extents[2] != kFashionSide) {
    throw DataError(fmt::format("{}: expected pictures of {} x {}, got extents [{}]",
                                picture_file.string(), kFashionSide, kFashionSide,
                                fmt::join(pictures.extents, ", ")));
  }
  if (labels.extents[0] != count) {
    throw DataError(fmt::format("{}: expected {} labels, one for each picture of {}, got {}",
                                label_file.string(), count, picture_file.filename().string(),
                                labels.extents[0]));
  }
  const auto wrong = std::find_if(labels.values.begin(), labels.values.end(),
                                  [](std::uint8_t l) { return l >= Pictures::kClasses; });
  if (wrong != labels.values.end()) {
    throw DataError(fmt::format("{}: expected labels below {}, got {} for picture {}",
                                label_file.string(), Pictures::kClasses, *wrong,
                                wrong - labels.values.begin()));
  }
  return {1, kFashionSide, kFashionSide, std::move(pictures.values), std::move(labels.values)};
}

}  // namespace

Dataset read_fashion_mnist(const std::filesystem::path& folder) {
  return {"Fashion-MNIST", read_part(folder, "train"), read_part(folder, "t10k")};
}

}  // namespace rematch::scenarios
