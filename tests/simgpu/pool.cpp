// Stream-ordered allocation: pools of reserved memory, cut into blocks. A block freed on a stream can be had again at once by
// that stream, by others when the free has come to pass or when they waited for an event behind it; they get new memory before
// they are made to wait for it. Reserved memory above the release threshold goes back at the stream's next synchronisation.
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

using Hole = std::map<CUdeviceptr, Free>::iterator;
// Joins a hole with the next one where both have come to pass, or both will in the same stream's order.
static bool join_next(Pool* p, Hole left) {
  Hole right = std::next(left);
  if (right == p->holes.end() || left->first + left->second.size != right->first) return false;
  Free &l = left->second, &r = right->second;
  if (ready(l) && ready(r)) {
    // Where a finished free means nothing to other streams, it stays its stream's.
    if (l.stream != r.stream && (l.done || r.done) && !p->attributes[CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC]) return false;
    if (l.stream != r.stream) l.stream = 0, l.done = nullptr;
  } else {
    if (ready(l) || ready(r) || l.stream != r.stream) return false;
    if (r.done->seq > l.done->seq) l.done = r.done;
  }
  l.size += r.size;
  p->holes.erase(right);
  return true;
}
static void settle(Pool* p) {
  for (Hole it = p->holes.begin(); it != p->holes.end();)
    if (!join_next(p, it)) ++it;
}

static void give_chunk(Pool* p, CUdeviceptr base) {
  unmap_frames(base);
  p->dev->give(p->chunks[base]);
  count(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, -(long long)(p->chunks[base].size() * PAGE));
  p->chunks.erase(base);
}
// Gives whole chunks back while more is reserved than `above`, and never comes below `least`.
static void trim(Pool* p, uint64_t above, uint64_t least) {
  settle(p);
  std::vector<CUdeviceptr> bases;
  for (auto& c : p->chunks) bases.push_back(c.first);
  while (!bases.empty()) { // the last first
    CUdeviceptr base = bases.back(), end = base + p->chunks[base].size() * PAGE;
    bases.pop_back();
    uint64_t reserved = p->attributes[CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT];
    if (reserved <= above || reserved - (end - base) < least) continue;
    Hole it = p->holes.upper_bound(base);
    if (it == p->holes.begin()) continue;
    Free hole = (--it)->second;
    CUdeviceptr from = it->first, to = from + hole.size;
    if (!ready(hole) || to < end) continue;
    p->holes.erase(it);
    if (from < base) p->holes[from] = {(size_t)(base - from), hole.stream, hole.done};
    if (end < to) p->holes[end] = {(size_t)(to - end), hole.stream, hole.done};
    give_chunk(p, base);
  }
}
// A stream's synchronisation gives back what was freed in that stream; other streams' frees wait for theirs.
void trim_pools(Device* dev, uint64_t stream) {
  for (Pool* p : pools) {
    if (p->dev != dev || (stream && !p->freed.count(stream) && !p->freed.count(0))) continue;
    trim(p, p->attributes[CU_MEMPOOL_ATTR_RELEASE_THRESHOLD], 0);
    p->freed.erase(stream);
    if (!stream) p->freed.clear();
  }
}

// May the stream have this hole without a wait of its own?
static bool has_order(Pool* p, const Free& hole, Stream* s) {
  if (hole.stream == s->id) return true;
  if (ready(hole) && (!hole.done || p->attributes[CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC])) return true;
  auto seen = s->seen.find(hole.stream);
  return p->attributes[CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] && hole.done && seen != s->seen.end() && seen->second >= hole.done->seq;
}

static bool spoiled = false; // a forked child asked for more than the pool had: nothing more comes from it

