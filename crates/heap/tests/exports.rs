//! Freeing an exported object revokes its tokens before its memory can be anybody else's.

use pagewire_heap::{ExportOwner, Heap, HeapError, HeapOptions};
use std::alloc::Layout;
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct Owner(Mutex<Vec<(u64, usize, usize)>>);

impl ExportOwner for Owner {
    fn freed(&self, export: u64, address: usize, length: usize) {
        self.0.lock().unwrap().push((export, address, length));
    }
}

impl Owner {
    fn take(&self) -> Vec<(u64, usize, usize)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn heap() -> (Heap, Arc<Owner>) {
    let heap = Heap::new(HeapOptions { range: 1 << 30, ..HeapOptions::default() }).unwrap();
    let owner = Arc::new(Owner::default());
    heap.set_export_owner(owner.clone()).unwrap();
    (heap, owner)
}

#[test]
fn the_free_of_an_exported_object_revokes_all_its_exports_and_no_others() {
    let (heap, owner) = heap();
    for size in [64, 5000, 100_000, 6 << 20] {
        let layout = Layout::from_size_align(size, 8).unwrap();
        let objects: Vec<_> = (0..3).map(|_| heap.allocate(layout).unwrap()).collect();
        let addresses: Vec<_> = objects.iter().map(|object| object.as_ptr() as usize).collect();
        heap.mark_exported(addresses[0], size, 1).unwrap();
        heap.mark_exported(addresses[1], size, 2).unwrap();
        heap.mark_exported(addresses[1] + size - 8, 8, 3).unwrap();
        heap.mark_exported(addresses[1] + 16, 8, 4).unwrap();
        assert!(heap.unmark_exported(addresses[1] + 16, 4));
        assert!(!heap.unmark_exported(addresses[1] + 16, 4));
        // SAFETY: each object has this layout and is used no more.
        unsafe {
            heap.deallocate(objects[2], layout);
            assert_eq!(owner.take(), []);
            heap.deallocate(objects[1], layout);
            assert_eq!(owner.take(), [(2, addresses[1], size), (3, addresses[1] + size - 8, 8)]);
            heap.deallocate(objects[0], layout);
            assert_eq!(owner.take(), [(1, addresses[0], size)]);
        }
    }
}

#[test]
fn an_object_that_moves_or_shrinks_loses_its_tokens() {
    let (heap, owner) = heap();
    let layout = |size| Layout::from_size_align(size, 8).unwrap();
    // SAFETY: each object is used with its layout, and only at its newest address.
    unsafe {
        let object = heap.allocate(layout(1000)).unwrap();
        let address = object.as_ptr() as usize;
        heap.mark_exported(address, 100, 1).unwrap();
        heap.mark_exported(address + 900, 100, 2).unwrap();
        let object = heap.reallocate(object, layout(1000), layout(800), false).unwrap();
        assert_eq!((object.as_ptr() as usize, owner.take()), (address, vec![(2, address + 900, 100)]));
        let object = heap.reallocate(object, layout(800), layout(80_000), false).unwrap();
        assert_eq!(owner.take(), [(1, address, 100)]);
        heap.mark_exported(object.as_ptr() as usize, 8, 5).unwrap();
        heap.deallocate(object, layout(80_000));
        assert_eq!(owner.take().len(), 1);

        let object = heap.allocate_unsized(10_000, 16, false).unwrap();
        heap.mark_exported(object.as_ptr() as usize, 8, 6).unwrap();
        heap.free_unsized(object);
        assert_eq!(owner.take().len(), 1);
    }
}

#[test]
fn an_export_that_begins_in_what_stays_of_an_object_ends_with_what_goes() {
    let (heap, owner) = heap();
    let layout = |size| Layout::from_size_align(size, 8).unwrap();
    for (old, new) in [(8 << 20, 5 << 20), (1000, 800)] {
        // SAFETY: the object is used with its layout, and only at its newest address.
        unsafe {
            let object = heap.allocate(layout(old)).unwrap();
            let address = object.as_ptr() as usize;
            heap.mark_exported(address, old, 1).unwrap();
            heap.mark_exported(address, new, 2).unwrap();
            let object = heap.reallocate(object, layout(old), layout(new), false).unwrap();
            assert_eq!((object.as_ptr() as usize, owner.take()), (address, vec![(1, address, old)]));
            heap.deallocate(object, layout(new));
            assert_eq!(owner.take(), [(2, address, new)]);
        }
    }
}

#[test]
fn the_end_of_a_heap_revokes_what_is_exported_of_it() {
    let (heap, owner) = heap();
    let object = heap.allocate(Layout::new::<[u64; 100]>()).unwrap();
    heap.mark_exported(object.as_ptr() as usize, 800, 7).unwrap();
    drop(heap);
    assert_eq!(owner.take(), [(7, object.as_ptr() as usize, 800)]);
}

#[test]
fn what_cannot_be_exported_is_refused() {
    let heap = Heap::new(HeapOptions { range: 1 << 30, ..HeapOptions::default() }).unwrap();
    let range = heap.range();
    assert!(matches!(heap.mark_exported(range.start, 8, 1), Err(HeapError::NoExportOwner)));
    let owner = Arc::new(Owner::default());
    heap.set_export_owner(owner.clone()).unwrap();
    assert!(matches!(heap.set_export_owner(owner), Err(HeapError::ExportOwner)));
    for (address, length) in [
        (range.start - 8, 8),
        (range.end - 8, 16),
        (range.end, 8),
        (range.start, 0),
        (range.start, usize::MAX),
    ] {
        assert!(
            matches!(heap.mark_exported(address, length, 1), Err(HeapError::NotInHeap { .. })),
            "{address:#x} {length}"
        );
    }
}

#[test]
fn threads_that_free_revoke_each_export_once() {
    let (heap, owner) = heap();
    const EACH: u64 = 5000;
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let heap = &heap;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                for number in 0..EACH {
                    let layout = Layout::from_size_align(random.usize(8..20_000), 8).unwrap();
                    let object = heap.allocate(layout).unwrap();
                    if number % 2 == 0 {
                        heap.mark_exported(object.as_ptr() as usize, 8, thread * EACH + number).unwrap();
                    }
                    // SAFETY: the object has this layout and is used no more.
                    unsafe { heap.deallocate(object, layout) };
                }
            });
        }
    });
    let mut freed: Vec<_> = owner.take().iter().map(|freed| freed.0).collect();
    freed.sort();
    assert_eq!(freed, (0..4 * EACH).filter(|number| number % 2 == 0).collect::<Vec<_>>());
}
