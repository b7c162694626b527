/* The kernels of the test programs, in PTX, for cuModuleLoadData. A real driver compiles them; the simulated one looks
 * their names up in kernels.cpp, which must do the same. One thread does all the work: launch with a grid and a block of 1.
 *
 *   slow_write(int* p, int v, long long clocks)              spins, then *p = v
 *   slow_fill(int* p, int n, int v, long long clocks)        spins, then p[0..n) = v
 *   slow_copy(int* dst, const int* src, int n, long long clocks)   spins, then reads src and writes dst
 *   copy(int* dst, const int* src, int n)
 *   add(int* dst, const int* a, const int* b, int n)
 *   sum(long long* out, const int* src, int n)
 *   spin_flag(volatile int* flag)                            until the host stores a value other than 0
 */
#ifndef KERNELS_PTX_H
#define KERNELS_PTX_H

#define SIMGPU_PTX_HEAD ".version 6.3\n.target sm_50\n.address_size 64\n"

/* %rd9 holds the number of clocks to spin */
#define SIMGPU_PTX_SPIN \
  "mov.u64 %rd10, %clock64;\n" \
  "SPIN:\n" \
  "mov.u64 %rd11, %clock64;\n" \
  "sub.s64 %rd12, %rd11, %rd10;\n" \
  "setp.lt.s64 %p1, %rd12, %rd9;\n" \
  "@%p1 bra SPIN;\n"
#define SIMGPU_PTX_REGS ".reg .pred %p<4>;\n.reg .b32 %r<16>;\n.reg .b64 %rd<24>;\n"

