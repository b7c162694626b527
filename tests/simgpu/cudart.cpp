// A thin CUDA runtime over whatever libcuda.so.1 it finds, the simulated or a real one. It looks for the driver exactly as
// NVIDIA's does, since that is what an interposer must survive: one dlopen, one dlsym for cuGetProcAddress_v2, everything else
// through that pointer, cuGetProcAddress itself at 11030 and 12000 included, and stream functions once for flags 0 and once
// for flags 2. Built without libstdc++, so that C programs can link the static variant.
#include "cudart.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

namespace cudart {

Driver driver;

constexpr int DEVICES = 64;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of the two below
static CUcontext primary[DEVICES];
static bool retained[DEVICES];
static cudaError_t broken = cudaSuccess; // no driver, or no device
static __thread int device = 0;
static __thread cudaError_t last = cudaSuccess;

static void load() {
  broken = cudaErrorInsufficientDriver;
  void* handle = dlopen("libcuda.so.1", RTLD_NOW);
  if (!handle) return;
  driver.cuGetProcAddress = (decltype(driver.cuGetProcAddress))dlsym(handle, "cuGetProcAddress_v2");
  if (!driver.cuGetProcAddress) return;
  auto find = [](const char* name, int version, uint64_t flags) {
    void* pfn = nullptr;
    CUdriverProcAddressQueryResult status;
    return driver.cuGetProcAddress(name, &pfn, version, flags, &status) ? nullptr : pfn;
  };
  // Two ABIs under one name: the first has four arguments and is called once, so that a mix-up does not go unnoticed.
  auto four = (CUgetProcAddress_v11030)find("cuGetProcAddress", 11030, 0);
  auto five = (decltype(driver.cuGetProcAddress))find("cuGetProcAddress", 12000, 0);
  void* check = nullptr;
  if (!four || !five || four("cuInit", &check, 2000, 0) || !check) return;
  driver.cuGetProcAddress = five;
#define F(base, version, like) driver.base = (decltype(driver.base))find(#base, version, 0);
#define S(base, version, like)                                         \
  driver.base[0] = (decltype(&::like))find(#base, version, 0);         \
  driver.base[1] = (decltype(&::like))find(#base, version, 2);
  DRIVER_FUNCTIONS(F, S)
#undef F
#undef S
  if (driver.cuInit) broken = (cudaError_t)driver.cuInit(0);
}

cudaError_t note(cudaError_t error) { // "not ready" is an answer, not an error
  if (error && error != cudaErrorNotReady) last = error;
  return error;
}

static cudaError_t use(int ordinal) { // makes the device's primary context current
  if (ordinal < 0 || ordinal >= DEVICES) return cudaErrorInvalidDevice;
  pthread_mutex_lock(&lock);
  CUresult result = CUDA_SUCCESS;
  if (!retained[ordinal]) {
    result = driver.cuDevicePrimaryCtxRetain(&primary[ordinal], ordinal);
    retained[ordinal] = result == CUDA_SUCCESS;
  }
  CUcontext ctx = primary[ordinal];
  pthread_mutex_unlock(&lock);
  return (cudaError_t)(result ? result : driver.cuCtxSetCurrent(ctx));
}
cudaError_t ready() { // the driver only
  pthread_once(&once, load);
  return broken;
}
cudaError_t ready_context() { // and a current context: the program's own, or the primary one
  if (ready()) return broken;
  CUcontext ctx = nullptr;
  CUresult result = driver.cuCtxGetCurrent(&ctx);
  if (result) return (cudaError_t)result;
  bool mine = device < DEVICES && ctx == primary[device];
  if (ctx && (!mine || retained[device])) return cudaSuccess;
  return use(device);
}
CUcontext primary_of(int ordinal) {
  CUcontext mine = nullptr;
  driver.cuCtxGetCurrent(&mine);
  cudaError_t error = use(ordinal);
  driver.cuCtxSetCurrent(mine);
  return error ? nullptr : primary[ordinal];
}

} // namespace cudart
using namespace cudart;

// ---- errors, versions, devices ----

RT cudaError_t cudaGetLastError(void) { cudaError_t e = last; last = cudaSuccess; return e; }
RT cudaError_t cudaPeekAtLastError(void) { return last; }
#define ERRORS(X)                                                                                                     \
  X(0, "cudaSuccess", "no error") X(1, "cudaErrorInvalidValue", "invalid argument")                                   \
  X(2, "cudaErrorMemoryAllocation", "out of memory") X(3, "cudaErrorInitializationError", "initialization error")     \
  X(4, "cudaErrorCudartUnloading", "driver shutting down") X(35, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version") \
  X(100, "cudaErrorNoDevice", "no CUDA-capable device is detected") X(101, "cudaErrorInvalidDevice", "invalid device ordinal") \
  X(201, "cudaErrorDeviceUninitialized", "invalid device context") X(400, "cudaErrorInvalidResourceHandle", "invalid resource handle") \
  X(401, "cudaErrorIllegalState", "the operation cannot be performed in the present state") X(500, "cudaErrorSymbolNotFound", "named symbol not found") \
  X(600, "cudaErrorNotReady", "device not ready") X(700, "cudaErrorIllegalAddress", "an illegal memory access was encountered") \
  X(704, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled") X(705, "cudaErrorPeerAccessNotEnabled", "peer access has not been enabled") \
  X(709, "cudaErrorContextIsDestroyed", "context is destroyed") X(712, "cudaErrorHostMemoryAlreadyRegistered", "part or all of the requested memory range is already mapped") \
  X(713, "cudaErrorHostMemoryNotRegistered", "pointer does not correspond to a registered memory region") \
  X(800, "cudaErrorNotPermitted", "operation not permitted") X(801, "cudaErrorNotSupported", "operation not supported") \
  X(900, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing") \
  X(901, "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture") \
  X(902, "cudaErrorStreamCaptureMerge", "operation would result in a merge of separate capture sequences") \
  X(903, "cudaErrorStreamCaptureUnmatched", "capture was not ended in the same stream as it began") \
  X(904, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work") \
  X(905, "cudaErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream") \
  X(906, "cudaErrorStreamCaptureImplicit", "operation would make the legacy stream depend on a capturing blocking stream") \
  X(907, "cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream") \
  X(908, "cudaErrorStreamCaptureWrongThread", "attempt to terminate a thread-local capture sequence from another thread") \
  X(999, "cudaErrorUnknown", "unknown error")
RT const char* cudaGetErrorName(cudaError_t error) {
#define X(code, name, text) if (error == code) return name;
  ERRORS(X)
#undef X
  return "unrecognized error code";
}
RT const char* cudaGetErrorString(cudaError_t error) {
#define X(code, name, text) if (error == code) return text;
  ERRORS(X)
#undef X
  return "unrecognized error code";
}
RT cudaError_t cudaRuntimeGetVersion(int* version) {
  if (!version) return note(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}
RT cudaError_t cudaDriverGetVersion(int* version) {
  if (!version) return note(cudaErrorInvalidValue);
  *version = 0; // no driver: not an error
  return ready() == cudaErrorInsufficientDriver ? cudaSuccess : note(driver.cuDriverGetVersion(version));
}
RT cudaError_t cudaGetDeviceCount(int* count) { NEED(ready()); return note(driver.cuDeviceGetCount(count)); }
RT cudaError_t cudaGetDevice(int* out) {
  NEED(ready());
  if (!out) return note(cudaErrorInvalidValue);
  CUcontext ctx = nullptr; // a context that the program made current itself counts
  CUdevice of_context;
  if (!driver.cuCtxGetCurrent(&ctx) && ctx && !driver.cuCtxGetDevice(&of_context)) *out = of_context;
  else *out = device;
  return cudaSuccess;
}
RT cudaError_t cudaSetDevice(int ordinal) {
  NEED(ready());
  CUdevice found;
  NEED((cudaError_t)driver.cuDeviceGet(&found, ordinal));
  device = ordinal;
  return note(use(ordinal)); // since CUDA 12 it makes the context
}
RT cudaError_t cudaInitDevice(int ordinal, unsigned, unsigned) { NEED(ready()); return note(use(ordinal)); }
RT cudaError_t cudaDeviceGetAttribute(int* value, int attribute, int ordinal) { NEED(ready()); return note(driver.cuDeviceGetAttribute(value, attribute, ordinal)); }
RT cudaError_t cudaDeviceGetPCIBusId(char* id, int len, int ordinal) { NEED(ready()); return note(driver.cuDeviceGetPCIBusId(id, len, ordinal)); }
CALL(cudaDeviceGetStreamPriorityRange, (int* least, int* greatest), driver.cuCtxGetStreamPriorityRange(least, greatest))
CALL(cudaDeviceSetLimit, (int limit, size_t value), driver.cuCtxSetLimit(limit, value))
CALL(cudaDeviceGetLimit, (size_t* value, int limit), driver.cuCtxGetLimit(value, limit))
RT cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
RT cudaError_t cudaProfilerStop(void) { return cudaSuccess; }
RT cudaError_t cudaDeviceCanAccessPeer(int* can, int a, int b) { NEED(ready()); return note(driver.cuDeviceCanAccessPeer(can, a, b)); }
RT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  NEED(ready_context());
  CUcontext mine = nullptr;
  driver.cuCtxGetCurrent(&mine);
  NEED(use(peer)); // the peer's context has to exist
  driver.cuCtxSetCurrent(mine);
  return note(driver.cuCtxEnablePeerAccess(primary[peer], flags));
}
RT cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  NEED(ready_context());
  if (peer < 0 || peer >= DEVICES || !primary[peer]) return note(cudaErrorInvalidDevice);
  return note(driver.cuCtxDisablePeerAccess(primary[peer]));
}
RT cudaError_t cudaDeviceReset(void) {
  NEED(ready());
  pthread_mutex_lock(&lock);
  CUresult result = driver.cuDevicePrimaryCtxReset(device);
  retained[device] = false; // the next call makes a new one
  pthread_mutex_unlock(&lock);
  last = cudaSuccess;
  return note(result);
}
CALL(cudaDeviceSynchronize, (void), driver.cuCtxSynchronize())

// ---- memory ----

#define DPTR(p) ((CUdeviceptr)(uintptr_t)(p))
RT cudaError_t cudaMalloc(void** p, size_t size) {
  NEED(ready_context());
  if (!p) return note(cudaErrorInvalidValue);
  *p = nullptr;
  CUdeviceptr d = 0;
  CUresult result = size ? driver.cuMemAlloc(&d, size) : CUDA_SUCCESS; // zero bytes: success and no memory
  if (!result) *p = (void*)(uintptr_t)d;
  return note(result);
}
CALL(cudaFree, (void* p), p ? driver.cuMemFree(DPTR(p)) : CUDA_SUCCESS)
RT cudaError_t cudaMallocPitch(void** p, size_t* pitch, size_t width, size_t height) {
  NEED(ready_context());
  if (!p || !pitch) return note(cudaErrorInvalidValue);
  *p = nullptr;
  *pitch = 0;
  if (!width || !height) return cudaSuccess;
  return note(driver.cuMemAllocPitch((CUdeviceptr*)p, pitch, width, height, 4));
}
CALL(cudaMallocManaged, (void** p, size_t size, unsigned flags), driver.cuMemAllocManaged((CUdeviceptr*)p, size, flags))
static cudaError_t host_alloc(void** p, size_t size, unsigned flags) {
  if (!p) return cudaErrorInvalidValue;
  *p = nullptr;
  return size ? (cudaError_t)driver.cuMemHostAlloc(p, size, flags) : cudaSuccess;
}
CALL(cudaMallocHost, (void** p, size_t size), host_alloc(p, size, 0))
CALL(cudaHostAlloc, (void** p, size_t size, unsigned flags), host_alloc(p, size, flags))
CALL(cudaFreeHost, (void* p), p ? driver.cuMemFreeHost(p) : CUDA_SUCCESS)
CALL(cudaHostRegister, (void* p, size_t size, unsigned flags), driver.cuMemHostRegister(p, size, flags))
CALL(cudaHostUnregister, (void* p), driver.cuMemHostUnregister(p))
CALL(cudaHostGetDevicePointer, (void** d, void* p, unsigned flags), driver.cuMemHostGetDevicePointer((CUdeviceptr*)d, p, flags))
CALL(cudaMemGetInfo, (size_t* free, size_t* total), driver.cuMemGetInfo(free, total))
RT cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* out, const void* p) {
  NEED(ready_context());
  if (!out) return note(cudaErrorInvalidValue);
  unsigned type = 0, managed = 0;
  int ordinal = 0;
  void *on_device = nullptr, *on_host = nullptr;
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                 CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* data[] = {&type, &on_device, &on_host, &managed, &ordinal};
  CUresult result = driver.cuPointerGetAttributes(5, which, data, DPTR(p));
  memset(out, 0, sizeof *out);
  out->type = managed ? cudaMemoryTypeManaged : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  out->device = type ? ordinal : -2;
  out->devicePointer = on_device;
  out->hostPointer = type ? on_host : (void*)p;
  return note(result);
}
// What the driver's pool does in a forked child the runtime does there too: it does not look for the context.
#define POOLED(name, parameters, call) \
  TWINS(name, _ptsz, parameters, if (cudaError_t error = ready_context(); error && error != cudaErrorInitializationError) return note(error); return note(call);)
