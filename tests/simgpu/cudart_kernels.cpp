// Kernels and variables of a program compiled by nvcc: its images register them by the address of their host side before main
// begins, and an image is loaded when something of it is first used, as NVIDIA's runtime does it. What comes of loading one is
// the driver's business: the simulated one has code for a few kernels only (SIMGPU_ANY_KERNEL).
#include "cudart.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

using namespace cudart;

namespace {

struct dim3 { unsigned x, y, z; };
struct Fatbin {
  const void* data;
  CUlibrary library; // null: not loaded yet
};
struct Symbol { // a kernel or a variable
  const void* host; // null: an empty place
  Fatbin* image;
  const char* name;
  size_t size;
  CUkernel kernel; // once asked for
};

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of the table, and held while an image is loaded
Symbol* table = nullptr;                          // open addressing
size_t places = 0, used = 0;

constexpr cudaError_t cudaErrorInvalidSymbol = 13, cudaErrorInvalidDeviceFunction = 98;

Symbol* place_of(const void* host) {
  size_t i = ((uintptr_t)host >> 4) * 0x9e3779b97f4a7c15u >> 20;
  for (;; ++i) {
    Symbol* s = &table[i & (places - 1)];
    if (!s->host || s->host == host) return s;
  }
}
void add(const Symbol& symbol) {
  pthread_mutex_lock(&lock);
  if (used * 2 >= places) {
    Symbol* old = table;
    size_t count = places;
    places = places ? places * 2 : 1024;
    table = (Symbol*)calloc(places, sizeof(Symbol));
    for (size_t i = 0; i < count; ++i)
      if (old[i].host) *place_of(old[i].host) = old[i];
    free(old);
  }
  Symbol* s = place_of(symbol.host);
  used += !s->host;
  *s = symbol;
  pthread_mutex_unlock(&lock);
}

// Of the table, its image loaded. Under the lock.
cudaError_t find(const void* host, Symbol** out) {
  Symbol* s = places && host ? place_of(host) : nullptr;
  if (!s || !s->host) return cudaErrorInvalidSymbol;
  if (!s->image->library)
    if (CUresult result = driver.cuLibraryLoadData(&s->image->library, s->image->data, nullptr, nullptr, 0, nullptr, nullptr, 0)) return (cudaError_t)result;
  *out = s;
  return cudaSuccess;
}
cudaError_t kernel_of(const void* host, CUkernel* out) {
  pthread_mutex_lock(&lock);
  Symbol* s = nullptr;
  cudaError_t error = find(host, &s);
  if (!error && !s->kernel) error = (cudaError_t)driver.cuLibraryGetKernel(&s->kernel, s->image->library, s->name);
  if (!error) *out = s->kernel;
  pthread_mutex_unlock(&lock);
  return error == cudaErrorInvalidSymbol ? cudaErrorInvalidDeviceFunction : error;
}
cudaError_t function_of(const void* host, CUfunction* out) {
  CUkernel kernel = nullptr;
  cudaError_t error = kernel_of(host, &kernel);
  return error ? error : (cudaError_t)driver.cuKernelGetFunction(out, kernel);
}
cudaError_t variable_of(const void* host, CUdeviceptr* out) {
  pthread_mutex_lock(&lock);
  Symbol* s = nullptr;
  size_t bytes = 0;
  cudaError_t error = find(host, &s);
  if (!error) error = (cudaError_t)driver.cuLibraryGetGlobal(out, &bytes, s->image->library, s->name);
  pthread_mutex_unlock(&lock);
  return error;
}

} // namespace

// ---- what nvcc's code calls ----

RT void** __cudaRegisterFatBinary(void* wrapper) { // {magic, version, image, …}
  auto* image = (Fatbin*)calloc(1, sizeof(Fatbin));
  memcpy(&image->data, (const char*)wrapper + 8, sizeof image->data);
  return (void**)image;
}
RT void __cudaRegisterFatBinaryEnd(void**) {}
RT void __cudaUnregisterFatBinary(void**) {} // at exit, when the driver may be gone; the addresses stay known, as a library may come back
RT char __cudaInitModule(void**) { return 1; }
RT void __cudaRegisterFunction(void** image, const char* host, char*, const char* name, int, void*, void*, void*, void*, int*) {
  add({host, (Fatbin*)image, name, 0, nullptr});
}
RT void __cudaRegisterVar(void** image, char* host, char*, const char* name, int, size_t size, int, int) { add({host, (Fatbin*)image, name, size, nullptr}); }

static __thread struct Configuration { dim3 grid, block; size_t shared; cudaStream_t stream; } pushed[8];
static __thread unsigned depth = 0;
RT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  if (depth == 8) return 1;
  pushed[depth++] = {grid, block, shared, stream};
  return 0;
}
RT cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (!depth) return note((cudaError_t)9); // cudaErrorInvalidConfiguration
  const Configuration& c = pushed[--depth];
  *grid = c.grid;
  *block = c.block;
  *shared = c.shared;
  *(cudaStream_t*)stream = c.stream;
  return cudaSuccess;
}

// ---- launches ----

