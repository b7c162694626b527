// cudaGetDeviceProperties: the driver's attributes, in the structure that CUDA 13 (or 12, as _v2) has for them.
#include "cudart.h"
#include <string.h>

using namespace cudart;

#if CUDART_VERSION < 13000
#define BEFORE_13(...) __VA_ARGS__
#else
#define BEFORE_13(...)
#endif

struct cudaDeviceProp {
  char name[256], uuid[16], luid[8];
  unsigned luidDeviceNodeMask;
  size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize;
  size_t memPitch;
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
  BEFORE_13(int clockRate;)
  size_t totalConstMem;
  int major, minor;
  size_t textureAlignment, texturePitchAlignment;
  BEFORE_13(int deviceOverlap;)
  int multiProcessorCount;
  BEFORE_13(int kernelExecTimeoutEnabled;)
  int integrated, canMapHostMemory;
  BEFORE_13(int computeMode;)
  int maxTexture1D, maxTexture1DMipmap;
  BEFORE_13(int maxTexture1DLinear;)
  int maxTexture2D[2], maxTexture2DMipmap[2], maxTexture2DLinear[3], maxTexture2DGather[2], maxTexture3D[3], maxTexture3DAlt[3], maxTextureCubemap;
  int maxTexture1DLayered[2], maxTexture2DLayered[3], maxTextureCubemapLayered[2];
  int maxSurface1D, maxSurface2D[2], maxSurface3D[3], maxSurface1DLayered[2], maxSurface2DLayered[3], maxSurfaceCubemap, maxSurfaceCubemapLayered[2];
  size_t surfaceAlignment;
  int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount, unifiedAddressing;
  BEFORE_13(int memoryClockRate;)
  int memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize, maxThreadsPerMultiProcessor, streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;
  size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID, hostNativeAtomicSupported;
  BEFORE_13(int singleToDoublePrecisionPerfRatio;)
  int pageableMemoryAccess, concurrentManagedAccess, computePreemptionSupported, canUseHostPointerForRegisteredMem, cooperativeLaunch;
  BEFORE_13(int cooperativeMultiDeviceLaunch;)
  size_t sharedMemPerBlockOptin;
  int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost, maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize;
  size_t reservedSharedMemPerBlock;
  int hostRegisterSupported, sparseCudaArraySupported, hostRegisterReadOnlySupported, timelineSemaphoreInteropSupported, memoryPoolsSupported, gpuDirectRDMASupported;
  unsigned gpuDirectRDMAFlushWritesOptions;
  int gpuDirectRDMAWritesOrdering;
  unsigned memoryPoolSupportedHandleTypes;
  int deferredMappingCudaArraySupported, ipcEventSupported, clusterLaunch, unifiedFunctionPointers;
#if CUDART_VERSION < 13000
  int reserved[63];
#else
  int deviceNumaConfig, deviceNumaId, mpsEnabled, hostNumaId;
  unsigned gpuPciDeviceID, gpuPciSubsystemID;
  int hostNumaMultinodeIpcSupported, reserved[56];
#endif
};
#if CUDART_VERSION < 13000
#define PROPERTIES cudaGetDeviceProperties_v2
static_assert(sizeof(cudaDeviceProp) == 1032, "as in CUDA 12");
#else
#define PROPERTIES cudaGetDeviceProperties
static_assert(sizeof(cudaDeviceProp) == 1008, "as in CUDA 13");
#endif

RT cudaError_t PROPERTIES(cudaDeviceProp* out, int device) {
  NEED(ready());
  if (!out) return note(cudaErrorInvalidValue);
  memset(out, 0, sizeof *out);
  NEED((cudaError_t)driver.cuDeviceGetName(out->name, sizeof out->name, device));
  driver.cuDeviceGetUuid((CUuuid*)out->uuid, device);
  driver.cuDeviceTotalMem(&out->totalGlobalMem, device);
  auto ask = [device](int attribute) {
    int value = 0;
    driver.cuDeviceGetAttribute(&value, attribute, device);
    return value;
  };
#define INT(field, attribute) out->field = ask(CU_DEVICE_ATTRIBUTE_##attribute);
#define SIZE(field, attribute) out->field = (size_t)ask(CU_DEVICE_ATTRIBUTE_##attribute);
  SIZE(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK)
  INT(regsPerBlock, MAX_REGISTERS_PER_BLOCK)
  INT(warpSize, WARP_SIZE)
  SIZE(memPitch, MAX_PITCH)
  INT(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK)
  INT(maxThreadsDim[0], MAX_BLOCK_DIM_X)
  INT(maxThreadsDim[1], MAX_BLOCK_DIM_Y)
  INT(maxThreadsDim[2], MAX_BLOCK_DIM_Z)
  INT(maxGridSize[0], MAX_GRID_DIM_X)
  INT(maxGridSize[1], MAX_GRID_DIM_Y)
  INT(maxGridSize[2], MAX_GRID_DIM_Z)
  BEFORE_13(INT(clockRate, CLOCK_RATE) INT(memoryClockRate, MEMORY_CLOCK_RATE))
  SIZE(totalConstMem, TOTAL_CONSTANT_MEMORY)
  INT(major, COMPUTE_CAPABILITY_MAJOR)
  INT(minor, COMPUTE_CAPABILITY_MINOR)
  SIZE(textureAlignment, TEXTURE_ALIGNMENT)
  INT(multiProcessorCount, MULTIPROCESSOR_COUNT)
  INT(canMapHostMemory, CAN_MAP_HOST_MEMORY)
  INT(concurrentKernels, CONCURRENT_KERNELS)
  INT(pciBusID, PCI_BUS_ID)
  INT(asyncEngineCount, ASYNC_ENGINE_COUNT)
  INT(unifiedAddressing, UNIFIED_ADDRESSING)
  INT(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH)
  INT(l2CacheSize, L2_CACHE_SIZE)
  INT(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR)
  INT(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED)
  SIZE(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)
  INT(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR)
  INT(managedMemory, MANAGED_MEMORY)
  INT(pageableMemoryAccess, PAGEABLE_MEMORY_ACCESS)
  INT(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS)
  INT(canUseHostPointerForRegisteredMem, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)
  INT(cooperativeLaunch, COOPERATIVE_LAUNCH)
  SIZE(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
  INT(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR)
  SIZE(reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK)
  INT(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED)
  out->hostRegisterSupported = 1;
  return cudaSuccess;
}