POOLED(cudaMallocAsync, (void** p, size_t size, cudaStream_t s), driver.cuMemAllocAsync[own]((CUdeviceptr*)p, size, s))
PTSZ(cudaMallocFromPoolAsync, (void** p, size_t size, cudaMemPool_t pool, cudaStream_t s), driver.cuMemAllocFromPoolAsync[own]((CUdeviceptr*)p, size, pool, s))
POOLED(cudaFreeAsync, (void* p, cudaStream_t s), driver.cuMemFreeAsync[own](DPTR(p), s))
TWINS(cudaMemcpy, _ptds, (void* dst, const void* src, size_t n, enum cudaMemcpyKind kind), {
  NEED(ready_context());
  switch (kind) {
    case cudaMemcpyHostToDevice: return note(driver.cuMemcpyHtoD[own](DPTR(dst), src, n));
    case cudaMemcpyDeviceToHost: return note(driver.cuMemcpyDtoH[own](dst, DPTR(src), n));
    case cudaMemcpyDeviceToDevice: return note(driver.cuMemcpyDtoD[own](DPTR(dst), DPTR(src), n));
    default: return note(driver.cuMemcpy[own](DPTR(dst), DPTR(src), n));
  }
})
TWINS(cudaMemcpyAsync, _ptsz, (void* dst, const void* src, size_t n, enum cudaMemcpyKind kind, cudaStream_t s), {
  NEED(ready_context());
  switch (kind) {
    case cudaMemcpyHostToDevice: return note(driver.cuMemcpyHtoDAsync[own](DPTR(dst), src, n, s));
    case cudaMemcpyDeviceToHost: return note(driver.cuMemcpyDtoHAsync[own](dst, DPTR(src), n, s));
    case cudaMemcpyDeviceToDevice: return note(driver.cuMemcpyDtoDAsync[own](DPTR(dst), DPTR(src), n, s));
    default: return note(driver.cuMemcpyAsync[own](DPTR(dst), DPTR(src), n, s));
  }
})
static CUDA_MEMCPY2D rows(void* dst, size_t to, const void* src, size_t from, size_t width, size_t height) {
  CUDA_MEMCPY2D c{};
  c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  c.srcDevice = DPTR(src);
  c.srcPitch = from;
  c.dstDevice = DPTR(dst);
  c.dstPitch = to;
  c.WidthInBytes = width;
  c.Height = height;
  return c;
}
TWINS(cudaMemcpy2DAsync, _ptsz, (void* dst, size_t to, const void* src, size_t from, size_t width, size_t height, enum cudaMemcpyKind, cudaStream_t s), {
  NEED(ready_context());
  CUDA_MEMCPY2D c = rows(dst, to, src, from, width, height);
  return note(driver.cuMemcpy2DAsync[own](&c, s));
})
PTSZ(cudaMemcpyPeerAsync, (void* dst, int to, const void* src, int from, size_t n, cudaStream_t s), driver.cuMemcpyPeerAsync[own](DPTR(dst), primary_of(to), DPTR(src), primary_of(from), n, s))
TWINS(cudaMemset, _ptds, (void* p, int value, size_t n), { NEED(ready_context()); return note(driver.cuMemsetD8[own](DPTR(p), (unsigned char)value, n)); })
PTSZ(cudaMemsetAsync, (void* p, int value, size_t n, cudaStream_t s), driver.cuMemsetD8Async[own](DPTR(p), (unsigned char)value, n, s))
CALL(cudaIpcGetMemHandle, (cudaIpcMemHandle_t* handle, void* p), driver.cuIpcGetMemHandle(handle, DPTR(p)))
CALL(cudaIpcOpenMemHandle, (void** p, cudaIpcMemHandle_t handle, unsigned flags), driver.cuIpcOpenMemHandle((CUdeviceptr*)p, handle, flags))
CALL(cudaIpcGetEventHandle, (CUipcEventHandle* handle, cudaEvent_t e), driver.cuIpcGetEventHandle(handle, e))
CALL(cudaIpcOpenEventHandle, (cudaEvent_t* e, CUipcEventHandle handle), driver.cuIpcOpenEventHandle(e, handle))
CALL(cudaIpcCloseMemHandle, (void* p), driver.cuIpcCloseMemHandle(DPTR(p)))

