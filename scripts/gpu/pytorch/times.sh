#!/usr/bin/env bash
# Times of a step, many processes of each setting in turn: a launch-bound loop varies more from process to process than by anything else.
#
#   times.sh [MODEL] [ROUNDS]     MODEL: transformer, resnet or gpt2 (the default); ROUNDS: processes of each setting (5)
#
# Environment: VRAMSCOPE (the command, its library beside it), PYTHON, SECONDS_AT_MOST (no new round after it: 540).
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../common.sh"
model=${1:-gpt2}
rounds=${2:-5}
most=${SECONDS_AT_MOST:-540}
cd "$tmp" || exit 255
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-4} TOKENIZERS_PARALLELISM=false
settings=("bare" "bare, cudaMallocAsync" "--pool auto --stacks off" "--pool auto" "--pool on --stacks off" "--pool on")
for round in $(seq "$rounds"); do
    [ $SECONDS -gt "$most" ] && break
    # Another begins each time.
    for k in "${!settings[@]}"; do
        s=${settings[$(((k + round) % ${#settings[@]}))]}
        with=()
        case $s in
        bare) ;;
        bare*) with=(env PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync) ;;
        *) read -ra with <<<"$vramscope run --quiet $s --trace $tmp/%n-%p.jsonl --" ;;
        esac
        if timeout 75 ${with[@]+"${with[@]}"} "$python" "$here/train.py" "$model" >out 2>err; then
            sed -n "s/^# ms_step=\\(.*\\)/\\1/p" out >>"$tmp/ms.$s"
        else
            echo "times.sh: '$s' failed: $(tail -n 1 err)" >&2
        fi
        rm -f ./*.jsonl*
    done
done
for s in "${settings[@]}"; do
    [ -e "$tmp/ms.$s" ] && sort -n "$tmp/ms.$s" | awk -v s="$s" '{ v[NR] = $1 } END { printf "%-26s %2d processes, ms a step: median %.2f, %.2f to %.2f\n", s, NR, (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2, v[1], v[NR] }'
done
