//! Three processes keep the parity of their checkpoints in a fourth one; one of them dies (docs/guide/parity.md). Here they are four nodes of
//! one process.

use pagewire::{Node, Region};
use pagewire_active::{Parity, ParityError, ParityMember};
use std::time::Duration;

fn main() -> Result<(), ParityError> {
    let keeper = Node::alone()?;
    let parity = Parity::new(&keeper, 3, 1 << 20)?; // three members of up to a mebibyte

    let mut members: Vec<(ParityMember, Region<u64>, Node)> = Vec::new();
    for member in 0..3 {
        let node = Node::alone()?;
        let table = node.zeroed::<u64>(100_000)?;
        table.set(50_000, 10 * member as u64)?;
        let mut this = ParityMember::join(&node, &parity.token(member)?, member)?;
        println!("member {member} saves round {}", this.save(&[&table])?);
        members.push((this, table, node));
    }
    members[0].0.wait_complete(Duration::from_secs(10))?;

    println!("member 1 dies");
    drop(members.remove(1));

    let others = [members[0].0.token()?, members[1].0.token()?];
    let node = Node::alone()?;
    let (member, rebuilt) = ParityMember::rebuild(&node, &parity.token(1)?, 1, &others)?;
    let table = node.zeroed::<u64>(100_000)?;
    member.restore(&[&table])?;
    println!("{} bytes of round {} are rebuilt: it had {}", rebuilt.bytes, rebuilt.round, table.get(50_000)?);
    Ok(())
}
