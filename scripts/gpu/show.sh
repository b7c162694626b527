#!/usr/bin/env bash
# Shows on a machine with an NVIDIA GPU that programs do under vramscope what they do without it, and how fast.
#
#   show.sh [LOGS] [CASE...]     LOGS: a folder, default ./gpu-logs; without cases all of them (about 7 minutes)
#
# Cases: order loop spin lazy torch cupy jax numba triton blas oom addsup sanitizer samples pairs stacks overhead callback reset probe
# The exit code is the number of wrong rows of the table. README.md beside this file says what each case shows.
# Environment: VRAMSCOPE (the command, its library beside it or in VRAMSCOPE_LIBRARY), MODES, FRAMEWORK_MODES, NVCC,
# ARCH, PYTHON, LIMIT (seconds a program).
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
logs=${1:-./gpu-logs}
[ $# -gt 0 ] && shift
all_cases="order loop spin lazy torch cupy jax numba triton blas oom addsup sanitizer samples pairs stacks overhead callback reset probe"
cases=${*:-$all_cases}
# shellcheck disable=SC2086 # words
only_known "$all_cases" $cases
logs_in "$logs"
modes=${MODES:-auto device host}
framework_modes=${FRAMEWORK_MODES:-auto device}
limit=${LIMIT:-90}
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
[ -x "$nvcc" ] || refuse "no nvcc; set NVCC"
mkdir -p "$tmp/rows" "$tmp/bin" "$tmp/trace" "$tmp/cwd"
export TF_CPP_MIN_LOG_LEVEL=3

# ---------------------------------------------------------------------------------------------------------- building

cuda=$(cd "$(dirname "$(readlink -f "$nvcc")")/.." && pwd)
libdirs=() # where the toolkit keeps its libraries
for d in "$cuda/lib64" "$cuda/targets/x86_64-linux/lib" "$cuda/lib"; do [ -d "$d" ] && libdirs+=("$d"); done
link=()
for d in ${libdirs[@]+"${libdirs[@]}"}; do link+=(-L "$d" -Xlinker -rpath -Xlinker "$d"); done
driver=
for d in ${libdirs[@]+"${libdirs[@]}"}; do [ -z "$driver" ] && [ -e "$d/stubs/libcuda.so" ] && driver=$d/stubs/libcuda.so; done
[ -z "$driver" ] && driver=$(ldconfig -p | sed -n 's/.*libcuda\.so\.1.* => //p' | head -1)
[ -z "$driver" ] && for f in /usr/local/nvidia/lib64/libcuda.so.1 /usr/lib/x86_64-linux-gnu/libcuda.so.1; do [ -e "$f" ] && driver=$f; done

build() { # NAME SOURCES-AND-FLAGS...
    local name=$1
    shift
    if (cd "$here" && "$nvcc" -std=c++17 -O2 -arch="${ARCH:-native}" -o "$tmp/bin/$name" "$@" "${link[@]}" "$driver" -ldl) >"$raw/build-$name.log" 2>&1; then
        rm -f "$raw/build-$name.log"
    else
        echo "show.sh: $name was not built, see $raw/build-$name.log" >&2
    fi
}
cublas() { # the library's path: the toolkit's or the Python package's
    local d
    for d in ${libdirs[@]+"${libdirs[@]}"}; do [ -e "$d/libcublas.so" ] && { echo "$d/libcublas.so"; return; }; done
    "$python" -c '
import glob, os, sys
for d in sys.path:
    for p in ("nvidia/cu13/lib", "nvidia/cublas/lib"):
        for f in sorted(glob.glob(os.path.join(d or ".", p, "libcublas.so.*"))):
            print(f)
            sys.exit()'
}
build_for() {
    case $1 in
    order) build order order.cu & build order_ptds order.cu -default-stream per-thread & build managed_var managed_var.cu & ;;
    loop) build loop loop.cu -cudart static & build loop_shared loop.cu -cudart shared & ;;
    addsup) [ -n "${built_loop:-}" ] || build loop loop.cu -cudart static & ;;
    spin | pairs | callback | reset) build "$1" "$1.cu" & ;;
    lazy) build lazy lazy.cu lazy_module.cu & ;;
    blas)
        local lib
        lib=$(cublas)
        build blas blas.cu "$lib" -Xlinker --disable-new-dtags -Xlinker -rpath -Xlinker "$(dirname "$lib")" &
        ;;
    sanitizer) build memcheck memcheck.cu & ;;
    samples) for p in stream_ordered mmap_ipc legacy_ipc graph_memory; do build $p $p.cu & done ;;
    probe) build probe probe.cu & build startup startup.cu -cudart static -Xcompiler -rdynamic & build startup_shared startup.cu -cudart shared -Xcompiler -rdynamic & ;;
    esac
}
for c in $cases; do
    [ "$c" = loop ] && built_loop=1
