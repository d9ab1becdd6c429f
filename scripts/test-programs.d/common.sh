# Sourced by the scripts beside it. Each takes the install tree, runs other people's programs on it over both paths, and ends with 0 where
# all passed. A script whose program cannot be had says "not checked: ..." and ends with 0.
# shellcheck shell=sh disable=SC2034,SC3045

if [ $# -ne 1 ]; then
    echo "usage: $0 BUILD" >&2
    exit 2
fi
build=$(realpath "$1")
project=$(cd "$(dirname "$0")/../.." && pwd)

# not_checked WHY: ends the script.
not_checked() {
    echo "not checked: $1"
    exit 0
}

# packages NAME PYPI: makes an environment of the system's Python in BUILD/peers/NAME with a package; sets site.
packages() {
    if [ ! -d "$build/peers/$1" ]; then
        /usr/bin/python3 -m venv "$build/peers/$1" || not_checked "$1: Python's venv is missing (python3-venv)"
    fi
    "$build/peers/$1/bin/pip" install --quiet "$2" || not_checked "$1: $2 cannot be had from PyPI"
    site=$(echo "$build/peers/$1"/lib/python3*/site-packages)
}

# on_both_paths [--stats] PROGRAM ARGUMENT...: runs it as an unprivileged user without locked memory.
on_both_paths() {
    stats=
    if [ "$1" = --stats ]; then
        stats=--stats
        shift
    fi
    # Programs and their modules are reached by whoever runs them.
    nobody=
    [ "$(id -u)" != 0 ] || nobody="setpriv --reuid 65534 --regid 65534 --clear-groups"
    for path in auto udp; do
        echo "--path $path:"
        # shellcheck disable=SC2086 # Words.
        (ulimit -l 0; cd /tmp || exit; export HOME=/tmp; exec $nobody timeout 120 "$build/bin/pagewire" run $stats --path $path -- "$@") || return
    done
}
