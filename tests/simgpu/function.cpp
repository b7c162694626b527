// What is asked of kernels besides launching them: attributes, occupancy, linking. The kernels here have no code, so the
// answers are those for a small one (32 registers, no shared memory of its own).
#include "sim.h"
#include <cstring>

namespace sim {

enum { MAX_THREADS_PER_BLOCK = 0, NUM_REGS = 4, PTX_VERSION = 5, BINARY_VERSION = 6, MAX_DYNAMIC_SHARED = 8, CARVEOUT = 9, LAST = 15 };
static auto& dynamic_shared = *new std::map<CUfunction, int>; // where it was set

static CUresult attribute_of(CUfunction f, CUfunction_attribute attribute, int* value) {
  if (!value || attribute < 0 || attribute > LAST) return CUDA_ERROR_INVALID_VALUE;
  if (!is_function(f)) return CUDA_ERROR_INVALID_HANDLE;
  switch (attribute) {
    case MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case NUM_REGS: *value = 32; break;
    case PTX_VERSION:
    case BINARY_VERSION: *value = 90; break;
    case MAX_DYNAMIC_SHARED: *value = dynamic_shared.count(f) ? dynamic_shared[f] : 48 << 10; break;
    case CARVEOUT: *value = -1; break;
    default: *value = 0;
  }
  return CUDA_SUCCESS;
}
static CUresult set_attribute(CUfunction f, CUfunction_attribute attribute, int value) {
  if (attribute < 0 || attribute > LAST) return CUDA_ERROR_INVALID_VALUE;
  if (!is_function(f)) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute == MAX_DYNAMIC_SHARED) {
    if (value < 0 || value > 227 << 10) return CUDA_ERROR_INVALID_VALUE;
    dynamic_shared[f] = value;
  }
  return CUDA_SUCCESS;
}
// As many blocks as threads (2,048), shared memory (228 KiB, of which a block takes 1 more than it asks for) and slots (32) allow.
static CUresult occupancy(const char* name, int* blocks, CUfunction f, int block, size_t shared) {
  return enter(name, CONTEXT, [&] {
    if (!blocks || block <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (!is_function(f)) return CUDA_ERROR_INVALID_HANDLE;
    size_t threads = block > 1024 ? 0 : 2048 / (((size_t)block + 31) / 32 * 32), room = (228u << 10) / (shared + 1024);
    *blocks = (int)std::min<size_t>({threads, room, 32});
    return CUDA_SUCCESS;
  });
}

} // namespace sim

using namespace sim;

API CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction f) {
  return enter("cuFuncGetAttribute", CONTEXT, [&] { return attribute_of(f, attribute, value); });
}
API CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute attribute, int value) {
  return enter("cuFuncSetAttribute", CONTEXT, [&] { return set_attribute(f, attribute, value); });
}
API CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel, CUdevice dev) {
  return enter("cuKernelGetAttribute", INIT, [&] { return device_at(dev) ? attribute_of((CUfunction)kernel, attribute, value) : CUDA_ERROR_INVALID_DEVICE; });
}
API CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice dev) {
  return enter("cuKernelSetAttribute", INIT, [&] { return device_at(dev) ? set_attribute((CUfunction)kernel, attribute, value) : CUDA_ERROR_INVALID_DEVICE; });
}
API CUresult cuFuncSetCacheConfig(CUfunction f, int) {
  return enter("cuFuncSetCacheConfig", CONTEXT, [&] { return is_function(f) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; });
}
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction f, int block, size_t shared) {
  return occupancy("cuOccupancyMaxActiveBlocksPerMultiprocessor", blocks, f, block, shared);
}
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction f, int block, size_t shared, unsigned) {
  return occupancy("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", blocks, f, block, shared);
}

// ---- the linker: what was added comes out ----

struct Link { std::vector<char> image; };
API CUresult cuLinkCreate_v2(unsigned, int*, void**, CUlinkState* out) {
  return enter("cuLinkCreate_v2", CONTEXT, [&] {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = (CUlinkState) new Link;
    return CUDA_SUCCESS;
  });
}
API CUresult cuLinkAddData_v2(CUlinkState state, int, void* data, size_t size, const char*, unsigned, int*, void**) {
  return enter("cuLinkAddData_v2", CONTEXT, [&] {
    if (!state || !data) return CUDA_ERROR_INVALID_VALUE;
    auto& image = ((Link*)state)->image;
    if (image.empty()) image.assign((char*)data, (char*)data + size); // one image is all that there is to a module here
    return CUDA_SUCCESS;
  });
}
API CUresult cuLinkComplete(CUlinkState state, void** out, size_t* size) {
  return enter("cuLinkComplete", CONTEXT, [&] {
    if (!state || !out) return CUDA_ERROR_INVALID_VALUE;
    auto& image = ((Link*)state)->image;
    put(size, image.size());
    image.insert(image.end(), 8, 0); // PTX is text
    *out = image.data();
    return CUDA_SUCCESS;
  });
}
API CUresult cuLinkDestroy(CUlinkState state) {
  return enter("cuLinkDestroy", CONTEXT, [&] {
    delete (Link*)state;
    return CUDA_SUCCESS;
  });
}

API CUresult cuTensorMapEncodeTiled(void* map, int, unsigned, void*, const uint64_t*, const uint64_t*, const unsigned*, const unsigned*, int, int, int, int) {
  return enter("cuTensorMapEncodeTiled", INIT, [&] {
    if (!map) return CUDA_ERROR_INVALID_VALUE;
    memset(map, 0, 128); // nobody reads it
    return CUDA_SUCCESS;
  });
}
API CUresult cuProfilerStart(void) { return enter("cuProfilerStart", CONTEXT, [] { return CUDA_SUCCESS; }); }
API CUresult cuProfilerStop(void) { return enter("cuProfilerStop", CONTEXT, [] { return CUDA_SUCCESS; }); }
