// A profiler for tests: NVTX loads it from NVTX_INJECTION64_PATH. It prints each range, two spaces
// further in than the one around it, and at the end whether every range was closed.
#include <nvtx3/nvToolsExt.h>

#include <cstdio>

namespace {

int depth = 0;

int push(const char* name) {
  std::fprintf(stderr, "nvtx: %*s%s\n", 2 * depth, "", name);
  return depth++;
}

int pop() { return --depth; }

struct AtEnd {
  ~AtEnd() { std::fprintf(stderr, "nvtx: %d ranges left open\n", depth); }
} at_end;

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0) {
    return 0;
  }
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}
