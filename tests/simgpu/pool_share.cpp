// Sharing a pool's memory with other processes: the pool by a descriptor, each block by 64 bytes. An imported pool gives no
// memory of its own; it only says who its blocks belong to.
#include "pool.h"
#include <cstring>
#include <unistd.h>

namespace sim {

struct Given { // in the 64 bytes
  char magic[8];
  int pid, fd;
  uint64_t id;
};
constexpr char MAGIC[8] = "simpool";
constexpr int FD = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

static bool shareable(Pool* p) { return p->props.handleTypes & FD; }

// The 2 MiB frames that hold a block, and where in the first of them it begins.
static std::vector<uint32_t> frames_of(Allocation* a, size_t& offset) {
  std::vector<uint32_t> frames;
  offset = (a->base - a->pool->space.base) % PAGE;
  for (CUdeviceptr at = a->base - offset; at < a->base + a->size; at += PAGE) {
    auto chunk = std::prev(a->pool->chunks.upper_bound(at));
    frames.push_back(chunk->second[(at - chunk->first) / PAGE]);
  }
  return frames;
}

} // namespace sim

using namespace sim;

API CUresult cuMemPoolExportToShareableHandle(void* out, CUmemoryPool handle, CUmemAllocationHandleType type, unsigned long long flags) {
  return enter("cuMemPoolExportToShareableHandle", INIT, [&] {
    Pool* p = pool_of(handle);
    if (!out || !p || flags || type != FD || !shareable(p) || p->imported) return CUDA_ERROR_INVALID_VALUE;
    int fd = write_record({(int)getpid(), p->dev->fd, p->dev->ordinal, 0, 0, 0, 0}, {});
    if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    memcpy(out, &fd, sizeof fd);
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* out, void* handle, CUmemAllocationHandleType type, unsigned long long flags) {
  return enter("cuMemPoolImportFromShareableHandle", INIT, [&] {
    Record record;
    std::vector<uint32_t> none;
    if (!out || flags || type != FD) return CUDA_ERROR_INVALID_VALUE;
    int fd = read_record((int)(intptr_t)handle, record, none);
    Device* dev = fd < 0 ? nullptr : device_at(record.device);
    if (fd >= 0) close(fd); // each block's record names it again
    if (!dev) return CUDA_ERROR_INVALID_VALUE;
    Pool* p = new_pool(dev, false);
    p->imported = true;
    *out = (CUmemoryPool)p;
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* out, CUdeviceptr ptr) {
  return enter("cuMemPoolExportPointer", INIT, [&] {
    Allocation* a = find_base(ptr);
    if (!out || !a || a->kind != Kind::Async || !shareable(a->pool)) return CUDA_ERROR_INVALID_VALUE;
    if (a->record_fd < 0) {
      size_t offset;
      std::vector<uint32_t> frames = frames_of(a, offset);
      a->record_fd = write_record({(int)getpid(), a->dev->fd, a->dev->ordinal, a->buffer_id, offset, a->size, frames.size()}, frames);
      if (a->record_fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    }
    Given given{};
    memcpy(given.magic, MAGIC, sizeof MAGIC);
    given.pid = (int)getpid();
    given.fd = a->record_fd;
    given.id = a->buffer_id;
    memset(out, 0, sizeof *out);
    memcpy(out, &given, sizeof given);
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemPoolImportPointer(CUdeviceptr* out, CUmemoryPool handle, CUmemPoolPtrExportData* data) {
  return enter("cuMemPoolImportPointer", INIT, [&] {
    Pool* p = pool_of(handle);
    Given given;
    Record record;
    std::vector<uint32_t> frames;
    if (!out || !p || !p->imported || !data) return CUDA_ERROR_INVALID_VALUE;
    memcpy(&given, data, sizeof given);
    if (memcmp(given.magic, MAGIC, sizeof MAGIC)) return CUDA_ERROR_INVALID_VALUE;
    int file = open_foreign(given.pid, given.fd);
    int fd = file < 0 ? -1 : read_record(file, record, frames);
    if (file >= 0) close(file);
    CUdeviceptr pages = fd < 0 || record.id != given.id ? 0 : take_addresses(frames.size() * PAGE);
    if (!pages || !map_frames(pages, plain_delta(), p->dev, fd, frames, true)) {
      if (fd >= 0) close(fd);
      return CUDA_ERROR_INVALID_VALUE;
    }
    close(fd); // the mapping holds it
    mappings()[pages].access = p->access;
    Allocation* a = add_allocation(pages + record.offset, record.size, Kind::Async, here(), p->dev);
    a->pool = p;
    *out = a->base;
    return CUDA_SUCCESS;
  });
}
