//! What handlers may do with their own log, and attributes of single tokens.

use pagewire::{Node, Rights};
use pagewire_active::{Access, AttributesOf, AttributesOfTokens, Logs, Serving, Summary};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// A handler that polls its own log gets nothing; one that ends its own serving is called no more; a failure of a polled handler is the caller's.
#[test]
fn a_handler_may_use_its_log_and_its_serving() {
    let node = Node::alone().unwrap();
    let table = node.zeroed::<u64>(512).unwrap();
    let log = Arc::new(node.access_log(1 << 16).unwrap());
    table.attributes(..).redirect_puts().to(&log).unwrap();
    let remote = node.open(&table.export(Rights::WRITE).unwrap()).unwrap();

    remote.put_value(0, 1u64).wait().unwrap();
    remote.put_value(0, 2u64).wait().unwrap();
    let inner = log.clone();
    let nested = |_: Access<'_>| {
        assert!(inner.is_in_handler());
        assert_eq!(inner.poll(|_| panic!("a record within the handler of another one")), 0);
    };
    assert_eq!((log.poll_at_most(1, nested), log.poll(|_| {})), (1, 1));
    assert!(!log.is_in_handler());

    let own: Arc<Mutex<Option<Serving>>> = Arc::default();
    let ends = own.clone();
    let serving = log.serve(move |_| {
        let serving = ends.lock().unwrap().take().unwrap();
        assert!(serving.is_in_handler());
        assert_eq!(serving.end(), Summary { handled: 1, panicked: 0 });
    });
    *own.lock().unwrap() = Some(serving.unwrap());
    remote.put_value(0, 3u64).wait().unwrap();
    remote.flush_handled(None).wait().unwrap();
    remote.put_value(0, 4u64).wait().unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| log.poll(|_| panic!("it fails")))).is_err());
    remote.flush_handled(None).wait().unwrap(); // it counts as handled
    assert_eq!(log.poll(|_| {}), 0);
}

/// Attributes of a token are those of its own pages, which begin where its bytes do.
#[test]
fn a_token_of_an_address_has_attributes_of_its_own() {
    let node = Node::alone().unwrap();
    let table = node.zeroed::<u64>(1024).unwrap();
    let log = node.access_log(1 << 16).unwrap();
    let of_region = table.export(Rights::WRITE).unwrap();
    let refused = node.attributes_of(&of_region, ..).log_puts().to(&log).unwrap_err();
    assert!(refused.to_string().contains("the token is of a region"), "{refused}");
    let other = Node::alone().unwrap();
    let refused = other.attributes_of(&of_region, ..).log_puts().to(&log).unwrap_err();
    assert!(refused.to_string().contains("of another node"), "{refused}");
}
