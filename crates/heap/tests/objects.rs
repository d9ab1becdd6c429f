//! Objects of every size and alignment: where they lie, what is in them, what becomes of their pages.

use allocator_api2::{boxed::Box as HeapBox, vec::Vec as HeapVec};
use pagewire_heap::{Heap, HeapError, HeapOptions, HeapRef};
use std::alloc::Layout;
use std::ptr::NonNull;
use std::time::Duration;

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

fn heap(range: usize) -> Heap {
    Heap::new(HeapOptions { range, ..HeapOptions::default() }).unwrap()
}

fn layout(size: usize, alignment: usize) -> Layout {
    Layout::from_size_align(size, alignment).unwrap()
}

/// Checks the object's place, writes its first and last byte.
fn check(heap: &Heap, object: NonNull<u8>, layout: Layout) {
    let start = object.as_ptr() as usize;
    assert_eq!(start % layout.align(), 0, "{layout:?}");
    assert!(heap.range().contains(&start), "{layout:?}");
    assert!(start + layout.size() <= heap.range().end, "{layout:?}");
    // SAFETY: the object was allocated with this layout.
    unsafe {
        assert!(heap.usable_size(object) >= layout.size(), "{layout:?}");
        if layout.size() > 0 {
            object.write(1);
            object.add(layout.size() - 1).write(2);
        }
    }
}

fn is_zero(object: NonNull<u8>, length: usize) -> bool {
    // SAFETY: the callers pass objects of at least this length, all of whose bytes are initialised.
    let bytes = unsafe { std::slice::from_raw_parts(object.as_ptr(), length) };
    bytes.chunks(4096).all(|bytes| *bytes == [0; 4096][..bytes.len()])
}

#[test]
fn a_heap_is_shared_by_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Heap>();
    shared::<HeapRef>();
    shared::<HeapError>();
}

#[test]
fn every_size_and_alignment_lies_in_the_range() {
    let heap = heap(1 << 40);
    let sizes = (0..37).flat_map(|shift| [(1usize << shift) - 1, 1 << shift, (1 << shift) + 1]);
    for size in sizes.chain([64 * GIB, 100 * GIB + 12345]) {
        for alignment in (0..31).map(|shift| 1usize << shift) {
            let layout = layout(size, alignment);
            let object = heap.allocate(layout).unwrap();
            check(&heap, object, layout);
            // SAFETY: the object was allocated with this layout and is used no more.
            unsafe { heap.deallocate(object, layout) };
        }
    }
    let statistics = heap.statistics().unwrap();
    assert_eq!(statistics.live, 0);
    assert!(statistics.peak >= 100 * GIB as u64 && statistics.registered == 1 << 40, "{statistics:?}");
    assert!(matches!(heap.allocate(layout(1, 2 * GIB)), Err(HeapError::Alignment { .. })));
}

#[test]
fn many_objects_of_one_size_fill_more_than_one_arena() {
    // Arenas of 32 MiB.
    let heap = heap(256 * MIB);
    let layout = layout(100_000, 8);
    let mut objects = Vec::new();
    while objects.len() < 1000 {
        let object = heap.allocate(layout).unwrap();
        check(&heap, object, layout);
        objects.push(object);
    }
    objects.sort();
    assert!(
        objects.windows(2).all(|pair| pair[0].as_ptr() as usize + layout.size() <= pair[1].as_ptr() as usize)
    );
    assert_eq!(heap.statistics().unwrap().live, 100_000_000);
    for object in objects {
        // SAFETY: the object was allocated with this layout and is used no more.
        unsafe { heap.deallocate(object, layout) };
    }
}

#[test]
fn exhaustion_by_small_objects_is_an_error_and_ends_with_the_next_free() {
    let heap = heap(128 * MIB);
    for layout in [layout(40, 8), layout(3000, 8), layout(70_000, 8), layout(2 * MIB, 8)] {
        exhaust(&heap, layout);
    }
}

#[test]
fn exhaustion_by_large_objects_is_an_error_and_ends_with_the_next_free() {
    let heap = heap(160 * MIB);
    for layout in [layout(5 * MIB, 8), layout(8, 4 * MIB), layout(159 * MIB, 8), layout(160 * MIB, 8)] {
        exhaust(&heap, layout);
    }
    assert!(matches!(heap.allocate(layout(1 << 46, 1)), Err(HeapError::Exhausted { .. })));
}

