# Sourced: rdma-core as Debian's newest, in FOLDER/source, built in FOLDER/out. Nothing is installed.
# shellcheck shell=bash

# rdma_core_source FOLDER: fetches the source once, with apt's lists in the folder, so that the system's stay as they are. That of Debian's own
# changes is not needed.
rdma_core_source() {
    local folder=$1
    [ -d "$folder/source" ] && return
    mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial" "$folder/fetched"
    : >"$folder/apt/status"
    local keys=/usr/share/keyrings/debian-archive-keyring.gpg
    echo "deb-src [signed-by=$keys] http://deb.debian.org/debian sid main" >"$folder/apt/sources.list"
    cat >"$folder/apt/apt.conf" <<EOF
Dir::Etc::sourcelist "$folder/apt/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$folder/apt/lists";
Dir::State::status "$folder/apt/status";
Dir::Cache "$folder/apt/cache";
EOF
    APT_CONFIG=$folder/apt/apt.conf apt-get update >"$folder/apt/log" 2>&1 &&
        (cd "$folder/fetched" && APT_CONFIG=$folder/apt/apt.conf apt-get source --download-only --tar-only rdma-core >>"$folder/apt/log" 2>&1) &&
        rm -rf "$folder/unpacked" && mkdir "$folder/unpacked" &&
        tar -xf "$folder"/fetched/rdma-core_*.orig.tar.* -C "$folder/unpacked" --strip-components 1 &&
        mv "$folder/unpacked" "$folder/source"
}

# rdma_core_build FOLDER TARGET...: JOBS compilers at once (2).
rdma_core_build() {
    local folder=$1 log=$1/out/log
    shift
    mkdir -p "$folder/out"
    [ -f "$folder/out/build.ninja" ] || cmake -S "$folder/source" -B "$folder/out" -G Ninja -DCMAKE_BUILD_TYPE=Release \
        -DNO_MAN_PAGES=1 -DNO_PYVERBS=1 -DENABLE_RESOLVE_NEIGH=1 >"$log" 2>&1
    ninja -C "$folder/out" -j "${JOBS:-2}" "$@" >>"$log" 2>&1 || { tail -20 "$log" >&2; return 1; }
}
