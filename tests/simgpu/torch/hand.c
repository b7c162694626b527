// The functions of CUDA's libraries that must give something back: handles, versions, one algorithm. They are declared as
// loosely as C allows: only the arguments that are written to matter. Compiled once for each library, with -DLIB_its-name.
#include "hand.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void stub_called(const char* name) {
  const char* path = getenv("SIMGPU_STUB_LOG");
  int fd = path && *path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
  if (fd < 0) return;
  char line[256];
  int n = snprintf(line, sizeof line, "%s\n", name);
  if (write(fd, line, (size_t)n) < 0) {} // nobody to tell
  close(fd);
}

// What a library computes is a launch, so that a graph has a node of it and a stream something to do.
struct Handle { void* stream; char rest[248]; };
static void launch_in(void* stream) {
  static const char code[8] = "\177ELF";
  static void* kernel;
  static int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  if (!kernel) { // two threads at once load two: no harm
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*load)(void**, const void*, void*, void*, unsigned, void*, void*, unsigned) = dlsym(driver, "cuLibraryLoadData");
    int (*get)(void**, void*, const char*) = dlsym(driver, "cuLibraryGetKernel");
    void *library, *found;
    launch = dlsym(driver, "cuLaunchKernel");
    if (load(&library, code, 0, 0, 0, 0, 0, 0) || get(&found, library, "stand_in")) return;
    kernel = found;
  }
  launch(kernel, 1, 1, 1, 32, 1, 1, 0, stream, 0, 0);
}
void stub_launch(const void* handle) { launch_in(handle ? ((const struct Handle*)handle)->stream : 0); }

// A function whose first argument receives a handle: some memory of its own, as handles are compared and freed.
#define HANDLE(name) int name(void** out) { SAY(); *out = calloc(1, sizeof(struct Handle)); return 0; }
#define RELEASE(name) int name(void* handle) { SAY(); free(handle); return 0; }
#define STREAM(name) int name(struct Handle* handle, void* stream) { SAY(); handle->stream = stream; return 0; }
#define TEXT(name) const char* name(int code) { SAY(); return code ? "an error of a stand-in" : "success"; }
#define ZERO(name) int name(void* handle, int* out) { SAY(); *out = 0; return 0; }

#ifdef LIB_cublas
HANDLE(cublasCreate_v2)
RELEASE(cublasDestroy_v2)
STREAM(cublasSetStream_v2)
int cublasGetVersion_v2(void* handle, int* version) { SAY(); *version = 130000; return 0; }
int cublasGetProperty(int type, int* value) { SAY(); *value = type == 0 ? 13 : 0; return 0; }
ZERO(cublasGetMathMode)
ZERO(cublasGetPointerMode_v2)
TEXT(cublasGetStatusString)
TEXT(cublasGetStatusName)
#endif

#ifdef LIB_cublasLt
HANDLE(cublasLtCreate)
RELEASE(cublasLtDestroy)
HANDLE(cublasLtMatmulDescCreate)
RELEASE(cublasLtMatmulDescDestroy)
HANDLE(cublasLtMatrixLayoutCreate)
RELEASE(cublasLtMatrixLayoutDestroy)
HANDLE(cublasLtMatmulPreferenceCreate)
RELEASE(cublasLtMatmulPreferenceDestroy)
size_t cublasLtGetVersion(void) { SAY(); return 130000; }
size_t cublasLtGetCudartVersion(void) { SAY(); return 13000; }
int cublasLtMatmul(void* handle, void* operation, void* alpha, void* a, void* a_layout, void* b, void* b_layout, void* beta, void* c, void* c_layout, void* d,
                   void* d_layout, void* algorithm, void* workspace, size_t size, void* stream) {
  SAY();
  launch_in(stream);
  return 0;
}
struct Heuristic { uint64_t algorithm[8]; size_t workspace; int state; float waves; int reserved[4]; };
int cublasLtMatmulAlgoGetHeuristic(void* handle, void* operation, void* a, void* b, void* c, void* d, void* preference, int most, struct Heuristic* out, int* count) {
  SAY();
  *count = most > 0;
  if (most > 0) memset(out, 0, sizeof *out);
  return 0;
}
#endif

#ifdef LIB_cudnn
HANDLE(cudnnCreate)
RELEASE(cudnnDestroy)
size_t cudnnGetVersion(void) { SAY(); return getenv("SIMGPU_CUDNN_VERSION") ? (size_t)atol(getenv("SIMGPU_CUDNN_VERSION")) : 91900; }
size_t cudnnGetCudartVersion(void) { SAY(); return 13000; }
TEXT(cudnnGetErrorString)
#endif

#ifdef LIB_cusparse
HANDLE(cusparseCreate)
RELEASE(cusparseDestroy)
STREAM(cusparseSetStream)
TEXT(cusparseGetErrorString)
TEXT(cusparseGetErrorName)
#endif

#ifdef LIB_cusolver
HANDLE(cusolverDnCreate)
RELEASE(cusolverDnDestroy)
STREAM(cusolverDnSetStream)
HANDLE(cusolverDnCreateParams)
RELEASE(cusolverDnDestroyParams)
#endif

#ifdef LIB_nccl
int ncclGetVersion(int* version) { SAY(); *version = 22903; return 0; }
int ncclGetUniqueId(void* id) { SAY(); memset(id, 7, 128); return 0; }
HANDLE(ncclCommInitRank)
HANDLE(ncclCommInitRankConfig)
HANDLE(ncclCommInitRankScalable)
RELEASE(ncclCommDestroy)
RELEASE(ncclCommAbort)
int ncclCommGetAsyncError(void* comm, int* error) { SAY(); *error = 0; return 0; }
TEXT(ncclGetErrorString)
TEXT(ncclGetLastError)
#endif

#ifdef LIB_nvrtc
// A program "compiles" to what the driver takes for machine code, and keeps its names.
static const char code[8] = "\177ELF";
HANDLE(nvrtcCreateProgram)
int nvrtcDestroyProgram(void** program) { SAY(); free(*program); *program = 0; return 0; }
int nvrtcVersion(int* major, int* minor) { SAY(); *major = 13; *minor = 0; return 0; }
#define SIZE(name) int name(void* program, size_t* out) { SAY(); *out = sizeof code; return 0; }
#define CODE(name) int name(void* program, char* out) { SAY(); memcpy(out, code, sizeof code); return 0; }
SIZE(nvrtcGetPTXSize)
CODE(nvrtcGetPTX)
SIZE(nvrtcGetCUBINSize)
CODE(nvrtcGetCUBIN)
int nvrtcGetProgramLogSize(void* program, size_t* out) { SAY(); *out = 1; return 0; }
int nvrtcGetProgramLog(void* program, char* out) { SAY(); *out = 0; return 0; }
int nvrtcGetLoweredName(void* program, const char* name, const char** out) { SAY(); *out = name; return 0; }
TEXT(nvrtcGetErrorString)
#endif

#ifdef LIB_cupti
int cuptiGetVersion(uint32_t* version) { SAY(); *version = 130000; return 0; }
int cuptiGetResultString(int result, const char** out) { SAY(); *out = result ? "an error of a stand-in" : "success"; return 0; }
int cuptiGetTimestamp(uint64_t* out) { SAY(); *out = 0; return 0; }
// Kineto asks for the next record until there is none: max limit reached.
int cuptiActivityGetNextRecord(void) { SAY(); return 12; }
#endif
