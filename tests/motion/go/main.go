// A Go program whose C code has memory in motion. Go's runtime takes SIGSEGV for nil dereferences, interrupts its threads
// with signals, and moves their stacks.
package main

/*
#cgo CFLAGS: -std=gnu11 -Wno-missing-field-initializers
#cgo LDFLAGS: -libverbs -lpthread
#include <stdlib.h>
int motion_main(int argc, char **argv);
*/
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Of every kind that a run must have seen.
const enough = 50

var (
	stop                         int32
	nils, faults, collected, dug int64
)

type node struct {
	padding [3000]byte
	value   int
}

// Where it is recovered from, a fault is a panic with an address.
func recovered(counter *int64) {
	problem := recover()
	if problem == nil {
		fail("a fault was no panic")
	}
	if _, known := problem.(runtime.Error); !known {
		fail(fmt.Sprint("a panic of another kind: ", problem))
	}
	atomic.AddInt64(counter, 1)
}

func fail(what string) {
	fmt.Fprintln(os.Stderr, what)
	os.Exit(1)
}

//go:noinline
func dereference(missing *node) int {
	defer recovered(&nils)
	return missing.value
}

//go:noinline
func touch(page []byte) byte {
	defer recovered(&faults)
	return page[100]
}

// Stacks grow and are moved.
//
//go:noinline
func dig(depth int) int {
	var room [512]byte
	room[depth%len(room)] = byte(depth)
	if depth == 0 {
		return 0
	}
	return dig(depth-1) + int(room[depth%len(room)]) - depth%256
}

func often(work func()) {
	go func() {
		for atomic.LoadInt32(&stop) == 0 {
			work()
		}
	}()
}

func main() {
	page, err := syscall.Mmap(-1, 0, os.Getpagesize(), syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		fail(err.Error())
	}
	often(func() {
		dereference(nil)
		time.Sleep(100 * time.Microsecond)
	})
	often(func() {
		debug.SetPanicOnFault(true)
		touch(page)
		time.Sleep(100 * time.Microsecond)
	})
	often(func() {
		garbage := make([][]byte, 100)
		for i := range garbage {
			garbage[i] = make([]byte, 1000)
		}
		runtime.GC()
		atomic.AddInt64(&collected, 1)
		time.Sleep(2 * time.Millisecond)
	})
	often(func() {
		if dig(2000) != 0 {
			fail("a stack was moved wrongly")
		}
		atomic.AddInt64(&dug, 1)
		time.Sleep(time.Millisecond)
	})

	arguments := make([]*C.char, len(os.Args)+1)
	list := C.malloc(C.size_t(len(arguments)) * C.size_t(unsafe.Sizeof(arguments[0])))
	for i, argument := range os.Args {
		*(**C.char)(unsafe.Add(list, uintptr(i)*unsafe.Sizeof(arguments[0]))) = C.CString(argument)
	}
	*(**C.char)(unsafe.Add(list, uintptr(len(os.Args))*unsafe.Sizeof(arguments[0]))) = nil
	status := C.motion_main(C.int(len(os.Args)), (**C.char)(list))
	limit := time.Now().Add(time.Minute)
	for _, counter := range []*int64{&nils, &faults, &collected, &dug} {
		for atomic.LoadInt64(counter) < enough {
			if time.Now().After(limit) {
				fail("Go's own work does not come forward")
			}
			time.Sleep(time.Millisecond)
		}
	}
	atomic.StoreInt32(&stop, 1)
	fmt.Printf("Go: %d nil dereferences, %d faults, %d collections, %d moved stacks\n", atomic.LoadInt64(&nils),
		atomic.LoadInt64(&faults), atomic.LoadInt64(&collected), atomic.LoadInt64(&dug))
	os.Exit(int(status))
}
