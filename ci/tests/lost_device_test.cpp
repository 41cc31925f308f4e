// The programs on a device that is lost, or cannot be used: an emulated one.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "properties/cli/testing/program.h"
#include "properties/testing/outcome.h"

namespace rematch {
namespace {

using testing::check;
using testing::contains;
using testing::json_in;
using testing::Outcome;
using testing::run_line;
using testing::ScratchFolder;
using Json = nlohmann::json;

constexpr const char* kCheck = "check --device cuda --mix wide --seed 1 --no-regressions --cases ";
constexpr const char* kPooling =
    R"({"format": 1, "input": [1, 1, 2, 2], "layers": [{"kind": "max_pool2d", "kernel": 2}]})";

Outcome run(const std::string& variables, const std::string& arguments,
            const ScratchFolder& folder = {}) {
  return run_line(variables + " '" REMATCH_PROGRAM "' " + arguments, folder.path());
}

}  // namespace

TEST_CASE("a case whose kernel faults is found and shrunk to that kernel, for any number of jobs") {
  const ScratchFolder folder;
  Json one;
  for (const char* jobs : {"1", "3"}) {
    const Outcome o = run("REMATCH_EMULATOR_LOSE_IN=max_pool",
                          kCheck + std::string("100 --json --jobs ") + jobs, folder);
    check(o, 1, {"lost again; the finding"});
    const Json finding = json_in(o.out)["findings"].at(0);
    CHECK(finding["law"] == "survives");
    CHECK(contains(finding["got"].get<std::string>(), "max_pool2d_forward"));
    CHECK(contains(finding["got"].get<std::string>(), "the device context is lost"));
    REQUIRE(finding["case"]["layers"].size() == 1);
    CHECK(finding["case"]["layers"][0]["kind"] == "max_pool2d");
    if (one.is_null()) one = finding;
    CHECK(finding["case"] == one["case"]);
  }
  // The lines that it prints show the same.
  for (const char* line : {"again", "unshrunk"}) {
    const Outcome again = run_line(
        "export REMATCH_EMULATOR_LOSE_IN=max_pool; " + one[line].get<std::string>(), folder.path());
    check(again, 1, {"VIOLATED      survives"});
    CHECK_FALSE(contains(again.out, "VIOLATED      errors"));
  }
}

TEST_CASE("cases that lose the device in the same kernel are one finding") {
  // One kind of layer of the standard mix launches that kernel, and several of the wide one.
  const Outcome o = run("REMATCH_EMULATOR_LOSE_IN=cuda::product",
                        "check --device cuda --mix standard --seed 1 --no-regressions --cases 60 "
                        "--json --jobs 3");
  check(o, 1);
  const Json found = json_in(o.out);
  REQUIRE(found["findings"].size() == 1);
  CHECK(contains(found["findings"][0]["got"].get<std::string>(),
                 "[cuda] product: cudaErrorIllegalAddress"));
  CHECK(found["shortfalls"].empty());
}

TEST_CASE("an interrupted hunt of worker processes keeps what it judged") {
  const Outcome o = testing::run_interrupted({REMATCH_PROGRAM, "check", "--device", "cuda",
                                              "--no-regressions", "--jobs", "2", "--for", "1h"});
  // In a few structures no law is called kept.
  CHECK((contains(o.out, "all laws kept so far") || contains(o.out, "no violation so far; ")));
  check(o, 130, {"record hash "});
  CHECK_FALSE(contains(o.out, ", 0 cases"));
}

TEST_CASE("where no case in flight loses the device alone, nothing is found and the check fails") {
  // More kernels than a case alone has.
  const Outcome o = run("REMATCH_EMULATOR_LOSE_AT=12000", kCheck + std::string("100 --jobs 2"));
  // Earlier verdicts stand.
  check(o, 2, {"innocent", "none of them does it alone", "record hash "});
  CHECK_FALSE(contains(o.out, "VIOLATED"));
  CHECK_FALSE(contains(o.out, "all laws kept"));
}

TEST_CASE("a saved case that loses the device is a finding as it stands") {
  const ScratchFolder folder;
  folder.write("saved/pooling.json", kPooling);
  const Outcome o =
      run("REMATCH_EMULATOR_LOSE_IN=max_pool",
          "check --device cuda --cases 8 --no-regressions --regressions saved", folder);
  check(o, 1, {"VIOLATED survives", "pooling.json"});
}

TEST_CASE("without the law about survival, a lost device is an error and no finding") {
  const ScratchFolder folder;
  const std::string lost = "REMATCH_EMULATOR_LOSE_IN=max_pool";
  check(run(lost, kCheck + std::string("60 --jobs 1 --without survives"), folder), 2,
        {"the law survives is left out"});
  folder.write("pooling.json", kPooling);
  check(run(lost, "replay --device cuda pooling.json --without survives", folder), 2,
        {"the device context is lost"});
}

TEST_CASE("a violation whose shrinking loses the device is reported as it was found") {
  const Outcome o = run("REMATCH_EMULATOR_LOSE_AT=3000",
                        kCheck + std::string("16 --subject engine:R1 --keep-going --jobs 1"));
  check(o, 1, {" was not shrunk: ", "the device context is lost"});
}

TEST_CASE("a hunt for faults of the engine ends in an error when the device is lost") {
  const Outcome o =
      run("REMATCH_EMULATOR_LOSE_AT=5000", "faults --device cuda --fault R1 --fault E1 --jobs 2");
  check(o, 2, {"the device context is lost"});
}

TEST_CASE("on a device the record hash is the same for one worker and for several") {
  const Json one = json_in(run("", kCheck + std::string("60 --json --jobs 1")).out);
  const Json three = json_in(run("", kCheck + std::string("60 --json --jobs 3")).out);
  CHECK(one["cases"] == 60);
  CHECK(one["record_hash"] == three["record_hash"]);
  CHECK(one["laws"] == three["laws"]);
  CHECK(one["features"] == three["features"]);
}

TEST_CASE("what decides bits stands beside the record hash") {
  const Outcome o = run("CUBLAS_WORKSPACE_CONFIG=:16:8 CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50",
                        kCheck + std::string("8 --jobs 1"));
  check(o, 0,
        {"132 SMs", "; CUBLAS_WORKSPACE_CONFIG=:16:8; CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50",
         "comparable only where all of this is equal"});
}

TEST_CASE("show says what the device held beside the bytes that were requested") {
  check(run("", "show --device cuda --seed 1 --case 20"), 0,
        {"by workspaces of kernels and libraries"});
}

TEST_CASE("a driver that CUDA refuses is an error that says what to do, not a lack of a GPU") {
  const Outcome old = run("REMATCH_EMULATOR_DRIVER=old", kCheck + std::string("8"));
  check(old, 2, {"error 35, cudaErrorInsufficientDriver", "the driver supports CUDA 12.4"});
  CHECK_FALSE(contains(old.out, "no CUDA device was found"));
  check(run("REMATCH_EMULATOR_DRIVER=none", kCheck + std::string("8")), 2,
        {"no CUDA device was found"});

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
  void prepare(const std::string& line) const { check(run_line(line, folder_.path()), 0); }
  ScratchFolder folder_;
};

TEST_CASE("ci/test-gpu runs programs that were built elsewhere with the libraries of wheels") {
  const OtherMachine machine;
  const std::string site = (machine.path() / "site/nvidia").string();
  check(machine.test("'a ledger of device*'"), 0,
        {site + "/cudnn/lib:" + site + "/cu13/lib", "versions: driver for CUDA ",
         "All tests passed"});
  check(machine.test("--programs '" + (machine.path() / "bin").string() + "'"), 1);
}

TEST_CASE("ci/test-gpu takes its options anywhere, and refuses those that it does not know") {
  const OtherMachine machine;
  check(machine.test("--sanitise", "REMATCH_EMULATOR_DRIVER=none"), 1,
        {"unknown option '--sanitise'"});
  check(machine.test("'a ledger of device*' --programs programs"), 0, {"All tests passed"});
}

TEST_CASE("ci/test-gpu passes without a GPU only where nothing says that there is one") {
  const OtherMachine machine;
  const std::string none = "REMATCH_EMULATOR_DRIVER=none ";
  check(machine.test("", none), 0, {"every test has to skip itself"});
  check(machine.test("", none + "REMATCH_NEED_GPU=yes"), 1,
        {"REMATCH_NEED_GPU is set, but every test would skip itself"});
  machine.add("nvidia-smi", "echo 'GPU 0: A card (UUID: GPU-1)'");
  check(machine.test("", none), 1, {"nvidia-smi lists a GPU"});
  check(machine.test("", "REMATCH_EMULATOR_DRIVER=old"), 1,
        {"cudaErrorInsufficientDriver", "the device cannot be used"});
}

TEST_CASE("ci/test-gpu refuses a device that does not have the CPU's hash") {
  const OtherMachine machine;
  machine.add("rematch", "for last; do :; done; echo '\"exact_hash\": '$last");
  const std::string hunts = "cd '" REMATCH_SOURCE_DIR "' && ci/test-gpu --hunts '" +
                            machine.path().string() + "/bin/rematch' 1";
  check(run_line(hunts, machine.path()), 1, {"expected the CPU's", "got"});
}

TEST_CASE("ci/test-gpu keeps what it prints") {
  const OtherMachine machine;
  check(machine.test("'a ledger of device*' --receipt receipt.txt"), 0);
  const std::string kept = testing::text_of(machine.path() / "receipt.txt");
  CHECK(contains(kept, "checkout "));
  CHECK(contains(kept, "All tests passed"));
  check(machine.test("'a ledger of device*' --receipt nowhere/receipt.txt"), 1,
        {"cannot be written"});
}

TEST_CASE("where the driver cannot translate newer PTX, the error says so, and what to do") {
  const Outcome o = run("REMATCH_EMULATOR_DRIVER=older", kCheck + std::string("20"));
  check(o, 2, {"cannot translate PTX", "REMATCH_CUDA_MANY_CARDS=ON"});
}

TEST_CASE("ci/test-gpu runs the sanitizer's tools one after another, on kernels of the engine") {
  const OtherMachine machine;
  machine.add("compute-sanitizer",
              "echo \"$@\" >> \"${0%/*}\"/calls; while [ \"${1##*/}\" != gpu_tests ]; do "
              "[ \"${1##*/}\" != gpu_planted ] || exit 9; shift; done; exec \"$@\"");
  check(machine.test("--sanitize 'a step that throws*'"), 0);
  const std::string calls = testing::text_of(machine.path() / "bin/calls");
  CHECK(contains(calls, "--tool memcheck --report-api-errors no"));
  CHECK(contains(calls, "--tool racecheck --kernel-name kns=rematch"));
  CHECK(contains(calls, "--tool synccheck --kernel-name kns=rematch"));
  CHECK(contains(calls, "--tool initcheck --error-exitcode 1 /"));
  CHECK(contains(calls, "--error-exitcode 9"));
  CHECK(contains(calls, "gpu_planted uninitialised"));

  machine.add("compute-sanitizer", "exit 0");
  check(machine.test("--sanitize"), 1,
        {"memcheck does not report the out-of-bounds that is planted"});
  machine.add("compute-sanitizer", "echo '========= Error: Device not supported.'; exit 0");
  const Outcome refused = machine.test("--sanitize");
  check(refused, 1, {"compute-sanitizer cannot watch this device"});
  CHECK_FALSE(contains(refused.out, "== racecheck"));
}

}  // namespace rematch