#define CONFIGURATION dim3 grid, dim3 block
#define DIMENSIONS grid.x, grid.y, grid.z, block.x, block.y, block.z
TWINS(cudaLaunchKernel, _ptsz, (const void* host, CONFIGURATION, void** args, size_t shared, cudaStream_t s), {
  NEED(ready_context());
  CUkernel kernel;
  NEED(kernel_of(host, &kernel));
  return note(driver.cuLaunchKernel[own]((CUfunction)kernel, DIMENSIONS, (unsigned)shared, s, args, nullptr));
})
TWINS(cudaLaunchCooperativeKernel, _ptsz, (const void* host, CONFIGURATION, void** args, size_t shared, cudaStream_t s), {
  NEED(ready_context());
  CUkernel kernel;
  NEED(kernel_of(host, &kernel));
  return note(driver.cuLaunchCooperativeKernel[own]((CUfunction)kernel, DIMENSIONS, (unsigned)shared, s, args));
})
struct Launch { dim3 grid, block; size_t shared; cudaStream_t stream; void* attributes; unsigned count; }; // cudaLaunchConfig_t
TWINS(cudaLaunchKernelExC, _ptsz, (const Launch* c, const void* host, void** args), {
  NEED(ready_context());
  if (!c) return note(cudaErrorInvalidValue);
  CUkernel kernel;
  NEED(kernel_of(host, &kernel));
  // The attributes have the same layout and the same numbers.
  CUlaunchConfig config{c->grid.x, c->grid.y, c->grid.z, c->block.x, c->block.y, c->block.z, (unsigned)c->shared, c->stream, c->attributes, c->count};
  return note(driver.cuLaunchKernelEx[own](&config, (CUfunction)kernel, args, nullptr));
})
// Since CUDA 13 nvcc's code keeps the kernel's handle.
RT cudaError_t __cudaGetKernel(CUkernel* out, const void* host) {
  NEED(ready());
  return note(kernel_of(host, out));
}
TWINS(__cudaLaunchKernel, _ptsz, (CUkernel kernel, CONFIGURATION, void** args, size_t shared, cudaStream_t s), {
  NEED(ready_context());
  return note(driver.cuLaunchKernel[own]((CUfunction)kernel, DIMENSIONS, (unsigned)shared, s, args, nullptr));
})

// ---- questions ----

struct cudaFuncAttributes {
  size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes, preferredShmemCarveout;
  int clusterDimMustBeSet, requiredClusterWidth, requiredClusterHeight, requiredClusterDepth;
  int clusterSchedulingPolicyPreference, nonPortableClusterSizeAllowed, reserved[16];
};
RT cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* host) {
  NEED(ready_context());
  if (!out) return note(cudaErrorInvalidValue);
  CUfunction f;
  NEED(function_of(host, &f));
  *out = {};
  int bytes[4] = {};
  int* const values[] = {&out->maxThreadsPerBlock, &bytes[1], &bytes[2], &bytes[3], &out->numRegs, &out->ptxVersion,
                         &out->binaryVersion, &out->cacheModeCA, &out->maxDynamicSharedSizeBytes, &out->preferredShmemCarveout};
  for (int i = 0; i < 10; ++i) NEED((cudaError_t)driver.cuFuncGetAttribute(values[i], i, f)); // in the order of CUfunction_attribute
  out->sharedSizeBytes = (size_t)bytes[1];
  out->constSizeBytes = (size_t)bytes[2];
  out->localSizeBytes = (size_t)bytes[3];
  return cudaSuccess;
}
RT cudaError_t cudaFuncSetAttribute(const void* host, int attribute, int value) {
  NEED(ready_context());
  CUfunction f;
  NEED(function_of(host, &f));
  return note(driver.cuFuncSetAttribute(f, attribute, value));
}
RT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* host, int block, size_t shared, unsigned flags) {
  NEED(ready_context());
  CUfunction f;
  NEED(function_of(host, &f));
  return note(driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, f, block, shared, flags));
}
RT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* host, int block, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, block, shared, 0);
}
RT cudaError_t cudaGetSymbolAddress(void** out, const void* host) {
  NEED(ready_context());
  if (!out) return note(cudaErrorInvalidValue);
  return note(variable_of(host, (CUdeviceptr*)out));
}
RT cudaError_t cudaMemcpyToSymbol(const void* host, const void* src, size_t n, size_t offset, enum cudaMemcpyKind) {
  NEED(ready_context());
  CUdeviceptr at;
  NEED(variable_of(host, &at));
  return note(driver.cuMemcpy[0](at + offset, (CUdeviceptr)(uintptr_t)src, n));
}

// ---- libraries, as the driver has them ----

RT cudaError_t cudaLibraryLoadData(CUlibrary* out, const void* code, int* jit, void** values, unsigned count, int* options, void** option_values, unsigned options_count) {
  NEED(ready());
  return note(driver.cuLibraryLoadData(out, code, jit, values, count, options, option_values, options_count));
}
RT cudaError_t cudaLibraryUnload(CUlibrary library) { NEED(ready()); return note(driver.cuLibraryUnload(library)); }
RT cudaError_t cudaLibraryGetKernel(CUkernel* out, CUlibrary library, const char* name) { NEED(ready()); return note(driver.cuLibraryGetKernel(out, library, name)); }
CALL(cudaLibraryGetGlobal, (void** out, size_t* bytes, CUlibrary library, const char* name), driver.cuLibraryGetGlobal((CUdeviceptr*)out, bytes, library, name))

// What PyTorch imports (2.15) and the simulator does not have.
#define ABSENT(name) RT cudaError_t name(void) { return note((cudaError_t)801); } // cudaErrorNotSupported
ABSENT(cudaDeviceGetGraphMemAttribute)
ABSENT(cudaDeviceSetGraphMemAttribute)
ABSENT(cudaGraphAddNode)
ABSENT(cudaGraphConditionalHandleCreate)
ABSENT(cudaGraphRetainUserObject)
ABSENT(cudaKernelSetAttributeForDevice)
ABSENT(cudaLibraryGetKernelCount)
ABSENT(cudaLibraryGetManaged)
ABSENT(cudaLibraryGetUnifiedFunction)
ABSENT(cudaLibraryLoadFromFile)
ABSENT(cudaStreamBeginCaptureToGraph)
ABSENT(cudaStreamUpdateCaptureDependencies)
ABSENT(cudaUserObjectCreate)
ABSENT(cudaUserObjectRelease)
