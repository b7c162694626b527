/* The two functions of PyTorch's libc10 that its allocator calls, with their real (mangled) names. */
#include <atomic>
#include <stdexcept>

namespace c10 {
struct Device {
  signed char type, index;
};
std::atomic<long> reports, bytes, failures;

__attribute__((noinline)) void reportMemoryUsageToProfiler(void* p, long size, unsigned long allocated, unsigned long reserved, Device device) {
  reports++;
  bytes += size;
  if (!p || allocated > reserved || device.index < 0) throw std::logic_error("arguments did not arrive");
  if (size == 7 * 512) throw std::runtime_error("a profiler that throws");
}
__attribute__((noinline)) void reportOutOfMemoryToProfiler(long size, unsigned long, unsigned long, Device device) {
  if (size <= 0 || device.type != 1) throw std::logic_error("arguments did not arrive");
  failures++;
}
} // namespace c10

extern "C" void c10_counts(long out[3]) {
  out[0] = c10::reports;
  out[1] = c10::bytes;
  out[2] = c10::failures;
}
