#!/usr/bin/env bash
# The programs of the tests on a real GPU: what they print bare and under vramscope must be the same.
#
#   programs.sh [LOGS] [PROGRAM[:CASE]...]     LOGS: a folder, default ./program-logs; without programs, those about memory
#
# The exit code is the number of wrong rows. A case that fails or hangs bare is told as that: some need the simulator's small memory.
# Environment: VRAMSCOPE (the command, its library beside it), MODES ("auto on"), LIMIT (seconds a program), LANES (side by side),
# SEEDS (of ordered_random).
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
logs_in "${1:-./program-logs}"
[ $# -gt 0 ] && shift
# With all of the card's memory to fill these take it from the others, and far too long.
# And asked_in_capture is answered otherwise by design; two_pools and pool_of_threads print counters in which the driver goes on
# counting what cuMemFree took.
left_out=" ordered:asked_in_capture ordered_memory:two_pools ordered_memory:pool_of_threads ordered:steal_when_full ordered_memory:full ordered_memory:full_beside_capture stitched:full stitched:threads ordered_memory:others "
programs=${*:-ordered ordered_memory stitched pluggable capture vmm basics_rt basics_drv}
modes=${MODES:-auto on}
limit=${LIMIT:-25}
lanes=${LANES:-5}
seeds=${SEEDS:-6}
cuda=${CUDA_HOME:-/usr/local/cuda}
[ -e "$cuda/lib64/libcudart.so" ] || refuse "no CUDA toolkit at $cuda; set CUDA_HOME"
mkdir -p "$tmp/rows" "$tmp/trace"

cases_of() { # PROGRAM: its cases, a line each; a program without cases has an empty one
    tr '\n' ' ' <"$root/tests/programs/$1.c" | sed -n 's/.*[^#]CASES(\(.*\)).*/\1/p' | grep -o 'CASE([a-z_0-9]*)' | sed 's/CASE(\(.*\))/\1/'
}
build() { # SOURCE: $tmp has the program
    local name
    name=$(basename "$1" .c)
    cc -std=gnu11 -O1 -g -I "$root/tests/simgpu" -I "$root/tests/programs" -I "$root/include" -isystem "$root/tests/third_party" \
        -o "$tmp/$name" "$1" -L "$cuda/lib64" -L "$cuda/lib64/stubs" -Wl,-rpath,"$cuda/lib64" \
        -Wl,--no-as-needed -lcudart -lcuda -ldl -lm -pthread 2>"$raw/build-$name.log"
}
todo=()
for wanted in $programs; do
    p=${wanted%%:*}
    [ -e "$root/tests/programs/$p.c" ] || refuse "no program $p in tests/programs"
    [ -x "$tmp/$p" ] || build "$root/tests/programs/$p.c" || refuse "$p was not built: $(tail -n 1 "$raw/build-$p.log")"
    case $wanted in *:*) todo+=("$wanted"); continue ;; esac
    found=0
    for c in $(cases_of "$p"); do
        found=1
        case $left_out in *" $p:$c "*) ;; *) todo+=("$p:$c") ;; esac
    done
    [ $found = 1 ] || todo+=("$p:")
done
# Random programs: seed, threads, operations, with captures.
if [ $# = 0 ] && build "$root/tests/programs/ordered_random.c"; then
    for s in $(seq 0 $((seeds - 1))); do todo+=("ordered_random:$s $((1 + s * 3 % 8)) 3000 $((s % 2))"); done
fi

# What the driver counts of memory that cuMemFree took differs, and what is free with several processes at once.
comparable() { grep -vE '^(used at the end|and nothing is left|all free again)' "$1"; }
one() { # NUMBER PROGRAM:CASE
    local p=${2%%:*} c=${2#*:} row wrong=0 mode base rc bare
    base=$raw/$p-${c// /-}
    cd "$tmp" || return
    # shellcheck disable=SC2086 # a case may be several words
    timeout -k 2 "$limit" "./$p" $c >"$base.bare.out" 2>"$base.bare.err"
    bare=$?
    row="$p ${c:--}|$bare"
    for mode in $modes; do
        timeout -k 2 "$limit" "$vramscope" run --quiet --pool "$mode" --trace "$tmp/trace/$1.$mode.%n-%p.jsonl" -- "./$p" $c >"$base.$mode.out" 2>"$base.$mode.err"
        rc=$?
        if [ $rc != $bare ]; then
            row="$row|exit $rc"
            wrong=1
        elif ! diff <(comparable "$base.bare.out") <(comparable "$base.$mode.out") >"$base.$mode.diff"; then
            row="$row|$(grep -c '^>' "$base.$mode.diff") lines differ"
            { echo "== $p $c, $mode"; head -n 8 "$base.$mode.diff"; } >>"$tmp/details"
            wrong=1
        else
            row="$row|same"
        fi
        rm -f "$tmp/trace/$1.$mode".*
    done
    case $bare in 124 | 137) wrong="bare hangs" ;; 0) ;; *) wrong="bare fails" ;; esac
    if [ $bare != 0 ]; then :; elif [ $wrong = 1 ]; then wrong=WRONG; else wrong=ok; fi
    printf '%s|%s\n' "$row" "$wrong" >"$tmp/rows/$(printf '%04d' "$1")"
}
n=0
for t in "${todo[@]}"; do
    n=$((n + 1))
    one "$n" "$t" &
    while [ "$(jobs -rp | wc -l)" -ge "$lanes" ]; do wait -n; done
done
wait
wrong=$(cat "$tmp"/rows/* | grep -c '|WRONG$')
{
    { echo "program|bare|${modes// /|}|verdict"; cat "$tmp"/rows/*; } |
        aligned
    # Alone: what is timed, and what may hang.
    if [ $# = 0 ] && build "$here/thread_ends.c"; then timeout 75 "$tmp/thread_ends" | sed 's/^/thread_ends, bare: /'; fi
    if [ $# = 0 ] && "$cuda/bin/nvcc" -std=c++17 -O2 -arch=native -o "$tmp/stitch" "$here/stitch.cu" -lcuda >"$raw/build-stitch.log" 2>&1; then
        for size in 8 2 32; do
            "$tmp/stitch" $size 2>&1 | sed 's/^/stitch, bare: /'
            for w in "--pool on" "--pool on --stitch off"; do
                # shellcheck disable=SC2086
                "$vramscope" run --quiet $w --trace "$tmp/trace/stitch.%p.jsonl" -- "$tmp/stitch" $size 2>&1 | sed "s/^/stitch, $w: /"
            done
        done
    fi
    echo "$(cat "$tmp"/rows/* | wc -l) rows, $wrong wrong, $(cat "$tmp"/rows/* | grep -c 'bare [a-z]*$') fail or hang bare, $((SECONDS - started)) s"
} >"$logs/table.txt"
grep -v "  ok\$" "$logs/table.txt"
[ -e "$tmp/details" ] && { cp "$tmp/details" "$logs/details"; head -c 4000 "$tmp/details"; }
exit "$wrong"
