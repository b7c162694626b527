// The kernels that the simulator can run, with the same effect as their PTX in kernels.ptx.h. Each says which memory it
// touches; a range that cannot be reached when the kernel completes is an illegal address, which spoils the context.
#include "sim.h"
#include <cstring>

namespace sim {

static double seconds(uint64_t clocks) { return (double)(int64_t)clocks / CLOCK_HZ; }

// Work on the contents of the spans, in the order given. The first is written, but for a kernel that only reads.
static std::function<CUresult()> touch(Context* ctx, std::vector<Span> spans, std::function<void(char** at)> body, bool writes = true) {
  return [=] {
    char* at[4] = {};
    for (size_t i = 0; i < spans.size(); ++i)
      if (spans[i].bytes && !(at[i] = reach(ctx, spans[i].p, spans[i].bytes, writes && i == 0))) return CUDA_ERROR_ILLEGAL_ADDRESS;
    body(at);
    return CUDA_SUCCESS;
  };
}
static size_t ints(uint64_t n) { return (int)n > 0 ? (size_t)(int)n * 4 : 0; }
static int* as_ints(char* p) { return (int*)p; }

using Args = std::vector<uint64_t>;

static Op slow_write(Context* ctx, const Args& a) { // p v clocks
  return {seconds(a[2]), nullptr, touch(ctx, {{a[0], 4}}, [v = (int)a[1]](char** at) { *as_ints(at[0]) = v; }), nullptr};
}
static Op slow_fill(Context* ctx, const Args& a) { // p n v clocks
  return {seconds(a[3]), nullptr, touch(ctx, {{a[0], ints(a[1])}}, [n = (int)a[1], v = (int)a[2]](char** at) {
            for (int i = 0; i < n; ++i) as_ints(at[0])[i] = v;
          }), nullptr};
}
static std::function<CUresult()> copying(Context* ctx, const Args& a) {
  return touch(ctx, {{a[0], ints(a[2])}, {a[1], ints(a[2])}}, [n = (int)a[2]](char** at) {
    for (int i = 0; i < n; ++i) as_ints(at[0])[i] = as_ints(at[1])[i];
  });
}
static Op slow_copy(Context* ctx, const Args& a) { return {seconds(a[3]), nullptr, copying(ctx, a), nullptr}; } // dst src n clocks
static Op copy_ints(Context* ctx, const Args& a) { return {0, nullptr, copying(ctx, a), nullptr}; }             // dst src n
static Op add(Context* ctx, const Args& a) { // dst a b n
  size_t bytes = ints(a[3]);
  return {0, nullptr, touch(ctx, {{a[0], bytes}, {a[1], bytes}, {a[2], bytes}}, [n = (int)a[3]](char** at) {
            for (int i = 0; i < n; ++i) as_ints(at[0])[i] = (int)((unsigned)as_ints(at[1])[i] + (unsigned)as_ints(at[2])[i]);
          }), nullptr};
}
static Op sum(Context* ctx, const Args& a) { // out src n
  return {0, nullptr, touch(ctx, {{a[0], 8}, {a[1], ints(a[2])}}, [n = (int)a[2]](char** at) {
            long long total = 0;
            for (int i = 0; i < n; ++i) total += as_ints(at[1])[i];
            memcpy(at[0], &total, sizeof total);
          }), nullptr};
}
static Op spin_flag(Context* ctx, const Args& a) { // flag
  CUdeviceptr flag = a[0];
  auto raised = [=] { // an unreachable flag ends the kernel too: act then says why
    char* at = reach(ctx, flag, 4);
    return !at || *(volatile int*)at != 0;
  };
  return {0, raised, touch(ctx, {{flag, 4}}, [](char**) {}, false), nullptr};
}

const Kernel* kernel_named(const std::string& name) {
  static const auto& table = *new std::vector<Kernel>{
      {"slow_write", {8, 4, 8}, slow_write}, {"slow_fill", {8, 4, 4, 8}, slow_fill}, {"slow_copy", {8, 8, 4, 8}, slow_copy},
      {"copy", {8, 8, 4}, copy_ints},        {"add", {8, 8, 8, 4}, add},             {"sum", {8, 8, 4}, sum},
      {"spin_flag", {8}, spin_flag},
  };
  for (const Kernel& k : table)
    if (name == k.name) return &k;
  // SIMGPU_ANY_KERNEL: whatever it is, it takes its time and touches nothing.
  static const Kernel idle{"", {}, [](Context*, const Args&) { return Op{(double)env("SIMGPU_KERNEL_US", 0) / 1e6, nullptr, nullptr, nullptr}; }};
  return any_kernel() ? &idle : nullptr;
}
bool any_kernel() {
  static const bool on = env("SIMGPU_ANY_KERNEL", 0) != 0;
  return on;
}

} // namespace sim
