/* vramscope.h: what a program can ask of a preloaded libvramscope.so, and tell it.
 *
 * Nothing is linked: without the preload the functions are not there. Ask for one by its name, once, and call it if it is:
 *
 *     VRAMSCOPE_FIND(vramscope_mark, mark);
 *     if (mark) mark("epoch 3");
 *
 * All functions may be called from any thread, also before CUDA is first used. Strings are UTF-8. Bytes are bytes. */
#ifndef VRAMSCOPE_H
#define VRAMSCOPE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is in use on a device. Grows at its end: `size` tells the library how much of it the caller knows. */
typedef struct vramscope_stats_t {
    uint64_t allocated;      /* in somebody's use: tensors where PyTorch tells of them, else what was asked of the driver */
    uint64_t allocated_peak; /* at most, since the start or vramscope_reset_peak */
    uint64_t reserved;       /* taken from the device by this process */
    uint64_t reserved_peak;
    uint64_t active;         /* as PyTorch's: allocated, and freed memory that still waits */
    uint64_t inactive;       /* reserved - active: kept for reuse, by the pool or by a library */
    uint64_t pool_active;    /* the pool's blocks in use, */
    uint64_t pool_inactive;  /* and kept for reuse */
    uint64_t tensors;        /* as PyTorch's allocator told */
    uint64_t hoarded;        /* held by libraries that cache themselves (PyTorch) */
    uint64_t pinned;         /* pinned host memory asked for in the device's context */
    uint64_t allocations;    /* that succeeded so far, of all devices */
    uint64_t failures;       /* calls that failed so far; PyTorch makes two or more for one request of its own */
    uint64_t limit;          /* VRAMSCOPE_LIMIT, or vramscope_set_limit; 0: none */
} vramscope_stats_t;

/* 1 if vramscope acts in this process, 0 if it is switched off (VRAMSCOPE=off, VRAMSCOPE_ONLY). */
int vramscope_active(void);
/* The version as 1000000 * major + 1000 * minor + patch. */
unsigned vramscope_version(void);

/* 0; -1: the device has no context yet; -2: there is no such device. */
int vramscope_stats(int device, vramscope_stats_t* out, size_t size);
/* Starts the device's peaks anew. */
void vramscope_reset_peak(int device);
/* Gives cached memory of the pool back to the device; bytes given back. (A library's own cache is the library's.) */
uint64_t vramscope_empty_cache(void);
/* No more than so many bytes of the device for this process (0: no limit), or a share of it if fraction > 0; also before CUDA is used.
 * 0, or -1: nothing was set (there is no such device, the fraction is not from 0 to 1, or vramscope is off). */
int vramscope_set_limit(int device, uint64_t bytes, double fraction);
/* Writes everything that is live now, with stacks, as a history to this file. A regular file that exists is kept: the new
 * one gets a suffix. What is no regular file (a folder, a pipe, a device) is refused. 0, or -1: the reason is on stderr. */
int vramscope_snapshot(const char* path);

/* Marks this moment in the history. */
void vramscope_mark(const char* text);
/* The calling thread enters a region (a named stretch of its work); pass the number to vramscope_region_end, in the
 * same thread (in another it does nothing). Those inside 64 others are not recorded. */
uint64_t vramscope_region_begin(const char* name);
void vramscope_region_end(uint64_t region);
/* No call stacks, tensors, marks and regions are recorded from here to vramscope_resume. The history says that they are missing:
 * of what was held meanwhile nothing is asserted. */
void vramscope_pause(void);
void vramscope_resume(void);

/* Waits until an out-of-memory failure newer than `seen` was explained, or timeout_ms (negative: for ever) are over; the
 * number of failures so far. A thread that waits here can act on one without being called inside the allocator. */
uint64_t vramscope_wait_oom(uint64_t seen, int timeout_ms);
/* The callback runs in the failing thread, inside its allocation call: it must not throw, nor wait for
 * anybody who may hold an allocator's lock. NULL: none. */
void vramscope_on_oom(void (*callback)(void* data, int device, uint64_t asked), void* data);

/* PyTorch's pluggable allocator (torch.cuda.memory.CUDAPluggableAllocator), from the stream-ordered pool: give it this
 * library's path and the names of the first two; python/vramscope/torch.py sets the rest. `stream` is a cudaStream_t,
 * `filter` a C++ std::function that is not kept; a MempoolId_t comes as its two numbers. */
void* vramscope_torch_malloc(ptrdiff_t size, int device, void* stream);
void vramscope_torch_free(void* memory, ptrdiff_t size, int device, void* stream);
void vramscope_torch_record_stream(void* memory, void* stream);
void vramscope_torch_reset(void);
void vramscope_torch_memory_fraction(double fraction, int device);
void vramscope_torch_init(int devices);
void* vramscope_torch_base(void* memory, size_t* size);
void vramscope_torch_begin_pool(int device, uint64_t first, uint64_t second, void* filter);
void vramscope_torch_end_pool(int device, uint64_t first, uint64_t second);
void vramscope_torch_release_pool(int device, uint64_t first, uint64_t second);

#ifdef __cplusplus
}
#endif

/* Declares `variable` as a pointer to the function, null without the preload. Needs <dlfcn.h> (with _GNU_SOURCE). */
#define VRAMSCOPE_FIND(function, variable) \
    __typeof__(&function) variable = (__typeof__(&function))(uintptr_t)dlsym(RTLD_DEFAULT, #function)

#endif
