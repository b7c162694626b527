// Completes work in real time. Device work is finished by one thread under the lock; host functions run on another, without
// it, as the real driver's do: a host function that sleeps must not hold up kernels.
#include "sim.h"
#include <deque>
#include <queue>
#include <pthread.h>
#include <signal.h>

namespace sim {

static std::condition_variable& changed() { static auto& c = *new std::condition_variable; return c; }    // something got done
static std::condition_variable& wake() { static auto& c = *new std::condition_variable; return c; }       // the engine has new work
static std::condition_variable& wake_host() { static auto& c = *new std::condition_variable; return c; }

struct Later { bool operator()(const TaskRef& a, const TaskRef& b) const { return a->finish > b->finish; } };
static auto& timed = *new std::priority_queue<TaskRef, std::vector<TaskRef>, Later>;
static auto& polled = *new std::vector<TaskRef>;
static auto& host_queue = *new std::deque<TaskRef>;

static void complete(TaskRef first);

// Everything before this task is done: it begins to run. Work that takes no time is handed to `ready`, to complete at once.
static void start(const TaskRef& task, std::vector<TaskRef>& ready) {
  if (task->op.host) {
    host_queue.push_back(task);
    wake_host().notify_one();
  } else if (task->op.until && !task->op.until()) {
    polled.push_back(task);
    wake().notify_one();
  } else if (task->op.seconds > 0) {
    task->finish = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(task->op.seconds));
    timed.push(task);
    wake().notify_one();
  } else {
    ready.push_back(task);
  }
}

static void complete(TaskRef first) {
  std::vector<TaskRef> ready{std::move(first)};
  while (!ready.empty()) {
    TaskRef task = ready.back();
    ready.pop_back();
    if (task->op.act && task->ctx->alive && !task->ctx->sticky) {
      CUresult result = task->op.act();
      if (result) task->ctx->sticky = result;
    }
    task->op = {};
    task->done = true;
    task->finish = Clock::now();
    for (auto& next : task->dependents)
      if (--next->blockers == 0) start(next, ready);
    task->dependents.clear();
  }
  changed().notify_all();
}

TaskRef submit(Context* ctx, Op op, const std::vector<TaskRef>& after) {
  auto task = std::make_shared<Task>();
  task->op = std::move(op);
  task->ctx = ctx;
  static uint64_t last = 0;
  task->seq = ++last;
  for (auto& dep : after)
    if (dep && !dep->done) {
      dep->dependents.push_back(task);
      ++task->blockers;
    }
  if (task->blockers == 0) {
    std::vector<TaskRef> ready;
    start(task, ready);
    if (!ready.empty()) complete(task);
  }
  return task;
}

CUresult wait(Context* ctx, const TaskRef& task) {
  if (task && !task->done) {
    Frame* frame = current_frame();
    auto begun = Clock::now();
    while (!task->done) changed().wait(frame->lock);
    frame->waited = (frame->waited < 0 ? 0 : frame->waited) + std::chrono::duration<double>(Clock::now() - begun).count();
  }
  return ctx->sticky;
}

static void run_device() {
  Lock lock(big);
  for (;;) {
    for (size_t i = 0; i < polled.size();) {
      if (polled[i]->op.until() || !polled[i]->ctx->alive) {
        TaskRef task = polled[i];
        polled.erase(polled.begin() + (long)i);
        complete(task);
        i = 0;
      } else {
        ++i;
      }
    }
    if (!timed.empty() && timed.top()->finish <= Clock::now()) {
      TaskRef task = timed.top();
      timed.pop();
      complete(task);
      continue;
    }
    Clock::time_point next = Clock::now() + std::chrono::microseconds(200);
    if (!timed.empty() && (polled.empty() || timed.top()->finish < next)) next = timed.top()->finish;
    if (timed.empty() && polled.empty()) wake().wait(lock);
    else wake().wait_until(lock, next);
  }
}

static void run_host() {
  Lock lock(big);
  self().in_host_function = true; // calls inside one are refused, but for questions about events and streams
  for (;;) {
    while (host_queue.empty()) wake_host().wait(lock);
    TaskRef task = host_queue.front();
    host_queue.pop_front();
    lock.unlock();
    task->op.host();
    lock.lock();
    complete(task);
  }
}

void start_engine() {
  static bool started = false;
  if (started) return;
  started = true;
  sigset_t all, old; // a signal of the program must not land on these threads
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  for (auto body : {run_device, run_host}) {
    pthread_t thread;
    auto entry = [](void* f) -> void* { reinterpret_cast<void (*)()>(f)(); return nullptr; };
    pthread_create(&thread, nullptr, entry, reinterpret_cast<void*>(body));
    pthread_detach(thread);
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

} // namespace sim
