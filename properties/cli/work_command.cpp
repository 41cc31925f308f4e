#include <cstdlib>

#include "properties/cli/check_arguments.h"
#include "properties/cli/pipes.h"
#include "properties/hunt/worker_process.h"

namespace rematch::cli {
namespace {

int work(const CheckArguments& a) {
  // One stream, and one for copies beside it.
  (void)::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "2", 0);
  HuntOptions o = hunt_options(a);
  // One may come from outside, and one from the hunt.
  o.stop = &stop_on_interrupt(/*second_ends=*/false);
  Pipes pipes("work", "check --device cuda");
  serve_worker(
      o, [&] { return pipes.request(); }, [&](const std::string& text) { pipes.answer(text); });
  return kHeld;
}

void declare_work(Command& command) {
  auto a = std::make_shared<CheckArguments>();
  command.add("--seed", a->seed, "S", "Seed of the hunt");
  command.add("--mix", a->mix, "MIX", "Mix of the hunt: standard or wide");
  command.add_flag("--keep-going", a->keep_going, "Continue after a violation");
  a->laws.add_options(command);
  a->subject.add_options(command);
  a->subject.add_profile(command);
  command.runs([a] { return work(*a); });
}

}  // namespace

const CommandEntry work_command{
    .name = "work",
    .summary = "Be a worker process of a hunt on a device, which `check` starts",
    .examples = "",
    .declare = declare_work,
    .internal = true,
};

}  // namespace rematch::cli
