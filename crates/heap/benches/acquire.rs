//! What acquiring and releasing registered memory costs, beside plain malloc of the same mimalloc and the system's malloc.

use divan::Bencher;
use libmimalloc_sys::{mi_free, mi_heap_malloc, mi_heap_new, mi_malloc};
use pagewire_heap::{Heap, HeapOptions};
use std::alloc::Layout;
use std::hint::black_box;
use std::sync::LazyLock;

fn main() {
    divan::main();
}

const SIZES: [usize; 8] = [128, 512, 2048, 8192, 32 << 10, 128 << 10, 512 << 10, 2 << 20];

static HEAP: LazyLock<Heap> = LazyLock::new(|| Heap::new(HeapOptions::default()).expect("a heap"));

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 16).expect("a layout")
}

/// One object, acquired and released.
mod one {
    use super::*;

    #[divan::bench(args = SIZES, sample_size = 1000)]
    fn heap(bencher: Bencher, size: usize) {
        let (heap, layout) = (&*HEAP, layout(size));
        bencher.bench_local(|| {
            let object = heap.allocate(black_box(layout)).expect("memory");
            // SAFETY: the object has this layout and is used no more.
            unsafe { heap.deallocate(black_box(object), layout) };
        });
    }

    #[divan::bench(args = SIZES, sample_size = 1000)]
    fn heap_unsized(bencher: Bencher, size: usize) {
        let heap = &*HEAP;
        bencher.bench_local(|| {
            let object = heap.allocate_unsized(black_box(size), 16, false).expect("memory");
            // SAFETY: the object is used no more.
            unsafe { heap.free_unsized(black_box(object)) };
        });
    }

    /// A heap of mimalloc that is not its main one: what this crate cannot do without.
    #[divan::bench(args = SIZES, sample_size = 1000)]
    fn mimalloc_heap(bencher: Bencher, size: usize) {
        // SAFETY: a new heap, which lives as long as the process.
        let heap = unsafe { mi_heap_new() };
        bencher.bench_local(|| {
            // SAFETY: malloc and free of one object that nobody uses.
            unsafe { mi_free(black_box(mi_heap_malloc(heap, black_box(size)))) };
        });
    }

    #[divan::bench(args = SIZES, sample_size = 1000)]
    fn mimalloc(bencher: Bencher, size: usize) {
        bencher.bench_local(|| {
            // SAFETY: malloc and free of one object that nobody uses.
            unsafe { mi_free(black_box(mi_malloc(black_box(size)))) };
        });
    }

    #[divan::bench(args = SIZES, sample_size = 1000)]
    fn system(bencher: Bencher, size: usize) {
        bencher.bench_local(|| {
            // SAFETY: malloc and free of one object that nobody uses.
            unsafe { libc::free(black_box(libc::malloc(black_box(size)))) };
        });
    }
}

/// A hundred objects acquired, touched, then released.
mod hundred_touched {
    use super::*;
    const COUNT: usize = 100;

    #[divan::bench(args = SIZES)]
    fn heap(bencher: Bencher, size: usize) {
        let (heap, layout) = (&*HEAP, layout(size));
        let mut objects = Vec::with_capacity(COUNT);
        bencher.bench_local(|| {
            for _ in 0..COUNT {
                let object = heap.allocate(layout).expect("memory");
                // SAFETY: the object has at least one byte.
                unsafe { object.write(1) };
                objects.push(object);
            }
            // SAFETY: the objects have this layout and are used no more.
            objects.drain(..).for_each(|object| unsafe { heap.deallocate(object, layout) });
        });
    }

    #[divan::bench(args = SIZES)]
    fn mimalloc(bencher: Bencher, size: usize) {
        let mut objects = Vec::with_capacity(COUNT);
        bencher.bench_local(|| {
            for _ in 0..COUNT {
                // SAFETY: an object of at least one byte.
                unsafe {
                    let object = mi_malloc(size).cast::<u8>();
                    object.write(1);
                    objects.push(object);
                }
            }
            // SAFETY: the objects are used no more.
            objects.drain(..).for_each(|object| unsafe { mi_free(object.cast()) });
        });
    }

    #[divan::bench(args = SIZES)]
    fn system(bencher: Bencher, size: usize) {
        let mut objects = Vec::with_capacity(COUNT);
        bencher.bench_local(|| {
            for _ in 0..COUNT {
                // SAFETY: an object of at least one byte.
                unsafe {
                    let object = libc::malloc(size).cast::<u8>();
                    object.write(1);
                    objects.push(object);
                }
            }
            // SAFETY: the objects are used no more.
            objects.drain(..).for_each(|object| unsafe { libc::free(object.cast()) });
        });
    }
}
