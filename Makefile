# make demo    see other people's RDMA programs run
# make check   what fits into two minutes while you work: format, clippy, unit tests of the small crates
# make test    every check of the project; the last line says how many passed and how many failed
# make docs    the documents as a book in build/book (mdBook)
# make bench   measure beside peers and print the table; JSON and pictures in build/bench/ (BENCH="--rounds 1 write_lat": only that)
# make instructions   count the instructions of the hot paths anew and record them (tests/instructions.tsv)
# make walks   list the files below the interfaces that run in four walks through the code, with their bounds
# make soak SECONDS=600   the random workload for so long; SEED=... repeats one
# make miri    the buffers of operations under Miri
# make fuzz SECONDS=600   fuzzing for so long; SEED=... repeats one
# make kill ROUNDS=1000   kill processes at random instants and see the others live on; SEED=... (and FIRST=) repeats
# make single-step STRIDE=1   the same at one instruction after the other of each operation; SEED=... repeats
#                  (DEATH="--path udp --operation send": only that; DEATH=--stop: stop instead)
# make swarm PACKETS=10000000 JOBS=4   simulated worlds of all kinds; SEED=... is the first
# make build   the install tree in build/
# make product   the same without the lab (bench, reproduce)
# make install PREFIX=/usr/local
# make package   wheel, Debian packages and tarball in build/package/packages, each tried on clean roots (needs root, debootstrap, debhelper)
#
# `demo`, `test` and `bench` install what else they need (scripts/install-dependencies says what).

CARGO ?= cargo
PREFIX ?= /usr/local
BUILD ?= build
BENCH ?=
PROGRAMS ?=
TARGET ?= $(or $(CARGO_TARGET_DIR),target)/release

SECONDS ?= 600
ROUNDS ?= 1000
STRIDE ?= 1
DEATH ?=
PACKETS ?= 10000000
JOBS ?= 1
WORLDS ?= 20000

# Crates whose unit tests take seconds.
SMALL_CRATES := wire iommu paging memory checkpoint transport fabric

# A Python environment with a newer UCX than the system has.
PEERS := $(BUILD)/peers/ucx

.PHONY: build product check docs demo test test-binaries test-active test-connections test-crowd test-native test-perftest test-motion test-pressure test-programs test-rxe test-kernel rxe-mutants soak swarm package \
	fuzz miri kill single-step instructions walks bench install deny clean

# The command has the C library inside where there is one to link (libc.a): `pagewire run` then starts programs in half the time.
STATIC := $(if $(wildcard $(shell $(CC) -print-file-name=libc.a)),-C target-feature=+crt-static)

# No path of this folder is among what cargo names crates by: the same sources give the same bytes in any folder.
INLINING := CARGO_INCREMENTAL=0 PATH="$(abspath scripts):$$PATH" RUSTC_WORKSPACE_WRAPPER=rustc-inlining
CONSTRUCTORS := -C link-arg=-Wl,--script=scripts/constructors.ld

# What is joined into one piece takes minutes each: what shows the product does without the lab.
product:
	# All with the same wrapper, so that the crates below are compiled once.
	$(INLINING) $(CARGO) rustc --release -p pagewire-cli --bin pagewire -- $(STATIC) $(CONSTRUCTORS)
	# Whole, as the recorded counts of instructions are; as a static library alone: a crate that others may use as well
	# cargo does not have optimised as one piece.
	$(INLINING) $(CARGO) rustc --release -p pagewire-capi --lib --crate-type staticlib
	scripts/install-tree "$(TARGET)" "$(BUILD)"

build: product
	# As the command: it measures the engine inside itself, too.
	$(INLINING) $(CARGO) rustc --release -p pagewire-lab --bin pagewire-lab -- $(STATIC) $(CONSTRUCTORS)
	scripts/install-tree "$(TARGET)" "$(BUILD)"

# The packages, and what makes sure of them. Each step can be called by itself.
PACKAGE := $(BUILD)/package
package: dependencies-package
	packages/tree "$(PACKAGE)"
	packages/librdmacm "$(PACKAGE)"
	packages/wheel "$(PACKAGE)"
	packages/debs "$(PACKAGE)"
	packages/tarball "$(PACKAGE)"
	packages/crates "$(PACKAGE)"
	packages/tests/roots "$(PACKAGE)"
	packages/tests/containers "$(PACKAGE)"
	packages/tests/ci "$(PACKAGE)"

demo: dependencies-demo
	$(MAKE) --no-print-directory product
	$(BUILD)/bin/pagewire demo

test: dependencies-test
	$(MAKE) --no-print-directory --jobs 2 build test-binaries
	CARGO="$(CARGO)" BUILD="$(BUILD)" scripts/test