/// Allocates until there is no more, and frees all.
fn exhaust(heap: &Heap, layout: Layout) {
    let mut objects = Vec::new();
    let error = loop {
        match heap.allocate(layout) {
            Ok(object) => objects.push(object),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, HeapError::Exhausted { .. }), "{layout:?}: {error}");
    assert!(error.to_string().contains("HeapOptions::range"), "{error}");
    assert!(!objects.is_empty(), "{layout:?}");
    assert!(objects.iter().all(|object| heap.contains(object.as_ptr())), "{layout:?}");
    // SAFETY: the objects were allocated with this layout and are used no more.
    unsafe {
        heap.deallocate(objects.pop().unwrap(), layout);
        objects.push(heap.allocate(layout).unwrap());
        objects.into_iter().for_each(|object| heap.deallocate(object, layout));
    }
}

#[test]
fn the_ceiling_bounds_what_is_in_use() {
    let ceiling = 64 * MIB;
    let heap =
        Heap::new(HeapOptions { range: GIB, ceiling: Some(ceiling), ..HeapOptions::default() }).unwrap();
    for layout in [layout(5 * MIB, 8), layout(1000, 8), layout(600_000, 8), layout(32 * MIB, 8)] {
        let mut objects = Vec::new();
        let error = loop {
            match heap.allocate(layout) {
                Ok(object) => objects.push(object),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, HeapError::Ceiling { .. }), "{layout:?}: {error}");
        let statistics = heap.statistics().unwrap();
        assert!(statistics.in_use <= ceiling as u64 && statistics.peak <= ceiling as u64, "{statistics:?}");
        assert!(objects.len() * layout.size() * 4 >= ceiling, "{layout:?}: only {}", objects.len());
        // SAFETY: the objects were allocated with this layout and are used no more.
        objects.into_iter().for_each(|object| unsafe { heap.deallocate(object, layout) });
        heap.purge().unwrap();
    }
}

#[test]
fn zeroed_is_zero_after_reuse_and_after_purge() {
    let heap = heap(GIB);
    for size in [1, 24, 1000, 5000, 70_000, 300_000, MIB, 3 * MIB, 5 * MIB, 33 * MIB] {
        for purge in [false, true] {
            for round in 0..5 {
                let layout = layout(size, if round % 2 == 0 { 8 } else { 4096 });
                let objects: Vec<_> = (0..3).map(|_| heap.allocate_zeroed(layout).unwrap()).collect();
                for &object in &objects {
                    assert!(is_zero(object, size), "{size} bytes, round {round}, purge {purge}");
                    // SAFETY: the object has so many bytes.
                    unsafe { object.write_bytes(0xff, size) };
                }
                // SAFETY: the objects were allocated with this layout and are used no more.
                objects.into_iter().for_each(|object| unsafe { heap.deallocate(object, layout) });
                if purge {
                    heap.purge().unwrap();
                }
            }
        }
    }
}

#[test]
fn freed_pages_go_back_and_what_is_retained_stays() {
    let heap = Heap::new(HeapOptions {
        range: 4 * GIB,
        retain: 32 * MIB,
        purge_delay: Duration::ZERO,
        ..HeapOptions::default()
    })
    .unwrap();
    let layout = layout(64 * MIB, 8);
    let objects: Vec<_> = (0..2).map(|_| heap.allocate(layout).unwrap()).collect();
    // SAFETY: the objects have so many bytes.
    objects.iter().for_each(|object| unsafe { object.write_bytes(1, layout.size()) });
    let resident = |heap: &Heap| heap.statistics().unwrap().resident as usize;
    assert!(resident(&heap) >= 128 * MIB);
    // SAFETY: the objects were allocated with this layout and are used no more.
    objects.into_iter().for_each(|object| unsafe { heap.deallocate(object, layout) });
    heap.purge_expired().unwrap();
    assert!((31 * MIB..40 * MIB).contains(&resident(&heap)), "{}", resident(&heap));
    heap.retain(0);
    heap.purge_expired().unwrap();
    assert!(resident(&heap) < 8 * MIB, "{}", resident(&heap));
    assert_eq!(heap.statistics().unwrap().refused_purges, 0);
}

#[test]
fn small_objects_pages_go_back_on_purge() {
    let heap = heap(4 * GIB);
    let layout = layout(1000, 8);
    let objects: Vec<_> = (0..100_000).map(|_| heap.allocate_zeroed(layout).unwrap()).collect();
    // SAFETY: the objects have so many bytes.
    objects.iter().for_each(|object| unsafe { object.write_bytes(1, layout.size()) });
    let before = heap.statistics().unwrap();
    assert!(before.resident >= 100_000_000 && before.live == 100_000_000, "{before:?}");
    // SAFETY: the objects were allocated with this layout and are used no more.
    objects.into_iter().for_each(|object| unsafe { heap.deallocate(object, layout) });
    heap.purge().unwrap();
    let after = heap.statistics().unwrap();
    assert!(after.resident < 4 * MIB as u64 && after.in_use < 4 * MIB as u64 && after.live == 0, "{after:?}");
}

