/* A caching allocator in the manner of PyTorch's: segments from cudaMalloc, pieces of them given out and reported under a
 * lock, everything given back and tried again before it fails. */
#include <map>
#include <mutex>
#include <new>
#include <vector>
extern "C" {
int cudaMalloc(void**, unsigned long);
int cudaMallocAsync(void**, unsigned long, void* stream);
int cudaFree(void*);
int cudaGetLastError(void);
}
namespace c10 {
struct Device {
  signed char type, index;
};
void reportMemoryUsageToProfiler(void*, long, unsigned long, unsigned long, Device);
void reportOutOfMemoryToProfiler(long, unsigned long, unsigned long, Device);
} // namespace c10

namespace {
std::mutex lock;
std::map<char*, unsigned long> segments, live; /* segments: size; live: size */
std::multimap<unsigned long, char*> cached;
unsigned long allocated, reserved, peak;
const c10::Device device = {1, 0};

char* segment(unsigned long size) {
  void* p = nullptr;
  if (cudaMalloc(&p, size)) {
    cudaGetLastError();
    return nullptr;
  }
  segments[(char*)p] = size;
  reserved += size;
  cached.emplace(size, (char*)p);
  return (char*)p;
}
void give_back() {
  for (auto i = cached.begin(); i != cached.end();) {
    auto s = segments.find(i->second);
    if (s != segments.end() && s->second == i->first) {
      cudaFree(s->first);
      reserved -= s->second;
      segments.erase(s);
      i = cached.erase(i);
    } else {
      ++i;
    }
  }
}
} // namespace

extern "C" void* tensor_malloc(unsigned long asked) {
  std::lock_guard<std::mutex> hold(lock);
  unsigned long size = (asked + 511) & ~511ul, grain = size > 1 << 20 ? (size + (2 << 20) - 1) & ~((2ul << 20) - 1) : 2 << 20;
  auto i = cached.lower_bound(size);
  if (i == cached.end()) {
    if (!segment(grain)) {
      give_back();
      if (!segment(grain)) {
        c10::reportOutOfMemoryToProfiler((long)size, allocated, reserved, device);
        throw std::bad_alloc();
      }
    }
    i = cached.lower_bound(size);
  }
  char* p = i->second;
  if (i->first > size) cached.emplace(i->first - size, p + size);
  cached.erase(i);
  live[p] = size;
  allocated += size;
  if (allocated > peak) peak = allocated;
  c10::reportMemoryUsageToProfiler(p, (long)size, allocated, reserved, device);
  return p;
}
/* The other backend: each tensor is asked for, once, and nothing is reported. */
extern "C" void* tensor_malloc_async(unsigned long size) {
  void* p = nullptr;
  if (cudaMallocAsync(&p, size, nullptr)) {
    cudaGetLastError();
    throw std::bad_alloc();
  }
  return p;
}
extern "C" void tensor_free(void* p) {
  std::lock_guard<std::mutex> hold(lock);
  auto i = live.find((char*)p);
  if (i == live.end()) return;
  unsigned long size = i->second;
  live.erase(i);
  allocated -= size;
  cached.emplace(size, (char*)p);
  c10::reportMemoryUsageToProfiler(p, -(long)size, allocated, reserved, device);
}
extern "C" void tensor_stats(unsigned long out[3]) {
  out[0] = allocated;
  out[1] = reserved;
  out[2] = peak;
}
