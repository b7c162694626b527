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
      switch (attribute) {
        case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
        case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
        case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = (int)(CLOCK_HZ / 1000); break;
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
        case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *value = d.ordinal + 1; break;
        case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
        case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
        case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
        case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
        case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
        case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED: *value = 1; break;
        default: *value = 0; // what the simulator does not know it does not have
      }
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
