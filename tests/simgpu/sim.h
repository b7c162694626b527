// The nouns of the simulated driver and what they can do, shared by its files. One lock (`big`) protects everything; an entry
// point takes it in enter() and gives it up only while it waits for the engine. Nothing here is ever destroyed: the process
// may call the driver while it exits, and a handle that has been freed must be recognised, not dereferenced.
#pragma once
#define CUDA_MINI_NO_ALIASES
#include "cuda_mini.h"
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

namespace sim {

using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;
constexpr size_t PAGE = 2u << 20; // the grain of device memory: 1,000 x (1 MiB + 1) took 1,998 MiB on an H200
constexpr size_t STEP = 512;      // small allocations lie 512 bytes apart
constexpr double CLOCK_HZ = 1.98e9; // clocks of a simulated kernel in a second

struct Context;
struct Stream;
struct Event;
struct Capture;
struct Graph;
struct Pool;
struct Allocation;

// ---- the engine: what has been asked of a device and is not done yet (engine.cpp) ----

// One piece of work. It acts when it completes, not before: whoever reads too early sees the old contents.
struct Op {
  double seconds = 0;               // how long the device is busy with it
  std::function<bool()> until;      // or: busy until this holds (spin_flag)
  std::function<CUresult()> act;    // device work, done on completion under the lock
  std::function<void()> host;       // or: a host function, run without the lock
};
struct Task {
  Op op;
  Context* ctx = nullptr;
  uint64_t seq = 0; // in the order of submission
  int blockers = 0; // tasks that must be done first
  bool done = false;
  Clock::time_point finish;
  std::vector<std::shared_ptr<Task>> dependents;
};
using TaskRef = std::shared_ptr<Task>;

TaskRef submit(Context* ctx, Op op, const std::vector<TaskRef>& after);
CUresult wait(Context* ctx, const TaskRef& task); // blocks the calling thread; the lock is released meanwhile
void start_engine();

// ---- devices and physical memory (device.cpp) ----

struct Device {
  int ordinal = 0;
  size_t capacity = 0;
  int fd = -1;                   // a memfd of `capacity` bytes; frame n is its n-th 2 MiB
  std::vector<uint32_t> free;    // frames, last freed first: freed contents come back
  size_t used_frames = 0;
  Context* primary = nullptr;
  int primary_refs = 0;
  unsigned primary_flags = 0;
  Pool* default_pool = nullptr;
  Pool* pool = nullptr;
  bool take(size_t count, std::vector<uint32_t>& out);
  void give(const std::vector<uint32_t>& frames);
};
std::vector<Device*>& devices();
Device* device_at(CUdevice ordinal);
void init_devices();
long env(const char* name, long fallback);

// ---- address space and allocations (address.cpp, memory.cpp) ----

// A range of device addresses. The program sees PROT_NONE pages, so that a host access faults as on a real machine; the
// contents are mapped `delta` bytes further on.
struct Space {
  CUdeviceptr base = 0;
  size_t size = 0;
  ptrdiff_t delta = 0;
};
struct Mapping { // physical memory mapped at a device address
  size_t size = 0;
  ptrdiff_t delta = 0;
  Device* dev = nullptr;
  bool listed = false;  // access goes by the list below (cuMemSetAccess, pools), else by owner and peer contexts
  std::set<int> access, read_only;
};
bool open_space(Space& space, size_t size, size_t align);
void close_space(const Space& space);
CUdeviceptr take_addresses(size_t size);  // from the common space of plain allocations, lowest first
void give_addresses(CUdeviceptr base, size_t size);
ptrdiff_t plain_delta();
bool map_frames(CUdeviceptr va, ptrdiff_t delta, Device* dev, int fd, const std::vector<uint32_t>& frames, bool listed);
void unmap_frames(CUdeviceptr va);
std::map<CUdeviceptr, Mapping>& mappings();
// The host address of the contents, or nullptr where a kernel on ctx would fault. A null ctx is a copy engine: it reaches all.
char* reach(Context* ctx, CUdeviceptr p, size_t bytes, bool write = false);

enum class Kind { Plain, Pitch, Managed, Host, Registered, Async, Graph, Vmm, Ipc, Module };
struct Page; // 2 MiB shared by small allocations
struct Allocation {
  CUdeviceptr base = 0;
  size_t size = 0;
  Kind kind = Kind::Plain;
  Context* ctx = nullptr;
  Device* dev = nullptr;
  uint64_t buffer_id = 0;
  unsigned flags = 0;
  bool sync_memops = false;
  Page* page = nullptr;              // small device memory
  std::vector<uint32_t> frames;      // large device memory
  Pool* pool = nullptr;
  int record_fd = -1;                // once exported by IPC
  CUipcMemHandle ipc{};
  uint64_t handle = 0;               // Vmm: the physical memory mapped here
  bool leaving = false;              // given to cuMemFreeAsync: no longer the program's
  bool outside = false;              // Graph: a launch left it allocated, and it may be freed like any other
  bool orphan = false;               // Graph: that, and the graph is gone: it ends with its free
};
std::map<CUdeviceptr, Allocation*>& allocations();
Allocation* find(CUdeviceptr p);       // the allocation that holds p
bool is_live(CUdeviceptr p, size_t bytes); // all of it allocations, or freed in a stream that has not got there yet
Allocation* told(CUdeviceptr p);       // the same, but for memory of a graph that was not launched yet
Space* reservation_of(CUdeviceptr ptr, size_t size); // by cuMemAddressReserve
Allocation* find_base(CUdeviceptr p);  // the allocation that begins at p
Allocation* add_allocation(CUdeviceptr base, size_t size, Kind kind, Context* ctx, Device* dev);
void drop_allocation(Allocation* a, TaskRef freed = nullptr); // freed: by this, in a stream's order
CUresult allocate_host(Context* ctx, size_t size, Kind kind, unsigned flags, Allocation** out);
CUresult allocate_device(Context* ctx, size_t size, Kind kind, Allocation** out);
void release_device(Allocation* a);
CUresult reserve_device(Context* ctx, size_t size, Kind kind, Allocation** out); // addresses without memory behind them
bool back(Allocation* a);                                                       // and now with memory
void release_host(Allocation* a);
const std::vector<uint32_t>& page_frame(Allocation* a); // of a small allocation
void release_context_memory(Context* ctx); // what cuCtxDestroy and reset take with them
bool is_host_visible(CUdeviceptr p);        // pinned, registered or managed: the device uses the host address
uint64_t next_id();

// ---- contexts and streams (context.cpp, stream.cpp) ----

struct Stream {
  Context* ctx = nullptr;
  uint64_t id = 0;
  unsigned flags = 0;
  int priority = 0;
  bool legacy = false, alive = true;
  TaskRef last;
  Capture* capture = nullptr;
  std::vector<struct Node*> tail; // while capturing: what the next node depends on
  std::map<uint64_t, uint64_t> seen; // by id of a stream: its work up to this one is before ours, as events waited for say
  bool blocking() const { return !legacy && !(flags & CU_STREAM_NON_BLOCKING); }
};
struct Context {
  uint64_t id = 0;
  Device* dev = nullptr;
  Context* root = nullptr; // a green context's primary, else itself
  bool primary = false, alive = false;
  unsigned flags = 0;
  CUresult sticky = CUDA_SUCCESS; // an asynchronous error: every later call returns it
  Stream* legacy = nullptr;
  std::map<uint64_t, Stream*> per_thread;
  std::set<Stream*> streams;      // all of the above and the created ones
  std::vector<TaskRef> barriers;  // cuCtxWaitEvent: all later work waits for these
  std::vector<std::pair<TaskRef, bool>> orphans; // last work of destroyed streams; true: of blocking ones
  std::set<Context*> peers;
  std::vector<uint32_t> overhead; // the frames that a context costs
};
struct Event {
  Context* ctx = nullptr;
  unsigned flags = 0;
  TaskRef task; // null: never recorded, which counts as done
  uint64_t stream = 0; // id of the one it was recorded in; 0: of a context
  Capture* capture = nullptr;
  std::vector<struct Node*> nodes;
  bool alive = true;
};
struct Thread { // a calling thread; leaked, since calls may come after its destructors
  uint64_t id = 0;
  std::vector<Context*> stack;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool in_host_function = false;
};
Thread& self();
Context* top();  // current context as the program knows it, or nullptr
Context* here(); // the context that owns memory and streams (a green context's primary)
Context* context_of(CUcontext handle);
CUresult create_context(Device* dev, unsigned flags, bool primary, Context** out);
void destroy_context(Context* ctx);
TaskRef all_work(Context* ctx); // done when everything submitted to ctx until now is done
CUresult wait_idle(Context* ctx);
Stream* stream_of(CUstream handle, bool per_thread = false);
Event* event_of(CUevent handle);
CUresult enqueue(Stream* stream, Op op, int node_type, TaskRef* out = nullptr);
TaskRef join(Stream* stream, std::vector<TaskRef> more = {}); // an empty task in stream order

// ---- capture and graphs (capture.cpp) ----

struct Node {
  int type = 5; // CU_GRAPH_NODE_TYPE_EMPTY
  Op op;
  std::vector<Node*> deps;
};
struct Graph {
  std::vector<Node*> nodes;
  std::vector<Allocation*> memory; // owned by the graph and everything instantiated from it
  std::set<Allocation*> freed;     // those with a free node
  int owners = 1;
};
struct Capture {
  uint64_t id = 0, thread = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  Stream* origin = nullptr;
  std::set<Stream*> streams;
  Graph* graph = nullptr;
};
bool capture_forbids();             // an unsafe call by this thread; invalidates what it offends
bool context_captures(Context* ctx, bool invalidate);
void invalidate(Capture* capture);
void abandon(Stream* stream);       // destroyed while it captures
CUresult capture_node(Stream* stream, Op op, int type);
Node* graph_node(Graph* graph, Op op, int type, const std::vector<Node*>& deps);

// ---- pools (pool.cpp) ----

void trim_pools(Device* dev, uint64_t stream = 0); // at a synchronisation (of one stream), down to the release threshold
CUresult pool_free(Allocation* a, Stream* stream); // stream nullptr: by cuMemFree
CUresult graph_free(Allocation* a, Stream* stream); // the same, of a graph's memory outside it

// ---- sharing with other processes (ipc.cpp) ----

// A file that says where frames are, for whoever opens it; and its reader, which returns a descriptor of the frames.
struct Record {
  int pid, fd, device;
  uint64_t id, offset, size, count;
};
int write_record(const Record& record, const std::vector<uint32_t>& frames);
int read_record(int file, Record& record, std::vector<uint32_t>& frames);
int open_foreign(int pid, int fd); // a descriptor of another process
void ipc_forget(Allocation* a);

// ---- modules and kernels (module.cpp, kernels.cpp) ----

struct Span { CUdeviceptr p; size_t bytes; };
// A kernel as the simulator knows it: what it reads and writes is declared, so that a stray access is found.
struct Kernel {
  const char* name;
  std::vector<size_t> parameters; // sizes
  // args: pointers to the copied arguments
  std::function<Op(Context*, const std::vector<uint64_t>& args)> make;
};
void forget_modules(Context* ctx);  // at its destruction
bool is_function(CUfunction handle); // or a library's kernel
const Kernel* kernel_named(const std::string& name);
bool any_kernel(); // by its setting, a kernel that is not known does nothing, instead of not being there

// ---- the frame around every entry point (driver.cpp) ----

enum Need : unsigned {
  NONE = 0,
  INIT = 1,      // cuInit has been called
  CONTEXT = 3,   // and a context is current, alive and without an asynchronous error
  UNSAFE = 4,    // refused while a capture forbids it
  ALWAYS = 8,    // answered even inside a host function
  SOUND = 17,    // no context is needed, but one that is current must be alive and without an asynchronous error
};
struct Frame {
  const char* name;
  unsigned needs;
  Lock lock;
  Frame* outer = nullptr;
  std::string note;
  double waited = -1; // seconds; negative: did not wait
};
extern std::mutex big;
bool in_child(); // a forked one
bool begin(Frame& frame, CUresult& refused);
CUresult end(Frame& frame, CUresult result);
Frame* current_frame();
__attribute__((format(printf, 1, 2))) void note(const char* format, ...); // what the log says of this call
uint64_t waits();

template <class Body> CUresult enter(const char* name, unsigned needs, Body&& body) {
  Frame frame{name, needs, Lock(big, std::defer_lock), nullptr, {}, -1};
  CUresult result;
  if (begin(frame, result)) result = body();
  return end(frame, result);
}
// Any pointer argument may be null.
template <class T> void put(T* out, T value) { if (out) *out = value; }

} // namespace sim