// ---- pools ----

CALL(cudaDeviceGetDefaultMemPool, (cudaMemPool_t* pool, int dev), driver.cuDeviceGetDefaultMemPool(pool, dev))
CALL(cudaDeviceGetMemPool, (cudaMemPool_t* pool, int dev), driver.cuDeviceGetMemPool(pool, dev))
CALL(cudaDeviceSetMemPool, (int dev, cudaMemPool_t pool), driver.cuDeviceSetMemPool(dev, pool))
CALL(cudaMemPoolCreate, (cudaMemPool_t* pool, const CUmemPoolProps* props), driver.cuMemPoolCreate(pool, props))
CALL(cudaMemPoolDestroy, (cudaMemPool_t pool), driver.cuMemPoolDestroy(pool))
CALL(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t keep), driver.cuMemPoolTrimTo(pool, keep))
CALL(cudaMemPoolSetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr a, void* value), driver.cuMemPoolSetAttribute(pool, (CUmemPool_attribute)a, value))
CALL(cudaMemPoolGetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr a, void* value), driver.cuMemPoolGetAttribute(pool, (CUmemPool_attribute)a, value))
CALL(cudaMemPoolSetAccess, (cudaMemPool_t pool, const CUmemAccessDesc* map, size_t count), driver.cuMemPoolSetAccess(pool, map, count))
CALL(cudaMemPoolGetAccess, (CUmemAccess_flags* flags, cudaMemPool_t pool, CUmemLocation* location), driver.cuMemPoolGetAccess(flags, pool, location))