done
for c in $cases; do build_for "$c"; done
wait
echo "built in $((SECONDS - started)) s" >&2

# ------------------------------------------------------------------------------------------------- running and judging

row=0 # rows are files, numbered, so that lanes that run side by side come out in order
add_row() { # TITLE VERDICT CELL...
    local title=$1 verdict=$2 line
    shift 2
    line=$title
    for c in "$@"; do line="$line|$c"; done
    row=$((row + 1))
    printf '%s|%s\n' "$line" "$verdict" >"$tmp/rows/$(printf '%05d' "$row")"
    printf '%s: %s\n' "$title" "$verdict" >&2
}
detail() { printf '%s\n' "$*" >>"$tmp/details"; }

# Runs one program. MODE: bare; auto, device or host (what --sync takes); each with :off appended does not record, and
# with :record only records. Output in raw/LABEL.MODE.out and .err, the status as the function's.
run_one() { # LABEL MODE STACKS COMMAND...
    local label=$1 mode=$2 stacks=$3 base=$raw/$1.$2 rc
    shift 3
    local trace="$tmp/trace/$label.$mode.%n-%p.jsonl"
    cd "$tmp/cwd" || return 1
    case $mode in
    bare) timeout -k 5 "$limit" "$@" >"$base.out" 2>"$base.err" ;;
    *:off) VRAMSCOPE_TRACE=off VRAMSCOPE_SYNC=${mode%:*} VRAMSCOPE_STACKS=off LD_PRELOAD=$library timeout -k 5 "$limit" "$@" >"$base.out" 2>"$base.err" ;;
    *:record) timeout -k 5 "$limit" "$vramscope" run --sync "${mode%:*}" --pool off --stacks "$stacks" --trace "$trace" --quiet -- "$@" >"$base.out" 2>"$base.err" ;;
    *) timeout -k 5 "$limit" "$vramscope" run --sync "$mode" --pool auto --stacks "$stacks" --trace "$trace" --quiet -- "$@" >"$base.out" 2>"$base.err" ;;
    esac
    rc=$?
    echo "$rc" >"$base.rc"
    return "$rc"
}
hooked() { # LABEL MODE: whether some history of the run holds an allocation
    local f
    case $2 in bare | *:off) return 0 ;; esac
    for f in "$tmp/trace/$1.$2".*; do [ -e "$f" ] && grep -q -m1 '"kind":"alloc"' "$f" && return 0; done
    return 1
}
forget() { rm -f "$tmp/trace/$1.$2".*; }
status_word() { case $1 in 124 | 137) echo HANG ;; *) echo "exit $1" ;; esac; }

