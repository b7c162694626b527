// cuGetProcAddress: a base name, a CUDA version and flags choose one entry point. The pointer is the one that dlsym gives for
// the versioned name, with the exceptions that h200.txt names.
#include "entries.h"
#include "sim.h"
#include <cstring>

namespace sim {

constexpr int DRIVER_VERSION = 13000;

static CUresult resolve(const char* symbol, void** pfn, int version, bool per_thread, CUdriverProcAddressQueryResult* status) {
  if (!symbol || !pfn || version < 0 || version > DRIVER_VERSION) return CUDA_ERROR_INVALID_VALUE;
  *pfn = nullptr;
  const Entry* best = nullptr;
  bool known = false;
  for (const Entry* e = entries; e->base; ++e) {
    if (strcmp(e->base, symbol)) continue;
    known = true;
    int since = per_thread && e->per_thread ? e->per_thread_version : e->version; // where there is a twin, per-thread callers get it or nothing
    if (since <= version && (!best || e->version > best->version)) best = e;
  }
  if (best) *pfn = per_thread && best->per_thread ? best->per_thread : best->function;
  put(status, best ? CU_GET_PROC_ADDRESS_SUCCESS : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  return CUDA_SUCCESS;
}
static CUresult resolve(const char* symbol, void** pfn, int version, uint64_t flags, CUdriverProcAddressQueryResult* status) {
  if (flags > 3) return CUDA_ERROR_INVALID_VALUE;
  return resolve(symbol, pfn, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0, status);
}

} // namespace sim

using namespace sim;

// Works before cuInit, and takes no lock: the runtime calls it while libraries are being loaded. The per-thread twins are
// not exported; who asks for them with flag 2 gets them, and they answer as the others: flag 0 means the legacy stream.
API CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int version, uint64_t flags, CUdriverProcAddressQueryResult* status) {
  return resolve(symbol, pfn, version, flags, status);
}
extern "C" CUresult cuGetProcAddress_v2_ptsz(const char*, void**, int, uint64_t, CUdriverProcAddressQueryResult*);
extern "C" CUresult cuGetProcAddress_v2_ptsz(const char* symbol, void** pfn, int version, uint64_t flags, CUdriverProcAddressQueryResult* status) {
  return resolve(symbol, pfn, version, flags, status);
}
// CUDA 11.3: four arguments, and an error, with *pfn left as it was, where the later one has a status
static CUresult resolve_v1(const char* symbol, void** pfn, int version, uint64_t flags) {
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  void* found = nullptr;
  CUresult result = resolve(symbol, pfn ? &found : nullptr, version, flags, &status);
  if (!result && status) return CUDA_ERROR_NOT_FOUND;
  if (!result) *pfn = found;
  return result;
}
API CUresult cuGetProcAddress(const char* symbol, void** pfn, int version, uint64_t flags) { return resolve_v1(symbol, pfn, version, flags); }
extern "C" CUresult cuGetProcAddress_ptsz(const char*, void**, int, uint64_t);
extern "C" CUresult cuGetProcAddress_ptsz(const char* symbol, void** pfn, int version, uint64_t flags) { return resolve_v1(symbol, pfn, version, flags); }

API CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  if (!table || !id) return CUDA_ERROR_INVALID_VALUE;
  *table = nullptr; // there are none
  return CUDA_ERROR_INVALID_VALUE;
}
