// Stream-ordered allocation: pools of reserved memory, cut into blocks. A block freed on a stream can be had again at once by
// that stream, by others when the free has come to pass (or by making them wait for it). Reserved memory above the release
// threshold goes back at the next synchronisation.
#include "pool.h"
#include <algorithm>

namespace sim {

constexpr size_t CHUNK = 32u << 20; // what a pool reserves at a time

static auto& pools = *new std::set<Pool*>;

Pool* pool_of(CUmemoryPool handle) {
  auto* p = (Pool*)handle;
  return pools.count(p) && p->alive ? p : nullptr;
}
Pool* new_pool(Device* dev, bool is_default) {
  auto* p = new Pool;
  p->dev = dev;
  p->is_default = is_default;
  p->access.insert(dev->ordinal);
  pools.insert(p);
  return p;
}
static Pool* default_pool(Device* dev) {
  if (!dev->default_pool) dev->default_pool = new_pool(dev, true);
  return dev->default_pool;
}
static Pool* device_pool(Device* dev) { return dev->pool ? dev->pool : default_pool(dev); }

static void count(Pool* p, CUmemPool_attribute current, long long change) {
  p->attributes[current] += (uint64_t)change;
  uint64_t& high = p->attributes[current + 1]; // the high-water mark follows its counter
  high = std::max(high, p->attributes[current]);
}

static bool ready(const Free& f) { return !f.done || f.done->done; }
static void settle(Chunk* c) { // joins neighbours whose frees have both come to pass
  for (auto it = c->holes.begin(); std::next(it) != c->holes.end() && it != c->holes.end();) {
    auto next = std::next(it);
    if (it->first + it->second.size == next->first && ready(it->second) && ready(next->second)) {
      it->second = {it->second.size + next->second.size, nullptr, nullptr};
      c->holes.erase(next);
    } else {
      it = next;
    }
    if (it == c->holes.end()) break;
  }
}

static void trim(Pool* p, uint64_t keep) {
  for (auto& it : p->chunks)
    if (!it.second->holes.empty()) settle(it.second);
  for (auto it = p->chunks.begin(); it != p->chunks.end() && p->attributes[CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT] > keep;) {
    Chunk* c = it->second;
    size_t size = c->frames.size() * PAGE;
    if (c->holes.size() == 1 && c->holes.begin()->second.size == size && ready(c->holes.begin()->second)) {
      unmap_frames(c->base);
      give_addresses(c->base, size);
      p->dev->give(c->frames);
      count(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, -(long long)size);
      it = p->chunks.erase(it);
      delete c;
    } else {
      ++it;
    }
  }
}
void trim_pools(Device* dev) {
  for (Pool* p : pools)
    if (p->dev == dev) trim(p, p->attributes[CU_MEMPOOL_ATTR_RELEASE_THRESHOLD]);
}

static Chunk* grow(Pool* p, size_t size) {
  auto* c = new Chunk;
  for (size_t want : {std::max((size + PAGE - 1) / PAGE * PAGE, CHUNK), (size + PAGE - 1) / PAGE * PAGE}) // less where 32 MiB do not fit
    if (want <= p->dev->capacity && p->dev->take(want / PAGE, c->frames)) break;
  if (c->frames.empty()) {
    delete c;
    return nullptr;
  }
  size_t bytes = c->frames.size() * PAGE;
  c->base = take_addresses(bytes);
  if (!c->base || !map_frames(c->base, plain_delta(), p->dev, p->dev->fd, c->frames, true)) abort();
  mappings()[c->base].access = p->access;
  c->holes[c->base] = {bytes, nullptr, nullptr};
  count(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, (long long)bytes);
  return p->chunks[c->base] = c;
}

static CUresult allocate(const char* name, CUdeviceptr* out, size_t size, CUmemoryPool handle, bool from_pool, CUstream stream, bool per_thread) {
  return enter(name, CONTEXT, [&] {
    note("size=%zu stream=%p", size, (void*)stream);
    Stream* s = stream_of(stream, per_thread);
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (!s->capture && capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (!size) return *out = 0, CUDA_SUCCESS;
    Pool* p = from_pool ? pool_of(handle) : device_pool(s->ctx->dev);
    if (!p || p->imported) return CUDA_ERROR_INVALID_VALUE;
    if (s->capture) { // becomes memory of the graph
      CUresult result = s->capture->status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
      Allocation* a;
      if (!result) result = reserve_device(s->ctx, size, Kind::Graph, &a);
      if (!result) {
        s->capture->graph->memory.push_back(a);
        note("-> 0x%llx", *out = a->base);
        result = capture_node(s, {}, 10);
      }
      return result;
    }
    if (size > p->dev->capacity) return CUDA_ERROR_OUT_OF_MEMORY;
    size_t taken = (size + STEP - 1) / STEP * STEP;
    for (int pass = 0; pass < 4; ++pass) { // ready now; this stream's own; after a wait on the device; new memory
      if (pass == 2 && !p->attributes[CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES]) continue;
      if (pass == 3 && !grow(p, taken)) return CUDA_ERROR_OUT_OF_MEMORY;
      for (auto& chunk : p->chunks) {
        auto& holes = chunk.second->holes;
        if (!holes.empty()) settle(chunk.second);
        for (auto it = holes.begin(); it != holes.end(); ++it) {
          Free hole = it->second;
          bool now = ready(hole);
          if (hole.size < taken || (!now && pass != 2 && !(pass == 1 && hole.stream == s))) continue;
          if (!now && hole.stream != s) join(s, {hole.done});
          CUdeviceptr base = it->first;
          holes.erase(it);
          if (hole.size > taken) holes[base + taken] = {hole.size - taken, hole.stream, hole.done};
          Allocation* a = add_allocation(base, size, Kind::Async, s->ctx, p->dev);
          a->pool = p;
          count(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, (long long)taken);
          note("-> 0x%llx", *out = base);
          return enqueue(s, {}, 10);
        }
      }
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
  });
}

// An imported block: its mapping here goes, when the stream gets there.
static CUresult unmap_import(Allocation* a, Stream* s) {
  CUdeviceptr pages = a->base / PAGE * PAGE;
  size_t bytes = mappings()[pages].size;
  drop_allocation(a);
  auto unmap = [=] {
    unmap_frames(pages);
    give_addresses(pages, bytes);
    return CUDA_SUCCESS;
  };
  if (!s) return unmap();
  Op op;
  op.act = unmap;
  return enqueue(s, std::move(op), 11);
}

// stream null: cuMemFree of a stream-ordered pointer, which waits for nothing (the documentation asks the caller to).
CUresult pool_free(Allocation* a, Stream* s) {
  Pool* p = a->pool;
  TaskRef done;
  ipc_forget(a);
  if (p->imported) return unmap_import(a, s);
  if (s) {
    CUresult result = enqueue(s, {}, 11, &done);
    if (result) return result;
  }
  size_t taken = (a->size + STEP - 1) / STEP * STEP;
  Chunk* c = std::prev(p->chunks.upper_bound(a->base))->second;
  auto it = c->holes.emplace(a->base, Free{taken, s, done}).first;
  auto merge = [&](auto left, auto right) { // a joined hole is ready when both are
    if (left->first + left->second.size != right->first) return left;
    // Only its own stream may have a block again before the free has come to pass, so that one stays apart.
    if (ready(left->second) != ready(right->second)) return right;
    if (!ready(left->second) && left->second.stream != right->second.stream) return right;
    if (it == right) left->second.done = done; // the later of two frees of one stream
    left->second.size += right->second.size;
    c->holes.erase(right);
    return left;
  };
  if (it != c->holes.begin()) it = merge(std::prev(it), it);
  if (std::next(it) != c->holes.end()) merge(it, std::next(it));
  count(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, -(long long)taken);
  drop_allocation(a);
  return CUDA_SUCCESS;
}

static CUresult release(const char* name, CUdeviceptr dptr, CUstream stream, bool per_thread) {
  return enter(name, CONTEXT, [&] {
    note("0x%llx stream=%p", dptr, (void*)stream);
    Stream* s = stream_of(stream, per_thread);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (!s->capture && capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (!dptr) return CUDA_SUCCESS;
    Allocation* a = find_base(dptr);
    if (!a || a->leaving) return CUDA_ERROR_INVALID_VALUE;
    if (s->capture) {
      if (a->kind != Kind::Graph) return CUDA_ERROR_INVALID_VALUE;
      s->capture->graph->freed.insert(a);
      return capture_node(s, {}, 11);
    }
    switch (a->kind) {
      case Kind::Async: return pool_free(a, s);
      case Kind::Graph:
        if (!a->outside) return CUDA_ERROR_INVALID_VALUE;
        a->outside = false;
        return CUDA_SUCCESS;
      case Kind::Plain: case Kind::Pitch: { // plain memory too, in stream order
        a->leaving = true;
        Op op;
        op.act = [dptr] {
          if (Allocation* a = find_base(dptr)) release_device(a);
          return CUDA_SUCCESS;
        };
        return enqueue(s, std::move(op), 11);
      }
      default: return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

} // namespace sim

using namespace sim;

API CUresult cuMemAllocAsync(CUdeviceptr* p, size_t size, CUstream s) { return allocate("cuMemAllocAsync", p, size, nullptr, false, s, false); }
API CUresult cuMemAllocAsync_ptsz(CUdeviceptr* p, size_t size, CUstream s) { return allocate("cuMemAllocAsync_ptsz", p, size, nullptr, false, s, true); }
API CUresult cuMemAllocFromPoolAsync(CUdeviceptr* p, size_t size, CUmemoryPool pool, CUstream s) { return allocate("cuMemAllocFromPoolAsync", p, size, pool, true, s, false); }
API CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* p, size_t size, CUmemoryPool pool, CUstream s) { return allocate("cuMemAllocFromPoolAsync_ptsz", p, size, pool, true, s, true); }
API CUresult cuMemFreeAsync(CUdeviceptr p, CUstream s) { return release("cuMemFreeAsync", p, s, false); }
API CUresult cuMemFreeAsync_ptsz(CUdeviceptr p, CUstream s) { return release("cuMemFreeAsync_ptsz", p, s, true); }

API CUresult cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* props) {
  return enter("cuMemPoolCreate", INIT, [&] {
    if (!out || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    Device* dev = device_at(props->location.id);
    if (!dev) return CUDA_ERROR_INVALID_DEVICE;
    Pool* p = new_pool(dev, false);
    p->props = *props;
    note("-> %p", (void*)p);
    *out = (CUmemoryPool)p;
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  return enter("cuMemPoolDestroy", INIT, [&] {
    note("%p", (void*)handle);
    Pool* p = pool_of(handle);
    if (!p || p->is_default) return CUDA_ERROR_INVALID_VALUE;
    if (p->dev->pool == p) p->dev->pool = nullptr; // the default pool becomes current again
    p->alive = false;
    p->attributes[CU_MEMPOOL_ATTR_RELEASE_THRESHOLD] = 0; // live allocations stay valid; the rest goes with the last synchronisation
    trim(p, 0);
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
  return enter("cuMemPoolTrimTo", INIT | UNSAFE, [&] {
    note("%p keep=%zu", (void*)handle, keep);
    Pool* p = pool_of(handle);
    if (!p) return CUDA_ERROR_INVALID_VALUE;
    trim(p, keep);
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  return enter("cuMemPoolSetAttribute", INIT, [&] {
    Pool* p = pool_of(handle);
    if (!p || !value || attribute < 1 || attribute > 8) return CUDA_ERROR_INVALID_VALUE;
    if (attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) {
      p->attributes[attribute] = (uint64_t)*(int*)value;
      return CUDA_SUCCESS;
    }
    uint64_t v = *(uint64_t*)value;
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) p->attributes[attribute] = v;
    else if ((attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH || attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) && v == 0)
      p->attributes[attribute] = p->attributes[attribute - 1]; // a high-water mark can only be reset
    else return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  return enter("cuMemPoolGetAttribute", INIT, [&] {
    Pool* p = pool_of(handle);
    if (!p || !value || attribute < 1 || attribute > 8) return CUDA_ERROR_INVALID_VALUE;
    if (attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) *(int*)value = (int)p->attributes[attribute];
    else *(uint64_t*)value = p->attributes[attribute];
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* map, size_t n) {
  return enter("cuMemPoolSetAccess", INIT, [&] {
    Pool* p = pool_of(handle);
    if (!p || (!map && n)) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n; ++i) {
      if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device_at(map[i].location.id)) return CUDA_ERROR_INVALID_VALUE;
      if (map[i].location.id == p->dev->ordinal && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_INVALID_VALUE;
      if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) p->access.erase(map[i].location.id);
      else p->access.insert(map[i].location.id);
    }
    for (auto& c : p->chunks) mappings()[c.first].access = p->access;
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
  return enter("cuMemPoolGetAccess", INIT, [&] {
    Pool* p = pool_of(handle);
    if (!p || !flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    *flags = p->access.count(location->id) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
  });
}
static CUresult get_pool(const char* name, CUmemoryPool* out, CUdevice ordinal, Pool* (*which)(Device*)) {
  return enter(name, INIT, [&] {
    Device* dev = device_at(ordinal);
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (!dev) return CUDA_ERROR_INVALID_DEVICE;
    *out = (CUmemoryPool)which(dev);
    return CUDA_SUCCESS;
  });
}
API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice dev) { return get_pool("cuDeviceGetDefaultMemPool", out, dev, default_pool); }
API CUresult cuDeviceGetMemPool(CUmemoryPool* out, CUdevice dev) { return get_pool("cuDeviceGetMemPool", out, dev, device_pool); }
API CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) {
  return enter("cuDeviceSetMemPool", INIT, [&] {
    Device* dev = device_at(ordinal);
    Pool* p = pool_of(handle);
    if (!dev) return CUDA_ERROR_INVALID_DEVICE;
    if (!p || p->dev != dev) return CUDA_ERROR_INVALID_VALUE;
    dev->pool = p;
    return CUDA_SUCCESS;
  });
}