# Judges a run that has ended against the bare one; sets `cell`, returns 1 if it is wrong.
judge() { # LABEL MODE
    local label=$1 mode=$2 rc bare_rc sync=${2%%:*}
    rc=$(cat "$raw/$label.$mode.rc")
    bare_rc=$(cat "$raw/$label.bare.rc")
    if [ "$rc" != "$bare_rc" ]; then
        cell=$(status_word "$rc")
        detail "$label $mode: ended with $rc, bare with $bare_rc: $(tail -n 2 "$raw/$label.$mode.err" | cut -c1-300 | tr '\n' ' ')$(tail -n 1 "$raw/$label.$mode.out" | cut -c1-300)"
        return 1
    fi
    if ! cell=$("$python" "$here/compare.py" "$raw/$label.bare.out" "$raw/$label.$mode.out" "$sync" 2>"$tmp/why.$label.$mode"); then
        detail "$label $mode: $(cat "$tmp/why.$label.$mode")"
        return 1
    fi
    if ! hooked "$label" "$mode"; then
        cell="NOT HOOKED"
        detail "$label $mode: no history holds an allocation: $(tail -n 3 "$raw/$label.$mode.err" | cut -c1-300)"
        return 1
    fi
}
# A row: the program bare and in every mode. `number`, if set, is a function LABEL MODE that prints the cell of a right run.
compare_row() { # LABEL TITLE MODES STACKS COMMAND...
    local label=$1 title=$2 in_modes=$3 stacks=$4 mode wrong=0 cells=() cell rc bare
    shift 4
    case $1 in
    /*) [ -e "$1" ] || { add_row "$title" "NOT BUILT" - - - -; return; } ;;
    esac
    if [ -e "$raw/$label.bare.rc" ] && [ "${reuse_bare:-}" = "$label" ]; then rc=$(cat "$raw/$label.bare.rc"); else run_one "$label" bare off "$@"; rc=$?; fi
    case $rc in
    0) bare=$([ -n "${number:-}" ] && "$number" "$label" bare || echo ran) ;;
    124 | 137) add_row "$title" "skipped: bare hangs" HANG - - -; return ;;
    *)
        local module
        module=$(sed -n "s/^ModuleNotFoundError: No module named '\\([^']*\\)'.*/\\1/p" "$raw/$label.bare.err" | tail -n 1)
        [ -n "$module" ] && { add_row "$title" "skipped: no Python module $module" - - - -; return; }
        bare="exit $rc"
        detail "$label bare: ended with $rc: $(tail -n 2 "$raw/$label.bare.err" | cut -c1-300 | tr '\n' ' ')$(tail -n 1 "$raw/$label.bare.out" | cut -c1-300)"
        ;;
    esac
    for mode in auto device host; do
        case " $in_modes " in *" $mode "*) ;; *) cells+=(-); continue ;; esac
        mode=$mode${suffix:-}
        run_one "$label" "$mode" "$stacks" "$@"
        if judge "$label" "$mode"; then
            [ -n "${number:-}" ] && [ "$cell" = ok ] && [ "$rc" = 0 ] && cell=$("$number" "$label" "$mode")
        else
            wrong=1
        fi
        [ -n "${keep:-}" ] || forget "$label" "$mode"
        cells+=("$cell")
    done
    if [ "$wrong" = 1 ]; then add_row "$title" WRONG "$bare" "${cells[@]}"
    elif [ "$rc" != 0 ]; then add_row "$title" "as bare, which fails" "$bare" "${cells[@]}"
    else add_row "$title" ok "$bare" "${cells[@]}"
    fi
}
value() { sed -n "s/.*\\b$2=\\([0-9.]*\\).*/\\1/p" "$1" | tail -n 1; }
bin=$tmp/bin

# -------------------------------------------------------------------------------------------------------------- cases

