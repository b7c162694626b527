#!/usr/bin/env bash
# Shows on a machine with NVIDIA GPUs that PyTorch does under vramscope what it does without it, and that its tensors are in
# the history to the byte.
#
#   pytorch.sh [LOGS] [CASE...]     LOGS: a folder, default ./pytorch-logs; without cases all of them (about 5 minutes)
#
# Cases: transformer resnet gpt2 graphs compile expandable mempool profiler workers share ddp fsdp mistakes oom
# The exit code is the number of wrong rows of the table. README.md beside this file says what each case shows.
# Environment: VRAMSCOPE (the command, its library beside it), MODES ("auto off", also "on"), PYTHON, LIMIT (seconds a
# program), KEEP=1 (the histories go to LOGS/histories).
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
logs=${1:-./pytorch-logs}
[ $# -gt 0 ] && shift
all_cases="transformer resnet gpt2 graphs compile expandable mempool profiler workers share ddp fsdp mistakes oom"
cases=${*:-$all_cases}
# shellcheck disable=SC2086 # words
only_known "$all_cases" $cases
logs_in "$logs"
modes=${MODES:-auto off}
for m in $modes; do
    case $m in auto | off | on) ;; *) refuse "no mode $m; there are: auto off on" ;; esac
done
limit=${LIMIT:-75}
unset PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF PYTORCH_NO_CUDA_MEMORY_CACHING
[ -n "${KEEP:-}" ] && mkdir -p "$logs/histories"
mkdir -p "$tmp/rows" "$tmp/trace" "$tmp/cwd"
export TORCHINDUCTOR_CACHE_DIR=$tmp/inductor TRITON_CACHE_DIR=$tmp/triton
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-4} TORCH_NCCL_ASYNC_ERROR_HANDLING=0 TOKENIZERS_PARALLELISM=false

versions=$(cd "$tmp/cwd" && "$python" -c '
import torch
print(torch.cuda.device_count() if torch.cuda.is_available() else 0)
print("PyTorch", torch.__version__, "CUDA", torch.version.cuda, *{torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())})
' 2>"$raw/versions.err") || refuse "$python has no working PyTorch: $(tail -n 1 "$raw/versions.err")"
gpus=$(head -n 1 <<<"$versions")
[ "$gpus" -gt 0 ] || refuse "PyTorch finds no GPU"

# ------------------------------------------------------------------------------------------------- running and judging

row=0 # rows are files, numbered, so that lanes that run side by side come out in order
add_row() { # TITLE VERDICT CELL...
    local title=$1 verdict=$2 line
    shift 2
    line=$title
    for c in "$@"; do line="$line|$c"; done
    row=$((row + 1))
    printf '%s|%s\n' "$line" "$verdict" >"$tmp/rows/$(printf '%05d' "$row")"
    printf '%4d s  %s: %s\n' $((SECONDS - started)) "$title" "$verdict" >&2
}
detail() { printf '%s\n' "$*" >>"$tmp/details"; }

