// What the driver says about a pointer.
#include "sim.h"
#include <cstring>

namespace sim {

// Writes one attribute. a is null for a pointer the driver does not know.
static CUresult attribute(void* data, CUpointer_attribute which, CUdeviceptr ptr, Allocation* a) {
  auto give = [&](auto value) { memcpy(data, &value, sizeof value); return CUDA_SUCCESS; };
  if (!a) return CUDA_ERROR_INVALID_VALUE;
  bool on_host = a->kind == Kind::Host || a->kind == Kind::Registered;
  bool legacy_ipc = a->kind == Kind::Plain || a->kind == Kind::Pitch;
  // The range is what was asked for (for mapped memory the reservation), the mapping what the driver put behind it.
  Space range{a->base, a->size, 0}, mapped = range;
  if (Space* reserved = a->kind == Kind::Vmm ? reservation_of(ptr, 1) : nullptr) range = *reserved;
  auto next = mappings().upper_bound(ptr);
  if (next != mappings().begin() && ptr < std::prev(next)->first + std::prev(next)->second.size) {
    mapped.base = std::prev(next)->first;
    mapped.size = std::prev(next)->second.size;
  }
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: return give(a->kind == Kind::Vmm || a->kind == Kind::Async ? (Context*)nullptr : a->ctx);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: return give(on_host ? (unsigned)CU_MEMORYTYPE_HOST : (unsigned)CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return give(ptr);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (on_host || a->kind == Kind::Managed) return give((void*)ptr);
      give((void*)nullptr);
      return CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS: return CUDA_ERROR_NOT_SUPPORTED;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return give((unsigned)a->sync_memops);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: return give((unsigned long long)a->buffer_id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return give((unsigned)(a->kind == Kind::Managed));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return give(a->dev->ordinal);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return give((unsigned)legacy_ipc);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return give(range.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return give(range.size);
    case CU_POINTER_ATTRIBUTE_MAPPED: return give((unsigned)1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: return give((uint64_t)0);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: return give((unsigned)legacy_ipc);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return give((unsigned)CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return give((CUmemoryPool)a->pool);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: return give(mapped.size);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: return give(mapped.base);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: return give((unsigned long long)a->buffer_id << 20); // another number than the buffer's
  }
  return CUDA_ERROR_INVALID_VALUE;
}
static size_t attribute_size(CUpointer_attribute which) {
  switch (which) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return 4;
    default: return 8;
  }
}

} // namespace sim

using namespace sim;

API CUresult cuPointerGetAttribute(void* data, CUpointer_attribute which, CUdeviceptr ptr) {
  return enter("cuPointerGetAttribute", INIT, [&] {
    if (!data) return CUDA_ERROR_INVALID_VALUE;
    return attribute(data, which, ptr, told(ptr));
  });
}
// Unlike the above this succeeds for any pointer. Where there is nothing to say it answers zeros, and of a range nothing.
API CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* which, void** data, CUdeviceptr ptr) {
  return enter("cuPointerGetAttributes", INIT, [&] {
    if (!count || !which || !data) return CUDA_ERROR_INVALID_VALUE;
    Allocation* a = told(ptr);
    for (unsigned i = 0; i < count; ++i) {
      if (!data[i]) return CUDA_ERROR_INVALID_VALUE;
      if (attribute(data[i], which[i], ptr, a) == CUDA_SUCCESS) continue;
      if (which[i] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR || which[i] == CU_POINTER_ATTRIBUTE_RANGE_SIZE) continue;
      memset(data[i], 0, attribute_size(which[i]));
      if (which[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) { // "no device" is -2
        int none = -2;
        memcpy(data[i], &none, sizeof none);
      }
    }
    return CUDA_SUCCESS;
  });
}
API CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute which, CUdeviceptr ptr) {
  return enter("cuPointerSetAttribute", CONTEXT, [&] {
    Allocation* a = find(ptr);
    if (!value || which != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !a) return CUDA_ERROR_INVALID_VALUE;
    if (a->kind == Kind::Vmm) return CUDA_ERROR_NOT_SUPPORTED;
    unsigned on;
    memcpy(&on, value, sizeof on);
    a->sync_memops = on != 0;
    return CUDA_SUCCESS;
  });
}
