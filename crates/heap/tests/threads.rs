//! Random operations by several threads, with a pattern in every object. PAGEWIRE_HEAP_OPERATIONS sets how many.

use pagewire_heap::{Heap, HeapOptions};
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Mutex;

const THREADS: u64 = 4;

/// An object with a pattern made of its seed.
struct Object {
    start: NonNull<u8>,
    layout: Layout,
    seed: u64,
}

// SAFETY: an object has one owner.
unsafe impl Send for Object {}

impl Object {
    /// The word at an index: its seed and place.
    fn word(&self, index: usize) -> u64 {
        self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (index as u64)
    }

    /// Places to look at: all words of a short object, some of a long one.
    fn places(&self) -> impl Iterator<Item = usize> {
        let words = self.layout.size() / 8;
        let step = (words / 64).max(1);
        (0..words).step_by(step).chain(words.checked_sub(1))
    }

    fn write(&self) {
        for index in self.places() {
            // SAFETY: the word lies in the object, which has one owner.
            unsafe { self.start.cast::<u64>().add(index).write_unaligned(self.word(index)) };
        }
    }

    fn check(&self, heap: &Heap) {
        let start = self.start.as_ptr() as usize;
        assert!(start >= heap.range().start && start + self.layout.size() <= heap.range().end);
        assert_eq!(start % self.layout.align(), 0);
        for index in self.places() {
            // SAFETY: the word lies in the object, which has one owner.
            let word = unsafe { self.start.cast::<u64>().add(index).read_unaligned() };
            assert_eq!(word, self.word(index), "word {index} of {:?} at {start:#x}", self.layout);
        }
    }
}

fn random_layout(random: &mut fastrand::Rng) -> Layout {
    let most = match random.u32(0..1000) {
        0 => 8 << 20,
        1..10 => 1 << 20,
        10..100 => 64 << 10,
        _ => 1 << 10,
    };
    let alignment = if random.u32(0..50) == 0 { 1 << random.u32(0..21) } else { 8 };
    Layout::from_size_align(random.usize(0..most), alignment).unwrap()
}

fn allocate(heap: &Heap, random: &mut fastrand::Rng) -> Object {
    let layout = random_layout(random);
    let zeroed = random.bool();
    let start = if zeroed { heap.allocate_zeroed(layout) } else { heap.allocate(layout) }.unwrap();
    let object = Object { start, layout, seed: random.u64(..) };
    if zeroed {
        for index in object.places() {
            // SAFETY: the word lies in the object.
            assert_eq!(unsafe { start.cast::<u64>().add(index).read_unaligned() }, 0, "{layout:?}");
        }
    }
    object.write();
    object
}

fn resize(heap: &Heap, object: &mut Object, random: &mut fastrand::Rng) {
    let new = random_layout(random);
    let old = std::mem::replace(&mut object.layout, new);
    // SAFETY: the object has its old layout, and only its new address is used.
    object.start = unsafe { heap.reallocate(object.start, old, new, false) }.unwrap();
    // The first word is in the object before and after.
    if old.size().min(new.size()) >= 8 {
        // SAFETY: the word lies in the object.
        assert_eq!(unsafe { object.start.cast::<u64>().read_unaligned() }, object.word(0));
    }
    object.write();
}

fn free(heap: &Heap, object: &Object) {
    object.check(heap);
    // SAFETY: the object has this layout and is used no more.
    unsafe { heap.deallocate(object.start, object.layout) };
}

/// One thread's part: its own objects, and objects that threads pass on by `shared`.
fn run(heap: &Heap, shared: &Mutex<Vec<Object>>, seed: u64, operations: u64) {
    const OWN: usize = 500;
    /// Objects that wait for another thread at most when a thread ends.
    const SHARED: usize = 2000;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut own: Vec<Object> = Vec::new();
    for operation in 0..operations {
        let index = random.usize(0..own.len().max(1));
        match random.u32(0..100) {
            0..45 => own.push(allocate(heap, &mut random)),
            45..50 if !own.is_empty() => resize(heap, &mut own[index], &mut random),
            50..60 if !own.is_empty() => shared.lock().unwrap().push(own.swap_remove(index)),
            60..70 => {
                let other = shared.lock().unwrap().pop();
                other.iter().for_each(|object| free(heap, object));
            }
            _ if !own.is_empty() => free(heap, &own.swap_remove(index)),
            _ => (),
        }
        if own.len() > OWN {
            own.drain(..OWN / 2).for_each(|object| free(heap, &object));
        }
        if operation % 100_000 == 0 {
            heap.purge().unwrap();
        }
    }
    let mut shared = shared.lock().unwrap();
    shared.append(&mut own);
    let kept = shared.len().min(SHARED);
    shared.drain(kept..).for_each(|object| free(heap, &object));
}

#[test]
fn threads_find_their_bytes_in_every_object() {
    let operations =
        std::env::var("PAGEWIRE_HEAP_OPERATIONS").map_or(1_000_000, |count| count.parse().unwrap());
    /// Operations of one thread before it ends and another begins.
    const LIFE: u64 = 50_000;
    let heap =
        Heap::new(HeapOptions { range: 64 << 30, ceiling: Some(8 << 30), ..HeapOptions::default() }).unwrap();
    let shared = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (heap, shared) = (&heap, &shared);
            scope.spawn(move || {
                let mut left: u64 = operations / THREADS;
                while left > 0 {
                    let life = left.min(LIFE);
                    let seed = left * THREADS + thread;
                    // A thread that ends leaves its objects to others.
                    std::thread::scope(|inner| inner.spawn(move || run(heap, shared, seed, life)).join())
                        .unwrap();
                    left -= life;
                }
            });
        }
    });
    let live: usize = shared.lock().unwrap().iter().map(|object| object.layout.size()).sum();
    assert_eq!(heap.statistics().unwrap().live, live as u64);
    shared.lock().unwrap().drain(..).for_each(|object| free(&heap, &object));
    assert_eq!(heap.statistics().unwrap().live, 0);
}
