// Copies and fills. They are checked when asked for, and done when their turn comes. Which of them make the host wait follows
// the documented synchronisation behaviour: a copy between device memory and a memset do not.
#include "sim.h"
#include <cstring>
#include <type_traits>

namespace sim {

enum Side { DEVICE, HOST, EITHER }; // what the entry point takes a pointer for

// May [p, p + n) be copied from or to? Inside one allocation, or across adjacent mappings.
static bool is_known(CUdeviceptr p, size_t n) {
  Allocation* a = find(p);
  if (!a) return false;
  if (a->kind == Kind::Vmm) return reach(here(), p, n); // needs access, which cuMemSetAccess gives
  return p + n <= a->base + a->size;
}
static bool is_pageable(CUdeviceptr p) { return !find(p); }

static CUresult copy(const char* name, CUdeviceptr dst, Side to, CUdeviceptr src, Side from, size_t n, CUstream stream, bool per_thread, bool async) {
  return enter(name, CONTEXT, [&] {
    Stream* s = stream_of(stream, per_thread);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (!n) return CUDA_SUCCESS;
    bool host_dst = to != DEVICE && is_pageable(dst), host_src = from != DEVICE && is_pageable(src);
    if ((!host_dst && !is_known(dst, n)) || (!host_src && !is_known(src, n)) || !dst || !src) return CUDA_ERROR_INVALID_VALUE;
    if (!async && s->capture) { invalidate(s->capture); return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; }
    std::shared_ptr<std::vector<char>> staged; // pageable memory is read before the call returns
    if (host_src && !s->capture) staged = std::make_shared<std::vector<char>>((char*)src, (char*)src + n);
    Op op;
    op.act = [=] {
      char* a = host_dst ? (char*)dst : reach(nullptr, dst, n);
      char* b = staged ? staged->data() : host_src ? (char*)src : reach(nullptr, src, n);
      if (!a || !b) return CUDA_ERROR_ILLEGAL_ADDRESS;
      memmove(a, b, n);
      return CUDA_SUCCESS;
    };
    TaskRef task;
    CUresult result = enqueue(s, std::move(op), 1, &task);
    if (result || s->capture) return result;
    bool on_device = !host_dst && !host_src && !is_host_visible(dst) && !is_host_visible(src);
    Allocation *x = find(dst), *y = find(src);
    bool forced = (x && x->sync_memops) || (y && y->sync_memops);
    // An asynchronous copy to pageable memory returns when it is done, one from it when it is staged.
    bool waits = forced || (async ? host_dst : !on_device);
    return waits ? wait(s->ctx, task) : CUDA_SUCCESS;
  });
}

// Rows between pitches. All rows are one task.
static CUresult copy_rows(const char* name, const CUDA_MEMCPY2D* c, CUstream stream, bool per_thread) {
  return enter(name, CONTEXT, [&] {
    Stream* s = stream_of(stream, per_thread);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (!c || c->srcMemoryType == CU_MEMORYTYPE_ARRAY || c->dstMemoryType == CU_MEMORYTYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
    size_t width = c->WidthInBytes, rows = c->Height;
    if (!width || !rows) return CUDA_SUCCESS;
    auto start = [](CUmemorytype type, const void* host, CUdeviceptr device, size_t x, size_t y, size_t pitch) {
      return (type == CU_MEMORYTYPE_HOST ? (CUdeviceptr)host : device) + y * pitch + x;
    };
    CUdeviceptr dst = start(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, c->dstPitch);
    CUdeviceptr src = start(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, c->srcPitch);
    size_t to = c->dstPitch, from = c->srcPitch, to_end = (rows - 1) * to + width, from_end = (rows - 1) * from + width;
    bool host_dst = is_pageable(dst), host_src = is_pageable(src);
    if ((rows > 1 && (to < width || from < width)) || (!host_dst && !is_known(dst, to_end)) || (!host_src && !is_known(src, from_end))) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<std::vector<char>> staged;
    if (host_src && !s->capture) staged = std::make_shared<std::vector<char>>((char*)src, (char*)src + from_end);
    Op op;
    op.act = [=] {
      char* a = host_dst ? (char*)dst : reach(nullptr, dst, to_end);
      char* b = staged ? staged->data() : host_src ? (char*)src : reach(nullptr, src, from_end);
      if (!a || !b) return CUDA_ERROR_ILLEGAL_ADDRESS;
      for (size_t i = 0; i < rows; ++i) memmove(a + i * to, b + i * from, width);
      return CUDA_SUCCESS;
    };
    TaskRef task;
    CUresult result = enqueue(s, std::move(op), 1, &task);
    return !result && !s->capture && host_dst ? wait(s->ctx, task) : result;
  });
}

template <class T> static CUresult fill(const char* name, CUdeviceptr dst, T value, size_t count, CUstream stream, bool per_thread, bool async) {
  return enter(name, CONTEXT, [&] {
    Stream* s = stream_of(stream, per_thread);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (dst % sizeof(T)) return CUDA_ERROR_INVALID_VALUE;
    if (!count) return CUDA_SUCCESS;
    size_t n = count * sizeof(T);
    if (!is_known(dst, n)) return CUDA_ERROR_INVALID_VALUE;
    if (!async && s->capture) { invalidate(s->capture); return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; }
    Op op;
    op.act = [=] {
      char* a = reach(nullptr, dst, n);
      if (!a) return CUDA_ERROR_ILLEGAL_ADDRESS;
      if (sizeof(T) == 1) memset(a, (int)value, n);
      else for (size_t i = 0; i < count; ++i) memcpy(a + i * sizeof(T), &value, sizeof(T));
      return CUDA_SUCCESS;
    };
    TaskRef task;
    CUresult result = enqueue(s, std::move(op), 2, &task);
    if (result || async) return result;
    return is_host_visible(dst) || find(dst)->sync_memops ? wait(s->ctx, task) : CUDA_SUCCESS;
  });
}

// A stream waits for a value in memory, or writes one: work like any other.
template <class T> static CUresult write_value(const char* name, CUstream stream, CUdeviceptr p, T value, bool per_thread) {
  return enter(name, CONTEXT, [&] {
    Stream* s = stream_of(stream, per_thread);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (p % sizeof(T) || !is_known(p, sizeof(T))) return CUDA_ERROR_INVALID_VALUE;
    Op op;
    op.act = [=] {
      char* at = reach(nullptr, p, sizeof(T));
      if (at) *(volatile T*)at = value;
      return at ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
    };
    return enqueue(s, std::move(op), 12);
  });
}
template <class T> static CUresult wait_value(const char* name, CUstream stream, CUdeviceptr p, T value, unsigned how, bool per_thread) {
  return enter(name, CONTEXT, [&] {
    Stream* s = stream_of(stream, per_thread);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (how > 3 || p % sizeof(T) || !is_known(p, sizeof(T))) return CUDA_ERROR_INVALID_VALUE;
    Op op;
    op.until = [=] {
      char* at = reach(nullptr, p, sizeof(T));
      if (!at) return true;
      T now = *(volatile T*)at;
      switch (how) { // GEQ, EQ, AND, NOR
        case 0: return (std::make_signed_t<T>)(now - value) >= 0;
        case 1: return now == value;
        case 2: return (now & value) != 0;
        default: return (T) ~(now | value) != 0;
      }
    };
    return enqueue(s, std::move(op), 12);
  });
}
static CUresult hint(const char* name, CUdeviceptr p, size_t n, CUstream stream, bool per_thread) { // managed memory is where it is
  return enter(name, CONTEXT, [&] {
    Stream* s = stream_of(stream, per_thread);
    Allocation* a = find(p);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (!a || a->kind != Kind::Managed || !n || p + n > a->base + a->size) return CUDA_ERROR_INVALID_VALUE;
    return enqueue(s, {}, 5);
  });
}

} // namespace sim

using namespace sim;

#define COPY(name, parameters, dst, to, src, from)                                                                                 \
  API CUresult name parameters { return copy(#name, (CUdeviceptr)dst, to, (CUdeviceptr)src, from, n, nullptr, false, false); }     \
  API CUresult name##_ptds parameters { return copy(#name "_ptds", (CUdeviceptr)dst, to, (CUdeviceptr)src, from, n, nullptr, true, false); }
#define COPY_ASYNC(name, parameters, dst, to, src, from)                                                                           \
  API CUresult name parameters { return copy(#name, (CUdeviceptr)dst, to, (CUdeviceptr)src, from, n, s, false, true); }            \
  API CUresult name##_ptsz parameters { return copy(#name "_ptsz", (CUdeviceptr)dst, to, (CUdeviceptr)src, from, n, s, true, true); }

COPY(cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, size_t n), dst, EITHER, src, EITHER)
COPY(cuMemcpyHtoD_v2, (CUdeviceptr dst, const void* src, size_t n), dst, DEVICE, src, HOST)
COPY(cuMemcpyDtoH_v2, (void* dst, CUdeviceptr src, size_t n), dst, HOST, src, DEVICE)
COPY(cuMemcpyDtoD_v2, (CUdeviceptr dst, CUdeviceptr src, size_t n), dst, DEVICE, src, DEVICE)
COPY(cuMemcpyPeer, (CUdeviceptr dst, CUcontext, CUdeviceptr src, CUcontext, size_t n), dst, DEVICE, src, DEVICE)
COPY_ASYNC(cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s), dst, EITHER, src, EITHER)
COPY_ASYNC(cuMemcpyHtoDAsync_v2, (CUdeviceptr dst, const void* src, size_t n, CUstream s), dst, DEVICE, src, HOST)
COPY_ASYNC(cuMemcpyDtoHAsync_v2, (void* dst, CUdeviceptr src, size_t n, CUstream s), dst, HOST, src, DEVICE)
COPY_ASYNC(cuMemcpyDtoDAsync_v2, (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s), dst, DEVICE, src, DEVICE)
COPY_ASYNC(cuMemcpyPeerAsync, (CUdeviceptr dst, CUcontext, CUdeviceptr src, CUcontext, size_t n, CUstream s), dst, DEVICE, src, DEVICE)

API CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* c, CUstream s) { return copy_rows("cuMemcpy2DAsync_v2", c, s, false); }
API CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D* c, CUstream s) { return copy_rows("cuMemcpy2DAsync_v2_ptsz", c, s, true); }

#define FILL(name, type)                                                                                                                          \
  API CUresult name##_v2(CUdeviceptr dst, type value, size_t n) { return fill(#name "_v2", dst, value, n, nullptr, false, false); }               \
  API CUresult name##_v2_ptds(CUdeviceptr dst, type value, size_t n) { return fill(#name "_v2_ptds", dst, value, n, nullptr, true, false); }      \
  API CUresult name##Async(CUdeviceptr dst, type value, size_t n, CUstream s) { return fill(#name "Async", dst, value, n, s, false, true); }      \
  API CUresult name##Async_ptsz(CUdeviceptr dst, type value, size_t n, CUstream s) { return fill(#name "Async_ptsz", dst, value, n, s, true, true); }
FILL(cuMemsetD8, unsigned char)
FILL(cuMemsetD16, unsigned short)
FILL(cuMemsetD32, unsigned)

#define VALUES(bits, type)                                                                                                                                                              \
  API CUresult cuStreamWriteValue##bits##_v2(CUstream s, CUdeviceptr p, type value, unsigned) { return write_value<type>("cuStreamWriteValue" #bits "_v2", s, p, value, false); }        \
  API CUresult cuStreamWriteValue##bits##_v2_ptsz(CUstream s, CUdeviceptr p, type value, unsigned) { return write_value<type>("cuStreamWriteValue" #bits "_v2_ptsz", s, p, value, true); } \
  API CUresult cuStreamWaitValue##bits##_v2(CUstream s, CUdeviceptr p, type value, unsigned how) { return wait_value<type>("cuStreamWaitValue" #bits "_v2", s, p, value, how, false); }     \
  API CUresult cuStreamWaitValue##bits##_v2_ptsz(CUstream s, CUdeviceptr p, type value, unsigned how) { return wait_value<type>("cuStreamWaitValue" #bits "_v2_ptsz", s, p, value, how, true); }
VALUES(32, uint32_t)
VALUES(64, uint64_t)

API CUresult cuMemPrefetchAsync_v2(CUdeviceptr p, size_t n, CUmemLocation, unsigned, CUstream s) { return hint("cuMemPrefetchAsync_v2", p, n, s, false); }
API CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr p, size_t n, CUmemLocation, unsigned, CUstream s) { return hint("cuMemPrefetchAsync_v2_ptsz", p, n, s, true); }
API CUresult cuMemPrefetchAsync(CUdeviceptr p, size_t n, CUdevice, CUstream s) { return hint("cuMemPrefetchAsync", p, n, s, false); }
API CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr p, size_t n, CUdevice, CUstream s) { return hint("cuMemPrefetchAsync_ptsz", p, n, s, true); }
