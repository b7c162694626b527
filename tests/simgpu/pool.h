// What pool.cpp and pool_share.cpp know of a pool.
#pragma once
#include "sim.h"

namespace sim {

struct Free {
  size_t size;
  uint64_t stream; // id of the stream it was freed in; 0: none
  TaskRef done;
};
struct Pool {
  Device* dev = nullptr;
  bool is_default = false, alive = true;
  CUmemPoolProps props{};
  uint64_t attributes[9] = {0, 1, 1, 1, 0, 0, 0, 0, 0}; // by CUmemPool_attribute
  Space space;                                             // its chunks lie side by side, and a block may lie across them
  std::map<CUdeviceptr, std::vector<uint32_t>> chunks;     // the frames of each, by address
  std::map<CUdeviceptr, Free> holes;
  std::set<uint64_t> freed; // streams with frees since the last release
  std::set<int> access;
  bool imported = false; // another process's: its blocks come by cuMemPoolImportPointer
};
Pool* pool_of(CUmemoryPool handle);
Pool* new_pool(Device* dev, bool is_default);

} // namespace sim