# Beside `build`: joining the crates of a release into one piece keeps one processor busy, and no more. scripts/test runs clippy
# once more, with the same arguments, which is done at once then, and judges it.
test-binaries:
	$(CARGO) test --quiet --workspace --no-run
	-$(CARGO) clippy --quiet --workspace --all-targets -- -D warnings >/dev/null 2>&1
	-$(CARGO) clippy --quiet -p pagewire-capi --no-default-features -- -D warnings >/dev/null 2>&1

# While you work. What it does not run, `make test` does.
check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --quiet --workspace --all-targets -- -D warnings
	$(CARGO) test --quiet $(SMALL_CRATES:%=-p pagewire-%) --lib

# Every combination of programs, transports, options and paths.
test-perftest: dependencies-test
	$(MAKE) --no-print-directory build
	PAGEWIRE_TESTS=all PAGEWIRE_BUILD="$(abspath $(BUILD))" $(CARGO) test -p pagewire-end-to-end --test programs

# Every run of memory in motion, each of ROUNDS moves (SEED= repeats a failing one).
test-motion: dependencies-test
	$(MAKE) --no-print-directory build
	PAGEWIRE_TESTS=all PAGEWIRE_MOTION_ROUNDS=$(ROUNDS) $(if $(SEED),PAGEWIRE_MOTION_SEED=$(SEED)) PAGEWIRE_BUILD="$(abspath $(BUILD))" \
		$(CARGO) test -p pagewire-end-to-end --test programs -- motion::

# 4 GiB through memory cgroups of 256 MiB, on both paths (needs root and room for 10 GiB of swap on a disk).
test-pressure: dependencies-test
	$(MAKE) --no-print-directory build
	PAGEWIRE_TESTS=all PAGEWIRE_BUILD="$(abspath $(BUILD))" \
		$(CARGO) test -p pagewire-end-to-end --test programs -- faults::pressure

# Crowds of 256 processes, ROUNDS on each path, 32,768 queue pairs of two processes, and a storm of connections of 256 processes.
test-crowd: dependencies-test
	$(MAKE) --no-print-directory build
	PAGEWIRE_TESTS=all PAGEWIRE_CROWD_ROUNDS=$(ROUNDS) PAGEWIRE_BUILD="$(abspath $(BUILD))" \
		$(CARGO) test -p pagewire-end-to-end --test programs -- crowd::

# WORLDS of programs that connect, answer, leave and are killed at random (SEED= is the first).
test-connections:
	PAGEWIRE_CM_WORLDS=$(WORLDS) $(if $(SEED),PAGEWIRE_CM_SEED=$(SEED)) $(CARGO) test --release -p pagewire-cm --test worlds -- --nocapture

# Other people's programs that take longer, or need more, than `make test` has (PROGRAMS="gloo mooncake": only those).
test-programs: dependencies-programs
	$(MAKE) --no-print-directory build
	CARGO="$(CARGO)" BUILD="$(BUILD)" scripts/test-programs $(PROGRAMS)

# The native interface for longer than `make test` has: 10^8 random operations on the heap, 10,000 forks beside threads that allocate (also of
# programs whose malloc is the heap, in C and Python), and 10^6
# schedules of conditional writes.
test-native: dependencies-test
	PAGEWIRE_HEAP_OPERATIONS=100000000 PAGEWIRE_HEAP_FORKS=10000 PAGEWIRE_SCHEDULES=1000000 $(CARGO) test -p pagewire-heap -p pagewire
	PAGEWIRE_HEAP_FORKS=10000 $(CARGO) test -p pagewire-capi --test c_programs -- children_find

# Memory that reacts for longer than `make test` has: a thousand kills of each of its applications, a million histories of transactions, 10^5
# rounds of the order between sources, 20 rounds of the hash table, four processes of a global address space.
test-active: dependencies-test
	PAGEWIRE_CHECKPOINT_KILLS=1000 PAGEWIRE_PARITY_KILLS=1000 PAGEWIRE_REPLAY_KILLS=1000 PAGEWIRE_ACTIVE_KILLS=1000 \
		PAGEWIRE_ACTIVE_HISTORIES=1000000 PAGEWIRE_ACTIVE_ROUNDS=100000 PAGEWIRE_ACTIVE_TRANSACTIONS=3000 PAGEWIRE_ACTIVE_PROCESSES=4 PAGEWIRE_TABLE_ROUNDS=20 PAGEWIRE_TABLE_KILLS=1000 \
		$(CARGO) test -p pagewire-active -p pagewire-experimental
	PAGEWIRE_CHECKPOINT_KILLS=1000 $(CARGO) test -p pagewire-capi --test c_programs -- checkpoints::