// Maps chunks so that a free range of `size` bytes comes to be, also together with the holes beside them.
static bool grow(Pool* p, size_t size, Stream* s) {
  if (in_child()) return spoiled = true, false;
  if (!p->space.base && !open_space(p->space, p->dev->capacity * 4 / CHUNK * CHUNK + CHUNK, PAGE)) return false;
  CUdeviceptr start = p->space.base, end = start;
  while (end < p->space.base + p->space.size && end - start < size) { // the first range of holes and of what is not mapped
    auto chunk = p->chunks.upper_bound(end);
    bool mapped = chunk != p->chunks.begin() && end < std::prev(chunk)->first + CHUNK;
    if (!mapped) {
      end = p->space.base + ((end - p->space.base) / CHUNK + 1) * CHUNK;
      continue;
    }
    CUdeviceptr chunk_end = std::prev(chunk)->first + std::prev(chunk)->second.size() * PAGE;
    Hole it = p->holes.upper_bound(end);
    bool free = it != p->holes.begin() && end < std::prev(it)->first + std::prev(it)->second.size && ready(std::prev(it)->second) && has_order(p, std::prev(it)->second, s);
    if (free) end = std::prev(it)->first + std::prev(it)->second.size;
    else start = end = it == p->holes.end() ? std::prev(chunk)->first + CHUNK : std::min(it->first, std::prev(chunk)->first + CHUNK);
    if (free && end == chunk_end && chunk_end < std::prev(chunk)->first + CHUNK) start = end = std::prev(chunk)->first + CHUNK; // a short chunk ends there
  }
  if (end - start < size) return false;
  std::vector<CUdeviceptr> fresh;
  bool ok = true;
  for (CUdeviceptr at = p->space.base + (start - p->space.base) / CHUNK * CHUNK; ok && at < start + size; at += CHUNK) {
    if (p->chunks.count(at)) continue;
    size_t least = std::min<size_t>(CHUNK, (start + size - at + PAGE - 1) / PAGE * PAGE); // less where 32 MiB do not fit
    std::vector<uint32_t> frames;
    uint64_t reserved = p->attributes[CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT];
    ok = !p->props.maxSize || reserved + CHUNK <= p->props.maxSize;
    ok = ok && (p->dev->take(CHUNK / PAGE, frames) || p->dev->take(least / PAGE, frames));
    if (!ok) break;
    if (!map_frames(at, p->space.delta, p->dev, p->dev->fd, frames, true)) abort();
    mappings()[at].access = p->access;
    p->chunks[at] = frames;
    p->holes[at] = {frames.size() * PAGE, 0, nullptr};
    count(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, (long long)(frames.size() * PAGE));
    fresh.push_back(at);
  }
  if (!ok)
    for (CUdeviceptr at : fresh) {
      p->holes.erase(at);
      give_chunk(p, at);
    }
  settle(p);
  return ok;
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
    if (size > p->dev->capacity || spoiled) return *out = 0, CUDA_ERROR_OUT_OF_MEMORY;
    size_t taken = (size + STEP - 1) / STEP * STEP;
    settle(p);
    for (int pass = 0; pass < 3; ++pass) { // in order already; new memory; behind a wait on the device
      if (pass == 1 && !grow(p, taken, s)) continue;
      if (pass == 2 && !p->attributes[CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES]) break;
      for (Hole it = p->holes.begin(); it != p->holes.end(); ++it) {
        Free hole = it->second;
        if (hole.size < taken || (pass < 2 && !has_order(p, hole, s))) continue;
        if (pass == 2 && !ready(hole)) join(s, {hole.done});
        CUdeviceptr base = it->first;
        p->holes.erase(it);
        if (hole.size > taken) p->holes[base + taken] = {hole.size - taken, hole.stream, hole.done};
        Allocation* a = add_allocation(base, size, Kind::Async, s->ctx, p->dev);
        a->pool = p;
        count(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, (long long)size);
        note("-> 0x%llx", *out = base);
        return enqueue(s, {}, 10);
      }
    }
    return *out = 0, CUDA_ERROR_OUT_OF_MEMORY;
  });
}

// An imported block: its mapping here goes, when the stream gets there.
static CUresult unmap_import(Allocation* a, Stream* s) {
  CUdeviceptr pages = a->base / PAGE * PAGE;
  size_t bytes = mappings()[pages].size;
  auto unmap = [=] {
    unmap_frames(pages);
    give_addresses(pages, bytes);
    return CUDA_SUCCESS;
  };
  if (!s) {
    drop_allocation(a);
    return unmap();
  }
  Op op;
  op.act = unmap;
  TaskRef done;
  CUresult result = enqueue(s, std::move(op), 11, &done);
  drop_allocation(a, done);
  return result;
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
  Hole it = p->holes.emplace(a->base, Free{taken, s ? s->id : 0, done}).first;
  p->freed.insert(s ? s->id : 0);
  join_next(p, it);
  if (it != p->holes.begin()) join_next(p, std::prev(it));
  count(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, -(long long)a->size);
  drop_allocation(a, done);
  return CUDA_SUCCESS;
}

