#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/build/build_info.h"
#include "engine/cpu/chain.h"
#include "properties/hunt/hunt.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {

TEST_CASE("the first cases of each mix have the same records on every machine") {
#ifdef REMATCH_NATIVE
  SKIP("the bits of a native build hold on its own machine only");
#endif
  std::ifstream in(REMATCH_SOURCE_DIR "/golden/approvals/records.json");
  const nlohmann::json golden = nlohmann::json::parse(in);
  REQUIRE(golden.at("format") == 1);
  const auto vectors = GENERATE(cpu::Vectors::avx2, cpu::Vectors::avx512);
  if (vectors > cpu::best_vectors()) SKIP("this CPU has no " << to_string(vectors));
  for (const Mix mix : {Mix::standard, Mix::wide}) {
    HuntOptions options;
    options.mix = mix;
    options.seed = golden.at("seed");
    options.cases = golden.at("cases").get<std::uint64_t>();
    options.jobs = 2;
    // Called on the thread that will run the cases.
    options.make_subject = [=] {
      cpu::set_vectors(vectors);
      return std::make_unique<EngineSubject>();
    };
    const HuntResult result = hunt(options);
    INFO("mix " << to_string(mix) << ", build " << build_kind() << ", " << to_string(vectors)
                << "; if cases or records were changed on purpose: golden/make_records");
    CHECK(result.passed());
    CHECK(fmt::format("{:016x}", result.record_hash) ==
          golden.at("record_hash").at(std::string(to_string(mix))).get<std::string>());
  }
}

}  // namespace rematch