# Runs one program. MODE: bare, again, fill and like (bare too); auto, off, on (what --pool takes). Output in raw/LABEL.MODE.out and .err.
run_one() { # LABEL MODE COMMAND...
    local label=$1 mode=$2 base=$raw/$1.$2 rc
    shift 2
    cd "$tmp/cwd" || return 1
    case $mode in
    bare | again | fill | like) timeout -k 5 "$limit" "$@" >"$base.out" 2>"$base.err" ;;
    *) timeout -k 5 "$limit" "$vramscope" run --pool "$mode" --trace "$tmp/trace/$label.$mode.%n-%p-rank%r.jsonl" -- "$@" >"$base.out" 2>"$base.err" ;;
    esac
    rc=$?
    echo "$rc" >"$base.rc"
    return "$rc"
}
histories() { # LABEL MODE
    local f
    for f in "$tmp/trace/$1.$2".*.jsonl; do [ -e "$f" ] && echo "$f"; done
}
forget() { # LABEL MODE
    local f
    for f in $(histories "$1" "$2"); do
        [ -n "${KEEP:-}" ] && gzip -c "$f" >"$logs/histories/$(basename "$f").gz"
        rm -f "$f"
    done
}
value() { sed -n "s/^# .*\\b$2=\\([0-9.]*\\).*/\\1/p" "$1" | sort -n | tail -n 1; }
last() { tail -n "${2:-2}" "$1" 2>/dev/null | cut -c1-300 | tr '\n' ' '; }
numbers() { # LABEL MODE: what the table shows of a run
    local ms reserved active
    ms=$(value "$raw/$1.$2.out" ms_step)
    reserved=$(value "$raw/$1.$2.out" reserved_peak)
    active=$(value "$raw/$1.$2.out" peak)
    [ -n "$ms" ] && printf '%s ms ' "$ms"
    [ -n "$reserved" ] && [ -n "$active" ] && printf '%s of %s MiB' $((active >> 20)) $((reserved >> 20))
}
# Judges a run that has ended against the bare ones; sets `cell`, returns 1 if it is wrong. HISTORIES: how many there must be.
judge() { # LABEL MODE HISTORIES
    local label=$1 mode=$2 rc bare_rc base=$raw/$1.$2 files found said bare=bare again=again
    # What does something else under --pool on is compared with a bare run that does it too.
    [ "$mode" = on ] && [ -e "$raw/$label.like.rc" ] && bare=like again=like
    rc=$(cat "$base.rc")
    bare_rc=$(cat "$raw/$label.$bare.rc")
    cell=$(numbers "$label" "$mode")
    if [ "$rc" != "$bare_rc" ]; then
        case $rc in 124 | 137) cell=HANG ;; *) cell="exit $rc" ;; esac
        detail "$label $mode: ended with $rc, bare with $bare_rc: $(last "$base.err" 3)$(last "$base.out" 1)"
        return 1
    fi
    # Bare ones that fail are no row: this one does what its like does, which PyTorch's cudaMallocAsync backend can't.
    [ "$rc" != 0 ] && { cell="exit $rc, as bare"; return 0; }
    if ! said=$("$python" "$here/pytorch/same.py" "$raw/$label.$bare.out" "$raw/$label.$again.out" "$base.out" ${results:+results} $([ "$mode" = on ] && echo results) 2>"$base.same"); then
        cell="$said"
        detail "$label $mode: $(cat "$base.same")"
        return 1
    fi
    [ "$said" = same ] || cell="$cell ($said)"
    # The names are ours: no spaces.
    files=$(histories "$label" "$mode")
    found=$(grep -l '"kind":"alloc"' $files /dev/null | wc -l)
    if [ "$found" != "$3" ] || [ "$(wc -w <<<"$files")" != "$3" ]; then
        cell="$(wc -w <<<"$files") HISTORIES, $found WITH MEMORY"
        detail "$label $mode: $3 histories were to hold allocations: $(last "$base.err" 3)"
        return 1
    fi
    # PyTorch's own cache tells of tensors; where the pool serves the cudaMallocAsync backend, nothing is compared.
    if ! "$python" "$here/tensor_peak.py" --said "$base.out" $files >"$base.peak" 2>&1; then
        cell="PEAK $(grep -c '^WRONG' "$base.peak") WRONG"
        detail "$label $mode: $(grep '^WRONG' "$base.peak" | head -n 5) $(last "$base.peak" 1)"
        return 1
    fi
    if [ "$mode" != on ] && [ -z "${no_tensors:-}" ] && ! grep -q ' [1-9][0-9]* tensors, [1-9][0-9]* numbers compared' "$base.peak"; then
        cell="NO TENSORS"
        detail "$label $mode: $(last "$base.peak" 2)"
        return 1
    fi
}
# A row: the program bare, twice, and in every mode. With `results` set only what was computed is compared. `also`, if set, is a function LABEL MODE that has a last word.
compare_row() { # LABEL TITLE HISTORIES COMMAND...
    local label=$1 title=$2 count=$3 mode wrong=0 cells=() cell rc bare why
    shift 3
    run_one "$label" bare "$@"
    rc=$?
    case $rc in
    0) ;;
    77) add_row "$title" "skipped: $(sed -n 's/^# skip //p' "$raw/$label.bare.out" | head -n 1)" - - - -; return ;;
    124 | 137) add_row "$title" "skipped: bare hangs" HANG - - -; return ;;
    *)
        why=$(sed -n "s/^ModuleNotFoundError: No module named '\\([^']*\\)'.*/no Python module \\1/p" "$raw/$label.bare.err" | tail -n 1)
        detail "$label bare: ended with $rc: $(last "$raw/$label.bare.err" 3)"
        add_row "$title" "skipped: ${why:-bare fails}" "exit $rc" - - -
        return
        ;;
    esac
    run_one "$label" again "$@"
    bare=$(numbers "$label" again)
    for mode in auto off on; do
        case " $modes " in *" $mode "*) ;; *) cells+=(-); continue ;; esac
        run_one "$label" "$mode" "$@"
        judge "$label" "$mode" "$count" || wrong=1
        [ -n "${also:-}" ] && { why=$("$also" "$label" "$mode" 2>&1) || { wrong=1 cell="$cell; $why"; detail "$label $mode: $why"; }; }
        forget "$label" "$mode"
        cells+=("${cell:-ok}")
    done
    [ -n "$(sed -n 's/^# note //p' "$raw/$label.again.out" | head -n 1)" ] && title="$title ($(sed -n 's/^# note //p' "$raw/$label.again.out" | head -n 1))"
    add_row "$title" "$([ "$wrong" = 0 ] && echo ok || echo WRONG)" "${bare:-ran}" "${cells[@]}"
}

