/* A program that is linked with nothing of CUDA and finds the driver itself, in every way there is. */
#define NO_KERNELS
#include "common.h"

typedef CUresult (*Init)(unsigned);
typedef CUresult (*Retain)(CUcontext*, CUdevice);
typedef CUresult (*SetCurrent)(CUcontext);
typedef CUresult (*Alloc)(CUdeviceptr*, size_t);
typedef CUresult (*Free)(CUdeviceptr);
typedef CUresult (*Lookup)(const char*, void**, int, uint64_t, CUdriverProcAddressQueryResult*);
static void* driver;

static void use(Init init, Retain retain, SetCurrent set, Alloc alloc, Free release) {
  CUcontext ctx;
  CUdeviceptr p = 0;
  REQUIRE(init && retain && set && alloc && release);
  SAY(init(0));
  SAY(retain(&ctx, 0));
  SAY(set(ctx));
  for (int i = 0; i < 3; ++i) {
    SAY(alloc(&p, 5000));
    SAY(release(p));
  }
  SAY(release(p));
}
static void open_driver(void) {
  driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  REQUIRE(driver);
}
static void* found(Lookup lookup, const char* name, int version) {
  void* p = NULL;
  CUdriverProcAddressQueryResult status = 9;
  int code = (int)lookup(name, &p, version, 0, &status);
  printf("%s at %d: %d, status %d\n", name, version, code, (int)status);
  return p;
}
static void through(Lookup lookup) {
  REQUIRE(lookup);
  use((Init)found(lookup, "cuInit", 2000), (Retain)found(lookup, "cuDevicePrimaryCtxRetain", 7000), (SetCurrent)found(lookup, "cuCtxSetCurrent", 4000),
      (Alloc)found(lookup, "cuMemAlloc", 3020), (Free)found(lookup, "cuMemFree", 3020));
}
/* As the runtime does. */
static void case_look_up(void) {
  open_driver();
  through((Lookup)dlsym(driver, "cuGetProcAddress_v2"));
}
static void case_look_up_of_look_up(void) {
  open_driver();
  Lookup first = (Lookup)dlsym(driver, "cuGetProcAddress_v2");
  REQUIRE(first);
  through((Lookup)found(first, "cuGetProcAddress", 12000));
}
/* Of CUDA 11.3: four arguments. */
static void case_old_look_up(void) {
  open_driver();
  CUgetProcAddress_v11030 old = NULL;
  Lookup first = (Lookup)dlsym(driver, "cuGetProcAddress_v2");
  REQUIRE(first);
  MUST(first("cuGetProcAddress", (void**)&old, 11030, 0, NULL));
  void* p[5] = {0};
  SAY(old("cuInit", &p[0], 2000, 0));
  SAY(old("cuDevicePrimaryCtxRetain", &p[1], 7000, 0));
  SAY(old("cuCtxSetCurrent", &p[2], 4000, 0));
  SAY(old("cuMemAlloc", &p[3], 3020, 0));
  SAY(old("cuMemFree", &p[4], 3020, 0));
  use((Init)p[0], (Retain)p[1], (SetCurrent)p[2], (Alloc)p[3], (Free)p[4]);
}
static void case_names(void) {
  open_driver();
  use((Init)dlsym(driver, "cuInit"), (Retain)dlsym(driver, "cuDevicePrimaryCtxRetain"), (SetCurrent)dlsym(driver, "cuCtxSetCurrent"),
      (Alloc)dlsym(driver, "cuMemAlloc_v2"), (Free)dlsym(driver, "cuMemFree_v2"));
}
/* Opened for all, and asked of the global scope. */
static void case_global(void) {
  REQUIRE(dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL));
  use((Init)dlsym(RTLD_DEFAULT, "cuInit"), (Retain)dlsym(RTLD_DEFAULT, "cuDevicePrimaryCtxRetain"), (SetCurrent)dlsym(RTLD_DEFAULT, "cuCtxSetCurrent"),
      (Alloc)dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), (Free)dlsym(RTLD_DEFAULT, "cuMemFree_v2"));
}
/* What the look-ups say to nonsense, and what is no driver function. */
static void case_nonsense(void) {
  open_driver();
  Lookup lookup = (Lookup)dlsym(driver, "cuGetProcAddress_v2");
  void* p = (void*)1;
  CUdriverProcAddressQueryResult status = 9;
  SAY(lookup("cuNoSuchFunction", &p, 12000, 0, &status));
  printf("%d %d\n", p == NULL, (int)status);
  SAY(lookup("cuMemAlloc", &p, 1000, 0, &status));
  printf("%d %d\n", p == NULL, (int)status);
  SAY(lookup(NULL, &p, 12000, 0, &status));
  SAY(lookup("cuMemAlloc", NULL, 12000, 0, &status));
  SAY(lookup("", &p, 12000, 0, NULL));
  printf("%d", dlsym(driver, "cuNoSuchFunction") == NULL);
  printf(" %d", dlerror() != NULL);
  printf(" %d", dlsym(driver, "getpid") != NULL);
  printf(" %d", dlsym(RTLD_DEFAULT, "cuMemAlloc_v3") == NULL);
  printf(" %d", dlsym(RTLD_NEXT, "getpid") == (void*)getpid);
  printf(" %d\n", dlsym(NULL, "puts") == (void*)puts);
  printf("%s\n", dlsym(driver, "cuX") ? "?" : dlerror() ? "said why" : "said nothing");
  case_look_up();
}
/* Opened, closed and opened again. */
static void case_again(void) {
  for (int i = 0; i < 3; ++i) {
    case_names();
    SAY(dlclose(driver) != 0);
  }
}
/* Which entry point each look-up leads to: `where NAME…`, by the name of the symbol and whether it is the library's. */
static void where(const char* how, void* p) {
  Dl_info info;
  if (!p) return;
  int known = dladdr(p, &info);
  printf("%s: %s %s\n", how, known && info.dli_sname ? info.dli_sname : "?", known && strstr(info.dli_fname, "libvramscope") ? "ours" : "the driver's");
}
int main(int argc, char** argv) {
  static const struct Named cases[] = {CASE(look_up), CASE(look_up_of_look_up), CASE(old_look_up), CASE(names), CASE(global), CASE(nonsense), CASE(again)};
  if (argc < 2 || strcmp(argv[1], "where")) return run_case(cases, LENGTH(cases), argc, argv);
  open_driver();
  Lookup lookup = (Lookup)dlsym(driver, "cuGetProcAddress_v2"), other = (Lookup)dlsym(driver, "cuGetProcAddress_v2_ptsz");
  static const int versions[] = {2000, 3020, 4000, 7000, 10000, 11000, 11040, 12000, 12030, 13000};
  for (int i = 2; i < argc; ++i) {
    char how[200];
    snprintf(how, sizeof how, "dlsym %s", argv[i]);
    where(how, dlsym(driver, argv[i]));
    char base[100];
    snprintf(base, sizeof base, "%s", argv[i]);
    char* end = strstr(base, "_pt"); /* _ptsz, _ptds */
    if (end) *end = 0;
    end = strrchr(base, '_');
    if (end && end[1] == 'v') *end = 0;
    for (size_t v = 0; v < LENGTH(versions); ++v)
      for (uint64_t flags = 0; flags < 3; ++flags) {
        void* p = NULL;
        if (!lookup(base, &p, versions[v], flags, NULL)) {
          snprintf(how, sizeof how, "%s %d %d", base, versions[v], (int)flags);
          where(how, p);
        }
        p = NULL;
        if (other && !other(base, &p, versions[v], flags, NULL)) {
          snprintf(how, sizeof how, "%s %d %d ptsz", base, versions[v], (int)flags);
          where(how, p);
        }
      }
  }
  return 0;
}
