/* The part of conformance.c about what a stream-ordered pool stands on: the identity of streams, waits between them, mapping
 * memory beside work, and what the driver's own pools answer. Included by conformance.c, whose helpers it uses. */

/* ---- the identity of streams ---- */

static void say_int(const char* fact, CUdeviceptr p) { /* what it holds, or why that cannot be said */
  int v = -1;
  CUresult r = cuMemcpyDtoH(&v, p, 4);
  say(fact, "%s, %d", name(r), v);
}
static CUcontext other_context(void) { /* a second one of the device, not current */
  CUctxCreateParams params;
  CUcontext c;
  memset(&params, 0, sizeof params);
  MUST(cuCtxCreate(&c, &params, 0, dev));
  MUST(cuCtxPopCurrent(NULL));
  return c;
}
static unsigned long long stream_id(CUstream s) {
  unsigned long long id = 0;
  MUST(cuStreamGetId(s, &id));
  return id;
}
static unsigned long long ids_of_thread[3];
static void* ids_here(void* arg) {
  (void)arg;
  MUST(cuCtxSetCurrent(primary));
  ids_of_thread[0] = stream_id(CU_STREAM_PER_THREAD);
  MUST(cuStreamGetId_ptsz(NULL, &ids_of_thread[1]));
  ids_of_thread[2] = stream_id(NULL);
  return NULL;
}
static void* ids_without_context(void* arg) {
  CUresult* r = arg;
  unsigned long long id = 0;
  r[0] = cuStreamGetId(s1, &id);
  r[1] = cuStreamGetId(NULL, &id);
  r[2] = cuStreamGetId(CU_STREAM_PER_THREAD, &id);
  r[3] = cuEventQuery(ev);
  r[4] = cuEventRecord(ev, s1);
  r[5] = cuStreamWaitEvent(s1, ev, 0);
  return NULL;
}
static CUresult id_in_host_function[2];
static void asking_host_function(void* arg) {
  unsigned long long id;
  (void)arg;
  id_in_host_function[0] = cuStreamGetId(s2, &id);
  id_in_host_function[1] = cuStreamIsCapturing(s2, &(CUstreamCaptureStatus){0});
}
static void stream_ids(void) {
  unsigned long long id, legacy = stream_id(NULL), first, ids[64];
  CUstream s, last = NULL;
  int distinct = 1, grows = 1, handles = 0;
  YES("stream_id_legacy_handle_same", stream_id(CU_STREAM_LEGACY) == legacy);
  MUST(cuStreamGetId_ptsz(NULL, &id));
  YES("stream_id_ptsz_null_is_per_thread", id == stream_id(CU_STREAM_PER_THREAD));
  MUST(cuStreamGetId_ptsz(CU_STREAM_LEGACY, &id));
  YES("stream_id_ptsz_legacy_handle_is_legacy", id == legacy);
  YES("stream_id_is_never_0", legacy && stream_id(s1) && stream_id(CU_STREAM_PER_THREAD));
  for (int i = 0; i < 64; ++i) {
    MUST(cuStreamCreate(&s, i % 2 ? CU_STREAM_NON_BLOCKING : 0));
    ids[i] = stream_id(s);
    for (int k = 0; k < i; ++k) distinct &= ids[k] != ids[i];
    if (i) grows &= ids[i] > ids[i - 1];
    if (s == last) ++handles;
    last = s;
    MUST(cuStreamDestroy(s));
  }
  YES("stream_ids_of_64_created_and_destroyed_differ", distinct);
  YES("stream_ids_grow", grows);
  YES("stream_handles_come_back", handles);
  on_thread(ids_here, NULL);
  first = ids_of_thread[0];
  YES("stream_id_per_thread_of_another_thread_differs", first != stream_id(CU_STREAM_PER_THREAD));
  YES("stream_id_ptsz_null_of_another_thread", ids_of_thread[1] == first);
  YES("stream_id_legacy_of_another_thread_same", ids_of_thread[2] == legacy);
  on_thread(ids_here, NULL);
  YES("stream_id_per_thread_of_a_later_thread_differs", ids_of_thread[0] != first);
  CUresult r[6];
  on_thread(ids_without_context, r);
  CODE("stream_id_without_context", r[0]);
  CODE("stream_id_legacy_without_context", r[1]);
  CODE("stream_id_per_thread_without_context", r[2]);
  CODE("event_query_without_context", r[3]);
  CODE("event_record_without_context", r[4]);
  CODE("stream_wait_event_without_context", r[5]);
  sync_all();
  CODE("stream_id_null_out", cuStreamGetId(s1, NULL));
  MUST(cuLaunchHostFunc(s1, asking_host_function, NULL));
  sync_all();
  CODE("in_host_function_stream_get_id", id_in_host_function[0]);
  CODE("in_host_function_is_capturing", id_in_host_function[1]);
  CUcontext c = other_context(), of = NULL;
  MUST(cuCtxPushCurrent(c));
  unsigned long long theirs = stream_id(NULL);
  YES("stream_id_legacy_of_other_context_differs", theirs != legacy);
  YES("stream_id_per_thread_of_other_context_differs", stream_id(CU_STREAM_PER_THREAD) != theirs);
  CUresult q = cuStreamGetId(s1, &id);
  MUST(cuStreamGetCtx(s1, &of));
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  unsigned long long made = stream_id(s);
  MUST(cuCtxPopCurrent(NULL));
  say("stream_id_with_other_context_current", "%s, %s", name(q), id == stream_id(s1) ? "same" : "other");
  YES("stream_ctx_with_other_context_current_is_its_own", of == primary);
  YES("stream_id_of_other_contexts_stream", stream_id(s) == made);
  MUST(cuCtxDestroy(c));
  CUcontext again = other_context();
  MUST(cuCtxPushCurrent(again));
  YES("stream_id_legacy_of_a_later_context_differs", stream_id(NULL) != theirs && stream_id(NULL) != legacy);
  MUST(cuCtxPopCurrent(NULL));
  MUST(cuCtxDestroy(again));
  MUST(cuDevicePrimaryCtxReset(dev));
  MUST(cuDevicePrimaryCtxRetain(&primary, dev));
  MUST(cuCtxSetCurrent(primary));
  YES("stream_id_legacy_after_reset_differs", stream_id(NULL) != legacy);
}

/* ---- waits between streams ---- */