# -------------------------------------------------------------------------------------------------------------- cases

p=$here/pytorch
torchrun() { echo "$python" -m torch.distributed.run --standalone --nproc-per-node 2 "$p/ranks.py"; }
do_transformer() { row=100; compare_row transformer "transformer, 6 layers" 1 "$python" "$p/train.py" transformer; }
do_resnet() { row=110; compare_row resnet "ResNet-50" 1 "$python" "$p/train.py" resnet; }
do_gpt2() { row=120; compare_row gpt2 "GPT-2, AdamW, autocast" 1 "$python" "$p/train.py" gpt2; }
do_graphs() { row=200; compare_row graphs "inference, CUDA graphs" 1 "$python" "$p/features.py" graphs; }
compiled() { # MODE
    # The first run compiles and tunes, which takes memory too; the others find what it left.
    run_one "compile-$1" fill "$python" "$p/features.py" "$1" 2>/dev/null
    compare_row "compile-$1" "torch.compile, $1" 1 "$python" "$p/features.py" "$1"
}
do_compile() { row=210; compiled default; }
do_compile_reduce() {
    row=220
    case " $modes " in *" on "*) run_one compile-reduce-overhead like "$python" "$p/features.py" without-trees ;; esac
    compiled reduce-overhead
}
do_expandable() { row=230; compare_row expandable "expandable segments" 1 "$python" "$p/features.py" expandable; }
# Bare, with the backend that --pool on asks for.
like_async() { # LABEL COMMAND...
    case " $modes " in *" on "*) ;; *) return ;; esac
    local label=$1
    shift
    run_one "$label" like env PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync "$@"
}
do_mempool() { row=240; like_async mempool "$python" "$p/features.py" mempool; compare_row mempool "torch.cuda.MemPool" 1 "$python" "$p/features.py" mempool; }
do_profiler() { row=250; compare_row profiler "torch.profiler, profile_memory" 1 "$python" "$p/features.py" profiler; }
do_workers() {
    row=300
    local how
    for how in fork spawn; do compare_row "workers-$how" "DataLoader, workers by $how" 1 "$python" "$p/processes.py" $how; done
}
do_share() { row=310; like_async share "$python" "$p/processes.py" share; compare_row share "tensors shared by IPC" 2 "$python" "$p/processes.py" share; }
two_gpus() { # TITLE
    [ "$gpus" -ge 2 ] && return 0
    add_row "$1" "skipped: needs 2 GPUs" - - - -
    return 1
}
# With several streams, what is reserved depends on when they were done.
do_ddp() { row=400; local results=1; two_gpus "DDP, 2 ranks" && compare_row ddp "DDP, 2 ranks" 2 $(torchrun) ddp; }
do_fsdp() { row=410; local results=1; two_gpus "FSDP, 2 ranks" && compare_row fsdp "FSDP, 2 ranks" 2 $(torchrun) fsdp; }
explained() { "$python" "$p/found.py" oom $(histories "$1" "$2") >"$raw/$1.$2.oom" || { cat "$raw/$1.$2.oom"; return 1; }; }
do_oom() {
    row=500
    local also=explained no_tensors=1
    compare_row oom-tensor "out of memory: tensor" 1 "$python" "$p/exhausted.py" tensor
    compare_row oom-cublas "out of memory: cuBLAS" 1 "$python" "$p/exhausted.py" cublas
    two_gpus "out of memory: NCCL" && compare_row oom-nccl "out of memory: NCCL" 2 $(torchrun) oom
}
# Refused by PyTorch's own limit, with more than half of what it reserved free.
do_limit() {
    row=650
    local verdict=ok
    run_one mistake-limit auto "$python" "$root/scripts/pytorch/fragmentation.py" --limit 410
    grep -q 'out of memory' "$raw/mistake-limit.auto.out" && explained mistake-limit auto >/dev/null || verdict=WRONG
    [ $verdict = ok ] || detail "mistake-limit: $(last "$raw/mistake-limit.auto.out" 3)$(last "$raw/mistake-limit.auto.oom" 1)$(last "$raw/mistake-limit.auto.err" 2)"
    forget mistake-limit auto
    add_row "mistake: fragmentation, --limit 410" "$verdict" - "$(cut -c1-70 "$raw/mistake-limit.auto.oom")" - -
}
# The classic mistakes: what their guilty lines allocated is in the history, with Python lines, and grows.
do_mistakes() {
    row=600
    local script name label verdict
    for script in "$root"/scripts/pytorch/*.py; do
        name=$(basename "$script" .py)
        label=mistake-$name
        verdict=ok
        if ! run_one "$label" auto "$python" "$script"; then
            verdict=WRONG
            detail "$label: ended with $(cat "$raw/$label.auto.rc"): $(last "$raw/$label.auto.err" 3)"
        fi
        "$python" "$p/found.py" grows "$script" $(histories "$label" auto) >"$raw/$label.grows" 2>&1 || verdict=WRONG
        "$python" "$here/tensor_peak.py" --said "$raw/$label.auto.out" $(histories "$label" auto) >"$raw/$label.auto.peak" 2>&1 || verdict=WRONG
        [ $verdict = ok ] || detail "$label: $(last "$raw/$label.grows" 1)$(grep '^WRONG' "$raw/$label.auto.peak" | head -n 3)"
        forget "$label" auto
        [ "$name" = healthy ] && { add_row "mistake: none (healthy)" "$verdict" - "$(sed -n 's/.*; \(lines .*\)/\1/p' "$raw/$label.grows")" - -; continue; }
        add_row "mistake: $name" "$verdict" - "$(sed -n 's/.*\(line [0-9]*: .*\) at its peak.*/\1/p' "$raw/$label.grows")" - -
    done
}