order_streams() {
    row=100
    local g
    for g in streams captures first_stream per_thread; do compare_row "order-$g" "order: $g" "$modes" native "$bin/order" "$g"; done
    for g in pinned registered managed copied host_function; do compare_row "order-$g" "order: $g" "$modes" native "$bin/order" "$g"; done
    compare_row order-managed_var "order: __managed__" "$modes" native "$bin/managed_var"
}
order_per_thread() {
    row=150
    local g
    for g in streams captures first_stream pinned; do
        compare_row "order-ptds-$g" "order, per-thread default: $g" "$modes" native "$bin/order_ptds" "$g"
    done
}
loop_number() { echo "$(value "$raw/$1.$2.err" idle_us)/$(value "$raw/$1.$2.err" busy_us)us $(value "$raw/$1.$2.err" loop_ms)ms"; }
do_loop() {
    row=200
    local number=loop_number
    compare_row loop-static "loop, static runtime (idle/busy)" "$modes" off "$bin/loop"
    local as what
    for as in native unrecorded record; do # the same program: one bare run is enough
        for what in out err rc; do cp "$raw/loop-static.bare.$what" "$raw/loop-$as.bare.$what" 2>/dev/null; done
    done
    reuse_bare=loop-native compare_row loop-native "loop, native stacks" "$modes" native "$bin/loop"
    suffix=:off reuse_bare=loop-unrecorded compare_row loop-unrecorded "loop, pool without recording" "$modes" off "$bin/loop"
    suffix=:record reuse_bare=loop-record compare_row loop-record "loop, recording without pool" auto native "$bin/loop"
    compare_row loop-shared "loop, shared runtime" "$modes" off "$bin/loop_shared"
}
do_spin() {
    row=220
    local w
    for w in pinned device first_stream beside_free; do compare_row "spin-$w" "spin: $w" "$modes" native "$bin/spin" "$w"; done
}
do_lazy() {
    row=240
    compare_row lazy "lazy: a card filled by the cache" "$modes" native "$bin/lazy"
}
ms_number() { # whatever time the script told, or ok
    local v
    v=$(sed -n 's/^\(ms_step\|us_step\|ms\|us_each\)=\([0-9.]*\).*/\2 \1/p' "$raw/$1.$2.err" | tail -n 1)
    echo "${v:-ok}"
}
do_torch() {
    row=300
    local number=ms_number
    compare_row torch "torch, its own cache" "$framework_modes" native "$python" "$here/torch_train.py"
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compare_row torch-nocache "torch, no cache" "$framework_modes" native "$python" "$here/torch_train.py"
    PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync compare_row torch-async "torch, cudaMallocAsync" "$framework_modes" native "$python" "$here/torch_train.py"
}
do_oom() {
    row=310
    compare_row torch-oom "torch, out of memory" "$framework_modes" native "$python" "$here/torch_oom.py"
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compare_row torch-oom-nocache "torch, out of memory, no cache" "$framework_modes" native "$python" "$here/torch_oom.py"
}
do_cupy() {
    row=320
    local number=ms_number
    compare_row cupy "cupy, its own pool" "$framework_modes" native "$python" "$here/cupy_script.py"
    compare_row cupy-nopool "cupy, no pool" "$framework_modes" native "$python" "$here/cupy_script.py" nopool
}
do_jax() {
    row=340
    local number=ms_number a
    compare_row jax "jax, default allocator" "$framework_modes" native "$python" "$here/jax_script.py"
    for a in platform cuda_async; do
        XLA_PYTHON_CLIENT_ALLOCATOR=$a compare_row "jax-$a" "jax, $a" "$framework_modes" native "$python" "$here/jax_script.py"
    done
}
do_numba() {
    row=360
    compare_row numba "numba-cuda" "$framework_modes" native "$python" "$here/numba_script.py"
}
do_triton() {
    row=370
    compare_row triton "triton" "$framework_modes" native "$python" "$here/triton_script.py"
}
do_blas() {
    row=380
    local number=ms_number
    compare_row blas "cuBLAS loop" "$modes" native "$bin/blas"
}
# The bytes of a history against the device's own words; alone on the card, because neighbours use memory too.
do_addsup() {
    row=400
    local what label cell verdict f
    for what in loop torch cupy; do
        label=addsup-$what
        case $what in
        loop) run_one $label auto off "$bin/loop" ;;
        torch) PYTORCH_NO_CUDA_MEMORY_CACHING=1 run_one $label auto off "$python" "$here/torch_train.py" ;;
        cupy) run_one $label auto off "$python" "$here/cupy_script.py" nopool ;;
        esac
        verdict=WRONG cell="no history"
        for f in "$tmp/trace/$label.auto".*; do # the program's own history is the largest
            [ -e "$f" ] && f=$(ls -S "$tmp/trace/$label.auto".* | head -1) && {
                "$python" "$here/adds_up.py" "$f" >"$raw/$label.text" 2>&1 && verdict=ok
                cell=$(cut -c1-60 "$raw/$label.text" | head -1)
                [ $verdict = ok ] && cell=$(sed -n 's/.*off by \([0-9.]* MiB\).*growth \([0-9]* MiB\).*/off \1, growth \2/p' "$raw/$label.text")
                break
            }
        done
        [ $verdict = ok ] || detail "$label: $(tail -n 2 "$raw/$label.text" 2>/dev/null) $(tail -n 2 "$raw/$label.auto.err" | cut -c1-300)"
        forget $label auto
        add_row "bytes add up: $what" "$verdict" - "$cell" - -
    done
}
do_sanitizer() {
    row=420
    local san how planted label bare under verdict
    san=$(command -v compute-sanitizer || ls "$cuda/bin/compute-sanitizer" "$cuda/compute-sanitizer/compute-sanitizer" /usr/local/cuda/bin/compute-sanitizer 2>/dev/null | head -1)
    [ -n "$san" ] || { add_row "compute-sanitizer" "skipped: not found" - - - -; return; }
    [ -e "$bin/memcheck" ] || { add_row "compute-sanitizer" "NOT BUILT" - - - -; return; }
    seen() { # what memcheck found: errors in the clean program, out-of-bounds writes in the planted one
        if ! grep -q '^=* ERROR SUMMARY' "$raw/$1.out" "$raw/$1.err"; then echo "no summary"
        elif [ -n "$2" ]; then echo "$(cat "$raw/$1.out" "$raw/$1.err" | grep -c 'Invalid __global__ write') found"
        else cat "$raw/$1.out" "$raw/$1.err" | sed -n 's/^=* ERROR SUMMARY: \([0-9]* errors*\).*/\1/p' | head -1
        fi
    }
    for planted in "" planted; do
        label=sanitizer${planted:+-$planted}
        run_one $label bare off "$san" --tool memcheck "$bin/memcheck" $planted
        bare=$(seen $label.bare "$planted")
        for how in inside outside preload; do
            case $how in
            inside) run_one $label auto:record native "$san" --tool memcheck "$bin/memcheck" $planted ;;
            outside)
                run_one $label-outside bare off "$san" --tool memcheck --target-processes all "$vramscope" run --pool off --stacks native \
                    --trace "$tmp/trace/$label.auto:record.outside-%n-%p.jsonl" --quiet -- "$bin/memcheck" $planted
                ;;
            preload)
                run_one $label-preload bare off env LD_PRELOAD="$library" VRAMSCOPE_POOL=off VRAMSCOPE_TRACE="$tmp/trace/$label.auto:record.preload-%n-%p.jsonl" \
                    "$san" --tool memcheck "$bin/memcheck" $planted
                ;;
            esac
            case $how in inside) under=$(seen "$label.auto:record" "$planted") ;; *) under=$(seen $label-$how.bare "$planted") ;; esac
            verdict=ok
            [ "$under" = "$bare" ] || verdict=WRONG
            case $bare in "no summary" | "0 found") verdict="skipped: bare finds nothing" ;; esac
            [ "${verdict%%:*}" = skipped ] || hooked $label auto:record || verdict="WRONG: not hooked"
            [ "$verdict" = ok ] || detail "$label $how: bare '$bare', here '$under': $(grep -v '^=========  ' "$raw/$label-$how.bare.out" "$raw/$label.auto:record.out" 2>/dev/null | tail -n 3 | cut -c1-200)"
            forget $label auto:record
            add_row "memcheck ${planted:-clean}, vramscope $how" "$verdict" "$bare" "$under" - -
        done
    done
}
do_samples() {
    row=440
    local p
    for p in stream_ordered mmap_ipc legacy_ipc graph_memory; do compare_row "$p" "sample: $p" "$modes" native "$bin/$p"; done
    compare_row legacy_ipc-mixed "sample: legacy_ipc, importer bare" "$modes" native "$bin/legacy_ipc" mixed
}
# Rows of one run: pairs prints three groups of numbers.
pairs_cell() { # LABEL MODE GROUP
    local f=$raw/$1.$2.out k out=
    for k in $3; do out=$out${out:+/}$(value "$f" "$k"); done
    echo "${out:-none}"
}
do_pairs() {
    row=500
    local level mode group keys title cells verdict limit_ns rc m suffix
    [ -e "$bin/pairs" ] || { add_row pairs "NOT BUILT" - - - -; return; }
    run_one pairs bare off "$bin/pairs"
    for level in unrecorded off native all; do
        for m in $modes; do
            mode=$m
            [ $level = unrecorded ] && mode=$m:off
            run_one "pairs-$level" "$mode" $level "$bin/pairs"
            hooked "pairs-$level" "$mode" || echo "not hooked" >"$raw/pairs-$level.$mode.rc"
            [ $level = unrecorded ] || ls -l "$tmp/trace/pairs-$level.$mode".* >"$raw/pairs-$level.$mode.size" 2>/dev/null
            forget "pairs-$level" "$mode"
        done
        for group in default busy mix; do
            case $group in
            default) keys="default_1KiB default_1MiB default_64MiB" title="1K/1M/64M ns, default stream" limit_ns=500 ;;
            busy) keys="busy_1KiB busy_1MiB busy_64MiB" title="1K/1M/64M ns, 8 busy streams" limit_ns=2000 ;;
            mix) keys="mix_1 mix_4 mix_16" title="mix 1/4/16 threads ns" limit_ns= ;;
            esac
            cells=() verdict=ok
            for m in auto device host; do
                case " $modes " in *" $m "*) ;; *) cells+=(-); continue ;; esac
                mode=$m
                [ $level = unrecorded ] && mode=$m:off
                rc=$(cat "$raw/pairs-$level.$mode.rc")
                if [ "$rc" != 0 ]; then
                    cells+=("$(case $rc in [0-9]*) status_word "$rc" ;; *) echo "$rc" ;; esac)")
                    verdict=WRONG
                    detail "pairs-$level $mode: $rc $(tail -n 2 "$raw/pairs-$level.$mode.err" | cut -c1-300)"
                    continue
                fi
                cells+=("$(pairs_cell "pairs-$level" "$mode" "$keys")")
                # The budget is for the pool alone, where the host does not wait.
                if [ $level = unrecorded ] && [ "$m" != host ] && [ -n "$limit_ns" ]; then
                    for k in $keys; do
                        awk -v a="$(value "$raw/pairs-$level.$mode.out" "$k")" -v b=$limit_ns 'BEGIN { exit !(a == "" || a > b) }' && verdict="SLOW: over $limit_ns ns"
                    done
                fi
            done
            add_row "pairs, $(case $level in unrecorded) echo "no recording" ;; off) echo "recorded, no stacks" ;; native) echo "native stacks" ;; all) echo "all stacks" ;; esac): $title" \
                "$verdict" "$(pairs_cell pairs bare "$keys")" "${cells[@]}"
        done
    done
}
# Whether what was allocated carries the line of Python that caused it.
do_stacks() {
    row=560
    local what label verdict cell f
    for what in torch cupy triton blas; do
        label=stacks-$what
        verdict=ok cell="no history"
        run_one "$label" bare off "$python" "$here/stack_lines.py" $what
        if [ "$(cat "$raw/$label.bare.rc")" != 0 ]; then
            add_row "Python lines: $what" "skipped: bare fails" "exit $(cat "$raw/$label.bare.rc")" - - -
            continue
        fi
        run_one "$label" auto all "$python" "$here/stack_lines.py" $what || verdict=WRONG
        f=$(ls -S "$tmp/trace/$label.auto".* 2>/dev/null | head -1)
        { [ -n "$f" ] && "$python" "$here/stack_lines.py" $what check "$f" >"$raw/$label.text" 2>&1; } || verdict=WRONG
        cell=$(sed -n 's/^\([0-9/]* marks.*\)/\1/p' "$raw/$label.text")
        [ -n "$f" ] && { cp "$f" "$logs/$label.jsonl"; "$vramscope" report "$f" --color never >"$raw/$label.report" 2>&1 || verdict=WRONG; }
        [ $verdict = ok ] || detail "$label: $(tail -n 3 "$raw/$label.text") $(tail -n 2 "$raw/$label.auto.err" | cut -c1-300)"
        forget "$label" auto
        add_row "Python lines: $what" "$verdict" ran "$cell" - -
    done
}
# What recording costs a training loop: off, python, native and all stacks, with PyTorch's cache and without.
do_overhead() {
    row=580
    local size cache level round best v cells
    for size in launch gpu; do
        for cache in cache nocache; do
            cells=
            for level in bare off python native all; do
                best=
                for round in 1; do
                    (
                        [ $cache = nocache ] && export PYTORCH_NO_CUDA_MEMORY_CACHING=1
                        case $level in
                        bare) run_one "overhead-$size-$cache" bare off "$python" "$here/overhead.py" $size ;;
                        *) run_one "overhead-$size-$cache" auto:record $level "$python" "$here/overhead.py" $size ;;
                        esac
                    )
                    case $level in bare) v=bare ;; *) v=auto:record ;; esac
                    v=$(value "$raw/overhead-$size-$cache.$v.err" ms_step)
                    best=$(printf '%s\n' "$best" "$v" | grep . | sort -n | head -1)
                    [ $level = bare ] || {
                        grep -c '"kind":"alloc"' "$tmp/trace/overhead-$size-$cache.auto:record".* >"$raw/overhead-$size-$cache.$level.allocs" 2>/dev/null
                        forget "overhead-$size-$cache" auto:record
                    }
                done
                cells="$cells $level=$best"
            done
            add_row "training step ms, $size-bound, $cache:$cells" "$([ -n "$best" ] && echo ok || echo WRONG)" - - - -
        done
    done
}
do_callback() {
    row=600
    # shellcheck disable=SC2016
    compare_row callback "calls inside host functions" "$modes" native bash -c '
        for k in cudaLaunchHostFunc cudaStreamAddCallback; do
            for w in malloc_cached malloc_new malloc_small free free_null driver_malloc driver_free mem_get_info record waits_for_malloc; do
                timeout -k 2 6 "$0" $w $k || echo "$w in $k ended with $?"
            done
        done' "$bin/callback"
}
do_reset() {
    row=620
    local w
    for w in codes truth reset contexts; do compare_row "reset-$w" "reset: $w" "$modes" native "$bin/reset" $w; done
}
do_probe() {
    row=700
    local w
    {
        timeout -k 5 60 "$bin/probe"
        for w in alloc free wait; do timeout -k 2 5 "$bin/probe" $w || echo "in a host function: $w ended with $?"; done
        for w in startup startup_shared; do
            echo "-- $w"
            [ -e "$bin/$w" ] && timeout -k 5 20 "$bin/$w"
        done
    } >"$raw/probe.out" 2>&1
    add_row "probe (bare, $(wc -l <"$raw/probe.out") facts in raw/probe.out)" info - - - -
}

