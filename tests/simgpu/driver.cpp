// The frame around every entry point: is the driver there, may this thread call it, what does the log say. Also the C
// functions by which tests look inside (simgpu_*).
#include "sim.h"
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

namespace sim {

std::mutex big;
static thread_local Frame* frame_now = nullptr;
static pid_t owner = 0;         // the process that called cuInit
static bool initialised = false;
static bool gone = false;       // the driver's exit handler has run
static bool child = false;      // forked after cuInit
static uint64_t wait_counter = 0;

Frame* current_frame() { return frame_now; }
uint64_t waits() { return wait_counter; }
uint64_t next_id() {
  static uint64_t last = 0;
  return ++last;
}

struct Failure { long after = 0; long times = 1; int code = 0; };
static std::map<std::string, Failure>& failures() {
  static auto& table = *new std::map<std::string, Failure>;
  static bool read = false;
  if (!read) {
    read = true;
    if (const char* text = getenv("SIMGPU_FAIL")) { // function:n:code, several separated by commas; n < 0: every time
      std::string all = text;
      for (size_t at = 0; at < all.size();) {
        std::string one = all.substr(at, all.find(',', at) - at);
        at += one.size() + 1;
        char name[128];
        long after;
        int code;
        if (sscanf(one.c_str(), "%127[^:]:%ld:%d", name, &after, &code) == 3) table[name] = {after, after < 0 ? -1 : 1, code};
      }
    }
  }
  return table;
}
static std::map<std::string, long>& delays() {
  static auto& table = *new std::map<std::string, long>{{"cuMemAlloc_v2", env("SIMGPU_MALLOC_US", 0)}, {"cuMemFree_v2", env("SIMGPU_FREE_US", 0)}, {"cuDeviceGetName", env("SIMGPU_NAME_US", 0)}};
  return table;
}

static void busy(const char* name) {
  auto it = delays().find(name);
  if (it == delays().end() || it->second <= 0) return;
  auto until = Clock::now() + std::chrono::microseconds(it->second);
  while (Clock::now() < until) {}
}
static CUresult injected(const char* name) {
  auto it = failures().find(name);
  if (it == failures().end() || it->second.times == 0) return CUDA_SUCCESS;
  Failure& f = it->second;
  if (f.after > 0) { --f.after; return CUDA_SUCCESS; }
  if (f.times > 0) --f.times;
  return (CUresult)f.code;
}

// Asked by pid as well as by pthread_atfork, since a raw clone does not run the handler.
bool in_child() { return child || (owner && owner != getpid()); }

bool begin(Frame& frame, CUresult& refused) {
  // A forked child has the parent's tables but not its engine: as with the real driver nothing works there, but for what a
  // memory pool does in its tables alone. The lock is not waited for: a raw clone may have left it taken.
  bool tables_only = !strcmp(frame.name, "cuMemAllocAsync") || !strcmp(frame.name, "cuMemFreeAsync") || !strcmp(frame.name, "cuStreamSynchronize");
  if (in_child() && !(tables_only && frame.lock.try_lock())) { refused = CUDA_ERROR_NOT_INITIALIZED; return false; }
  // What asks of a device only holds nobody up.
  if (frame.needs == INIT) busy(frame.name);
  if (!frame.lock.owns_lock()) frame.lock.lock();
  frame.outer = frame_now;
  frame_now = &frame;
  if (gone) { refused = CUDA_ERROR_DEINITIALIZED; return false; }
  if (self().in_host_function && !(frame.needs & ALWAYS)) { refused = CUDA_ERROR_NOT_PERMITTED; return false; }
  if ((refused = injected(frame.name)) != CUDA_SUCCESS) return false;
  if (frame.needs != INIT) busy(frame.name);
  if ((frame.needs & INIT) && !initialised) { refused = CUDA_ERROR_NOT_INITIALIZED; return false; }
  bool context = (frame.needs & CONTEXT) == CONTEXT;
  if (context && !top()) { refused = CUDA_ERROR_INVALID_CONTEXT; return false; }
  if (context || ((frame.needs & SOUND) == SOUND && top())) {
    if (!here()->alive) { refused = CUDA_ERROR_CONTEXT_IS_DESTROYED; return false; }
    if (here()->sticky) { refused = here()->sticky; return false; }
  }
  if ((frame.needs & UNSAFE) && capture_forbids()) { refused = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; return false; }
  return true;
}

static const char* name_of(CUresult result) {
  switch (result) {
#define X(name, code, text) case name: return #name;
    CUDA_MINI_RESULTS(X)
#undef X
  }
  return nullptr;
}

static int log_fd() {
  static int fd = -2;
  if (fd == -2) {
    const char* path = getenv("SIMGPU_LOG");
    fd = path && *path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
  }
  return fd;
}

void note(const char* format, ...) {
  if (!frame_now || log_fd() < 0) return;
  char text[256];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  frame_now->note += frame_now->note.empty() ? "" : " ";
  frame_now->note += text;
}

CUresult end(Frame& frame, CUresult result) {
  if (!frame.lock.owns_lock()) return result; // refused in a forked child
  if (frame.waited >= 0) ++wait_counter;
  if (!frame.note.empty() || (result && log_fd() >= 0)) {
    const char* name = name_of(result);
    char line[512];
    int n = snprintf(line, sizeof line, "%d %llu %s %s%s= %s waited_us=%.0f\n", (int)getpid(), (unsigned long long)self().id, frame.name,
                     frame.note.c_str(), frame.note.empty() ? "" : " ", name ? name : "?", frame.waited < 0 ? 0 : frame.waited * 1e6);
    if (n > 0 && write(log_fd(), line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1) < 0) {} // nobody to tell
  }
  frame_now = frame.outer;
  frame.lock.unlock();
  return result;
}

static void on_exit() { // no lock: a thread may hold it for good
  gone = true;
}

} // namespace sim

