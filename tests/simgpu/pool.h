// What pool.cpp and pool_share.cpp know of a pool.
#pragma once
#include "sim.h"

namespace sim {

struct Free {
  size_t size;
  Stream* stream;
  TaskRef done;
};
struct Chunk {
  CUdeviceptr base;
  std::vector<uint32_t> frames;
  std::map<CUdeviceptr, Free> holes;
};
struct Pool {
  Device* dev = nullptr;
  bool is_default = false, alive = true;
  CUmemPoolProps props{};
  uint64_t attributes[9] = {0, 1, 1, 1, 0, 0, 0, 0, 0}; // by CUmemPool_attribute
  std::map<CUdeviceptr, Chunk*> chunks;
  std::set<int> access;
  bool imported = false; // another process's: its blocks come by cuMemPoolImportPointer
};
Pool* pool_of(CUmemoryPool handle);
Pool* new_pool(Device* dev, bool is_default);

} // namespace sim
