# What the scripts here begin with; to be sourced. Settings that would change what a program does are taken away, vramscope is found,
# and a folder is made that goes at the end: $root $vramscope $library $python $tmp $started, and some functions.
# shellcheck shell=bash disable=SC2034 # whoever sources it uses them
set -u
me=$(basename "$0")
refuse() {
    echo "$me: $*" >&2
    exit 255
}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
vramscope=$(readlink -m "${VRAMSCOPE:-$root/target/release/vramscope}")
library=${VRAMSCOPE_LIBRARY:-}
for f in "$(dirname "$vramscope")/libvramscope.so" "$(dirname "$vramscope")/../lib/libvramscope.so"; do
    [ -z "$library" ] && [ -e "$f" ] && library=$(readlink -f "$f")
done
if [ ! -x "$vramscope" ] || [ -z "$library" ]; then
    refuse "no vramscope at $vramscope with libvramscope.so beside it: cargo build --release --workspace, or set VRAMSCOPE"
fi
python=${PYTHON:-python3}
unset LD_PRELOAD
for v in $(compgen -e | grep '^VRAMSCOPE'); do unset "$v"; done
export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
tmp=$(mktemp -d "${TMPDIR:-/tmp}/vramscope-${me%.sh}.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
started=$SECONDS

logs_in() { # FOLDER: $logs, and $raw for what programs print
    mkdir -p "$1/raw"
    logs=$(cd "$1" && pwd)
    raw=$logs/raw
}
only_known() { # "ALL CASES" CASE...
    local all=$1 c
    shift
    for c in "$@"; do
        case " $all " in *" $c "*) ;; *) refuse "no case $c; there are: $all" ;; esac
    done
}
aligned() { # lines of cells between |
    awk -F'|' '{ n++; for (i = 1; i <= NF; i++) { c[n, i] = $i; if (length($i) > w[i]) w[i] = length($i) }; if (NF > f) f = NF }
        END { for (r = 1; r <= n; r++) { s = ""; for (i = 1; i <= f; i++) s = s sprintf(i < f ? "%-" w[i] + 2 "s" : "%s", c[r, i]); print s } }'
}
logs_and_details() { # BYTES: all.log of at most so many of each program; the table and what was found, told
    local f
    {
        cat "$logs/table.txt"
        [ -e "$tmp/details" ] && { echo; echo "== details"; cat "$tmp/details"; }
        for f in "$raw"/*; do
            [ -s "$f" ] || continue
            echo
            echo "== $(basename "$f")"
            head -c "$1" "$f"
        done
    } >"$logs/all.log"
    cat "$logs/table.txt"
    if [ -e "$tmp/details" ]; then
        echo
        head -c 4000 "$tmp/details"
    fi
}
