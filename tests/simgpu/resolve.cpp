// cuGetProcAddress: a base name, a CUDA version and flags choose one entry point. The pointer is the one that dlsym gives for
// the versioned name; on an H200 they were equal in all of 21 cases.
#include "entries.h"
#include "sim.h"
#include <cstring>

namespace sim {

constexpr int DRIVER_VERSION = 13000;

static CUresult resolve(const char* symbol, void** pfn, int version, bool per_thread, CUdriverProcAddressQueryResult* status) {
  if (!symbol || !pfn || version <= 0 || version > DRIVER_VERSION) return CUDA_ERROR_INVALID_VALUE;
  *pfn = nullptr;
  const Entry* best = nullptr;
  bool known = false;
  for (const Entry* e = entries; e->base; ++e) {
    if (strcmp(e->base, symbol)) continue;
    known = true;
    if (e->version <= version && (!best || e->version > best->version)) best = e;
  }
  if (best) *pfn = per_thread && best->per_thread && best->per_thread_version <= version ? best->per_thread : best->function;
  put(status, best ? CU_GET_PROC_ADDRESS_SUCCESS : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  return CUDA_SUCCESS;
}
// Flags choose the kind of default stream; 0 is what the caller was compiled for, which the name of the resolver tells.
static CUresult resolve(const char* symbol, void** pfn, int version, uint64_t flags, bool per_thread, CUdriverProcAddressQueryResult* status) {
  if (flags > 2) return CUDA_ERROR_INVALID_VALUE;
  if (flags) per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  return resolve(symbol, pfn, version, per_thread, status);
}

} // namespace sim

using namespace sim;

// Works before cuInit, and takes no lock: the runtime calls it while libraries are being loaded.
API CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int version, uint64_t flags, CUdriverProcAddressQueryResult* status) {
  return resolve(symbol, pfn, version, flags, false, status);
}
API CUresult cuGetProcAddress_v2_ptsz(const char* symbol, void** pfn, int version, uint64_t flags, CUdriverProcAddressQueryResult* status) {
  return resolve(symbol, pfn, version, flags, true, status);
}
// CUDA 11.3: four arguments, and an error where the later one has a status
static CUresult resolve_v1(const char* symbol, void** pfn, int version, uint64_t flags, bool per_thread) {
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  CUresult result = resolve(symbol, pfn, version, flags, per_thread, &status);
  return !result && status ? CUDA_ERROR_NOT_FOUND : result;
}
API CUresult cuGetProcAddress(const char* symbol, void** pfn, int version, uint64_t flags) { return resolve_v1(symbol, pfn, version, flags, false); }
API CUresult cuGetProcAddress_ptsz(const char* symbol, void** pfn, int version, uint64_t flags) { return resolve_v1(symbol, pfn, version, flags, true); }

API CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  if (!table || !id) return CUDA_ERROR_INVALID_VALUE;
  *table = nullptr; // there are none
  return CUDA_ERROR_INVALID_VALUE;
}