static CUresult release_in(Stream* s, Allocation* a) { // in stream order
  a->leaving = true;
  Op op;
  op.act = [dptr = a->base] {
    if (Allocation* a = find_base(dptr)) release_device(a);
    return CUDA_SUCCESS;
  };
  return enqueue(s, std::move(op), 11);
}
CUresult graph_free(Allocation* a, Stream* s) {
  if (!a->outside) return CUDA_ERROR_INVALID_VALUE;
  a->outside = false;
  if (!a->orphan) return CUDA_SUCCESS; // the memory stays the graph's, for its next launch
  if (s) return release_in(s, a);
  wait_idle(a->ctx);
  release_device(a);
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
      case Kind::Graph: return graph_free(a, s);
      case Kind::Plain: case Kind::Pitch: return release_in(s, a); // plain memory too
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
    if (props->location.type == CU_MEM_LOCATION_TYPE_INVALID) return CUDA_ERROR_INVALID_VALUE;
    if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED; // host memory: not simulated
    Device* dev = device_at(props->location.id);
    if (!dev) return CUDA_ERROR_INVALID_VALUE;
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
    trim(p, 0, 0);
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
  return enter("cuMemPoolTrimTo", INIT | UNSAFE, [&] {
    note("%p keep=%zu", (void*)handle, keep);
    Pool* p = pool_of(handle);
    if (!p) return CUDA_ERROR_INVALID_VALUE;
    trim(p, 0, keep);
    return CUDA_SUCCESS;
  });
}
API CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  return enter("cuMemPoolSetAttribute", INIT | UNSAFE, [&] {
    Pool* p = pool_of(handle);
    if (!p || !value || attribute < 1 || attribute > 8) return CUDA_ERROR_INVALID_VALUE;
    if (attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) {
      p->attributes[attribute] = *(int*)value != 0;
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
  return enter("cuMemPoolGetAttribute", INIT | UNSAFE, [&] {
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
    if (!p || !map || !n) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n; ++i) {
      if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
      if (!device_at(map[i].location.id)) return CUDA_ERROR_INVALID_DEVICE;
      if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ) return CUDA_ERROR_NOT_SUPPORTED;
      if (map[i].location.id == p->dev->ordinal && map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_INVALID_DEVICE;
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
    if (!p || !flags || !location) return CUDA_ERROR_INVALID_VALUE;
    if (location->type == CU_MEM_LOCATION_TYPE_HOST) return *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE, CUDA_SUCCESS;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !device_at(location->id)) return CUDA_ERROR_INVALID_VALUE;
    *flags = p->access.count(location->id) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
  });
}
static CUresult get_pool(const char* name, CUmemoryPool* out, CUdevice ordinal, Pool* (*which)(Device*), CUresult none) {
  return enter(name, INIT, [&] {
    Device* dev = device_at(ordinal);
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (!dev) return none;
    *out = (CUmemoryPool)which(dev);
    return CUDA_SUCCESS;
  });
}
API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice dev) { return get_pool("cuDeviceGetDefaultMemPool", out, dev, default_pool, CUDA_ERROR_INVALID_DEVICE); }
API CUresult cuDeviceGetMemPool(CUmemoryPool* out, CUdevice dev) { return get_pool("cuDeviceGetMemPool", out, dev, device_pool, CUDA_ERROR_INVALID_VALUE); }
API CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) {
  return enter("cuDeviceSetMemPool", INIT, [&] {
    Device* dev = device_at(ordinal);
    Pool* p = pool_of(handle);
    if (!dev || !p || p->dev != dev) return CUDA_ERROR_INVALID_VALUE;
    dev->pool = p;
    return CUDA_SUCCESS;
  });
}
