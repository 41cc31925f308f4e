// The programs on a device that is lost, or cannot be used: an emulated one.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "properties/testing/shell.h"

namespace rematch {
namespace {

using testing::contains;
using testing::Outcome;
using testing::run_line;
using testing::ScratchFolder;
using Json = nlohmann::json;

constexpr const char* kCheck = "check --device cuda --mix wide --seed 1 --no-regressions --cases ";
constexpr const char* kPooling =
    R"({"format": 1, "input": [1, 1, 2, 2], "layers": [{"kind": "max_pool2d", "kernel": 2}]})";

Outcome run(const std::string& variables, const std::string& arguments,
            const ScratchFolder& folder) {
  return run_line(variables + " '" REMATCH_PROGRAM "' " + arguments, folder.path());
}

Json json_in(const std::string& out) {
  const std::size_t begin = out.find("{\n");
  return Json::parse(out.substr(begin, out.rfind("}\n") + 1 - begin));
}

}  // namespace

TEST_CASE("a case whose kernel faults is found and shrunk to that kernel, for any number of jobs") {
  const ScratchFolder folder;
  Json one;
  for (const char* jobs : {"1", "3"}) {
    const Outcome o = run("REMATCH_EMULATOR_LOSE_IN=max_pool",
                          kCheck + std::string("100 --json --jobs ") + jobs, folder);
    INFO(o.out);
    REQUIRE(o.status == 1);
    const Json finding = json_in(o.out)["findings"].at(0);
    CHECK(finding["law"] == "survives");
    CHECK(contains(finding["got"].get<std::string>(), "max_pool2d_forward"));
    CHECK(contains(finding["got"].get<std::string>(), "the device context is lost"));
    REQUIRE(finding["case"]["layers"].size() == 1);
    CHECK(finding["case"]["layers"][0]["kind"] == "max_pool2d");
    CHECK(contains(o.out, "lost again; the finding"));
    if (one.is_null()) one = finding;
    CHECK(finding["case"] == one["case"]);
  }
  // The lines that it prints show the same.
  for (const char* line : {"again", "unshrunk"}) {
    const Outcome again = run_line(
        "export REMATCH_EMULATOR_LOSE_IN=max_pool; " + one[line].get<std::string>(), folder.path());
    INFO(again.out);
    CHECK(again.status == 1);
    CHECK(contains(again.out, "VIOLATED      survives"));
    CHECK_FALSE(contains(again.out, "VIOLATED      errors"));
  }
}

TEST_CASE("cases that lose the device in the same kernel are one finding") {
  const ScratchFolder folder;
  // One kind of layer of the standard mix launches that kernel, and several of the wide one.
  const Outcome o = run("REMATCH_EMULATOR_LOSE_IN=cuda::product",
                        "check --device cuda --mix standard --seed 1 --no-regressions --cases 60 "
                        "--json --jobs 3",
                        folder);
  INFO(o.out);
  CHECK(o.status == 1);
  const Json found = json_in(o.out);
  REQUIRE(found["findings"].size() == 1);
  CHECK(contains(found["findings"][0]["got"].get<std::string>(),
                 "[cuda] product: cudaErrorIllegalAddress"));
  CHECK(found["shortfalls"].empty());
}

TEST_CASE("an interrupted hunt of worker processes keeps what it judged") {
  const Outcome o = testing::run_interrupted({REMATCH_PROGRAM, "check", "--device", "cuda",
                                              "--no-regressions", "--jobs", "2", "--for", "1h"});
  INFO(o.out);
  CHECK(o.status == 130);
  CHECK_FALSE(contains(o.out, ", 0 cases"));
  CHECK(contains(o.out, "all laws kept so far"));
}

TEST_CASE("where no case in flight loses the device alone, nothing is found and the check fails") {
  const ScratchFolder folder;
  // More kernels than a case alone has.
  const Outcome o =
      run("REMATCH_EMULATOR_LOSE_AT=12000", kCheck + std::string("100 --jobs 2"), folder);
  INFO(o.out);
  CHECK(o.status == 2);
  CHECK(contains(o.out, "innocent"));
  CHECK(contains(o.out, "none of them does it alone"));
  // What was judged before stands.
  CHECK(contains(o.out, "record hash "));
  CHECK_FALSE(contains(o.out, "VIOLATED"));
  CHECK_FALSE(contains(o.out, "all laws kept"));
}

TEST_CASE("a saved case that loses the device is a finding as it stands") {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder.path() / "saved");
  std::ofstream(folder.path() / "saved" / "pooling.json") << kPooling;
  const Outcome o = run("REMATCH_EMULATOR_LOSE_IN=max_pool",
                        "check --device cuda --cases 8 --regressions saved", folder);
  INFO(o.out);
  CHECK(o.status == 1);
  CHECK(contains(o.out, "VIOLATED survives"));
  CHECK(contains(o.out, "pooling.json"));
}

