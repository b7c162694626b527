// Simulated devices: how many, how large, their frames of physical memory, and the questions about them.
#include "sim.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace sim {

long env(const char* name, long fallback) {
  const char* text = getenv(name);
  return text && *text ? atol(text) : fallback;
}

std::vector<Device*>& devices() {
  static auto& all = *new std::vector<Device*>;
  return all;
}
Device* device_at(CUdevice ordinal) {
  return ordinal >= 0 && (size_t)ordinal < devices().size() ? devices()[(size_t)ordinal] : nullptr;
}

void init_devices() {
  long count = env("SIMGPU_DEVICES", 2), megabytes = env("SIMGPU_MEMORY_MB", 4096);
  for (int i = 0; i < count; ++i) {
    auto* dev = new Device;
    dev->ordinal = i;
    dev->capacity = (size_t)megabytes << 20;
    // A file, so that frames can be mapped anywhere and by other processes. Sparse: untouched frames cost nothing and read 0.
    dev->fd = memfd_create("simgpu", MFD_CLOEXEC);
    if (dev->fd < 0 || ftruncate(dev->fd, (off_t)dev->capacity)) {
      perror("simgpu: device memory");
      abort();
    }
    for (size_t frame = dev->capacity / PAGE; frame-- > 0;) dev->free.push_back((uint32_t)frame);
    devices().push_back(dev);
  }
}

bool Device::take(size_t count, std::vector<uint32_t>& out) {
  if (count > free.size()) return false;
  for (size_t i = 0; i < count; ++i) {
    out.push_back(free.back());
    free.pop_back();
  }
  used_frames += count;
  return true;
}
void Device::give(const std::vector<uint32_t>& frames) {
  for (size_t i = frames.size(); i-- > 0;) free.push_back(frames[i]);
  used_frames -= frames.size();
}

static CUresult with_device(CUdevice ordinal, const std::function<CUresult(Device&)>& body) {
  Device* dev = device_at(ordinal);
  return dev ? body(*dev) : CUDA_ERROR_INVALID_DEVICE;
}

// Those of an H200, where the simulator has the thing.
static const struct { CUdevice_attribute attribute; int value; } ATTRIBUTES[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 << 10},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, (int)(CLOCK_HZ / 1000)},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3201000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6144},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 60 << 20},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 228 << 10},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 << 10},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 1},
};

} // namespace sim

using namespace sim;

API CUresult cuDeviceGetCount(int* count) {
  return enter("cuDeviceGetCount", INIT, [&] {
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    *count = (int)devices().size();
    return CUDA_SUCCESS;
  });
}
API CUresult cuDeviceGet(CUdevice* out, int ordinal) {
  return enter("cuDeviceGet", INIT, [&] {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    return with_device(ordinal, [&](Device& d) { *out = d.ordinal; return CUDA_SUCCESS; });
  });
}
API CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  return enter("cuDeviceGetName", INIT, [&] {
    if (!name || len <= 0) return CUDA_ERROR_INVALID_VALUE;
    return with_device(dev, [&](Device&) { snprintf(name, (size_t)len, "Simulated GPU"); return CUDA_SUCCESS; });
  });
}
API CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  return enter("cuDeviceGetUuid_v2", INIT, [&] {
    if (!uuid) return CUDA_ERROR_INVALID_VALUE;
    return with_device(dev, [&](Device& d) {
      memcpy(uuid->bytes, "simulated-gpu-00", 16); // the same in every process
      uuid->bytes[14] = (char)('0' + d.ordinal / 10 % 10);
      uuid->bytes[15] = (char)('0' + d.ordinal % 10);
      return CUDA_SUCCESS;
    });
  });
}
API CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) { return cuDeviceGetUuid_v2(uuid, dev); }
API CUresult cuDeviceGetPCIBusId(char* id, int len, CUdevice dev) {
  return enter("cuDeviceGetPCIBusId", INIT, [&] {
    if (!id || len <= 0) return CUDA_ERROR_INVALID_VALUE;
    return with_device(dev, [&](Device& d) { snprintf(id, (size_t)len, "0000:%02X:00.0", d.ordinal + 1); return CUDA_SUCCESS; });
  });
}
API CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  return enter("cuDeviceTotalMem_v2", INIT, [&] {
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    return with_device(dev, [&](Device& d) { *bytes = d.capacity; return CUDA_SUCCESS; });
  });
}
API CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice dev) {
  return enter("cuDeviceGetAttribute", INIT, [&] {
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    return with_device(dev, [&](Device& d) {
      *value = attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ? d.ordinal + 1 : 0; // what the simulator does not know it does not have
      for (auto& known : ATTRIBUTES)
        if (known.attribute == attribute) *value = known.value;
      return CUDA_SUCCESS;
    });
  });
}
API CUresult cuDeviceCanAccessPeer(int* can, CUdevice dev, CUdevice peer) {
  return enter("cuDeviceCanAccessPeer", INIT, [&] {
    if (!can) return CUDA_ERROR_INVALID_VALUE;
    if (!device_at(dev) || !device_at(peer)) return CUDA_ERROR_INVALID_DEVICE;
    *can = dev != peer;
    return CUDA_SUCCESS;
  });
}
