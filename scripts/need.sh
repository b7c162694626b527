# Sourced by the scripts: makes sure that programs are there, installing them where that can be done without asking.
# need PROGRAM PACKAGE [PROGRAM PACKAGE …]
need() {
    local missing=()
    while [ $# -ge 2 ]; do
        command -v "$1" >/dev/null 2>&1 || missing+=("$2")
        shift 2
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
        echo "installing: ${missing[*]}"
        { apt-get install -y -q "${missing[@]}" || { apt-get update -q && apt-get install -y -q "${missing[@]}"; }; } >/dev/null && return 0
    fi
    echo "These are needed and not here: ${missing[*]}. Install them and run this again." >&2
    exit 2
}
