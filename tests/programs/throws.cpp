/* Exceptions that come out of hooked calls reach the caller, and the hooks work afterwards. */
#include "common.h"
#include <stdexcept>

#define CATCH(call)                                  \
  do {                                               \
    try {                                            \
      printf("%s = %d\n", #call, (int)(call));       \
    } catch (const std::runtime_error& e) {          \
      printf("%s threw %s\n", #call, e.what());      \
    }                                                \
  } while (0)

static void case_all(void) {
  CUdeviceptr p = 0;
  void* host = nullptr;
  CUstream s = nullptr;
  size_t bytes;
  primary(0);
  for (int i = 0; i < 3; ++i) {
    CATCH(cuMemAllocManaged(&p, 1000, 1));
    CATCH(cuMemHostAlloc(&host, 1000, 0));
    CATCH(cuMemHostRegister(&p, 1000, 0));
    CATCH(cuStreamCreate(&s, 0));
    CATCH(cuStreamAddCallback(nullptr, nullptr, nullptr, 0));
    CATCH(cuModuleGetGlobal(&p, &bytes, nullptr, "x"));
    CATCH(cudaMallocManaged((void**)&p, 1000, 1)); /* through the runtime, whose frames are C++ as well */
    CATCH(cuMemAlloc(&p, 1000));
    CATCH(cuMemFree(p));
  }
}
int main(int argc, char** argv) {
  static const struct Named cases[] = {{"all", case_all}};
  return run_case(cases, LENGTH(cases), argc, argv);
}
