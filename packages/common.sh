# shellcheck shell=sh
# What the scripts of packages/ share. Each is called with the folder OUT in which all is built.
project=$(cd "$(dirname "$0")/.." && pwd)
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$project/Cargo.toml")
# The time of all files: that of the last change, so that two builds are equal.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$project" log -1 --format=%ct 2>/dev/null || stat -c %Y "$project/CHANGELOG.md")}
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022

# out_folder ARGUMENTS: the folder that the one argument names, made if it is absent.
out_folder() {
    if [ $# -ne 1 ]; then
        echo "usage: $0 OUT" >&2
        exit 2
    fi
    mkdir -p "$1"
    realpath "$1"
}

# pack FOLDER NAME FILE: an archive of FOLDER under NAME, equal for equal contents.
pack() {
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r,go-w \
        -C "$(dirname "$1")" --transform="s@^$(basename "$1")@$2@" -cf - "$(basename "$1")" | gzip -9n >"$3"
}
