// Sharing device memory between processes. Device memory is a memfd; a record, itself a memfd, says which frames of it; the
// other process opens both through /proc/PID/fd, so the exporter must still be alive.
#include "sim.h"
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace sim {

int write_record(const Record& record, const std::vector<uint32_t>& frames) {
  int file = memfd_create("simgpu-record", MFD_CLOEXEC);
  if (file < 0) return -1;
  size_t bytes = frames.size() * sizeof frames[0];
  if (pwrite(file, &record, sizeof record, 0) == (ssize_t)sizeof record && pwrite(file, frames.data(), bytes, sizeof record) == (ssize_t)bytes) return file;
  close(file);
  return -1;
}

int open_foreign(int pid, int fd) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
  return open(path, O_RDWR | O_CLOEXEC);
}

int read_record(int file, Record& record, std::vector<uint32_t>& frames) {
  if (pread(file, &record, sizeof record, 0) != (ssize_t)sizeof record || record.count > (1u << 20)) return -1;
  frames.resize(record.count);
  size_t bytes = frames.size() * sizeof frames[0];
  if (pread(file, frames.data(), bytes, sizeof record) != (ssize_t)bytes) return -1;
  return open_foreign(record.pid, record.fd);
}

// What the 64 bytes of a handle hold.
struct Handle {
  char magic[8];
  int pid, fd;
  uint64_t id;
};
constexpr char MAGIC[8] = "simgpu1";

struct Import {
  CUdeviceptr base;
  CUdeviceptr pages;
  size_t bytes;
  int fd, opened;
};
static auto& imports = *new std::map<std::pair<int, uint64_t>, Import>;

void ipc_forget(Allocation* a) {
  if (a->record_fd >= 0) close(a->record_fd);
  a->record_fd = -1;
}

} // namespace sim

using namespace sim;

// One handle an allocation, whichever of its addresses is given; neighbours in a page have handles of their own. Measured.
API CUresult cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr dptr) {
  return enter("cuIpcGetMemHandle", CONTEXT, [&] {
    note("0x%llx", dptr);
    Allocation* a = find(dptr);
    if (!out || !a || (a->kind != Kind::Plain && a->kind != Kind::Pitch)) return CUDA_ERROR_INVALID_VALUE;
    if (a->record_fd < 0) {
      CUdeviceptr first = a->base / PAGE * PAGE; // small: the shared page
      const std::vector<uint32_t>& frames = a->page ? page_frame(a) : a->frames;
      Record record{(int)getpid(), a->dev->fd, a->dev->ordinal, a->buffer_id, a->base - first, a->size, frames.size()};
      a->record_fd = write_record(record, frames);
      if (a->record_fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
      Handle h{};
      memcpy(h.magic, MAGIC, sizeof h.magic);
      h.pid = (int)getpid();
      h.fd = a->record_fd;
      h.id = a->buffer_id;
      memset(&a->ipc, 0, sizeof a->ipc);
      memcpy(&a->ipc, &h, sizeof h);
    }
    *out = a->ipc;
    return CUDA_SUCCESS;
  });
}
static CUresult open_handle(const char* name, CUdeviceptr* out, const CUipcMemHandle& handle, unsigned flags) {
  return enter(name, CONTEXT | UNSAFE, [&] {
    Handle h;
    memcpy(&h, &handle, sizeof h);
    if (!out || flags > 1 || memcmp(h.magic, MAGIC, sizeof h.magic)) return CUDA_ERROR_INVALID_VALUE;
    if (h.pid == (int)getpid()) return CUDA_ERROR_INVALID_CONTEXT; // not for the process that exported it
    auto it = imports.find({h.pid, h.id});
    if (it == imports.end()) {
      int file = open_foreign(h.pid, h.fd);
      Record record;
      std::vector<uint32_t> frames;
      int fd = file < 0 ? -1 : read_record(file, record, frames);
      if (file >= 0) close(file);
      Device* dev = fd < 0 || record.id != h.id ? nullptr : device_at(record.device);
      CUdeviceptr pages = dev ? take_addresses(frames.size() * PAGE) : 0;
      if (!pages || !map_frames(pages, plain_delta(), dev, fd, frames, false)) {
        if (fd >= 0) close(fd);
        return CUDA_ERROR_MAP_FAILED;
      }
      Allocation* a = add_allocation(pages + record.offset, record.size, Kind::Ipc, here(), dev);
      it = imports.insert({{h.pid, h.id}, {a->base, pages, frames.size() * PAGE, fd, 0}}).first;
    }
    ++it->second.opened; // opened twice, it has to be closed twice
    note("-> 0x%llx", *out = it->second.base);
    return CUDA_SUCCESS;
  });
}
API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle handle, unsigned flags) { return open_handle("cuIpcOpenMemHandle_v2", out, handle, flags); }
API CUresult cuIpcOpenMemHandle(CUdeviceptr* out, CUipcMemHandle handle, unsigned flags) { return open_handle("cuIpcOpenMemHandle", out, handle, flags); }
API CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
  return enter("cuIpcCloseMemHandle", CONTEXT | UNSAFE, [&] {
    note("0x%llx", dptr);
    for (auto it = imports.begin(); it != imports.end(); ++it) {
      Import& i = it->second;
      if (i.base != dptr) continue;
      if (--i.opened) return CUDA_SUCCESS;
      Allocation* a = find_base(dptr);
      CUresult result = wait_idle(a->ctx);
      drop_allocation(a);
      unmap_frames(i.pages);
      give_addresses(i.pages, i.bytes);
      close(i.fd);
      imports.erase(it);
      return result;
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
}

// Events are not shared.
API CUresult cuIpcGetEventHandle(CUipcEventHandle*, CUevent) {
  return enter("cuIpcGetEventHandle", CONTEXT, [] { return CUDA_ERROR_NOT_SUPPORTED; });
}
API CUresult cuIpcOpenEventHandle(CUevent*, CUipcEventHandle) {
  return enter("cuIpcOpenEventHandle", CONTEXT, [] { return CUDA_ERROR_NOT_SUPPORTED; });
}
