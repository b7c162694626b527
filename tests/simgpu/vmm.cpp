// Virtual memory management: reservations of addresses, physical memory, and mapping one to the other.
#include "sim.h"
#include <cstring>
#include <unistd.h>

namespace sim {

struct Physical {
  Device* dev = nullptr;
  int fd = -1;      // where the frames are: the device's memory or another process's
  bool own = true;
  size_t size = 0;
  std::vector<uint32_t> frames;
  CUmemAllocationProp props{};
  uint64_t id = 0;
  uint64_t handle = 0;       // what cuMemCreate gave, and cuMemRetainAllocationHandle gives again
  int handles = 0, maps = 0; // it lives as long as either
};
struct Given { Physical* physical = nullptr; int count = 0; }; // released as often as it was given
static auto& handles = *new std::map<uint64_t, Given>;
static auto& physicals = *new std::map<uint64_t, Physical*>; // by id, for import by the exporter itself
static auto& reservations = *new std::map<CUdeviceptr, Space>;

static uint64_t give_handle(Physical* p, uint64_t handle) {
  handles[handle].physical = p;
  ++handles[handle].count;
  ++p->handles;
  return handle;
}
static uint64_t new_handle(Physical* p) {
  uint64_t handle = next_id();
  if (!p->handle) p->handle = handle;
  return give_handle(p, handle);
}
static Physical* physical_of(uint64_t handle) {
  auto it = handles.find(handle);
  return it == handles.end() ? nullptr : it->second.physical;
}
static void reclaim(Physical* p) {
  if (p->handles || p->maps) return;
  if (p->own) p->dev->give(p->frames);
  else close(p->fd);
  physicals.erase(p->id);
  delete p;
}
Space* reservation_of(CUdeviceptr ptr, size_t size) {
  auto it = reservations.upper_bound(ptr);
  if (it == reservations.begin()) return nullptr;
  Space& space = std::prev(it)->second;
  return ptr - space.base <= space.size && size <= space.size - (ptr - space.base) ? &space : nullptr;
}

// Calls body for the mappings in [ptr, ptr + size), which must not cut one, nor (unless there may be gaps) leave any of it out.
static bool whole_mappings(CUdeviceptr ptr, size_t size, bool gaps, const std::function<void(Allocation*)>& body) {
  std::vector<Allocation*> found;
  if (!size || !reservation_of(ptr, size)) return false;
  for (CUdeviceptr at = ptr; at < ptr + size;) {
    Allocation* a = find(at);
    if (a && (a->kind != Kind::Vmm || a->base != at || a->size > ptr + size - at)) return false;
    if (!a && !gaps) return false;
    if (a) found.push_back(a);
    at += a ? a->size : PAGE;
  }
  for (Allocation* a : found) body(a);
  return true;
}

} // namespace sim

using namespace sim;