static const char SIMGPU_PTX[] =
  SIMGPU_PTX_HEAD
  ".visible .entry slow_write(.param .u64 a0, .param .u32 a1, .param .u64 a2)\n{\n" SIMGPU_PTX_REGS
  "ld.param.u64 %rd1, [a0];\nld.param.u32 %r1, [a1];\nld.param.u64 %rd9, [a2];\n"
  SIMGPU_PTX_SPIN
  "st.u32 [%rd1], %r1;\nret;\n}\n"

  ".visible .entry slow_fill(.param .u64 a0, .param .u32 a1, .param .u32 a2, .param .u64 a3)\n{\n" SIMGPU_PTX_REGS
  "ld.param.u64 %rd1, [a0];\nld.param.u32 %r2, [a1];\nld.param.u32 %r1, [a2];\nld.param.u64 %rd9, [a3];\n"
  SIMGPU_PTX_SPIN
  "mov.u32 %r3, 0;\n"
  "LOOP:\nsetp.ge.s32 %p2, %r3, %r2;\n@%p2 bra DONE;\n"
  "st.u32 [%rd1], %r1;\nadd.s64 %rd1, %rd1, 4;\nadd.s32 %r3, %r3, 1;\nbra LOOP;\n"
  "DONE:\nret;\n}\n"

  ".visible .entry slow_copy(.param .u64 a0, .param .u64 a1, .param .u32 a2, .param .u64 a3)\n{\n" SIMGPU_PTX_REGS
  "ld.param.u64 %rd1, [a0];\nld.param.u64 %rd2, [a1];\nld.param.u32 %r2, [a2];\nld.param.u64 %rd9, [a3];\n"
  SIMGPU_PTX_SPIN
  "mov.u32 %r3, 0;\n"
  "LOOP:\nsetp.ge.s32 %p2, %r3, %r2;\n@%p2 bra DONE;\n"
  "ld.volatile.u32 %r4, [%rd2];\nst.u32 [%rd1], %r4;\n"
  "add.s64 %rd1, %rd1, 4;\nadd.s64 %rd2, %rd2, 4;\nadd.s32 %r3, %r3, 1;\nbra LOOP;\n"
  "DONE:\nret;\n}\n"

  ".visible .entry copy(.param .u64 a0, .param .u64 a1, .param .u32 a2)\n{\n" SIMGPU_PTX_REGS
  "ld.param.u64 %rd1, [a0];\nld.param.u64 %rd2, [a1];\nld.param.u32 %r2, [a2];\nmov.u32 %r3, 0;\n"
  "LOOP:\nsetp.ge.s32 %p2, %r3, %r2;\n@%p2 bra DONE;\n"
  "ld.u32 %r4, [%rd2];\nst.u32 [%rd1], %r4;\n"
  "add.s64 %rd1, %rd1, 4;\nadd.s64 %rd2, %rd2, 4;\nadd.s32 %r3, %r3, 1;\nbra LOOP;\n"
  "DONE:\nret;\n}\n"

  ".visible .entry add(.param .u64 a0, .param .u64 a1, .param .u64 a2, .param .u32 a3)\n{\n" SIMGPU_PTX_REGS
  "ld.param.u64 %rd1, [a0];\nld.param.u64 %rd2, [a1];\nld.param.u64 %rd3, [a2];\nld.param.u32 %r2, [a3];\nmov.u32 %r3, 0;\n"
  "LOOP:\nsetp.ge.s32 %p2, %r3, %r2;\n@%p2 bra DONE;\n"
  "ld.u32 %r4, [%rd2];\nld.u32 %r5, [%rd3];\nadd.s32 %r6, %r4, %r5;\nst.u32 [%rd1], %r6;\n"
  "add.s64 %rd1, %rd1, 4;\nadd.s64 %rd2, %rd2, 4;\nadd.s64 %rd3, %rd3, 4;\nadd.s32 %r3, %r3, 1;\nbra LOOP;\n"
  "DONE:\nret;\n}\n"

  ".visible .entry sum(.param .u64 a0, .param .u64 a1, .param .u32 a2)\n{\n" SIMGPU_PTX_REGS
  "ld.param.u64 %rd1, [a0];\nld.param.u64 %rd2, [a1];\nld.param.u32 %r2, [a2];\nmov.u32 %r3, 0;\nmov.u64 %rd5, 0;\n"
  "LOOP:\nsetp.ge.s32 %p2, %r3, %r2;\n@%p2 bra DONE;\n"
  "ld.s32 %rd6, [%rd2];\nadd.s64 %rd5, %rd5, %rd6;\n"
  "add.s64 %rd2, %rd2, 4;\nadd.s32 %r3, %r3, 1;\nbra LOOP;\n"
  "DONE:\nst.u64 [%rd1], %rd5;\nret;\n}\n"

  ".visible .entry spin_flag(.param .u64 a0)\n{\n" SIMGPU_PTX_REGS
  "ld.param.u64 %rd1, [a0];\n"
  "SPIN:\nld.volatile.u32 %r1, [%rd1];\nsetp.eq.s32 %p1, %r1, 0;\n@%p1 bra SPIN;\nret;\n}\n";

/* A module with global variables. Apart, because a managed variable makes every host read a possible reader of kernels'
 * results, which changes what the pool must do at cuMemFree. */
static const char SIMGPU_PTX_GLOBALS[] =
  SIMGPU_PTX_HEAD
  ".visible .global .align 4 .u32 device_word = 41;\n"
  ".visible .global .align 4 .b8 device_array[4096];\n"
  ".visible .global .attribute(.managed) .align 4 .u32 managed_word = 42;\n"
  ".visible .entry copy(.param .u64 a0, .param .u64 a1, .param .u32 a2)\n{\n" SIMGPU_PTX_REGS
  "ld.param.u64 %rd1, [a0];\nld.param.u64 %rd2, [a1];\nld.param.u32 %r2, [a2];\nmov.u32 %r3, 0;\n"
  "LOOP:\nsetp.ge.s32 %p2, %r3, %r2;\n@%p2 bra DONE;\n"
  "ld.u32 %r4, [%rd2];\nst.u32 [%rd1], %r4;\n"
  "add.s64 %rd1, %rd1, 4;\nadd.s64 %rd2, %rd2, 4;\nadd.s32 %r3, %r3, 1;\nbra LOOP;\n"
  "DONE:\nret;\n}\n";

/* every program includes this and uses what it needs */
static inline const void* simgpu_ptx_unused(void) { return SIMGPU_PTX_GLOBALS[0] ? SIMGPU_PTX : SIMGPU_PTX_GLOBALS; }
#endif