static CUstream by_kind[4];
static const char* kind_names[4] = {"legacy", "per_thread", "blocking", "non_blocking"};
static void prepare_kinds(void) {
  by_kind[0] = NULL;
  by_kind[1] = CU_STREAM_PER_THREAD;
  MUST(cuStreamCreate(&by_kind[2], 0));
  MUST(cuStreamCreate(&by_kind[3], CU_STREAM_NON_BLOCKING));
}
static int reads_after(CUstream s) { /* what a copy on s sees of word_a, when all is done */
  MUST(copy_ints(s, word_b, word_a, 1));
  sync_all();
  return read_int(word_b);
}
static CUcontext waits_context;
static void stream_waits(void) {
  char fact[120];
  CUstream s;
  CUevent e;
  prepare_kinds();
  CUstream kinds[5] = {by_kind[0], by_kind[1], by_kind[2], by_kind[3], s2};
  for (int w = 0; w < 4; ++w)
    for (int r = 0; r < 4; ++r) {
      CUstream reader = w == 3 && r == 3 ? s2 : w == 2 && r == 2 ? blocking : kinds[r];
      if (w == r && w < 2) continue;
      for (int wait = 0; wait < 2; ++wait) {
        zero();
        MUST(slow_write(kinds[w], word_a, 7, MS100));
        MUST(cuEventRecord(ev, kinds[w]));
        if (wait) MUST(cuStreamWaitEvent(reader, ev, 0));
        snprintf(fact, sizeof fact, "%s_after_%s_%s", kind_names[r], kind_names[w], wait ? "waited_for" : "not_waited_for");
        say(fact, "%d", reads_after(reader));
      }
    }
  /* what an event on a stream takes in that has no work itself */
  zero(); MUST(slow_write(blocking, word_a, 7, MS100)); MUST(cuEventRecord(ev, NULL)); CODE("event_on_legacy_beside_blocking_kernel", cuEventQuery(ev));
  MUST(cuStreamWaitEvent(s1, ev, 0)); say("event_on_legacy_covers_blocking_kernel", "%d", reads_after(s1));
  zero(); MUST(slow_write(NULL, word_a, 7, MS100)); MUST(cuEventRecord(ev, blocking)); CODE("event_on_idle_blocking_beside_legacy_kernel", cuEventQuery(ev));
  MUST(cuStreamWaitEvent(s1, ev, 0)); say("event_on_idle_blocking_covers_legacy_kernel", "%d", reads_after(s1));
  zero(); MUST(slow_write(s1, word_a, 7, MS100)); MUST(cuEventRecord(ev, NULL)); CODE("event_on_legacy_beside_non_blocking_kernel", cuEventQuery(ev)); sync_all();
  zero(); MUST(slow_write(s1, word_a, 7, MS100)); MUST(cuEventRecord(ev, s2)); CODE("event_on_idle_non_blocking_beside_another", cuEventQuery(ev)); sync_all();
  zero(); MUST(slow_write(NULL, word_a, 7, MS100)); MUST(cuEventRecord(ev, s2)); CODE("event_on_idle_non_blocking_beside_legacy", cuEventQuery(ev)); sync_all();
  /* a legacy wait binds blocking streams, too */
  zero(); MUST(slow_write(s1, word_a, 7, MS100)); MUST(cuEventRecord(ev, s1)); MUST(cuStreamWaitEvent(NULL, ev, 0));
  say("blocking_after_legacy_waited_for_non_blocking", "%d", reads_after(blocking));
  zero(); MUST(slow_write(s1, word_a, 7, MS100)); MUST(cuEventRecord(ev, s1)); MUST(cuStreamWaitEvent(blocking, ev, 0));
  say("legacy_after_blocking_waited_for_non_blocking", "%d", reads_after(NULL));
  zero(); MUST(slow_write(s1, word_a, 7, MS100)); MUST(cuEventRecord(ev, s1)); MUST(cuStreamWaitEvent(blocking, ev, 0));
  say("another_blocking_after_blocking_waited_for_non_blocking", "%d", reads_after(by_kind[2]));
  /* what a wait means */
  MUST(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
  CODE("stream_wait_event_never_recorded", cuStreamWaitEvent(s2, e, 0));
  CODE("stream_wait_event_flags_1", cuStreamWaitEvent(s2, e, 1));
  CODE("stream_wait_event_flags_2", cuStreamWaitEvent(s2, e, 2));
  zero(); MUST(slow_write(s1, word_a, 7, MS100)); MUST(cuEventRecord(e, s1)); MUST(cuStreamWaitEvent(s2, e, 0)); TIMED("event_destroy_waited_for", cuEventDestroy(e));
  say("stream_wait_outlives_its_event", "%d", reads_after(s2));
  MUST(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
  zero(); MUST(slow_write(s1, word_a, 7, MS100)); MUST(cuEventRecord(e, s1)); MUST(cuStreamWaitEvent(s2, e, 0)); MUST(cuEventRecord(e, by_kind[3]));
  say("stream_wait_outlives_a_new_record", "%d", reads_after(s2));
  zero(); MUST(slow_write(s1, word_a, 7, MS100)); MUST(cuEventRecord(e, s1)); MUST(cuEventRecord(e, by_kind[3])); MUST(cuStreamWaitEvent(s2, e, 0));
  say("stream_wait_for_the_last_record_only", "%d", reads_after(s2));
  zero(); MUST(cuEventRecord(e, s1)); MUST(cuStreamWaitEvent(s2, e, 0)); MUST(slow_write(s1, word_a, 7, MS100));
  say("stream_wait_takes_in_no_later_work", "%d", reads_after(s2));
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  zero(); MUST(slow_write(s, word_a, 7, MS100)); MUST(cuEventRecord(e, s)); MUST(cuStreamDestroy(s)); CODE("event_of_destroyed_stream_query", cuEventQuery(e));
  MUST(cuStreamWaitEvent(s2, e, 0)); say("event_of_destroyed_stream_waited_for", "%d", reads_after(s2));
  CODE("event_of_destroyed_stream_query_done", cuEventQuery(e));
  zero(); MUST(slow_write(s1, word_a, 7, MS100)); MUST(cuEventRecord(e, s1)); TIMED("event_record_again_pending", cuEventRecord(e, s1)); sync_all();
  zero(); MUST(slow_write(s1, word_a, 7, MS100)); MUST(cuEventRecord(e, s1)); TIMED("event_query_pending", cuEventQuery(e)); sync_all(); TIMED("event_query_done", cuEventQuery(e));
  /* other contexts */
  CUstream theirs;
  CUevent their_event;
  waits_context = other_context();
  MUST(cuCtxPushCurrent(waits_context));
  MUST(cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING));
  MUST(cuEventCreate(&their_event, CU_EVENT_DISABLE_TIMING));
  zero(); MUST(cuCtxPopCurrent(NULL)); sync_all();
  MUST(slow_write(s1, word_a, 7, MS100));
  MUST(cuCtxPushCurrent(waits_context));
  CODE("event_record_with_other_context_current", cuEventRecord(ev, s1));
  CODE("event_query_with_other_context_current", cuEventQuery(ev));
  CODE("stream_wait_event_of_other_context", cuStreamWaitEvent(theirs, ev, 0));
  CODE("stream_query_waiting_for_other_context", cuStreamQuery(theirs));
  CODE("event_record_event_of_other_context", cuEventRecord(their_event, s1));
  CODE("event_record_event_on_other_contexts_stream", cuEventRecord(ev, theirs));
  CODE("event_record_on_own_stream", cuEventRecord(their_event, theirs));
  CODE("event_query_behind_other_context", cuEventQuery(their_event));
  MUST(cuCtxPopCurrent(NULL));
  CODE("stream_wait_event_behind_other_context", cuStreamWaitEvent(s2, their_event, 0));
  say("stream_wait_for_other_context_reads", "%d", reads_after(s2));
  CODE("stream_wait_event_legacy_of_other_context", cuStreamWaitEvent(NULL, their_event, 0));
  MUST(cuCtxDestroy(waits_context));
}

/* ---- what a capture says to all that ---- */

static CUdeviceptr probe_range;
static CUmemGenericAllocationHandle probe_handle;
static CUmemAccessDesc probe_access;
static CUstream probe_stream;
static unsigned long long probe_value;
static CUevent probe_event;
PROBE(o_stream_get_id, cuStreamGetId(s2, &probe_value))
PROBE(o_stream_get_id_captured, cuStreamGetId(s1, &probe_value))
PROBE(o_stream_get_id_legacy, cuStreamGetId(NULL, &probe_value))
PROBE(o_stream_get_ctx_captured, cuStreamGetCtx(s1, &(CUcontext){0}))
PROBE(o_is_capturing, cuStreamIsCapturing(s2, &(CUstreamCaptureStatus){0}))
PROBE(o_wait_other, cuStreamWaitEvent(s2, old_event, 0))
PROBE(o_event_destroy, cuEventDestroy(probe_event))
PROBE(o_stream_destroy, cuStreamDestroy(probe_stream))
PROBE(o_reserve, cuMemAddressReserve(&out_ptr, 2 * MIB, 0, 0, 0))
PROBE(o_map, cuMemMap(probe_range, 2 * MIB, 0, probe_handle, 0))
PROBE(o_set_access, cuMemSetAccess(probe_range + 2 * MIB, 2 * MIB, &probe_access, 1))
PROBE(o_unmap, cuMemUnmap(probe_range + 2 * MIB, 2 * MIB))
PROBE(o_release, cuMemRelease(probe_handle))
PROBE(o_pool_get, cuMemPoolGetAttribute(the_pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &probe_value))
PROBE(o_pool_set, cuMemPoolSetAttribute(the_pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &(unsigned long long){0}))
PROBE(o_default_pool, cuDeviceGetDefaultMemPool(&(CUmemoryPool){0}, dev))
PROBE(o_mem_free_async_memory, cuMemFree(async_ptr))
PROBE(o_free_async_captured, cuMemFreeAsync(async_ptr, s1))
PROBE(o_alloc_async_captured, cuMemAllocAsync(&out_ptr, 4096, s1))
PROBE(o_alloc_async_legacy, cuMemAllocAsync(&out_ptr, 4096, NULL))
PROBE(o_free_async_legacy, cuMemFreeAsync(async_ptr, NULL))
static const struct { const char* n; CUresult (*f)(void); } ordered_probes[] = {
  {"stream_get_id", o_stream_get_id}, {"stream_get_id_captured", o_stream_get_id_captured}, {"stream_get_id_legacy", o_stream_get_id_legacy},
  {"stream_get_ctx_captured", o_stream_get_ctx_captured}, {"is_capturing_other", o_is_capturing}, {"stream_wait_event_other_stream", o_wait_other},
  {"event_destroy", o_event_destroy}, {"stream_destroy_other", o_stream_destroy}, {"address_reserve", o_reserve}, {"mem_map", o_map},
  {"mem_set_access", o_set_access}, {"mem_unmap", o_unmap}, {"mem_release", o_release}, {"pool_get_attribute", o_pool_get}, {"pool_set_attribute", o_pool_set},
  {"default_pool", o_default_pool}, {"mem_free_of_async", o_mem_free_async_memory}, {"free_async_captured_stream", o_free_async_captured},
  {"alloc_async_captured_stream", o_alloc_async_captured}, {"alloc_async_legacy", o_alloc_async_legacy}, {"free_async_legacy", o_free_async_legacy},
};
static void ordered_probe(const char* prefix, CUstream stream, CUstreamCaptureMode mode, int relax, size_t i) {
  char fact[120];
  CUgraph g = NULL;
  CUmemGenericAllocationHandle mapped;
  CUmemAllocationProp prop = device_memory();
  probe_access = (CUmemAccessDesc){prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  MUST(cuMemAddressReserve(&probe_range, 4 * MIB, 0, 0, 0));
  MUST(cuMemCreate(&probe_handle, 2 * MIB, &prop, 0));
  MUST(cuMemCreate(&mapped, 2 * MIB, &prop, 0));
  MUST(cuMemMap(probe_range + 2 * MIB, 2 * MIB, 0, mapped, 0));
  MUST(cuEventCreate(&probe_event, CU_EVENT_DISABLE_TIMING));
  MUST(cuStreamCreate(&probe_stream, CU_STREAM_NON_BLOCKING));
  MUST(cuMemAllocAsync(&async_ptr, 4096, s2));
  MUST(cuEventRecord(old_event, s2));
  sync_all();
  MUST(cuStreamBeginCapture(stream, mode));
  MUST(copy_ints(stream, word_b, word_a, 1));
  CUstreamCaptureMode exchange = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (relax) MUST(cuThreadExchangeStreamCaptureMode(&exchange));
  CUresult r = ordered_probes[i].f();
  if (relax) MUST(cuThreadExchangeStreamCaptureMode(&exchange));
  CUstreamCaptureStatus status = 9;
  cuStreamIsCapturing(stream, &status);
  CUresult e = cuStreamEndCapture(stream, &g);
  snprintf(fact, sizeof fact, "%s_%s", prefix, ordered_probes[i].n);
  say(fact, "%s, then %s, end %s", name(r), status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? "active" : status == CU_STREAM_CAPTURE_STATUS_INVALIDATED ? "invalidated" : "none", name(e));
  if (g) cuGraphDestroy(g);
  cuEventDestroy(probe_event);
  if (r || ordered_probes[i].f != o_stream_destroy) cuStreamDestroy(probe_stream);
  sync_all();
  cuMemUnmap(probe_range, 4 * MIB);
  if (r || ordered_probes[i].f != o_release) cuMemRelease(probe_handle);
  cuMemRelease(mapped);
  cuMemAddressFree(probe_range, 4 * MIB);
  if (!r && ordered_probes[i].f == o_alloc_async_legacy) cuMemFreeAsync(out_ptr, NULL);
  if (r || (ordered_probes[i].f != o_mem_free_async_memory && ordered_probes[i].f != o_free_async_legacy && ordered_probes[i].f != o_free_async_captured)) cuMemFreeAsync(async_ptr, s2);
  sync_all();
}
static void ordered_captures(void) {
  MUST(cuEventCreate(&old_event, CU_EVENT_DISABLE_TIMING));
  MUST(cuDeviceGetDefaultMemPool(&the_pool, dev));
  size_t n = sizeof ordered_probes / sizeof ordered_probes[0];
  for (size_t i = 0; i < n; ++i) ordered_probe("capture_global", s1, CU_STREAM_CAPTURE_MODE_GLOBAL, 0, i);
  for (size_t i = 0; i < n; ++i) ordered_probe("capture_global_thread_relaxed", s1, CU_STREAM_CAPTURE_MODE_GLOBAL, 1, i);
  for (size_t i = 0; i < n; ++i) ordered_probe("capture_relaxed", s1, CU_STREAM_CAPTURE_MODE_RELAXED, 0, i);
  for (size_t i = 0; i < n; ++i)
    if (ordered_probes[i].f == o_stream_get_id_legacy || ordered_probes[i].f == o_alloc_async_legacy || ordered_probes[i].f == o_free_async_legacy)
      ordered_probe("capture_blocking_thread_relaxed", blocking, CU_STREAM_CAPTURE_MODE_GLOBAL, 1, i);
}
static void ordered_graphs(void) { /* stream-ordered memory of a graph, and of the program within a capture */
  CUgraph g = NULL;
  CUdeviceptr p = 0, q = 0;
  CUmemoryPool pool, of = (CUmemoryPool)&of, mine;
  CUmemPoolProps props;
  MUST(cuDeviceGetDefaultMemPool(&pool, dev));
  sync_all();
  unsigned long long reserved = pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), used_bytes = pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
  MUST(cuStreamBeginCapture(s1, CU_STREAM_CAPTURE_MODE_GLOBAL));
  MUST(cuMemAllocAsync(&p, MIB, s1));
  attributes_of("graph_memory_in_capture", p);
  CUresult r = cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p);
  say("graph_memory_pool", "%s, %s", name(r), of == pool ? "default pool" : of == NULL ? "null" : "other");
  CUdeviceptr base = 0;
  size_t size = 0;
  r = cuMemGetAddressRange(&base, &size, p + 4096);
  say("graph_memory_range", "%s, %s, size %zu", name(r), r ? "" : base == p ? "from ptr" : "elsewhere", size);
  MUST(cuMemFreeAsync(p, s1));
  MUST(cuStreamEndCapture(s1, &g));
  MUST(cuGraphDestroy(g));
  YES("graph_memory_is_not_counted_in_the_pool", pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == reserved && pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == used_bytes);
  memset(&props, 0, sizeof props);
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, dev};
  MUST(cuMemPoolCreate(&mine, &props));
  MUST(cuStreamBeginCapture(s1, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CODE("capture_alloc_from_pool", cuMemAllocFromPoolAsync(&q, MIB, mine, s1));
  CODE("capture_alloc_async_0", cuMemAllocAsync(&p, 0, s1));
  CODE("capture_alloc_from_pool_end", cuStreamEndCapture(s1, &g));
  if (g) MUST(cuGraphDestroy(g));
  MUST(cuMemPoolDestroy(mine));
}

/* ---- mapping memory beside work ---- */

static CUmemAccessDesc here_access(void) {
  CUmemAllocationProp prop = device_memory();
  return (CUmemAccessDesc){prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
}
static CUdeviceptr reserve_range(size_t size) {
  CUdeviceptr va;
  MUST(cuMemAddressReserve(&va, size, 0, 0, 0));
  return va;
}
static CUmemGenericAllocationHandle physical(size_t size) {
  CUmemGenericAllocationHandle h;
  CUmemAllocationProp prop = device_memory();
  MUST(cuMemCreate(&h, size, &prop, 0));
  return h;
}
static void map_at(CUdeviceptr va, size_t size, CUmemGenericAllocationHandle h) {
  CUmemAccessDesc access = here_access();
  MUST(cuMemMap(va, size, 0, h, 0));
  MUST(cuMemSetAccess(va, size, &access, 1));
}
static void vmm_beside_work(void) {
  CUdeviceptr va = reserve_range(64 * MIB), big = 0, second = 0, base = 0;
  CUmemGenericAllocationHandle h = physical(4 * MIB), h2 = physical(4 * MIB), h3;
  CUmemAllocationProp prop = device_memory();
  CUmemAccessDesc access = here_access(), read_only = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READ};
  size_t size = 0;
  unsigned u;
  map_at(va, 4 * MIB, h);
  MUST(slow_write(s1, va, 1, 1)); sync_all();
  say("vmm_kernel_wrote", "%d", read_int(va));
  MUST(slow_write(s1, word_a, 1, MS100)); /* one kernel beside them all, each timed by itself */
  TIMED("vmm_reserve_beside_kernel", cuMemAddressReserve(&second, 64 * MIB, 0, 0, 0)); sync_all();
  MUST(slow_write(s1, word_a, 1, MS100));
  TIMED("vmm_create_beside_kernel", cuMemCreate(&h3, 4 * MIB, &prop, 0)); sync_all();
  MUST(slow_write(s1, word_a, 1, MS100));
  TIMED("vmm_map_beside_kernel", cuMemMap(va + 4 * MIB, 4 * MIB, 0, h2, 0)); sync_all();
  MUST(slow_write(s1, word_a, 1, MS100));
  TIMED("vmm_set_access_of_new_memory_beside_kernel", cuMemSetAccess(va + 4 * MIB, 4 * MIB, &access, 1)); sync_all();
  MUST(slow_write(s1, va, 2, MS100));
  TIMED("vmm_set_access_again_under_kernel", cuMemSetAccess(va, 8 * MIB, &access, 1)); sync_all();
  MUST(slow_write(s1, word_a, 1, MS100));
  TIMED("vmm_unmap_beside_kernel", cuMemUnmap(va + 4 * MIB, 4 * MIB)); sync_all();
  MUST(slow_write(s1, word_a, 1, MS100));
  TIMED("vmm_release_beside_kernel", cuMemRelease(h3)); sync_all();
  MUST(slow_write(s1, word_a, 1, MS100));
  TIMED("vmm_address_free_beside_kernel", cuMemAddressFree(second, 64 * MIB)); sync_all();
  MUST(slow_write(s1, va, 3, MS100));
  TIMED("vmm_release_under_kernel", cuMemRelease(h)); sync_all(); /* the mapping holds it */
  say("vmm_release_under_kernel_wrote", "%d", read_int(va));
  /* mappings beside each other and again */
  map_at(va + 4 * MIB, 4 * MIB, h2);
  int n = 4, v = 9;
  long long clocks = 1;
  CUdeviceptr across = va + 4 * MIB - 8;
  void* fill[] = {&across, &n, &v, &clocks};
  MUST(launch(kernel[SLOW_FILL], s1, fill)); sync_all();
  say("vmm_kernel_across_mappings", "%d %d", read_int(va + 4 * MIB - 4), read_int(va + 4 * MIB + 4));
  CUdeviceptr alias = reserve_range(4 * MIB);
  CUresult r = cuMemMap(alias, 4 * MIB, 0, h2, 0);
  CODE("vmm_map_twice", r);
  if (!r) {
    MUST(cuMemSetAccess(alias, 4 * MIB, &access, 1));
    MUST(slow_write(s1, alias, 5, 1)); sync_all();
    say("vmm_alias_reads", "%d", read_int(va + 4 * MIB));
    MUST(cuMemUnmap(alias, 4 * MIB));
  }
  MUST(cuMemUnmap(va, 4 * MIB)); /* the first of two */
  MUST(slow_write(s1, va + 4 * MIB, 6, 1)); sync_all();
  say("vmm_neighbour_of_unmapped", "%d", read_int(va + 4 * MIB));
  CODE("vmm_set_access_over_a_gap", cuMemSetAccess(va, 8 * MIB, &access, 1));
  CODE("vmm_set_access_read_only", cuMemSetAccess(va + 4 * MIB, 4 * MIB, &read_only, 1));
  CODE("vmm_set_access_back", cuMemSetAccess(va + 4 * MIB, 4 * MIB, &access, 1));
  CODE("vmm_range_of_unmapped", cuMemGetAddressRange(&base, &size, va));
  CODE("vmm_attribute_of_unmapped", cuPointerGetAttribute(&u, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, va));
  several_attributes("several_vmm_unmapped", va);
  several_attributes("several_vmm", va + 4 * MIB);
  attributes_of("vmm_interior", va + 5 * MIB);
  CODE("vmm_address_free_with_a_mapping", cuMemAddressFree(va, 64 * MIB));
  CODE("vmm_set_sync_memops", cuPointerSetAttribute(&(unsigned){1}, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, va + 4 * MIB));
  struct cudaPointerAttributes pa;
  RT("runtime_attributes_vmm", cudaPointerGetAttributes(&pa, (void*)(uintptr_t)(va + 4 * MIB)));
  say("runtime_attributes_vmm_type", "%d, device %d", (int)pa.type, pa.device);
  CODE("vmm_memset_async", cuMemsetD8Async(va + 4 * MIB, 1, 4 * MIB, s1));
  sync_all();
  /* large and odd reservations */
  r = cuMemAddressReserve(&big, (size_t)256 << 30, 0, 0, 0);
  CODE("vmm_reserve_256gib", r);
  if (!r) MUST(cuMemAddressFree(big, (size_t)256 << 30));
  r = cuMemAddressReserve(&big, 4 * MIB, (size_t)1 << 30, 0, 0);
  say("vmm_reserve_aligned_1gib", "%s, %s", name(r), !r && big % ((size_t)1 << 30) == 0 ? "aligned" : "not aligned");
  if (!r) MUST(cuMemAddressFree(big, 4 * MIB));
  CODE("vmm_reserve_alignment_odd", cuMemAddressReserve(&big, 4 * MIB, 3 * MIB, 0, 0));
  MUST(cuMemUnmap(va, 64 * MIB));
  MUST(cuMemRelease(h2));
  r = cuMemAddressReserve(&second, 4 * MIB, 0, va + 64 * MIB, 0); /* a wish */
  say("vmm_reserve_at", "%s", name(r));
  if (!r) MUST(cuMemAddressFree(second, 4 * MIB));
  MUST(cuMemAddressFree(va, 64 * MIB));
  /* the device is full: nothing is left behind */
  size_t before = used(), free_bytes, total;
  MUST(cuMemGetInfo(&free_bytes, &total));
  CODE("vmm_create_more_than_free", cuMemCreate(&h, (free_bytes / (2 * MIB) + 8) * 2 * MIB, &prop, 0));
  YES("vmm_failed_create_costs_nothing", used() == before);
}

/* ---- the driver's pools ---- */

static CUmemPoolProps pool_props(void) {
  CUmemPoolProps props;
  memset(&props, 0, sizeof props);
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, dev};
  return props;
}
static CUmemoryPool new_pool(void) {
  CUmemPoolProps props = pool_props();
  CUmemoryPool pool;
  MUST(cuMemPoolCreate(&pool, &props));
  return pool;
}
static CUdeviceptr from_pool(CUmemoryPool pool, size_t size, CUstream s) {
  CUdeviceptr p = 0;
  MUST(cuMemAllocFromPoolAsync(&p, size, pool, s));
  return p;
}
static void counters(const char* fact, CUmemoryPool pool) { /* in KiB, but for what is used */
  say(fact, "used %llu high %llu, reserved %llu KiB high %llu KiB", pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH),
      pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >> 10, pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >> 10);
}
static unsigned long long reserved_mib(CUmemoryPool pool) { return pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >> 20; }
static CUresult set_value(CUmemoryPool pool, CUmemPool_attribute a, unsigned long long v) { return cuMemPoolSetAttribute(pool, a, &v); }
static void pool_attributes(void) {
  CUmemoryPool pool = new_pool(), other = new_pool();
  CUdeviceptr p, q, blocks[16];
  unsigned long long v;
  char fact[80];
  counters("pool_fresh", pool);
  say("pool_fresh_threshold", "%llu", pool_value(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
  /* how sizes are counted */
  static const size_t sizes[] = {1, 511, 512, 513, 4097, 100000, MIB - 1, MIB + 1, 2 * MIB + 1};
  MUST(set_value(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~0ull));
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    CUdeviceptr base = 0;
    size_t size = 0;
    p = from_pool(pool, sizes[i], s1);
    MUST(cuMemGetAddressRange(&base, &size, p + sizes[i] - 1));
    snprintf(fact, sizeof fact, "pool_block_%zu", sizes[i]);
    say(fact, "used %llu, range %s %zu, address %% 512 %llu", pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), base == p ? "from ptr" : "elsewhere", size, p % 512);
    MUST(cuMemFreeAsync(p, s1));
  }
  sync_all();
  MUST(set_value(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0));
  sync_all();
  counters("pool_threshold_0_after_sync", pool);
  /* how it grows */
  static const size_t grows[] = {1, 20 * MIB, 32 * MIB, 33 * MIB, 64 * MIB, 100 * MIB};
  for (size_t i = 0; i < sizeof grows / sizeof grows[0]; ++i) {
    p = from_pool(other, grows[i], s1);
    snprintf(fact, sizeof fact, "pool_reserved_for_%zu", grows[i]);
    say(fact, "%llu MiB", reserved_mib(other));
    MUST(cuMemFreeAsync(p, s1));
    sync_all();
  }
  for (int i = 0; i < 16; ++i) blocks[i] = from_pool(other, 8 * MIB, s1);
  say("pool_reserved_for_16_of_8_mib", "%llu MiB", reserved_mib(other));
  for (int i = 0; i < 16; i += 2) MUST(cuMemFreeAsync(blocks[i], s1));
  sync_all();
  say("pool_reserved_with_every_other_freed", "%llu MiB", reserved_mib(other));
  MUST(cuMemPoolTrimTo(other, 0));
  say("pool_reserved_trimmed_with_live", "%llu MiB", reserved_mib(other));
  p = from_pool(other, 16 * MIB, s1); /* not in any hole */
  say("pool_reserved_for_what_no_hole_holds", "%llu MiB", reserved_mib(other));
  MUST(cuMemFreeAsync(p, s1));
  for (int i = 1; i < 16; i += 2) MUST(cuMemFreeAsync(blocks[i], s1));
  sync_all();
  say("pool_reserved_all_freed", "%llu MiB", reserved_mib(other));
  /* high-water marks */
  p = from_pool(pool, 10 * MIB, s1);
  q = from_pool(pool, 50 * MIB, s1);
  MUST(cuMemFreeAsync(q, s1));
  counters("pool_two_allocated_one_freed", pool);
  CODE("pool_reset_used_high", set_value(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0));
  CODE("pool_reset_reserved_high", set_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0));
  counters("pool_marks_reset", pool);
  sync_all();
  counters("pool_marks_after_sync", pool);
  CODE("pool_reset_reserved_high_again", set_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0));
  counters("pool_marks_reset_again", pool);
  MUST(cuMemFreeAsync(p, s1));
  sync_all();
  CODE("pool_set_reserved_current", set_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, 0));
  CODE("pool_set_reserved_high_1", set_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 1));
  /* a free that has not come to pass */
  p = from_pool(pool, 10 * MIB, s1);
  MUST(slow_write(s1, p, 1, MS100));
  MUST(cuMemFreeAsync(p, s1));
  counters("pool_free_pending", pool);
  TIMED("pool_trim_with_free_pending", cuMemPoolTrimTo(pool, 0));
  counters("pool_trimmed_with_free_pending", pool);
  sync_all();
  counters("pool_free_done", pool);
  /* what gives memory back */
  static const char* ways[] = {"stream_synchronize", "other_stream_synchronize", "event_synchronize", "stream_query", "event_query", "copy_dtoh", "ctx_synchronize", "next_alloc"};
  for (int i = 0; i < 8; ++i) {
    MUST(cuMemPoolTrimTo(pool, 0));
    p = from_pool(pool, 4 * MIB, s1);
    MUST(cuMemFreeAsync(p, s1));
    MUST(cuEventRecord(ev, s1));
    for (int k = 0; k < 100 && cuEventQuery(ev) == CUDA_ERROR_NOT_READY; ++k) usleep(1000);
    unsigned long long before = reserved_mib(pool);
    switch (i) {
      case 0: MUST(cuStreamSynchronize(s1)); break;
      case 1: MUST(cuStreamSynchronize(s2)); break;
      case 2: MUST(cuEventSynchronize(ev)); break;
      case 3: MUST(cuStreamQuery(s1)); break;
      case 4: MUST(cuEventQuery(ev)); break;
      case 5: MUST(cuMemcpyDtoH(&(int){0}, word_a, 4)); break;
      case 6: MUST(cuCtxSynchronize()); break;
      case 7: q = from_pool(pool, 1024, s2); MUST(cuMemFreeAsync(q, s2)); break;
    }
    snprintf(fact, sizeof fact, "pool_released_by_%s", ways[i]);
    say(fact, "%llu MiB then %llu MiB", before, reserved_mib(pool));
    sync_all();
  }
  /* the threshold */
  CODE("pool_set_threshold", set_value(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 40 * MIB));
  say("pool_get_threshold", "%llu", pool_value(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
  for (int i = 0; i < 4; ++i) blocks[i] = from_pool(pool, 32 * MIB, s1);
  for (int i = 0; i < 4; ++i) MUST(cuMemFreeAsync(blocks[i], s1));
  sync_all();
  say("pool_threshold_40_of_128", "%llu MiB", reserved_mib(pool));
  CODE("pool_lower_threshold", set_value(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0));
  say("pool_lowered_threshold_before_sync", "%llu MiB", reserved_mib(pool));
  sync_all();
  say("pool_lowered_threshold_after_sync", "%llu MiB", reserved_mib(pool));
  MUST(set_value(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~0ull));
  for (int i = 0; i < 4; ++i) blocks[i] = from_pool(pool, 32 * MIB, s1);
  for (int i = 0; i < 4; ++i) MUST(cuMemFreeAsync(blocks[i], s1));
  sync_all();
  say("pool_threshold_max", "%llu MiB", reserved_mib(pool));
  CODE("pool_trim_to_more_than_reserved", cuMemPoolTrimTo(pool, 1000 * MIB));
  say("pool_trimmed_to_more_than_reserved", "%llu MiB", reserved_mib(pool));
  CODE("pool_trim_to_50", cuMemPoolTrimTo(pool, 50 * MIB));
  say("pool_trimmed_to_50", "%llu MiB", reserved_mib(pool));
  MUST(slow_write(s1, word_a, 1, MS100));
  TIMED("pool_trim_beside_kernel", cuMemPoolTrimTo(pool, 0));
  say("pool_trimmed_to_0", "%llu MiB", reserved_mib(pool));
  sync_all();
  MUST(set_value(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0));
  /* attributes as such */
  struct { int flag, behind; } narrow = {7, 77};
  MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &narrow));
  say("pool_flag_is_an_int", "%d %d", narrow.flag, narrow.behind);
  for (int a = 1; a <= 3; ++a) {
    int was = 9;
    snprintf(fact, sizeof fact, "pool_flag_%d", a);
    CUresult off = cuMemPoolSetAttribute(pool, (CUmemPool_attribute)a, &(int){0});
    MUST(cuMemPoolGetAttribute(pool, (CUmemPool_attribute)a, &was));
    CUresult five = cuMemPoolSetAttribute(pool, (CUmemPool_attribute)a, &(int){5});
    int then = 9;
    MUST(cuMemPoolGetAttribute(pool, (CUmemPool_attribute)a, &then));
    say(fact, "set 0 %s, get %d, set 5 %s, get %d", name(off), was, name(five), then);
  }
  CODE("pool_get_attribute_0", cuMemPoolGetAttribute(pool, (CUmemPool_attribute)0, &v));
  CODE("pool_get_attribute_99", cuMemPoolGetAttribute(pool, (CUmemPool_attribute)99, &v));
  CODE("pool_set_attribute_99", cuMemPoolSetAttribute(pool, (CUmemPool_attribute)99, &v));
  CODE("pool_get_null_value", cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, NULL));
  CODE("pool_get_null_pool", cuMemPoolGetAttribute(NULL, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &v));
  CODE("pool_set_null_pool", cuMemPoolSetAttribute(NULL, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &v));
  CODE("pool_trim_null_pool", cuMemPoolTrimTo(NULL, 0));
  CODE("pool_destroy_null", cuMemPoolDestroy(NULL));
  CODE("pool_alloc_from_null_pool", cuMemAllocFromPoolAsync(&p, 4096, NULL, s1));
  p = 0x1234;
  CUresult r = cuMemAllocFromPoolAsync(&p, 0, pool, s1);
  say("pool_alloc_from_0", "%s, %s", name(r), p == 0x1234 ? "unchanged" : p ? "some ptr" : "null");
  p = 0x1234;
  r = cuMemAllocAsync(&p, (size_t)1 << 50, s1);
  say("alloc_async_huge_ptr", "%s, %s", name(r), p == 0x1234 ? "unchanged" : p ? "some ptr" : "null");
  size_t free_bytes, total;
  MUST(cuMemGetInfo(&free_bytes, &total));
  size_t used_before = used();
  CODE("alloc_async_more_than_free", cuMemAllocAsync(&p, free_bytes + 64 * MIB, s1));
  YES("alloc_async_failed_costs_nothing", used() == used_before);
  MUST(cuMemPoolDestroy(pool));
  MUST(cuMemPoolDestroy(other));
}
static void pool_lives(void) { /* of pools and their memory */
  CUmemoryPool pool = new_pool(), set = NULL, standard;
  CUdeviceptr p, q;
  int n = 0;
  MUST(cuDeviceGetDefaultMemPool(&standard, dev));
  CODE("set_mem_pool", cuDeviceSetMemPool(dev, pool));
  MUST(cuDeviceGetMemPool(&set, dev));
  YES("set_mem_pool_is_current", set == pool);
  MUST(cuDeviceGetDefaultMemPool(&set, dev));
  YES("set_mem_pool_leaves_the_default", set == standard);
  MUST(cuMemAllocAsync(&p, MIB, s1));
  MUST(cuPointerGetAttribute(&set, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
  YES("set_mem_pool_serves_alloc_async", set == pool);
  CODE("pool_destroy_current", cuMemPoolDestroy(pool));
  MUST(cuDeviceGetMemPool(&set, dev));
  YES("pool_destroyed_current_is_default_again", set == standard);
  MUST(cuMemAllocAsync(&q, MIB, s1));
  MUST(cuPointerGetAttribute(&set, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, q));
  YES("pool_destroyed_current_default_serves", set == standard);
  MUST(slow_write(s1, p, 5, 1)); sync_all();
  say("pool_destroyed_block_holds", "%d", read_int(p));
  size_t before = used();
  CODE("pool_destroyed_block_mem_free", cuMemFree(p));
  MUST(cuMemFreeAsync(q, s1));
  sync_all();
  YES("pool_destroyed_memory_goes_with_its_last_block", before - used() >= 32 * MIB);
  CODE("set_mem_pool_default", cuDeviceSetMemPool(dev, standard));
  CODE("set_mem_pool_null", cuDeviceSetMemPool(dev, NULL));
  CODE("set_mem_pool_bad_device", cuDeviceSetMemPool(1000, standard));
  CODE("get_mem_pool_bad_device", cuDeviceGetMemPool(&set, 1000));
  CODE("get_default_mem_pool_bad_device", cuDeviceGetDefaultMemPool(&set, 1000));
  CODE("get_default_mem_pool_null", cuDeviceGetDefaultMemPool(NULL, dev));
  /* pools that are made oddly */
  CUmemPoolProps props = pool_props();
  CODE("pool_create_null", cuMemPoolCreate(NULL, &props));
  CODE("pool_create_null_props", cuMemPoolCreate(&pool, NULL));
  props.location.id = 1000;
  CODE("pool_create_bad_device", cuMemPoolCreate(&pool, &props));
  props = pool_props();
  props.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
  CODE("pool_create_bad_type", cuMemPoolCreate(&pool, &props));
  props = pool_props();
  props.location.type = CU_MEM_LOCATION_TYPE_INVALID;
  CODE("pool_create_bad_location", cuMemPoolCreate(&pool, &props));
  props = pool_props();
  props.maxSize = 64 * MIB;
  CUresult r = cuMemPoolCreate(&pool, &props);
  CODE("pool_create_with_maximum", r);
  if (!r) {
    CUdeviceptr all[8];
    while (n < 8 && cuMemAllocFromPoolAsync(&all[n], 16 * MIB, pool, s1) == CUDA_SUCCESS) ++n;
    say("pool_with_maximum_64_serves_blocks_of_16", "%d", n);
    CODE("pool_with_maximum_then", cuMemAllocFromPoolAsync(&p, 16 * MIB, pool, s1));
    MUST(slow_write(s1, word_a, 1, MS100));
    MUST(cuMemFreeAsync(all[0], s1));
    TIMED("pool_with_maximum_other_stream_gets_pending_block", cuMemAllocFromPoolAsync(&p, 16 * MIB, pool, s2));
    CODE("pool_with_maximum_its_stream", cuStreamQuery(s2));
    sync_all();
    MUST(cuMemPoolDestroy(pool));
  }
  /* access */
  CUmemAccessDesc access = here_access();
  CUmemAccess_flags flags = 9;
  CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0}, here = {CU_MEM_LOCATION_TYPE_DEVICE, dev}, bad = {CU_MEM_LOCATION_TYPE_DEVICE, 1000};
  pool = new_pool();
  MUST(cuMemPoolGetAccess(&flags, pool, &here));
  say("pool_access_own", "%d", (int)flags);
  CODE("pool_access_host", cuMemPoolGetAccess(&flags, pool, &host));
  CODE("pool_access_bad_device", cuMemPoolGetAccess(&flags, pool, &bad));
  CODE("pool_access_null", cuMemPoolGetAccess(NULL, pool, &here));
  CODE("pool_set_access_own", cuMemPoolSetAccess(pool, &access, 1));
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  CODE("pool_set_access_own_read", cuMemPoolSetAccess(pool, &access, 1));
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  CODE("pool_set_access_own_none", cuMemPoolSetAccess(pool, &access, 1));
  access = here_access();
  access.location = bad;
  CODE("pool_set_access_bad_device", cuMemPoolSetAccess(pool, &access, 1));
  CODE("pool_set_access_nothing", cuMemPoolSetAccess(pool, NULL, 0));
  CODE("pool_set_access_null", cuMemPoolSetAccess(pool, NULL, 1));
  p = from_pool(pool, MIB, s1);
  unsigned long long wide = 9;
  r = cuMemGetAccess(&wide, &here, p);
  say("mem_get_access_of_async", "%s, %llu", name(r), wide);
  /* export */
  int fd = -1;
  char data[64];
  CODE("pool_export_without_type", cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CODE("pool_export_pointer_without_type", cuMemPoolExportPointer((CUmemPoolPtrExportData*)data, p));
  CODE("pool_export_default", cuMemPoolExportToShareableHandle(&fd, standard, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CODE("pool_export_pointer_plain", cuMemPoolExportPointer((CUmemPoolPtrExportData*)data, word_a));
  CUmemGenericAllocationHandle h;
  CODE("retain_handle_of_async", cuMemRetainAllocationHandle(&h, (void*)(uintptr_t)p));
  CODE("dma_buf_of_async", cuMemGetHandleForAddressRange(&fd, p, MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  CODE("set_sync_memops_async", cuPointerSetAttribute(&(unsigned){1}, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
  MUST(cuMemFreeAsync(p, s1));
  sync_all();
  MUST(cuMemPoolDestroy(pool));
  props = pool_props();
  props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CODE("pool_create_shareable", cuMemPoolCreate(&pool, &props));
  p = from_pool(pool, MIB, s1);
  sync_all();
  attributes_of("async_shareable", p);
  CODE("pool_export", cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CODE("pool_export_pointer", cuMemPoolExportPointer((CUmemPoolPtrExportData*)data, p));
  CODE("pool_export_pointer_interior", cuMemPoolExportPointer((CUmemPoolPtrExportData*)data, p + 4096));
  MUST(cuMemFreeAsync(p, s1));
  sync_all();
  if (fd >= 0) close(fd);
  MUST(cuMemPoolDestroy(pool));
}
static void more_attributes(const char* what, CUdeviceptr p, CUmemoryPool pool) {
  char fact[80];
  CUmemoryPool of = (CUmemoryPool)&of;
  unsigned long long types = 99, block = 0, id = 0;
  unsigned access = 99, sync = 99, rdma = 99;
  CUdeviceptr start = 0, mapping = 0;
  CUresult r1 = cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p), r2 = cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, p);
  CUresult r3 = cuPointerGetAttribute(&access, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, p), r4 = cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
  CUresult r5 = cuPointerGetAttribute(&rdma, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, p), r6 = cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p);
  CUresult r7 = cuPointerGetAttribute(&mapping, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, p), r8 = cuPointerGetAttribute(&block, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, p);
  CUresult r9 = cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p);
  snprintf(fact, sizeof fact, "more_attributes_%s", what);
  say(fact, "pool %s %s, handle types %s %llu, access %s %u, sync %s %u, rdma %s %u, start %s %s, mapping %s %s, block %s %s, id %s %s", name(r1), of == pool ? "its own" : of ? "other" : "null", name(r2), types,
      name(r3), access, name(r4), sync, name(r5), rdma, name(r6), r6 ? "" : start == p ? "ptr" : start < p ? "before" : "after", name(r7), r7 ? "" : mapping == p ? "ptr" : mapping < p ? "before" : "after",
      name(r8), r8 ? "" : block == id ? "as buffer id" : "another number", name(r9), id ? "some" : "0");
}
static void pool_pointers(void) {
  CUmemoryPool pool;
  CUdeviceptr p, q, base = 0;
  size_t size = 0;
  unsigned long long id1 = 0, id2 = 0, id3 = 0;
  unsigned u;
  MUST(cuDeviceGetDefaultMemPool(&pool, dev));
  MUST(cuMemAllocAsync(&p, MIB + 100, s1));
  MUST(cuMemAllocAsync(&q, MIB + 100, s1));
  sync_all();
  more_attributes("async", p, pool);
  more_attributes("async_interior", p + 5000, pool);
  more_attributes("plain", word_a, pool);
  several_attributes("several_async", p);
  attributes_of("async_interior", p + MIB);
  attributes_of("async_second", q);
  CODE("attribute_async_rest_of_block", cuPointerGetAttribute(&u, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + MIB + 100)); /* behind what was asked for */
  CODE("range_async_rest_of_block", cuMemGetAddressRange(&base, &size, p + MIB + 100));
  CUresult r = cuMemGetAddressRange(&base, &size, q + MIB);
  say("range_async_second", "%s, %s, size %zu", name(r), base == q ? "from ptr" : "elsewhere", size);
  MUST(cuPointerGetAttribute(&id1, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
  MUST(cuPointerGetAttribute(&id2, CU_POINTER_ATTRIBUTE_BUFFER_ID, q));
  YES("async_buffer_ids_differ", id1 != id2);
  MUST(slow_write(s1, word_a, 1, MS100));
  MUST(cuMemFreeAsync(p, s1));
  CODE("attribute_async_free_pending", cuPointerGetAttribute(&u, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
  CODE("range_async_free_pending", cuMemGetAddressRange(&base, &size, p));
  several_attributes("several_async_free_pending", p);
  CODE("memset_async_free_pending", cuMemsetD8Async(p, 0, 16, s1));
  CODE("copy_async_free_pending", cuMemcpyDtoHAsync(&(int){0}, p, 4, s1));
  sync_all();
  CODE("attribute_async_freed", cuPointerGetAttribute(&u, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
  CODE("range_async_freed", cuMemGetAddressRange(&base, &size, p));
  several_attributes("several_async_freed", p);
  CODE("copy_async_freed", cuMemcpyDtoH(&(int){0}, p, 4));
  CUdeviceptr again;
  MUST(cuMemAllocAsync(&again, MIB + 100, s1));
  MUST(cuPointerGetAttribute(&id3, CU_POINTER_ATTRIBUTE_BUFFER_ID, again));
  say("async_buffer_id_at_recycled_address", "%s, %s", again == p ? "same address" : "other address", id3 == id1 ? "same id" : "new id");
  MUST(cuMemFreeAsync(again, s1));
  MUST(cuMemFreeAsync(q, s1));
  sync_all();
}
static void pool_order(void) {
  CUmemoryPool pool;
  CUdeviceptr p, q;
  CUstream s;
  CUevent e;
  MUST(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
  MUST(cuDeviceGetDefaultMemPool(&pool, dev));
  MUST(set_value(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~0ull));
  /* the same size all along: where does it come from? */
  enum { SIZE = 32 << 20 };
#define FRESH MUST(cuMemPoolTrimTo(pool, 0)); MUST(cuMemAllocAsync(&p, SIZE, s1))
  FRESH; MUST(slow_write(s1, p, 1, MS100)); MUST(cuMemFreeAsync(p, s1));
  MUST(cuMemAllocAsync(&q, SIZE, s1)); YES("order_same_stream_reuses_pending", p == q); MUST(cuMemFreeAsync(q, s1)); sync_all();
  FRESH; MUST(slow_write(s1, p, 1, MS100)); MUST(cuMemFreeAsync(p, s1)); MUST(cuEventRecord(e, s1)); MUST(cuStreamWaitEvent(s2, e, 0));
  MUST(cuMemAllocAsync(&q, SIZE, s2)); YES("order_follows_event", p == q); MUST(cuMemFreeAsync(q, s2)); sync_all();
  FRESH; MUST(slow_write(s1, p, 1, MS100)); MUST(cuEventRecord(e, s1)); MUST(cuStreamWaitEvent(s2, e, 0)); MUST(cuMemFreeAsync(p, s1)); /* the event is from before the free */
  MUST(cuMemAllocAsync(&q, SIZE, s2)); YES("order_follows_event_from_before_the_free", p == q); MUST(cuMemFreeAsync(q, s2)); sync_all();
  MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &(int){0}));
  MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &(int){0}));
  FRESH; MUST(slow_write(s1, p, 1, MS100)); MUST(cuMemFreeAsync(p, s1)); MUST(cuEventRecord(e, s1)); MUST(cuStreamWaitEvent(s2, e, 0));
  MUST(cuMemAllocAsync(&q, SIZE, s2)); YES("order_does_not_follow_event_when_off", p != q); MUST(cuMemFreeAsync(q, s2)); sync_all();
  MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &(int){1}));
  FRESH; MUST(cuMemFreeAsync(p, s1)); usleep(50000); /* done, and nobody asked */
  MUST(cuMemAllocAsync(&q, SIZE, s2)); YES("order_opportunistic", p == q); MUST(cuMemFreeAsync(q, s2)); sync_all();
  MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &(int){0}));
  FRESH; MUST(cuMemFreeAsync(p, s1)); usleep(50000);
  MUST(cuMemAllocAsync(&q, SIZE, s2)); YES("order_not_opportunistic_when_off", p != q); MUST(cuMemFreeAsync(q, s2)); sync_all();
  MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &(int){1}));
  MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &(int){1}));
  FRESH; MUST(slow_write(s1, p, 1, MS100)); MUST(cuMemFreeAsync(p, s1));
  TIMED("order_other_stream_beside_pending", cuMemAllocAsync(&q, SIZE, s2));
  say("order_other_stream_beside_pending_gets", "%s, stream %s", p == q ? "the same" : "new memory", name(cuStreamQuery(s2)));
  MUST(cuMemFreeAsync(q, s2)); sync_all();
  /* frees elsewhere */
  FRESH; MUST(slow_write(s1, p, 1, MS100)); CODE("order_free_on_other_stream", cuMemFreeAsync(p, s2)); /* without order: the program's fault */
  MUST(cuMemAllocAsync(&q, SIZE, s2)); YES("order_freed_on_other_stream_is_that_streams", p == q); MUST(cuMemFreeAsync(q, s2)); sync_all();
  FRESH; sync_all(); CODE("order_free_on_legacy", cuMemFreeAsync(p, NULL)); sync_all();
  FRESH; sync_all(); CODE("order_free_on_per_thread", cuMemFreeAsync(p, CU_STREAM_PER_THREAD)); sync_all();
  FRESH; sync_all(); CODE("order_free_ptsz", cuMemFreeAsync_ptsz(p, NULL)); sync_all();
  FRESH; MUST(slow_write(s1, p, 1, MS100)); TIMED("order_mem_free_under_kernel", cuMemFree(p)); CODE("order_mem_free_under_kernel_stream", cuStreamQuery(s1));
  CODE("order_mem_free_then_free_async", cuMemFreeAsync(p, s1)); sync_all();
  FRESH; MUST(cuMemFreeAsync(p, s1)); CODE("order_free_async_then_mem_free", cuMemFree(p)); sync_all();
  /* streams that end */
  MUST(cuMemPoolTrimTo(pool, 0));
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  MUST(cuMemAllocAsync(&p, SIZE, s)); MUST(slow_write(s, p, 8, MS100)); MUST(cuStreamDestroy(s));
  CODE("order_range_after_its_stream", cuMemGetAddressRange(&q, &(size_t){0}, p));
  sync_all();
  say("order_block_after_its_stream", "%d", read_int(p));
  CODE("order_free_after_its_stream", cuMemFreeAsync(p, s1)); sync_all();
  MUST(cuMemPoolTrimTo(pool, 0));
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  MUST(cuMemAllocAsync(&p, SIZE, s)); MUST(slow_write(s, p, 8, MS100)); MUST(cuMemFreeAsync(p, s)); MUST(cuStreamDestroy(s));
  TIMED("order_alloc_beside_destroyed_streams_free", cuMemAllocAsync(&q, SIZE, s1));
  YES("order_alloc_beside_destroyed_streams_free_same", p == q); MUST(cuMemFreeAsync(q, s1)); sync_all();
  /* other contexts share the device's pool */
  CUcontext c = other_context();
  CUstream theirs;
  MUST(cuMemPoolTrimTo(pool, 0));
  MUST(cuCtxPushCurrent(c));
  MUST(cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING));
  MUST(cuMemAllocAsync(&p, SIZE, theirs));
  MUST(cuStreamSynchronize(theirs));
  CUmemoryPool of = NULL;
  MUST(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
  YES("contexts_share_the_pool", of == pool);
  CODE("contexts_alloc_async_on_other_contexts_stream", cuMemAllocAsync(&q, SIZE, s1));
  CODE("contexts_free_async_on_other_contexts_stream", cuMemFreeAsync(q, s1));
  MUST(cuCtxPopCurrent(NULL));
  MUST(cuMemsetD32Async(p, 4, 1, s1)); sync_all();
  say_int("contexts_other_writes", p);
  MUST(cuCtxDestroy(c));
  say_int("contexts_block_outlives_its_context", p);
  CODE("contexts_range_after_destroy", cuMemGetAddressRange(&q, &(size_t){0}, p));
  CODE("contexts_free_after_destroy", cuMemFreeAsync(p, s1)); sync_all();
  say("contexts_pool_after", "used %llu", pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
  /* of the primary context itself */
  MUST(cuMemAllocAsync(&p, SIZE, s1)); sync_all();
  MUST(cuDevicePrimaryCtxReset(dev));
  unsigned long long v = 77;
  CODE("reset_pool_get_attribute", cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &v));
  MUST(cuDevicePrimaryCtxRetain(&primary, dev));
  MUST(cuCtxSetCurrent(primary));
  MUST(cuDeviceGetDefaultMemPool(&of, dev));
  YES("reset_default_pool_same", of == pool);
  say("reset_pool_counters", "used %llu reserved %llu", pool_value(of, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), pool_value(of, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >> 20);
  say("reset_pool_threshold", "%s", pool_value(of, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == ~0ull ? "kept" : "forgotten");
  CODE("reset_range_of_async", cuMemGetAddressRange(&q, &(size_t){0}, p));
  CODE("reset_copy_of_async", cuMemcpyDtoH(&(int){0}, p, 4));
  CODE("reset_free_async", cuMemFreeAsync(p, NULL)); sync_all();
  say("reset_pool_after_free", "used %llu", pool_value(of, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
}

/* ---- through the runtime ---- */

static void runtime_pools(void) {
  void *p = NULL, *q = NULL;
  cudaMemPool_t pool = NULL, current = NULL;
  CUmemoryPool driver_pool;
  cudaStream_t s = (cudaStream_t)s1;
  size_t size = 0;
  unsigned long long v = 0;
  MUST(cuDeviceGetDefaultMemPool(&driver_pool, dev));
  RT("runtime_default_pool", cudaDeviceGetDefaultMemPool(&pool, dev));
  YES("runtime_default_pool_same", (CUmemoryPool)pool == driver_pool);
  RT("runtime_get_pool", cudaDeviceGetMemPool(&current, dev));
  YES("runtime_get_pool_same", current == pool);
  RT("runtime_default_pool_bad_device", cudaDeviceGetDefaultMemPool(&current, 1000));
  cudaGetLastError();
  RT("runtime_malloc_async", cudaMallocAsync(&p, 5000, s));
  CUdeviceptr base = 0;
  MUST(cuMemGetAddressRange(&base, &size, (CUdeviceptr)(uintptr_t)p));
  say("runtime_malloc_async_size", "%zu", size);
  struct cudaPointerAttributes pa;
  RT("runtime_attributes_async", cudaPointerGetAttributes(&pa, p));
  say("runtime_attributes_async_are", "type %d, device %d, device pointer %s, host %s", (int)pa.type, pa.device, pa.devicePointer == p ? "same" : "other", pa.hostPointer ? "some" : "null");
  RT("runtime_free_async", cudaFreeAsync(p, s));
  RT("runtime_free_async_double", cudaFreeAsync(p, s));
  RT("runtime_free_async_double_last", cudaGetLastError());
  RT("runtime_malloc_async_null", cudaMallocAsync(NULL, 16, s));
  p = (void*)0x1234;
  RT("runtime_malloc_async_huge", cudaMallocAsync(&p, (size_t)1 << 50, s));
  say("runtime_malloc_async_huge_ptr", "%s", p == (void*)0x1234 ? "unchanged" : p ? "some" : "null");
  RT("runtime_malloc_async_huge_last", cudaGetLastError());
  RT("runtime_malloc_async_cuda_free", cudaMallocAsync(&p, 5000, s));
  RT("runtime_cuda_free_of_async", cudaFree(p));
  RT("runtime_cuda_free_of_async_again", cudaFree(p));
  cudaGetLastError();
  RT("runtime_malloc_from_null_pool", cudaMallocFromPoolAsync(&p, 5000, NULL, s));
  cudaGetLastError();
  RT("runtime_malloc_from_pool", cudaMallocFromPoolAsync(&p, 5000, pool, s));
  RT("runtime_pool_get", cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &v));
  say("runtime_pool_used", "%llu", v);
  RT("runtime_free_async_ptsz", cudaFreeAsync_ptsz(p, s));
  RT("runtime_trim", cudaMemPoolTrimTo(pool, 0));
  v = 1 << 20;
  RT("runtime_pool_set", cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &v));
  sync_all();
  /* which stream is the null stream? A block freed behind a kernel comes back at once on its own stream only. */
  sync_all();
  cudaMemPoolTrimTo(pool, 0);
  enum { BLOCK = 32 << 20 };
  RT("runtime_malloc_async_on_null", cudaMallocAsync(&p, BLOCK, NULL));
  MUST(slow_write(NULL, (CUdeviceptr)(uintptr_t)p, 1, MS100));
  RT("runtime_free_async_on_null", cudaFreeAsync(p, NULL));
  cudaMallocAsync(&q, BLOCK, NULL);
  YES("runtime_null_stream_reuses", p == q);
  cudaFreeAsync(q, NULL);
  sync_all();
  cudaMemPoolTrimTo(pool, 0);
  RT("runtime_malloc_async_ptsz_on_null", cudaMallocAsync_ptsz(&p, BLOCK, NULL));
  MUST(slow_write(CU_STREAM_PER_THREAD, (CUdeviceptr)(uintptr_t)p, 1, MS100));
  RT("runtime_free_async_ptsz_on_null", cudaFreeAsync_ptsz(p, NULL));
  cudaMallocAsync(&q, BLOCK, s);
  YES("runtime_other_stream_does_not_reuse_at_once", p != q);
  cudaFreeAsync(q, s);
  q = NULL;
  cudaMallocAsync_ptsz(&q, BLOCK, NULL);
  YES("runtime_per_thread_stream_reuses", p == q);
  cudaFreeAsync_ptsz(q, NULL);
  sync_all();
  RT("runtime_malloc_async_on_handle_2", cudaMallocAsync(&p, 5000, (cudaStream_t)CU_STREAM_PER_THREAD));
  RT("runtime_free_async_on_handle_1", cudaFreeAsync(p, (cudaStream_t)CU_STREAM_LEGACY));
  sync_all();
}

/* ---- what may end badly: one process a fact ---- */

static CUdeviceptr mapped_now(CUmemGenericAllocationHandle* h) {
  CUdeviceptr va = reserve_range(2 * MIB);
  *h = physical(2 * MIB);
  map_at(va, 2 * MIB, *h);
  return va;
}
static CUstream ended_stream(void) {
  CUstream s;
  MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamDestroy(s));
  return s;
}
static CUresult q_unmap_under_kernel(void) {
  CUmemGenericAllocationHandle h;
  CUdeviceptr va = mapped_now(&h);
  MUST(slow_write(s1, va, 1, MS100));
  MUST(cuMemUnmap(va, 2 * MIB));
  return cuCtxSynchronize();
}
static CUresult q_kernel_after_unmap(void) {
  CUmemGenericAllocationHandle h;
  CUdeviceptr va = mapped_now(&h);
  MUST(cuMemUnmap(va, 2 * MIB));
  MUST(slow_write(s1, va, 1, 1));
  return cuCtxSynchronize();
}
static CUresult q_kernel_without_access(void) {
  CUdeviceptr va = reserve_range(2 * MIB);
  MUST(cuMemMap(va, 2 * MIB, 0, physical(2 * MIB), 0));
  MUST(slow_write(s1, va, 1, 1));
  return cuCtxSynchronize();
}
static CUresult q_kernel_read_only(void) {
  CUmemGenericAllocationHandle h;
  CUdeviceptr va = mapped_now(&h);
  CUmemAccessDesc access = here_access();
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  CUresult r = cuMemSetAccess(va, 2 * MIB, &access, 1);
  if (r) return r;
  MUST(slow_write(s1, va, 1, 1));
  return cuCtxSynchronize();
}
static CUresult q_remapped_under_kernel(void) { /* other memory at the address before the kernel writes */
  CUmemGenericAllocationHandle h;
  CUdeviceptr va = mapped_now(&h);
  MUST(slow_write(s1, va, 1, MS100));
  MUST(cuMemUnmap(va, 2 * MIB));
  map_at(va, 2 * MIB, physical(2 * MIB));
  return cuCtxSynchronize();
}
static CUresult q_mapped_under_kernel(void) { /* memory comes to the address while the kernel runs */
  CUdeviceptr va = reserve_range(2 * MIB);
  MUST(slow_write(s1, va, 1, MS100));
  map_at(va, 2 * MIB, physical(2 * MIB));
  return cuCtxSynchronize();
}
static CUresult q_copy_past_mapping(void) {
  CUmemGenericAllocationHandle h;
  CUdeviceptr va = mapped_now(&h);
  CUresult r = cuMemcpyDtoHAsync(&(long long){0}, va + 2 * MIB - 4, 8, s1);
  return r ? r : cuCtxSynchronize();
}
static CUresult q_kernel_after_trim(void) {
  CUmemoryPool pool = new_pool();
  CUdeviceptr p = from_pool(pool, 32 * MIB, s1);
  MUST(cuMemFreeAsync(p, s1));
  sync_all();
  MUST(cuMemPoolTrimTo(pool, 0));
  MUST(slow_write(s1, p, 1, 1));
  return cuCtxSynchronize();
}
static CUresult q_kernel_after_free(void) { /* the memory is the pool's still */
  CUmemoryPool pool = new_pool();
  MUST(set_value(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~0ull));
  CUdeviceptr p = from_pool(pool, 32 * MIB, s1);
  MUST(cuMemFreeAsync(p, s1));
  sync_all();
  MUST(slow_write(s1, p, 1, 1));
  return cuCtxSynchronize();
}
static CUresult q_id_of_ended_stream(void) { unsigned long long id; return cuStreamGetId(ended_stream(), &id); }
static CUresult q_alloc_on_ended_stream(void) { CUdeviceptr p; return cuMemAllocAsync(&p, 4096, ended_stream()); }
static CUresult q_free_on_ended_stream(void) {
  CUdeviceptr p;
  MUST(cuMemAllocAsync(&p, 4096, s1));
  sync_all();
  return cuMemFreeAsync(p, ended_stream());
}
static CUresult q_record_on_ended_stream(void) { return cuEventRecord(ev, ended_stream()); }
static CUresult q_wait_of_ended_event(void) { MUST(cuEventDestroy(ev)); return cuStreamWaitEvent(s1, ev, 0); }
static CUresult q_wait_of_null_event(void) { return cuStreamWaitEvent(s1, NULL, 0); }
static CUresult q_query_event_of_ended_context(void) {
  CUevent e;
  CUcontext c = other_context();
  MUST(cuCtxPushCurrent(c));
  MUST(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
  MUST(cuEventRecord(e, NULL));
  MUST(cuCtxPopCurrent(NULL));
  MUST(cuCtxDestroy(c));
  return cuEventQuery(e);
}
static CUmemoryPool ended_pool(void) {
  CUmemoryPool pool = new_pool();
  MUST(cuMemPoolDestroy(pool));
  return pool;
}
static CUresult q_pool_destroy_twice(void) { return cuMemPoolDestroy(ended_pool()); }
static CUresult q_attribute_of_ended_pool(void) { unsigned long long v; return cuMemPoolGetAttribute(ended_pool(), CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &v); }
static CUresult q_alloc_from_ended_pool(void) { CUdeviceptr p; return cuMemAllocFromPoolAsync(&p, 4096, ended_pool(), s1); }
static CUresult q_fault_mem_free(void) {
  CUdeviceptr p;
  MUST(cuMemAllocAsync(&p, 4096, s1));
  MUST(slow_write(s1, 0x123456789000ull, 1, 1));
  cuCtxSynchronize();
  return cuMemFree(p);
}
static CUresult q_fault_free_async(void) {
  CUdeviceptr p;
  MUST(cuMemAllocAsync(&p, 4096, s1));
  MUST(slow_write(s1, 0x123456789000ull, 1, 1));
  cuCtxSynchronize();
  return cuMemFreeAsync(p, s1);
}
static CUresult q_fault_alloc_async(void) {
  CUdeviceptr p;
  MUST(slow_write(s1, 0x123456789000ull, 1, 1));
  cuCtxSynchronize();
  return cuMemAllocAsync(&p, 4096, s1);
}
static CUresult q_fault_unmap(void) {
  CUmemGenericAllocationHandle h;
  CUdeviceptr va = mapped_now(&h);
  MUST(slow_write(s1, 0x123456789000ull, 1, 1));
  cuCtxSynchronize();
  return cuMemUnmap(va, 2 * MIB);
}
static CUresult q_fault_pool_attribute(void) {
  CUmemoryPool pool = new_pool();
  unsigned long long v;
  MUST(slow_write(s1, 0x123456789000ull, 1, 1));
  cuCtxSynchronize();
  return cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &v);
}
static CUresult q_fault_event_record(void) { MUST(slow_write(s1, 0x123456789000ull, 1, 1)); cuCtxSynchronize(); return cuEventRecord(ev, s1); }
static CUresult q_fault_wait_event(void) { MUST(slow_write(s1, 0x123456789000ull, 1, 1)); cuCtxSynchronize(); return cuStreamWaitEvent(s1, ev, 0); }
static const struct risk ordered_risks[] = {
  {"unmap_under_kernel", q_unmap_under_kernel}, {"kernel_after_unmap", q_kernel_after_unmap}, {"kernel_on_memory_without_access", q_kernel_without_access},
  {"kernel_writes_read_only_memory", q_kernel_read_only}, {"remapped_under_kernel", q_remapped_under_kernel}, {"mapped_under_kernel", q_mapped_under_kernel},
  {"copy_past_mapping", q_copy_past_mapping}, {"kernel_after_trim", q_kernel_after_trim}, {"kernel_after_free_async", q_kernel_after_free}, {"stream_id_of_ended_stream", q_id_of_ended_stream},
  {"alloc_async_on_ended_stream", q_alloc_on_ended_stream}, {"free_async_on_ended_stream", q_free_on_ended_stream}, {"event_record_on_ended_stream", q_record_on_ended_stream},
  {"stream_wait_of_ended_event", q_wait_of_ended_event}, {"stream_wait_of_null_event", q_wait_of_null_event}, {"pool_destroy_twice", q_pool_destroy_twice},
  {"attribute_of_ended_pool", q_attribute_of_ended_pool}, {"alloc_from_ended_pool", q_alloc_from_ended_pool}, {"fault_mem_free_of_async", q_fault_mem_free},
  {"fault_free_async", q_fault_free_async}, {"fault_alloc_async", q_fault_alloc_async}, {"fault_mem_unmap", q_fault_unmap},
  {"fault_pool_attribute", q_fault_pool_attribute}, {"fault_event_record", q_fault_event_record}, {"fault_stream_wait_event", q_fault_wait_event},
  {"event_query_of_ended_context", q_query_event_of_ended_context},
};
