// What the files of the simulated CUDA runtime share: the driver's functions as the runtime looks them up, and the frame around
// a call. No libstdc++ in any of them: C programs link the static variant.
#pragma once
#define CUDA_MINI_NO_ALIASES
#include "cuda_mini.h"

#ifdef CUDART_STATIC
#define RT extern "C" __attribute__((visibility("hidden")))
#else
#define RT extern "C" __attribute__((visibility("default")))
#endif

namespace cudart {

// F(base name, version asked for, function whose type it has)    S: a stream function, looked up twice
#define DRIVER_FUNCTIONS(F, S) \
  F(cuInit, 2000, cuInit) \
  F(cuDriverGetVersion, 2020, cuDriverGetVersion) \
  F(cuDeviceGet, 2000, cuDeviceGet) \
  F(cuDeviceGetCount, 2000, cuDeviceGetCount) \
  F(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute) \
  F(cuDeviceCanAccessPeer, 4000, cuDeviceCanAccessPeer) \
  F(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain) \
  F(cuDevicePrimaryCtxReset, 11000, cuDevicePrimaryCtxReset_v2) \
  F(cuCtxGetCurrent, 4000, cuCtxGetCurrent) \
  F(cuCtxSetCurrent, 4000, cuCtxSetCurrent) \
  F(cuCtxGetDevice, 2000, cuCtxGetDevice) \
  F(cuCtxSynchronize, 2000, cuCtxSynchronize) \
  F(cuCtxEnablePeerAccess, 4000, cuCtxEnablePeerAccess) \
  F(cuCtxDisablePeerAccess, 4000, cuCtxDisablePeerAccess) \
  F(cuMemAlloc, 3020, cuMemAlloc_v2) \
  F(cuMemAllocPitch, 3020, cuMemAllocPitch_v2) \
  F(cuMemAllocManaged, 6000, cuMemAllocManaged) \
  F(cuMemFree, 3020, cuMemFree_v2) \
  F(cuMemHostAlloc, 2020, cuMemHostAlloc) \
  F(cuMemFreeHost, 2000, cuMemFreeHost) \
  F(cuMemHostRegister, 6050, cuMemHostRegister_v2) \
  F(cuMemHostUnregister, 4000, cuMemHostUnregister) \
  F(cuMemHostGetDevicePointer, 3020, cuMemHostGetDevicePointer_v2) \
  F(cuMemGetInfo, 3020, cuMemGetInfo_v2) \
  F(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2) \
  F(cuPointerGetAttribute, 4000, cuPointerGetAttribute) \
  F(cuPointerGetAttributes, 7000, cuPointerGetAttributes) \
  F(cuStreamCreate, 2000, cuStreamCreate) \
  F(cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority) \
  F(cuStreamDestroy, 4000, cuStreamDestroy_v2) \
  F(cuThreadExchangeStreamCaptureMode, 10010, cuThreadExchangeStreamCaptureMode) \
  F(cuEventCreate, 2000, cuEventCreate) \
  F(cuEventQuery, 2000, cuEventQuery) \
  F(cuEventSynchronize, 2000, cuEventSynchronize) \
  F(cuEventDestroy, 4000, cuEventDestroy_v2) \
  F(cuEventElapsedTime, 2000, cuEventElapsedTime_v2) \
  F(cuGraphInstantiateWithFlags, 11040, cuGraphInstantiateWithFlags) \
  F(cuGraphDestroy, 10000, cuGraphDestroy) \
  F(cuGraphExecDestroy, 10000, cuGraphExecDestroy) \
  F(cuIpcGetMemHandle, 4010, cuIpcGetMemHandle) \
  F(cuIpcOpenMemHandle, 11000, cuIpcOpenMemHandle_v2) \
  F(cuIpcCloseMemHandle, 4010, cuIpcCloseMemHandle) \
  F(cuDeviceGetDefaultMemPool, 11020, cuDeviceGetDefaultMemPool) \
  F(cuDeviceGetMemPool, 11020, cuDeviceGetMemPool) \
  F(cuDeviceSetMemPool, 11020, cuDeviceSetMemPool) \
  F(cuMemPoolCreate, 11020, cuMemPoolCreate) \
  F(cuMemPoolDestroy, 11020, cuMemPoolDestroy) \
  F(cuMemPoolTrimTo, 11020, cuMemPoolTrimTo) \
  F(cuMemPoolSetAttribute, 11020, cuMemPoolSetAttribute) \
  F(cuMemPoolGetAttribute, 11020, cuMemPoolGetAttribute) \
  F(cuMemPoolSetAccess, 11020, cuMemPoolSetAccess) \
  F(cuMemPoolGetAccess, 11020, cuMemPoolGetAccess) \
  F(cuDeviceGetName, 2000, cuDeviceGetName) \
  F(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2) \
  F(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2) \
  F(cuDeviceGetPCIBusId, 4010, cuDeviceGetPCIBusId) \
  F(cuCtxGetStreamPriorityRange, 5050, cuCtxGetStreamPriorityRange) \
  F(cuCtxSetLimit, 3010, cuCtxSetLimit) \
  F(cuCtxGetLimit, 3010, cuCtxGetLimit) \
  F(cuGraphGetNodes, 10000, cuGraphGetNodes) \
  F(cuGraphNodeGetDependencies, 12030, cuGraphNodeGetDependencies_v2) \
  F(cuGraphDebugDotPrint, 11030, cuGraphDebugDotPrint) \
  F(cuIpcGetEventHandle, 4010, cuIpcGetEventHandle) \
  F(cuIpcOpenEventHandle, 4010, cuIpcOpenEventHandle) \
  F(cuLibraryLoadData, 12000, cuLibraryLoadData) \
  F(cuLibraryUnload, 12000, cuLibraryUnload) \
  F(cuLibraryGetKernel, 12000, cuLibraryGetKernel) \
  F(cuLibraryGetGlobal, 12000, cuLibraryGetGlobal) \
  F(cuKernelGetFunction, 12000, cuKernelGetFunction) \
  F(cuFuncGetAttribute, 2020, cuFuncGetAttribute) \
  F(cuFuncSetAttribute, 9000, cuFuncSetAttribute) \
  F(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) \
  S(cuMemcpy, 7000, cuMemcpy) \
  S(cuMemcpyHtoD, 7000, cuMemcpyHtoD_v2) \
  S(cuMemcpyDtoH, 7000, cuMemcpyDtoH_v2) \
  S(cuMemcpyDtoD, 7000, cuMemcpyDtoD_v2) \
  S(cuMemsetD8, 7000, cuMemsetD8_v2) \
  S(cuMemcpyAsync, 7000, cuMemcpyAsync) \
  S(cuMemcpyHtoDAsync, 7000, cuMemcpyHtoDAsync_v2) \
  S(cuMemcpyDtoHAsync, 7000, cuMemcpyDtoHAsync_v2) \
  S(cuMemcpyDtoDAsync, 7000, cuMemcpyDtoDAsync_v2) \
  S(cuMemcpy2DAsync, 7000, cuMemcpy2DAsync_v2) \
  S(cuMemcpyPeerAsync, 7000, cuMemcpyPeerAsync) \
  S(cuStreamGetPriority, 7000, cuStreamGetPriority) \
  S(cuStreamGetCaptureInfo, 12030, cuStreamGetCaptureInfo_v3) \
  S(cuEventRecordWithFlags, 11010, cuEventRecordWithFlags) \
  S(cuLaunchKernel, 7000, cuLaunchKernel) \
  S(cuLaunchKernelEx, 11060, cuLaunchKernelEx) \
  S(cuLaunchCooperativeKernel, 9000, cuLaunchCooperativeKernel) \
  S(cuMemsetD8Async, 7000, cuMemsetD8Async) \
  S(cuMemAllocAsync, 11020, cuMemAllocAsync) \
  S(cuMemAllocFromPoolAsync, 11020, cuMemAllocFromPoolAsync) \
  S(cuMemFreeAsync, 11020, cuMemFreeAsync) \
  S(cuStreamQuery, 7000, cuStreamQuery) \
  S(cuStreamSynchronize, 7000, cuStreamSynchronize) \
  S(cuStreamWaitEvent, 7000, cuStreamWaitEvent) \
  S(cuStreamGetId, 12000, cuStreamGetId) \
  S(cuStreamAddCallback, 7000, cuStreamAddCallback) \
  S(cuStreamIsCapturing, 10000, cuStreamIsCapturing) \
  S(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2) \
  S(cuStreamEndCapture, 10000, cuStreamEndCapture) \
  S(cuLaunchHostFunc, 10000, cuLaunchHostFunc) \
  S(cuEventRecord, 7000, cuEventRecord) \
  S(cuGraphLaunch, 10000, cuGraphLaunch)

// S members are arrays: [0] for the legacy default stream, [1] for the thread's own
#define F(base, version, like) decltype(&::like) base;
#define S(base, version, like) decltype(&::like) base[2];
struct Driver { DRIVER_FUNCTIONS(F, S) decltype(&::cuGetProcAddress_v2) cuGetProcAddress; };
extern Driver driver;
#undef F
#undef S

cudaError_t ready();                   // the driver only
cudaError_t ready_context();           // and a current context: the program's own, or the primary one
cudaError_t note(cudaError_t error);   // what cudaGetLastError will say
inline cudaError_t note(CUresult result) { return note((cudaError_t)result); } // the numbers are the same
CUcontext primary_of(int ordinal);     // made if need be

} // namespace cudart

#define NEED(check) if (cudaError_t error = check) return cudart::note(error)
// name, and its twin, which asks for the functions of the thread's own default stream
#define TWINS(name, suffix, parameters, ...)                                          \
  RT cudaError_t name parameters { const int own = 0; (void)own; __VA_ARGS__ }        \
  RT cudaError_t name##suffix parameters { const int own = 1; (void)own; __VA_ARGS__ }
#define PTSZ(name, parameters, call) TWINS(name, _ptsz, parameters, NEED(ready_context()); return note(call);)
#define CALL(name, parameters, call) RT cudaError_t name parameters { NEED(ready_context()); return note(call); }
