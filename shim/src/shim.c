/* What Rust cannot say: a thread's state without a destructor and without a call into the allocator.
 *
 * Rust's thread_local! may call malloc and registers destructors in a preloaded library. This is one zero-initialised
 * structure in the thread's static TLS block (initial-exec: the library is there from the start), behind one getter.
 * Its fields are Rust's business (src/thread.rs); only the size stands here. */
#include <stdint.h>

struct vramscope_thread {
    uint64_t words[48];
};

static __thread __attribute__((tls_model("initial-exec"))) struct vramscope_thread state;

__attribute__((visibility("hidden"))) struct vramscope_thread *vramscope_thread_state(void) { return &state; }
