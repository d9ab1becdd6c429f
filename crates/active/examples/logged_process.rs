//! Two processes with logged puts and gets; one of them dies, and repeats its work (docs/guide/logged-process.md). Here they are two nodes of one process.

use pagewire::Node;
use pagewire_active::{LoggedProcess, LoggedProcessError, LoggedProcessOptions};
use std::sync::Arc;

/// An epoch of the worker: it gets a number, adds it to its sum, and puts the sum to the other one.
fn work(worker: &mut LoggedProcess) -> Result<(), LoggedProcessError> {
    let number = worker.get(0, 0, 8)?;
    let number: u64 = number.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let sum = worker.memory().get(0)? + number;
    worker.memory().set(0, sum)?;
    worker.put(0, 8, &sum.to_le_bytes())
}

fn main() -> Result<(), LoggedProcessError> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let begin = |rank: usize| {
        let path = format!("{folder}/process-{rank}.checkpoint");
        let node = Arc::new(Node::alone()?);
        LoggedProcess::start(&node, (rank, 2), 4096, path, &LoggedProcessOptions::default())
    };
    let (mut giver, _) = begin(0)?;
    let (mut worker, note) = begin(1)?;
    assert!(note.is_none(), "the folder has files of an earlier run");
    worker.connect(&giver.ticket(1)?)?;
    giver.connect(&worker.ticket(0)?)?;

    for epoch in 1..=4u64 {
        giver.memory().set(0, 10 * epoch)?;
        work(&mut worker)?;
        // Here all processes have a barrier.
        giver.next_epoch()?;
        worker.next_epoch()?;
        println!("epoch {epoch}: the sum is {}", giver.memory().get(1)?);
        if epoch == 2 {
            worker.checkpoint(b"two epochs")?;
        }
    }
    drop(worker);
    println!("the worker dies");

    // Another process takes its place.
    let (mut worker, note) = begin(1)?;
    let note = String::from_utf8(note.unwrap_or_default()).unwrap_or_default();
    println!("it was saved with the note {note:?} and the sum {}", worker.memory().get(0)?);
    worker.connect(&giver.ticket(1)?)?;
    worker.replay()?;
    while worker.is_replaying() {
        work(&mut worker)?; // its gets come from the log, its puts have arrived before
        worker.next_epoch()?;
    }
    println!("it has repeated its work: the sum is {}", worker.memory().get(0)?);
    giver.connect(&worker.ticket(0)?)?;

    giver.memory().set(0, 50)?;
    work(&mut worker)?;
    giver.next_epoch()?;
    worker.next_epoch()?;
    println!("epoch 5: the sum is {}", giver.memory().get(1)?);
    Ok(())
}
