// Draws from a seed and an offset: words, masks, factors and noise, bit for bit.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <functional>
#include <string>

#include "engine/ambient/ambient_scope.h"
#include "engine/ops/dropout.h"
#include "engine/ops/noise.h"
#include "engine/random/philox.h"
#include "golden/approvals/testing/approved.h"

namespace rematch::golden {
namespace {

class Listener final : public RunObserver {
 public:
  void on_draw(const Generator& before, std::int64_t elements,
               std::span<const std::byte> drawn) override {
    const std::size_t size = drawn.size() / static_cast<std::size_t>(elements);
    text = fmt::format("{} from {}:", elements, before.offset);
    for (std::size_t i = 0; i < drawn.size(); i += size) {
      // A mask as a row of digits, numbers as hexadecimal bits, the highest byte first.
      if (size == 1) {
        text += fmt::format("{}{:x}", i == 0 ? " " : "", std::to_integer<unsigned>(drawn[i]));
        continue;
      }
      text += " ";
      for (std::size_t k = size; k-- > 0;) {
        text += fmt::format("{:02x}", std::to_integer<unsigned>(drawn[i + k]));
      }
    }
  }
  std::string text;
};

struct Draw {
  std::string name;
  std::function<Tensor(const Tensor&)> op;
  std::int64_t elements;
  DType dtype = DType::float32;
};

std::vector<Draw> draws() {
  std::vector<Draw> list;
  for (const double p : {0.1, 0.5, 0.9}) {
    list.push_back(
        {fmt::format("dropout {}", p), [=](const Tensor& x) { return dropout(x, p); }, 67});
  }
  list.push_back({"rrelu", [](const Tensor& x) { return rrelu(x); }, 6});
  for (const DType dtype : {DType::float32, DType::float64}) {
    list.push_back({fmt::format("gaussian_noise {}", to_string(dtype)),
                    [](const Tensor& x) { return gaussian_noise(x, 0.5); }, 6, dtype});
  }
  return list;
}

struct Start {
  std::uint64_t seed;
  std::uint64_t offset;
};
constexpr Start kStarts[] = {{0, 0}, {42, 0}, {42, 12}, {0x0123456789abcdef, 0x400000000}};

Json drawn() {
  Json entries = Json::object();
  for (const Start& start : kStarts) {
    const std::string from = fmt::format("seed {} offset {}", start.seed, start.offset);
    std::string words;
    for (std::uint64_t i = 0; i < 8; ++i) {
      words += fmt::format("{}{:08x}", i == 0 ? "" : " ",
                           PhiloxStream{start.seed, 0}.word(start.offset + i));
    }
    entries["words, " + from] = words;
    for (const Draw& draw : draws()) {
      Listener listener;
      const AmbientScope scope(std::make_shared<Ledger>(), start.seed);
      ambient().streams.at(0).offset = start.offset;
      ambient().observer = &listener;
      const std::vector<double> values(static_cast<std::size_t>(draw.elements), -1.0);
      draw.op(Tensor::from(values, {draw.elements}, draw.dtype));
      entries[draw.name + ", " + from] = listener.text;
    }
  }
  return entries;
}

}  // namespace

TEST_CASE("words, masks and noise of a seed and an offset are those that were approved",
          "[approved]") {
  const std::string difference = difference_from_approved("draws", drawn());
  if (!difference.empty()) FAIL(difference);
}

}  // namespace rematch::golden
