// One row of the table behind cuGetProcAddress.
#pragma once
struct Entry {
  const char* base;
  int version;            // the first CUDA version that has this function under the base name
  void* function;
  void* per_thread;       // its _ptsz or _ptds twin, or nullptr
  int per_thread_version;
};
extern const Entry entries[]; // ends with a null base