/// The bytes that stay resident, once they are few enough; until then nobody allocates or frees.
fn resident_once_below(heap: &Heap, bytes: u64) -> u64 {
    let start = std::time::Instant::now();
    loop {
        let resident = heap.statistics().unwrap().resident;
        if resident < bytes || start.elapsed() > Duration::from_secs(30) {
            return resident;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn idle_heap_purges_pages() {
    let options = HeapOptions {
        range: 4 * GIB,
        retain: 8 * MIB,
        purge_delay: Duration::from_millis(100),
        ..HeapOptions::default()
    };
    let heap = Heap::new(options).unwrap();
    for layout in [layout(64 * MIB, 8), layout(1000, 8), layout(300_000, 8)] {
        let objects: Vec<_> =
            (0..128 * MIB / layout.size()).map(|_| heap.allocate(layout).unwrap()).collect();
        // SAFETY: the objects have so many bytes.
        objects.iter().for_each(|object| unsafe { object.write_bytes(1, layout.size()) });
        assert!(heap.statistics().unwrap().resident as usize >= 127 * MIB);
        // SAFETY: the objects were allocated with this layout and are used no more.
        objects.into_iter().for_each(|object| unsafe { heap.deallocate(object, layout) });
        let resident = resident_once_below(&heap, 16 * MIB as u64);
        assert!(resident < 16 * MIB as u64, "{layout:?}: {resident}");
    }
}

#[test]
fn idle_heap_keeps_retained_pages() {
    let options =
        HeapOptions { range: GIB, retain: 48 * MIB, purge_delay: Duration::ZERO, ..HeapOptions::default() };
    let heap = Heap::new(options).unwrap();
    let layout = layout(64 * MIB, 8);
    let object = heap.allocate(layout).unwrap();
    // SAFETY: the object has so many bytes, and is used no more once it is freed.
    unsafe {
        object.write_bytes(1, layout.size());
        heap.deallocate(object, layout);
    }
    assert!(resident_once_below(&heap, 50 * MIB as u64) < 50 * MIB as u64);
    std::thread::sleep(Duration::from_millis(300));
    assert!(heap.statistics().unwrap().resident >= 47 * MIB as u64);
}

/// The kernel refuses to take locked pages, so they are unlocked first.
#[test]
fn pages_that_were_freed_locked_go_back_too() {
    let heap = Heap::new(HeapOptions { range: GIB, retain: 0, ..HeapOptions::default() }).unwrap();
    // The least of the usual limits for users (RLIMIT_MEMLOCK).
    const LOCKED: usize = 64 << 10;
    for layout in [layout(6 * MIB, 8), layout(100_000, 8)] {
        let object = heap.allocate(layout).unwrap();
        // SAFETY: the object has so many bytes; mlock(2) changes none, and nobody uses the object once it is freed.
        unsafe {
            object.write_bytes(1, layout.size());
            assert_eq!(
                libc::mlock(object.as_ptr().cast(), LOCKED / 2),
                0,
                "{}",
                std::io::Error::last_os_error()
            );
            heap.deallocate(object, layout);
        }
        heap.purge().unwrap();
        let statistics = heap.statistics().unwrap();
        assert_eq!(statistics.refused_purges, 0);
        assert!(statistics.resident < 2 * MIB as u64, "{layout:?}: {statistics:?}");
        let zeroed = heap.allocate_zeroed(layout).unwrap();
        assert!(is_zero(zeroed, layout.size()));
        // SAFETY: the object was allocated with this layout and is used no more.
        unsafe { heap.deallocate(zeroed, layout) };
        heap.purge().unwrap();
    }
}

#[test]
fn an_object_keeps_its_bytes_when_its_size_changes() {
    let heap = heap(4 * GIB);
    let sizes = [1, 100, 90, 5000, 70_000, 60_000, 3 * MIB, 9 * MIB, 20 * MIB, 6 * MIB, 50 * MIB, 1000, 7];
    let mut layouts = layout(sizes[0], 8);
    let mut object = heap.allocate_zeroed(layouts).unwrap();
    let mut known = 0;
    for size in sizes {
        let new = layout(size, 8);
        // SAFETY: the object has this layout; only the new address is used.
        unsafe {
            object = heap.reallocate(object, layouts, new, true).unwrap();
            check_pattern(object, known.min(size));
            assert!(is_zero(object.add(known.min(size)), size - known.min(size)), "{size}");
            for index in 0..size {
                object.add(index).write((index % 251) as u8 + 1);
            }
        }
        (layouts, known) = (new, size);
        assert_eq!(heap.statistics().unwrap().live, size as u64);
    }
    // SAFETY: the object has this layout and is used no more.
    unsafe { heap.deallocate(object, layouts) };
    assert_eq!(heap.statistics().unwrap().live, 0);
}

/// # Safety
/// The object has so many bytes.
unsafe fn check_pattern(object: NonNull<u8>, length: usize) {
    for index in 0..length {
        // SAFETY: the caller promises that the object has `length` bytes, and `index` is below.
        assert_eq!(unsafe { object.add(index).read() }, (index % 251) as u8 + 1, "byte {index} of {length}");
    }
}

#[test]
fn a_large_object_grows_in_its_place_where_nothing_follows() {
    let heap = heap(4 * GIB);
    let (old, new) = (layout(8 * MIB, 8), layout(64 * MIB, 8));
    let object = heap.allocate(old).unwrap();
    // SAFETY: the object has this layout; only the new address is used.
    let grown = unsafe { heap.reallocate(object, old, new, false).unwrap() };
    assert_eq!(grown, object);
    // SAFETY: the object has this layout and is used no more.
    unsafe { heap.deallocate(grown, new) };
}

#[test]
fn objects_without_a_known_size_are_counted_too() {
    let heap = heap(GIB);
    let mut objects = Vec::new();
    for size in [0, 1, 17, 5000, 70_000, 5 * MIB] {
        for alignment in [1, 16, 64, 4096, MIB] {
            let object = heap.allocate_unsized(size, alignment, true).unwrap();
            check(&heap, object, layout(size, alignment));
            objects.push(object);
        }
    }
    // SAFETY: each object came from `allocate_unsized` and is used no more.
    unsafe {
        for object in objects {
            let moved = heap.reallocate_unsized(object, 30_000).unwrap();
            heap.free_unsized(moved);
        }
    }
    assert_eq!(heap.statistics().unwrap().live, 0);
    assert!(matches!(heap.allocate_unsized(1, 3, false), Err(HeapError::Alignment { .. })));
}

#[test]
fn collections_live_in_the_heap() {
    let heap = heap(GIB);
    let mut numbers = HeapVec::new_in(&heap);
    numbers.extend(0..1_000_000u64);
    assert!(heap.contains(&numbers[999_999]));
    assert!(numbers.iter().copied().eq(0..1_000_000));
    numbers.truncate(10);
    numbers.shrink_to_fit();
    let nothing: HeapBox<[u8; 0], _> = HeapBox::new_in([], &heap);
    drop((numbers, nothing));
    assert_eq!(heap.statistics().unwrap().live, 0);
}

#[test]
fn heaps_come_and_go() {
    for round in 0..60 {
        let heap = heap(512 * MIB);
        for layout in [layout(200_000, 8), layout(10 * MIB, 8)] {
            let objects: Vec<_> = (0..4).map(|_| heap.allocate_zeroed(layout).unwrap()).collect();
            for object in objects {
                assert!(is_zero(object, layout.size()), "round {round}");
                // SAFETY: the object has so many bytes, and is used no more once it is freed.
                unsafe {
                    object.write_bytes(0xff, 100_000);
                    heap.deallocate(object, layout);
                }
            }
        }
        assert_eq!(heap.statistics().unwrap().live, 0);
        // A thread that ends while the heap does.
        std::thread::scope(|scope| {
            scope.spawn(|| heap.allocate(layout(1, 8)).map(|_| ()).unwrap());
        });
        assert_eq!(heap.statistics().unwrap().live, 1);
        // Left to the end of the heap.
        heap.allocate(layout(100 * MIB, 8)).unwrap();
    }
}

#[test]
fn a_thread_outlives_a_heap_that_it_used() {
    let (to_thread, heaps) = std::sync::mpsc::sync_channel::<HeapRef>(0);
    let thread = std::thread::spawn(move || {
        for heap in heaps {
            let layout = layout(100, 8);
            let object = heap.allocate(layout).unwrap();
            check(&heap, object, layout);
            // SAFETY: the object has this layout and is used no more.
            unsafe { heap.deallocate(object, layout) };
        }
    });
    for _ in 0..100 {
        to_thread.send(HeapRef::from(heap(512 * MIB))).unwrap();
    }
    drop(to_thread);
    thread.join().unwrap();
}

#[test]
fn options_out_of_bounds_are_refused() {
    for range in [0, 1, 32 * MIB, 65 * MIB, 1 << 47] {
        let error = Heap::new(HeapOptions { range, ..HeapOptions::default() }).unwrap_err();
        assert!(matches!(error, HeapError::Range { .. }), "{range}: {error}");
    }
}