# Against the Linux kernel's soft-RoCE in a virtual machine (RXE=REGULAR-EXPRESSION: only what matches; KERNEL=SUITE: with the kernel
# of another Debian suite, as trixie-backports).
test-rxe: dependencies-rxe
	$(MAKE) --no-print-directory build
	BUILD="$(BUILD)" KERNEL="$(KERNEL)" scripts/test-rxe $(if $(RXE),'$(RXE)')

# Dirty pages and checkpoints with another kernel, in a virtual machine: of this system's Debian, or KERNEL=SUITE, as trixie-backports.
test-kernel: dependencies-rxe
	CARGO="$(CARGO)" WORK="$(BUILD)/rxe" KERNEL="$(KERNEL)" scripts/test-kernel

# Whether test-rxe notices faults of Pagewire (MUTANTS=NAME...: only those of tests/rxe/mutants.tsv).
rxe-mutants: dependencies-rxe
	$(MAKE) --no-print-directory build
	BUILD="$(BUILD)" CARGO="$(CARGO)" scripts/rxe-mutants $(MUTANTS)

# The life of an operation's buffer under Miri (nightly Rust with the components miri and rust-src), by 64 orders of its threads. What it
# cannot run (system calls, shared memory) is checked byte by byte in crates/pagewire/tests/forgotten.rs.
miri:
	MIRIFLAGS="-Zmiri-many-seeds=0..64 -Zmiri-ignore-leaks -Zmiri-permissive-provenance" \
		$(CARGO) +nightly miri test -p pagewire --lib -- buffer::

soak:
	CARGO="$(CARGO)" scripts/soak $(SECONDS) $(SEED)

fuzz:
	CARGO="$(CARGO)" scripts/fuzz $(SECONDS) $(SEED)

instructions: dependencies-test
	$(MAKE) --no-print-directory build
	PAGEWIRE_INSTRUCTIONS=record PAGEWIRE_BUILD="$(abspath $(BUILD))" \
		$(CARGO) test -p pagewire-end-to-end --test programs -- instructions::

walks: dependencies-test
	$(MAKE) --no-print-directory build
	BUILD="$(BUILD)" scripts/walks

kill: dependencies-demo
	$(MAKE) --no-print-directory build
	PAGEWIRE_BUILD="$(abspath $(BUILD))" $(CARGO) run --quiet -p pagewire-end-to-end --bin death -- \
		kill --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)) $(if $(FIRST),--first $(FIRST)) $(DEATH)

single-step: dependencies-demo
	$(MAKE) --no-print-directory build
	PAGEWIRE_BUILD="$(abspath $(BUILD))" $(CARGO) run --quiet -p pagewire-end-to-end --bin death -- \
		single-step --stride $(STRIDE) $(if $(SEED),--seed $(SEED)) $(DEATH)

swarm:
	$(CARGO) build --release -p pagewire-sim --bin swarm
	"$(TARGET)/swarm" --packets $(PACKETS) --jobs $(JOBS) $(if $(SEED),--seed $(SEED))

bench: dependencies-bench
	$(MAKE) --no-print-directory build
	mkdir -p "$(BUILD)/bench"
	PAGEWIRE_BENCH_UCX="$${PAGEWIRE_BENCH_UCX:-$(wildcard $(abspath $(PEERS))/lib/python3*/site-packages/libucx/bin/ucx_perftest)}" \
		$(BUILD)/bin/pagewire bench --save "$(BUILD)/bench/bench.jsonl" --plot "$(BUILD)/bench" $(BENCH)

install:
	scripts/install-files "$(BUILD)" "$(DESTDIR)$(PREFIX)"

# Compiling cargo-deny takes minutes: `make test` uses it if it is there, and does not ask for it.
deny:
	command -v cargo-deny >/dev/null || $(CARGO) install cargo-deny --locked
	$(CARGO) deny check

# Compiling mdBook takes minutes: it is installed if it is absent. `make test` does not need it.
docs:
	command -v mdbook >/dev/null || $(CARGO) install mdbook --locked
	mdbook build --dest-dir "$(abspath $(BUILD))/book"

clean:
	rm -rf "$(BUILD)"
	$(CARGO) clean

.PHONY: dependencies-demo dependencies-test dependencies-programs dependencies-package dependencies-bench dependencies-rxe
dependencies-demo dependencies-test dependencies-programs dependencies-package dependencies-bench dependencies-rxe: dependencies-%:
	PEERS="$(PEERS)" scripts/install-dependencies $*
