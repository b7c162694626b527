// Device addresses. Each is taken from a reservation without access, so that a host that dereferences one faults; the same
// contents are mapped a fixed distance away, where the engine reads and writes them.
#include "sim.h"
#include <sys/mman.h>

namespace sim {

static void* reserve(size_t size) {
  void* p = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

bool open_space(Space& space, size_t size, size_t align) {
  if (align < PAGE) align = PAGE;
  // Two reservations with the ends that do not fit the alignment given back.
  auto aligned = [&]() -> CUdeviceptr {
    if (size + align < size) return 0;
    auto p = (CUdeviceptr)reserve(size + align);
    if (!p) return 0;
    CUdeviceptr q = (p + align - 1) / align * align;
    if (q > p) munmap((void*)p, q - p);
    if (p + align > q) munmap((void*)(q + size), p + align - q);
    return q;
  };
  space.size = size;
  space.base = aligned();
  if (!space.base) return false;
  CUdeviceptr shadow = aligned();
  if (!shadow) {
    munmap((void*)space.base, size);
    return false;
  }
  space.delta = (ptrdiff_t)(shadow - space.base);
  return true;
}
void close_space(const Space& space) {
  munmap((void*)space.base, space.size);
  munmap((void*)(space.base + (CUdeviceptr)space.delta), space.size);
}

// ---- the space of plain allocations: lowest first, so that a freed address comes back soon and misuse shows ----

static Space plain;
static auto& holes = *new std::map<CUdeviceptr, size_t>;

static bool open_plain() {
  if (plain.base) return true;
  size_t total = 0;
  for (Device* d : devices()) total += d->capacity;
  if (!open_space(plain, std::max(total * 8, (size_t)64 << 30), PAGE)) return false;
  holes[plain.base] = plain.size;
  return true;
}
ptrdiff_t plain_delta() { return plain.delta; }

CUdeviceptr take_addresses(size_t size) {
  if (!open_plain()) return 0;
  for (auto it = holes.begin(); it != holes.end(); ++it) {
    if (it->second < size) continue;
    CUdeviceptr base = it->first;
    size_t rest = it->second - size;
    holes.erase(it);
    if (rest) holes[base + size] = rest;
    return base;
  }
  return 0;
}
void give_addresses(CUdeviceptr base, size_t size) {
  auto next = holes.lower_bound(base);
  if (next != holes.end() && base + size == next->first) {
    size += next->second;
    next = holes.erase(next);
  }
  if (next != holes.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == base) {
      before->second += size;
      return;
    }
  }
  holes[base] = size;
}

// ---- what is mapped where ----

std::map<CUdeviceptr, Mapping>& mappings() {
  static auto& all = *new std::map<CUdeviceptr, Mapping>;
  return all;
}

bool map_frames(CUdeviceptr va, ptrdiff_t delta, Device* dev, int fd, const std::vector<uint32_t>& frames, bool listed) {
  for (size_t i = 0; i < frames.size();) {
    size_t run = 1;
    while (i + run < frames.size() && frames[i + run] == frames[i] + run) ++run;
    char* to = (char*)va + delta + i * PAGE;
    if (mmap(to, run * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)frames[i] * (off_t)PAGE) == MAP_FAILED) return false;
    i += run;
  }
  mappings()[va] = {frames.size() * PAGE, delta, dev, listed, {}, {}};
  return true;
}
void unmap_frames(CUdeviceptr va) {
  auto it = mappings().find(va);
  if (it == mappings().end()) return;
  mmap((char*)va + it->second.delta, it->second.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  mappings().erase(it);
}

static bool may_use(Context* ctx, const Mapping& m, bool write) {
  if (!ctx) return true;
  if (m.listed) return m.access.count(ctx->dev->ordinal) && !(write && m.read_only.count(ctx->dev->ordinal));
  if (m.dev == ctx->dev) return true;
  for (Context* peer : ctx->peers)
    if (peer->dev == m.dev) return true;
  return false;
}

// Like the hardware this looks at pages, not at allocations: a freed block whose page lives on can still be read and written.
// SIMGPU_STRICT=1 looks at allocations too, each byte, as a memory checker would.
char* reach(Context* ctx, CUdeviceptr p, size_t bytes, bool write) {
  static const bool strict = env("SIMGPU_STRICT", 0);
  if (is_host_visible(p)) return (char*)p;
  if (strict && !is_live(p, bytes)) return nullptr;
  auto it = mappings().upper_bound(p);
  if (it == mappings().begin()) return nullptr;
  --it;
  char* start = (char*)p + it->second.delta;
  for (CUdeviceptr at = p, end = p + bytes; at < end;) {
    if (it == mappings().end() || at < it->first || at >= it->first + it->second.size || !may_use(ctx, it->second, write)) return nullptr;
    at = it->first + it->second.size;
    ++it;
  }
  return start;
}

} // namespace sim