wanted() { case " $cases " in *" $1 "*) return 0 ;; esac; return 1; }
# Side by side: what compares results only and needs little of the card.
lane() { (for f in "$@"; do wanted "${f#*=}" && "${f%=*}"; done) & }
lane order_streams=order
lane order_per_thread=order do_callback=callback
lane do_torch=torch
lane do_jax=jax
lane do_cupy=cupy do_numba=numba do_triton=triton
lane do_samples=samples do_sanitizer=sanitizer do_spin=spin
wait
echo "side by side: done after $((SECONDS - started)) s" >&2
# Alone: what measures time, or all of the card's memory.
for c in pairs overhead stacks loop blas addsup lazy oom reset probe; do wanted $c && "do_$c"; done

# -------------------------------------------------------------------------------------------------------------- table

table() {
    printf 'case|bare|auto|device|host|verdict\n'
    cat "$tmp"/rows/* 2>/dev/null
}
{
    command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1
    table | aligned
    wrong=$(table | awk -F'|' 'NR > 1 && $NF ~ /^(WRONG|SLOW|NOT)/' | wc -l)
    unseen=$(table | awk -F'|' 'NR > 1 && $NF ~ /^(skipped|as bare)/' | wc -l)
    echo "$(($(table | wc -l) - 1)) rows, $wrong wrong, $unseen that show nothing (skipped, or bare fails too), $((SECONDS - started)) s"
    echo "a cell in brackets: right n of m times where it is not promised"
} >"$logs/table.txt"
logs_and_details 20000
exit "$(table | awk -F'|' 'NR > 1 && $NF ~ /^(WRONG|SLOW|NOT)/' | wc -l)"