API CUresult cuMemGetAllocationGranularity(size_t* out, const CUmemAllocationProp* prop, CUmemAllocationGranularity_flags option) {
  return enter("cuMemGetAllocationGranularity", INIT, [&] {
    if (!out || !prop || option < 0 || option > 1) return CUDA_ERROR_INVALID_VALUE;
    *out = PAGE;
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemAddressReserve(CUdeviceptr* out, size_t size, size_t alignment, CUdeviceptr, unsigned long long flags) {
  return enter("cuMemAddressReserve", INIT, [&] {
    note("size=%zu", size);
    if (!out || !size || size % PAGE || flags || (alignment & (alignment - 1))) return CUDA_ERROR_INVALID_VALUE;
    Space space;
    if (!open_space(space, size, alignment)) return CUDA_ERROR_OUT_OF_MEMORY;
    reservations[space.base] = space;
    note("-> 0x%llx", *out = space.base);
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  return enter("cuMemAddressFree", INIT, [&] {
    note("0x%llx size=%zu", ptr, size);
    auto it = reservations.find(ptr);
    if (it == reservations.end() || it->second.size != size) return CUDA_ERROR_INVALID_VALUE;
    auto mapped = mappings().lower_bound(ptr);
    if (mapped != mappings().end() && mapped->first < ptr + size) return CUDA_ERROR_INVALID_VALUE;
    close_space(it->second);
    reservations.erase(it);
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemCreate(CUmemGenericAllocationHandle* out, size_t size, const CUmemAllocationProp* prop, unsigned long long flags) {
  return enter("cuMemCreate", INIT, [&] {
    note("size=%zu", size);
    if (!out || !prop || !size || size % PAGE || flags || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED; // host memory: not simulated
    Device* dev = device_at(prop->location.id);
    if (!dev) return CUDA_ERROR_INVALID_DEVICE;
    auto* p = new Physical;
    if (size > dev->capacity || !dev->take(size / PAGE, p->frames)) {
      delete p;
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    p->dev = dev;
    p->fd = dev->fd;
    p->size = size;
    p->props = *prop;
    p->id = next_id();
    physicals[p->id] = p;
    *out = new_handle(p);
    note("-> %llu", *out);
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return enter("cuMemRelease", INIT, [&] {
    note("%llu", handle);
    Physical* p = physical_of(handle);
    if (!p) return CUDA_ERROR_INVALID_VALUE;
    if (--handles[handle].count == 0) handles.erase(handle);
    --p->handles;
    reclaim(p);
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return enter("cuMemMap", INIT, [&] {
    note("0x%llx size=%zu handle=%llu", ptr, size, handle);
    Physical* p = physical_of(handle);
    Space* space = reservation_of(ptr, size);
    if (!p || !space || !size || size % PAGE || ptr % PAGE || flags) return CUDA_ERROR_INVALID_VALUE;
    if (offset || size != p->size) return CUDA_ERROR_NOT_SUPPORTED; // all of it or nothing
    auto next = mappings().lower_bound(ptr);
    if (next != mappings().end() && next->first < ptr + size) return CUDA_ERROR_INVALID_VALUE;
    if (next != mappings().begin() && std::prev(next)->first + std::prev(next)->second.size > ptr) return CUDA_ERROR_INVALID_VALUE;
    if (!map_frames(ptr, space->delta, p->dev, p->fd, p->frames, true)) return CUDA_ERROR_MAP_FAILED;
    ++p->maps;
    add_allocation(ptr, size, Kind::Vmm, nullptr, p->dev)->handle = p->id;
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  return enter("cuMemUnmap", INIT, [&] {
    note("0x%llx size=%zu", ptr, size);
    // Does not wait for pending work: what still uses the range faults. Nothing mapped there is fine too.
    bool ok = whole_mappings(ptr, size, true, [](Allocation* a) {
      Physical* p = physicals[a->handle];
      unmap_frames(a->base);
      drop_allocation(a);
      --p->maps;
      reclaim(p);
    });
    return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}
API CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  return enter("cuMemSetAccess", INIT, [&] {
    note("0x%llx size=%zu", ptr, size);
    if (!desc || !count || !size) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i)
      if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device_at(desc[i].location.id)) return CUDA_ERROR_INVALID_VALUE;
    bool ok = whole_mappings(ptr, size, false, [&](Allocation* a) {
      for (size_t i = 0; i < count; ++i) {
        auto& m = mappings()[a->base];
        int id = desc[i].location.id;
        if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) m.access.erase(id);
        else m.access.insert(id);
        if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ) m.read_only.insert(id);
        else m.read_only.erase(id);
      }
    });
    return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}
API CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
  return enter("cuMemGetAccess", INIT, [&] {
    Allocation* a = find(ptr);
    if (!flags || !location || !a || (a->kind != Kind::Vmm && a->kind != Kind::Async)) return CUDA_ERROR_INVALID_VALUE;
    if (a->kind == Kind::Async) return *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE, CUDA_SUCCESS; // cuMemPoolGetAccess knows better
    auto& m = mappings()[a->base];
    if (!m.access.count(location->id)) *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    else *flags = m.read_only.count(location->id) ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* out, CUmemGenericAllocationHandle handle) {
  return enter("cuMemGetAllocationPropertiesFromHandle", INIT, [&] {
    Physical* p = physical_of(handle);
    if (!out || !p) return CUDA_ERROR_INVALID_VALUE;
    *out = p->props;
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* addr) {
  return enter("cuMemRetainAllocationHandle", INIT, [&] {
    Allocation* a = find((CUdeviceptr)addr);
    if (!out || !a || a->kind != Kind::Vmm) return CUDA_ERROR_INVALID_VALUE;
    Physical* p = physicals[a->handle];
    *out = give_handle(p, p->handle);
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags) {
  return enter("cuMemExportToShareableHandle", INIT, [&] {
    note("%llu", handle);
    Physical* p = physical_of(handle);
    if (!out || !p || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !(p->props.requestedHandleTypes & type)) return CUDA_ERROR_INVALID_VALUE;
    int fd = write_record({(int)getpid(), p->fd, p->dev->ordinal, p->id, 0, p->size, p->frames.size()}, p->frames);
    if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    memcpy(out, &fd, sizeof fd);
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* os, CUmemAllocationHandleType type) {
  return enter("cuMemImportFromShareableHandle", INIT, [&] {
    if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
    Record record;
    std::vector<uint32_t> frames;
    int fd = read_record((int)(intptr_t)os, record, frames);
    Device* dev = fd < 0 ? nullptr : device_at(record.device);
    if (!dev) {
      if (fd >= 0) close(fd);
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (record.pid == (int)getpid() && physicals.count(record.id)) { // back home: another handle of the same memory
      close(fd);
      *out = new_handle(physicals[record.id]);
    } else {
      auto* p = new Physical;
      p->dev = dev;
      p->fd = fd;
      p->own = false;
      p->size = record.size;
      p->frames = frames;
      p->props.type = CU_MEM_ALLOCATION_TYPE_PINNED;
      p->props.requestedHandleTypes = type;
      p->props.location = {CU_MEM_LOCATION_TYPE_DEVICE, dev->ordinal};
      p->id = next_id();
      physicals[p->id] = p;
      *out = new_handle(p);
    }
    note("-> %llu", *out);
    return CUDA_SUCCESS;
  });
}
// A dma-buf of plain memory: here a record file, so that the descriptor is real and can be closed.
API CUresult cuMemGetHandleForAddressRange(void* out, CUdeviceptr dptr, size_t size, CUmemRangeHandleType type, unsigned long long flags) {
  return enter("cuMemGetHandleForAddressRange", CONTEXT, [&] {
    note("0x%llx size=%zu", dptr, size);
    Allocation* a = find(dptr);
    if (!out || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags > 1 || dptr % 4096 || !size || size % 4096) return CUDA_ERROR_INVALID_VALUE;
    if (!a || (a->kind != Kind::Plain && a->kind != Kind::Pitch && a->kind != Kind::Vmm && a->kind != Kind::Async) || dptr + size > a->base + a->size) return CUDA_ERROR_INVALID_VALUE;
    int fd = write_record({(int)getpid(), a->dev->fd, a->dev->ordinal, a->buffer_id, dptr - a->base, size, a->frames.size()}, a->frames);
    if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    memcpy(out, &fd, sizeof fd);
    return CUDA_SUCCESS;
  });
}
