# shellcheck shell=bash
# Parts of a virtual machine with a kernel of Debian, for scripts that source this: test-rxe and test-kernel.
#
# They set `suite`, the Debian suite whose kernel is taken; if it is empty, that of this system. What `pack` is given comes into the
# directory `tree`.
: "${suite=}" "${tree=}"

# apt with the suite $suite of the mirror that this system uses for Debian, or with the system's own sources.
declare -a apt_options=(-o APT::Sandbox::User=root)
use_suite() { # DIRECTORY
    local mirror
    [ -n "$suite" ] || return 0
    # shellcheck disable=SC2016 # apt-get's own names
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' | grep -m 1 -E '/debian/?$') ||
        { echo "no Debian mirror is among the sources of apt" >&2; exit 1; }
    mkdir -p "$1"/{lists/partial,cache/archives/partial,parts}
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$1/sources.list"
    apt_options+=(-o Dir::Etc::SourceList="$1/sources.list" -o Dir::Etc::SourceParts="$1/parts"
        -o Dir::State::Lists="$1/lists" -o Dir::Cache="$1/cache"
        -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts="$1/parts")
    apt-get "${apt_options[@]}" update -qq
}

fetch_kernel() { # DIRECTORY
    local packages
    mkdir -p "$1.new"
    use_suite "$1.new/apt"
    # The image depends, depending on the release, on further packages with the kernel proper and its modules.
    packages=$(apt-cache "${apt_options[@]}" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
        --no-replaces --no-enhances linux-image-amd64 |
        grep -E '^linux-(image|base|binary|modules)-[0-9]' | grep -v unsigned | sort -u)
    # shellcheck disable=SC2086 # a list of words
    (cd "$1.new" && apt-get "${apt_options[@]}" download $packages)
    for package in "$1.new"/*.deb; do
        dpkg-deb --extract "$package" "$1.new"
        rm "$package"
    done
    rm -rf "$1.new/apt"
    # depmod wants the modules in /lib.
    [ -d "$1.new/lib" ] || ln -s usr/lib "$1.new/lib"
    depmod -b "$1.new" "$(ls "$1.new/lib/modules")"
    mv "$1.new" "$1"
}

# Where it lies depends on the release.
kernel_image() { # DIRECTORY
    find "$1/boot" "$1/lib/modules"/*/ -maxdepth 1 -name 'vmlinuz*' 2>/dev/null | head -n 1
}

pack() { # PROGRAM...: into the tree, with the libraries they name
    local program library
    for program in "$@"; do
        install -D "$program" "$tree/bin/${program##*/}"
        # A script has none.
        { ldd "$program" 2>/dev/null || true; } | { grep -oE '/[^ ]+' || true; } | while read -r library; do
            [ -e "$tree$library" ] || install -D "$library" "$tree$library"
        done
    done
}