wanted() { case " $cases " in *" $1 "*) return 0 ;; esac; return 1; }
# Alone: what measures time.
for c in transformer resnet gpt2; do wanted $c && "do_$c"; done
# Side by side: what compares results and memory.
lane() { (for f in "$@"; do wanted "${f#*=}" && "${f%=*}"; done) & }
lane do_compile=compile do_graphs=graphs
lane do_compile_reduce=compile do_mempool=mempool
lane do_workers=workers do_expandable=expandable
lane do_share=share do_profiler=profiler
lane do_mistakes=mistakes do_limit=mistakes
lane do_ddp=ddp do_fsdp=fsdp
wait
# Alone again: what fills the card.
wanted oom && do_oom

# -------------------------------------------------------------------------------------------------------------- table

table() {
    printf 'case|bare|auto|off|on|verdict\n'
    cat "$tmp"/rows/* 2>/dev/null
}
wrong=$(table | awk -F'|' 'NR > 1 && $NF ~ /^WRONG/' | wc -l)
{
    tail -n 1 <<<"$versions"
    table | aligned
    echo "$(($(table | wc -l) - 1)) rows, $wrong wrong, $(table | awk -F'|' 'NR > 1 && $NF ~ /^skipped/' | wc -l) skipped, $((SECONDS - started)) s"
    echo "a cell: median of a step, peak allocated of peak reserved; in brackets what could not be compared, since it varies bare"
} >"$logs/table.txt"
logs_and_details 12000
exit "$wrong"