using namespace sim;

API CUresult cuInit(unsigned flags) {
  return enter("cuInit", NONE, [&] {
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    if (!initialised) {
      init_devices();
      owner = getpid();
      // With the lock, so that the child's tables are whole, and its lock is free.
      pthread_atfork([] { big.lock(); }, [] { big.unlock(); }, [] { child = true; big.unlock(); });
      atexit(on_exit); // objects made before cuInit are destroyed after this: they find the driver gone, as they do on a real one
      initialised = true;
    }
    return devices().empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
  });
}
API CUresult cuDriverGetVersion(int* version) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = 13000;
  return CUDA_SUCCESS;
}
API CUresult cuGetErrorName(CUresult error, const char** text) {
  if (!text) return CUDA_ERROR_INVALID_VALUE;
  if (gone) return CUDA_ERROR_DEINITIALIZED; // even this
  *text = name_of(error);
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuGetErrorString(CUresult error, const char** text) {
  if (!text) return CUDA_ERROR_INVALID_VALUE;
  *text = nullptr;
  switch (error) {
#define X(name, code, words) case name: *text = words; break;
    CUDA_MINI_RESULTS(X)
#undef X
  }
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// ---- for tests (simgpu.h) ----
API size_t simgpu_live_allocations(void) {
  Lock lock(big);
  size_t n = 0;
  for (auto& it : allocations()) n += it.second->kind != Kind::Module;
  return n;
}
API size_t simgpu_used_bytes(int dev) {
  Lock lock(big);
  Device* d = device_at(dev);
  return d ? d->used_frames * PAGE : 0;
}
API uint64_t simgpu_wait_count(void) {
  Lock lock(big);
  return wait_counter;
}
// The call after the next `after` calls of the function returns `code` once; after < 0: every call does, until code 0.
API void simgpu_set_fail(const char* function, int after, int code) {
  Lock lock(big);
  failures()[function] = {after, code == 0 ? 0 : after < 0 ? -1 : 1, code};
}
API void simgpu_delay_us(const char* function, int us) {
  Lock lock(big);
  delays()[function] = us;
}
