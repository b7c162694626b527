// Plain, pitched, managed and pinned allocations: cuMemAlloc and its family, and what the driver answers about pointers.
#include "sim.h"
#include <algorithm>
#include <cstring>
#include <sys/mman.h>

namespace sim {

std::map<CUdeviceptr, Allocation*>& allocations() {
  static auto& all = *new std::map<CUdeviceptr, Allocation*>;
  return all;
}
Allocation* find(CUdeviceptr p) {
  auto it = allocations().upper_bound(p);
  if (it == allocations().begin()) return nullptr;
  Allocation* a = std::prev(it)->second;
  return p < a->base + a->size ? a : nullptr;
}
Allocation* told(CUdeviceptr p) {
  Allocation* a = find(p);
  return a && a->kind == Kind::Graph && a->frames.empty() ? nullptr : a;
}
Allocation* find_base(CUdeviceptr p) {
  auto it = allocations().find(p);
  return it == allocations().end() ? nullptr : it->second;
}
Allocation* add_allocation(CUdeviceptr base, size_t size, Kind kind, Context* ctx, Device* dev) {
  static uint64_t last_buffer = 0; // never used again, not even at a recycled address
  auto* a = new Allocation;
  a->base = base;
  a->size = size;
  a->kind = kind;
  a->ctx = ctx;
  a->dev = dev;
  a->buffer_id = ++last_buffer;
  allocations()[base] = a;
  return a;
}

struct Leaving {
  CUdeviceptr base, end;
  TaskRef freed;
};
static auto& leaving = *new std::vector<Leaving>; // what earlier work of a stream may still touch

void drop_allocation(Allocation* a, TaskRef freed) {
  if (freed) {
    leaving.erase(std::remove_if(leaving.begin(), leaving.end(), [](const Leaving& l) { return l.freed->done; }), leaving.end());
    leaving.push_back({a->base, a->base + a->size, freed});
  }
  allocations().erase(a->base);
  delete a;
}
bool is_live(CUdeviceptr p, size_t bytes) {
  for (CUdeviceptr at = p, end = p + bytes; at < end;) {
    Allocation* a = find(at);
    CUdeviceptr to = a ? a->base + a->size : at;
    for (const Leaving& l : leaving)
      if (!l.freed->done && l.base <= at) to = std::max(to, l.end);
    if (to == at) return false;
    at = to;
  }
  return true;
}

// ---- pages shared by small allocations ----

struct Page {
  CUdeviceptr base;
  Context* ctx;
  std::vector<uint32_t> frame;
  std::map<size_t, size_t> holes{{0, PAGE}}; // offset, size
};
static auto& pages = *new std::map<CUdeviceptr, Page*>;

const std::vector<uint32_t>& page_frame(Allocation* a) { return a->page->frame; }

static CUdeviceptr take_from(Page* page, size_t size) {
  for (auto it = page->holes.begin(); it != page->holes.end(); ++it) {
    if (it->second < size) continue;
    size_t at = it->first, rest = it->second - size;
    page->holes.erase(it);
    if (rest) page->holes[at + size] = rest;
    return page->base + at;
  }
  return 0;
}
static void give_to(Page* page, size_t at, size_t size) {
  auto next = page->holes.lower_bound(at);
  if (next != page->holes.end() && at + size == next->first) {
    size += next->second;
    next = page->holes.erase(next);
  }
  if (next != page->holes.begin() && std::prev(next)->first + std::prev(next)->second == at) std::prev(next)->second += size;
  else page->holes[at] = size;
}
static Page* new_page(Context* ctx) {
  auto* page = new Page{0, ctx, {}};
  if (!ctx->dev->take(1, page->frame)) {
    delete page;
    return nullptr;
  }
  page->base = take_addresses(PAGE);
  if (!page->base || !map_frames(page->base, plain_delta(), ctx->dev, ctx->dev->fd, page->frame, false)) abort();
  return pages[page->base] = page;
}

// Up to 1 MiB shares a page; more has pages of its own. Measured: see cost_of_* in h200.txt.
CUresult allocate_device(Context* ctx, size_t size, Kind kind, Allocation** out) {
  if (size <= PAGE / 2) {
    size_t taken = (size + STEP - 1) / STEP * STEP;
    Page* page = nullptr;
    CUdeviceptr base = 0;
    for (auto& it : pages)
      if (it.second->ctx == ctx && (base = take_from(page = it.second, taken))) break;
    if (!base) {
      page = new_page(ctx);
      if (!page) return CUDA_ERROR_OUT_OF_MEMORY;
      base = take_from(page, taken);
    }
    *out = add_allocation(base, size, kind, ctx, ctx->dev);
    (*out)->page = page;
    return CUDA_SUCCESS;
  }
  if (size > ctx->dev->capacity) return CUDA_ERROR_OUT_OF_MEMORY;
  std::vector<uint32_t> frames;
  size_t count = (size + PAGE - 1) / PAGE;
  if (!ctx->dev->take(count, frames)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUdeviceptr base = take_addresses(count * PAGE);
  if (!base || !map_frames(base, plain_delta(), ctx->dev, ctx->dev->fd, frames, false)) {
    if (base) give_addresses(base, count * PAGE);
    ctx->dev->give(frames);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = add_allocation(base, size, kind, ctx, ctx->dev);
  (*out)->frames = frames;
  return CUDA_SUCCESS;
}

CUresult reserve_device(Context* ctx, size_t size, Kind kind, Allocation** out) {
  if (size > ctx->dev->capacity) return CUDA_ERROR_OUT_OF_MEMORY;
  CUdeviceptr base = take_addresses((size + PAGE - 1) / PAGE * PAGE);
  if (!base) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = add_allocation(base, size, kind, ctx, ctx->dev);
  return CUDA_SUCCESS;
}
bool back(Allocation* a) {
  if (!a->frames.empty()) return true;
  if (!a->dev->take((a->size + PAGE - 1) / PAGE, a->frames)) return false;
  return map_frames(a->base, plain_delta(), a->dev, a->dev->fd, a->frames, false);
}

void release_device(Allocation* a) {
  ipc_forget(a);
  if (Page* page = a->page) {
    give_to(page, a->base - page->base, (a->size + STEP - 1) / STEP * STEP);
    if (page->holes.size() == 1 && page->holes.begin()->second == PAGE) { // empty: goes back at once
      unmap_frames(page->base);
      give_addresses(page->base, PAGE);
      page->ctx->dev->give(page->frame);
      pages.erase(page->base);
      delete page;
    }
  } else {
    unmap_frames(a->base);
    give_addresses(a->base, (a->size + PAGE - 1) / PAGE * PAGE);
    a->dev->give(a->frames); // none, if it was only reserved
  }
  drop_allocation(a);
}

static size_t host_pages(size_t size) { return (size + 4095) / 4096 * 4096; }
CUresult allocate_host(Context* ctx, size_t size, Kind kind, unsigned flags, Allocation** out) {
  if (!size || size > ((size_t)1 << 46)) return size ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
  void* p = mmap(nullptr, host_pages(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = add_allocation((CUdeviceptr)p, size, kind, ctx, ctx->dev);
  (*out)->flags = flags;
  return CUDA_SUCCESS;
}
void release_host(Allocation* a) {
  if (a->kind != Kind::Registered) munmap((void*)a->base, host_pages(a->size));
  drop_allocation(a);
}

void release_context_memory(Context* ctx) {
  std::vector<Allocation*> mine;
  for (auto& it : allocations())
    if (it.second->ctx == ctx) mine.push_back(it.second);
  for (Allocation* a : mine) switch (a->kind) {
      case Kind::Plain: case Kind::Pitch: case Kind::Module: release_device(a); break;
      case Kind::Managed: case Kind::Host: case Kind::Registered: release_host(a); break;
      default: break; // stream-ordered, mapped and imported memory is not the context's
    }
}

bool is_host_visible(CUdeviceptr p) {
  Allocation* a = find(p);
  return a && (a->kind == Kind::Host || a->kind == Kind::Managed || a->kind == Kind::Registered);
}

static CUresult free_memory(CUdeviceptr p) {
  if (!p) return CUDA_SUCCESS;
  Allocation* a = find_base(p);
  if (!a || a->leaving) return CUDA_ERROR_INVALID_VALUE; // unknown, interior or freed already
  switch (a->kind) {
    case Kind::Plain: case Kind::Pitch: case Kind::Managed: {
      // Waits for everything pending in the owner's context, also on non-blocking streams and for small blocks with live
      // neighbours; not for other contexts of the device. Measured.
      Context* owner = a->ctx;
      if (a->kind == Kind::Managed && !a->flags) return CUDA_ERROR_INVALID_VALUE; // a __managed__ variable
      uint64_t buffer = a->buffer_id;
      CUresult result = wait_idle(owner);
      if (result) return result;
      a = find_base(p);
      if (!a || a->buffer_id != buffer) return CUDA_ERROR_INVALID_VALUE; // another thread freed it meanwhile
      if (a->kind == Kind::Managed) release_host(a);
      else release_device(a);
      return CUDA_SUCCESS;
    }
    case Kind::Async: return pool_free(a, nullptr);
    case Kind::Graph: return graph_free(a, nullptr);
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

} // namespace sim

using namespace sim;

API CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  return enter("cuMemGetInfo_v2", CONTEXT, [&] {
    Device* d = here()->dev;
    put(free, d->free.size() * PAGE);
    put(total, d->capacity);
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  CUresult result = enter("cuMemAlloc_v2", CONTEXT | UNSAFE, [&] {
    note("size=%zu", bytesize);
    if (!dptr || !bytesize) return CUDA_ERROR_INVALID_VALUE;
    Allocation* a;
    CUresult result = allocate_device(here(), bytesize, Kind::Plain, &a);
    if (!result) note("-> 0x%llx", *dptr = a->base);
    return result;
  });
  if (result) put<CUdeviceptr>(dptr, 0); // also without a context
  return result;
}
API CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pitch, size_t width, size_t height, unsigned element) {
  return enter("cuMemAllocPitch_v2", CONTEXT | UNSAFE, [&] {
    note("width=%zu height=%zu", width, height);
    if (!dptr || !pitch || !width || !height || (element != 4 && element != 8 && element != 16)) return CUDA_ERROR_INVALID_VALUE;
    if (width > SIZE_MAX - 511 || (width + 511) / 512 * 512 > SIZE_MAX / height) return CUDA_ERROR_OUT_OF_MEMORY;
    *pitch = (width + 511) / 512 * 512;
    Allocation* a;
    CUresult result = allocate_device(here(), *pitch * height, Kind::Pitch, &a);
    if (!result) note("-> 0x%llx", *dptr = a->base);
    return result;
  });
}
API CUresult cuMemFree_v2(CUdeviceptr dptr) {
  return enter("cuMemFree_v2", SOUND | UNSAFE, [&] { // the owner is known by the pointer: no context has to be current
    note("0x%llx", dptr);
    return free_memory(dptr);
  });
}
API CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned flags) {
  return enter("cuMemAllocManaged", CONTEXT | UNSAFE, [&] {
    note("size=%zu", bytesize);
    if (!dptr || !bytesize || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) return CUDA_ERROR_INVALID_VALUE;
    Allocation* a;
    CUresult result = allocate_host(here(), bytesize, Kind::Managed, flags, &a);
    if (!result) note("-> 0x%llx", *dptr = a->base);
    return result;
  });
}
static CUresult host_alloc(const char* name, void** p, size_t bytesize, unsigned flags) {
  return enter(name, CONTEXT | UNSAFE, [&] {
    note("size=%zu flags=%u", bytesize, flags);
    if (!p || flags > 7) return CUDA_ERROR_INVALID_VALUE;
    if (!bytesize) return *p = nullptr, CUDA_SUCCESS;
    Allocation* a;
    CUresult result = allocate_host(here(), bytesize, Kind::Host, flags, &a);
    if (!result) note("-> %p", *p = (void*)a->base);
    return result;
  });
}
API CUresult cuMemHostAlloc(void** p, size_t bytesize, unsigned flags) { return host_alloc("cuMemHostAlloc", p, bytesize, flags); }
API CUresult cuMemAllocHost_v2(void** p, size_t bytesize) { return host_alloc("cuMemAllocHost_v2", p, bytesize, 0); }
API CUresult cuMemFreeHost(void* p) {
  return enter("cuMemFreeHost", CONTEXT | UNSAFE, [&] {
    note("%p", p);
    if (!p) return CUDA_SUCCESS;
    Allocation* a = find_base((CUdeviceptr)p);
    if (!a || a->kind != Kind::Host) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = wait_idle(a->ctx);
    if (result) return result;
    a = find_base((CUdeviceptr)p);
    if (!a || a->kind != Kind::Host) return CUDA_ERROR_INVALID_VALUE;
    release_host(a);
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned flags) {
  return enter("cuMemHostRegister_v2", CONTEXT | UNSAFE, [&] {
    note("%p size=%zu flags=%u", p, bytesize, flags);
    if (!p || !bytesize || flags > 15) return CUDA_ERROR_INVALID_VALUE;
    for (CUdeviceptr at = (CUdeviceptr)p; at < (CUdeviceptr)p + bytesize; at += 4096)
      if (find(at)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    add_allocation((CUdeviceptr)p, bytesize, Kind::Registered, here(), here()->dev)->flags = flags;
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemHostUnregister(void* p) {
  return enter("cuMemHostUnregister", CONTEXT | UNSAFE, [&] {
    note("%p", p);
    Allocation* a = find_base((CUdeviceptr)p);
    bool interior = !a && find((CUdeviceptr)p);
    if (!a || a->kind != Kind::Registered) return p && !interior ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : CUDA_ERROR_INVALID_VALUE;
    CUresult result = wait_idle(a->ctx);
    if (!result && (a = find_base((CUdeviceptr)p)) && a->kind == Kind::Registered) release_host(a);
    return result;
  });
}
API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* dptr, void* p, unsigned flags) {
  return enter("cuMemHostGetDevicePointer_v2", CONTEXT, [&] {
    if (!dptr || flags || !is_host_visible((CUdeviceptr)p)) return CUDA_ERROR_INVALID_VALUE;
    *dptr = (CUdeviceptr)p; // unified addressing
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemHostGetFlags(unsigned* flags, void* p) {
  return enter("cuMemHostGetFlags", CONTEXT, [&] {
    Allocation* a = find((CUdeviceptr)p);
    if (!flags || !a || (a->kind != Kind::Host && a->kind != Kind::Registered)) return CUDA_ERROR_INVALID_VALUE;
    *flags = a->flags;
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr dptr) {
  return enter("cuMemGetAddressRange_v2", CONTEXT, [&] {
    Allocation* a = told(dptr);
    if (!a) return CUDA_ERROR_NOT_FOUND;
    put(base, a->base);
    put(size, a->size); // the size asked for, to the byte
    return CUDA_SUCCESS;
  });
}