// ---- streams, events, graphs ----

CALL(cudaStreamCreate, (cudaStream_t* s), driver.cuStreamCreate(s, 0))
CALL(cudaStreamCreateWithFlags, (cudaStream_t* s, unsigned flags), driver.cuStreamCreate(s, flags))
CALL(cudaStreamCreateWithPriority, (cudaStream_t* s, unsigned flags, int priority), driver.cuStreamCreateWithPriority(s, flags, priority))
CALL(cudaStreamDestroy, (cudaStream_t s), driver.cuStreamDestroy(s))
PTSZ(cudaStreamSynchronize, (cudaStream_t s), driver.cuStreamSynchronize[own](s))
PTSZ(cudaStreamQuery, (cudaStream_t s), driver.cuStreamQuery[own](s))
PTSZ(cudaStreamWaitEvent, (cudaStream_t s, cudaEvent_t e, unsigned flags), driver.cuStreamWaitEvent[own](s, e, flags))
PTSZ(cudaStreamGetId, (cudaStream_t s, unsigned long long* id), driver.cuStreamGetId[own](s, id))
PTSZ(cudaStreamGetPriority, (cudaStream_t s, int* priority), driver.cuStreamGetPriority[own](s, priority))
// CUDA 13 has the version with edges under the plain name; 12 has it as _v3.
#define CAPTURE_INFO (cudaStream_t s, enum cudaStreamCaptureStatus* status, unsigned long long* id, cudaGraph_t* graph, const CUgraphNode** deps, const CUgraphEdgeData** data, size_t* count)
#define GET_CAPTURE_INFO driver.cuStreamGetCaptureInfo[own](s, (CUstreamCaptureStatus*)status, (uint64_t*)id, graph, deps, data, count)
#if CUDART_VERSION >= 13000
PTSZ(cudaStreamGetCaptureInfo, CAPTURE_INFO, GET_CAPTURE_INFO)
#else
PTSZ(cudaStreamGetCaptureInfo_v3, CAPTURE_INFO, GET_CAPTURE_INFO)
#define data nullptr
PTSZ(cudaStreamGetCaptureInfo_v2, (cudaStream_t s, enum cudaStreamCaptureStatus* status, unsigned long long* id, cudaGraph_t* graph, const CUgraphNode** deps, size_t* count), GET_CAPTURE_INFO)
#undef data
#endif
PTSZ(cudaStreamIsCapturing, (cudaStream_t s, enum cudaStreamCaptureStatus* status), driver.cuStreamIsCapturing[own](s, (CUstreamCaptureStatus*)status))
PTSZ(cudaStreamBeginCapture, (cudaStream_t s, enum cudaStreamCaptureMode mode), driver.cuStreamBeginCapture[own](s, (CUstreamCaptureMode)mode))
PTSZ(cudaStreamEndCapture, (cudaStream_t s, cudaGraph_t* graph), driver.cuStreamEndCapture[own](s, graph))
PTSZ(cudaStreamAddCallback, (cudaStream_t s, cudaStreamCallback_t fn, void* data, unsigned flags), driver.cuStreamAddCallback[own](s, (CUstreamCallback)(void*)fn, data, flags))
PTSZ(cudaLaunchHostFunc, (cudaStream_t s, cudaHostFn_t fn, void* data), driver.cuLaunchHostFunc[own](s, fn, data))
CALL(cudaThreadExchangeStreamCaptureMode, (enum cudaStreamCaptureMode* mode), driver.cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode*)mode))
CALL(cudaEventCreate, (cudaEvent_t* e), driver.cuEventCreate(e, 0))
CALL(cudaEventCreateWithFlags, (cudaEvent_t* e, unsigned flags), driver.cuEventCreate(e, flags))
PTSZ(cudaEventRecord, (cudaEvent_t e, cudaStream_t s), driver.cuEventRecord[own](e, s))
PTSZ(cudaEventRecordWithFlags, (cudaEvent_t e, cudaStream_t s, unsigned flags), driver.cuEventRecordWithFlags[own](e, s, flags))
CALL(cudaEventQuery, (cudaEvent_t e), driver.cuEventQuery(e))
CALL(cudaEventSynchronize, (cudaEvent_t e), driver.cuEventSynchronize(e))
CALL(cudaEventDestroy, (cudaEvent_t e), driver.cuEventDestroy(e))
CALL(cudaEventElapsedTime, (float* ms, cudaEvent_t a, cudaEvent_t b), driver.cuEventElapsedTime(ms, a, b))
CALL(cudaGraphInstantiate, (cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags), driver.cuGraphInstantiateWithFlags(exec, graph, flags))
CALL(cudaGraphInstantiateWithFlags, (cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags), driver.cuGraphInstantiateWithFlags(exec, graph, flags))
CALL(cudaGraphGetNodes, (cudaGraph_t graph, CUgraphNode* nodes, size_t* count), driver.cuGraphGetNodes(graph, nodes, count))
#if CUDART_VERSION >= 13000
CALL(cudaGraphNodeGetDependencies, (CUgraphNode node, CUgraphNode* deps, CUgraphEdgeData* data, size_t* count), driver.cuGraphNodeGetDependencies(node, deps, data, count))
#else
CALL(cudaGraphNodeGetDependencies, (CUgraphNode node, CUgraphNode* deps, size_t* count), driver.cuGraphNodeGetDependencies(node, deps, nullptr, count))
#endif
CALL(cudaGraphDebugDotPrint, (cudaGraph_t graph, const char* path, unsigned flags), driver.cuGraphDebugDotPrint(graph, path, flags))
PTSZ(cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t s), driver.cuGraphLaunch[own](exec, s))
CALL(cudaGraphDestroy, (cudaGraph_t graph), driver.cuGraphDestroy(graph))
CALL(cudaGraphExecDestroy, (cudaGraphExec_t exec), driver.cuGraphExecDestroy(exec))

TWINS(cudaGetDriverEntryPointByVersion, _ptsz, (const char* symbol, void** pfn, unsigned version, unsigned long long flags, CUdriverProcAddressQueryResult* status), {
  NEED(ready());
  return note(driver.cuGetProcAddress(symbol, pfn, (int)version, flags ? flags : own ? 2u : 0u, status));
})
// Removed in CUDA 13: as of the runtime's own version.
TWINS(cudaGetDriverEntryPoint, _ptsz, (const char* symbol, void** pfn, unsigned long long flags, CUdriverProcAddressQueryResult* status), {
  NEED(ready());
  return note(driver.cuGetProcAddress(symbol, pfn, CUDART_VERSION, flags ? flags : own ? 2u : 0u, status));
})