TEST_CASE("without the law about survival, a lost device is an error and no finding") {
  const ScratchFolder folder;
  const std::string lost = "REMATCH_EMULATOR_LOSE_IN=max_pool";
  const Outcome hunt = run(lost, kCheck + std::string("60 --jobs 1 --without survives"), folder);
  INFO(hunt.out);
  CHECK(hunt.status == 2);
  CHECK(contains(hunt.out, "the law survives is left out"));
  std::ofstream(folder.path() / "pooling.json") << kPooling;
  const Outcome replay = run(lost, "replay --device cuda pooling.json --without survives", folder);
  INFO(replay.out);
  CHECK(replay.status == 2);
  CHECK(contains(replay.out, "the device context is lost"));
}

TEST_CASE("a violation whose shrinking loses the device is reported as it was found") {
  const ScratchFolder folder;
  const Outcome o =
      run("REMATCH_EMULATOR_LOSE_AT=3000",
          kCheck + std::string("16 --subject engine:R1 --keep-going --jobs 1"), folder);
  INFO(o.out);
  CHECK(o.status == 1);
  CHECK(contains(o.out, " was not shrunk: "));
  CHECK(contains(o.out, "the device context is lost"));
}

TEST_CASE("a hunt for faults of the engine ends in an error when the device is lost") {
  const ScratchFolder folder;
  const Outcome o = run("REMATCH_EMULATOR_LOSE_AT=5000",
                        "faults --device cuda --fault R1 --fault E1 --jobs 2", folder);
  INFO(o.out);
  CHECK(o.status == 2);
  CHECK(contains(o.out, "the device context is lost"));
}

TEST_CASE("on a device the record hash is the same for one worker and for several") {
  const ScratchFolder folder;
  const Json one = json_in(run("", kCheck + std::string("60 --json --jobs 1"), folder).out);
  const Json three = json_in(run("", kCheck + std::string("60 --json --jobs 3"), folder).out);
  CHECK(one["cases"] == 60);
  CHECK(one["record_hash"] == three["record_hash"]);
  CHECK(one["laws"] == three["laws"]);
  CHECK(one["features"] == three["features"]);
}

TEST_CASE("what decides bits stands beside the record hash") {
  const ScratchFolder folder;
  const Outcome o = run("CUBLAS_WORKSPACE_CONFIG=:16:8 CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50",
                        kCheck + std::string("8 --jobs 1"), folder);
  INFO(o.out);
  CHECK(o.status == 0);
  CHECK(contains(o.out, "132 SMs"));
  CHECK(contains(o.out, "; CUBLAS_WORKSPACE_CONFIG=:16:8; CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50"));
  CHECK(contains(o.out, "comparable only where all of this is equal"));
}

TEST_CASE("show says what the device held beside the bytes that were requested") {
  const ScratchFolder folder;
  const Outcome o = run("", "show --device cuda --seed 1 --case 20", folder);
  INFO(o.out);
  CHECK(o.status == 0);
  CHECK(contains(o.out, "by workspaces of kernels and libraries"));
}

TEST_CASE("a driver that CUDA refuses is an error that says what to do, not a lack of a GPU") {
  const ScratchFolder folder;
  const Outcome o = run("REMATCH_EMULATOR_DRIVER=old", kCheck + std::string("8"), folder);
  INFO(o.out);
  CHECK(o.status == 2);
  CHECK(contains(o.out, "error 35, cudaErrorInsufficientDriver"));
  CHECK(contains(o.out, "the driver supports CUDA 12.4"));
  CHECK_FALSE(contains(o.out, "no CUDA device was found"));

  const Outcome none = run("REMATCH_EMULATOR_DRIVER=none", kCheck + std::string("8"), folder);
  CHECK(none.status == 2);
  CHECK(contains(none.out, "no CUDA device was found"));

  const std::string tests = "'" REMATCH_GPU_TESTS "' 'a ledger of device*'";
  CHECK(run_line("REMATCH_EMULATOR_DRIVER=none " + tests).status == 4);
  const Outcome failed = run_line("REMATCH_EMULATOR_DRIVER=old " + tests);
  CHECK(failed.status != 4);
  CHECK(failed.status != 0);
}

/// A machine that has the programs of a build, and nothing else of it: an environment without
/// variables, and libraries linked as wheels lay them out.
class OtherMachine {
 public:
  OtherMachine() {
    prepare("mkdir -p programs bin site/nvidia/cudnn/lib site/nvidia/cu13/lib");
    prepare("ln -s '" REMATCH_PROGRAM "' '" REMATCH_GPU_TESTS "' programs/");
    prepare("cudnn=$(ldd '" REMATCH_GPU_TESTS
            "' | sed -n 's/.*libcudnn.so.* => \\([^ ]*\\).*/\\1/p')"
            " && ln -s \"${cudnn%/*}\"/libcudnn*.so.* site/nvidia/cudnn/lib/");
  }
  /// A program of the machine's own, in the language of the shell.
  void add(const std::string& name, const std::string& text) const {
    folder_.write("bin/" + name, "#!/bin/sh\n" + text + "\n");
    prepare("chmod +x bin/" + name);
  }
  Outcome test(const std::string& arguments, const std::string& variables = "") const {
    const std::string here = "'" + folder_.path().string() + "'";
    return run_line("env -i PATH=" + here + "/bin:/usr/bin:/bin PYTHONPATH=" + here +
                        "/site REMATCH_EMULATOR_LOCK=off " + variables +
                        " '" REMATCH_SOURCE_DIR "/ci/test-gpu' --no-build --programs " + here +
                        "/programs " + arguments,
                    folder_.path());
  }
  std::filesystem::path path() const { return folder_.path(); }

 private:
  void prepare(const std::string& line) const {
    const Outcome o = run_line(line, folder_.path());
    INFO(o.out);
    REQUIRE(o.status == 0);
  }
  ScratchFolder folder_;
};

TEST_CASE("ci/test-gpu runs programs that were built elsewhere with the libraries of wheels") {
  const OtherMachine machine;
  const Outcome o = machine.test("'a ledger of device*'");
  INFO(o.out);
  CHECK(o.status == 0);
  CHECK(contains(o.out, (machine.path() / "site/nvidia/cudnn/lib").string() + ":" +
                            (machine.path() / "site/nvidia/cu13/lib").string()));
  CHECK(contains(o.out, "versions: driver for CUDA "));
  CHECK(contains(o.out, "All tests passed"));
  CHECK(machine.test("--programs '" + (machine.path() / "bin").string() + "'").status == 1);
}

TEST_CASE("ci/test-gpu takes its options anywhere, and refuses those that it does not know") {
  const OtherMachine machine;
  const Outcome misspelt = machine.test("--sanitise", "REMATCH_EMULATOR_DRIVER=none");
  CHECK(misspelt.status == 1);
  CHECK(contains(misspelt.out, "unknown option '--sanitise'"));
  const Outcome behind = machine.test("'a ledger of device*' --programs programs");
  INFO(behind.out);
  CHECK(behind.status == 0);
  CHECK(contains(behind.out, "All tests passed"));
}

TEST_CASE("ci/test-gpu passes without a GPU only where nothing says that there is one") {
  const OtherMachine machine;
  const std::string none = "REMATCH_EMULATOR_DRIVER=none ";
  const Outcome without = machine.test("", none);
  INFO(without.out);
  CHECK(without.status == 0);
  CHECK(contains(without.out, "every test has to skip itself"));

  const Outcome needed = machine.test("", none + "REMATCH_NEED_GPU=yes");
  CHECK(needed.status == 1);
  CHECK(contains(needed.out, "REMATCH_NEED_GPU is set, but every test would skip itself"));

  machine.add("nvidia-smi", "echo 'GPU 0: A card (UUID: GPU-1)'");
  const Outcome listed = machine.test("", none);
  CHECK(listed.status == 1);
  CHECK(contains(listed.out, "nvidia-smi lists a GPU"));

  const Outcome old = machine.test("", "REMATCH_EMULATOR_DRIVER=old");
  INFO(old.out);
  CHECK(old.status == 1);
  CHECK(contains(old.out, "cudaErrorInsufficientDriver"));
  CHECK(contains(old.out, "the device cannot be used"));
}

TEST_CASE("ci/test-gpu runs the sanitizer's tools one after another, on kernels of the engine") {
  const OtherMachine machine;
  machine.add("compute-sanitizer",
              "echo \"$@\" >> \"${0%/*}\"/calls; while [ \"${1##*/}\" != gpu_tests ]; do shift; "
              "done; exec \"$@\"");
  const Outcome o = machine.test("--sanitize 'a step that throws*'");
  INFO(o.out);
  CHECK(o.status == 0);
  const std::string calls = testing::text_of(machine.path() / "bin/calls");
  CHECK(contains(calls, "--tool memcheck --error-exitcode 1 --report-api-errors no"));
  CHECK(contains(calls, "--tool racecheck --error-exitcode 1 --kernel-name kns=rematch"));
  CHECK(contains(calls, "--tool synccheck --error-exitcode 1 --kernel-name kns=rematch"));
  CHECK(contains(calls, "--tool initcheck --error-exitcode 1 /"));

  machine.add("compute-sanitizer", "echo '========= Error: Device not supported.'; exit 0");
  const Outcome refused = machine.test("--sanitize");
  CHECK(refused.status == 1);
  CHECK(contains(refused.out, "compute-sanitizer cannot watch this device"));
  CHECK_FALSE(contains(refused.out, "== racecheck"));
}

}  // namespace rematch
