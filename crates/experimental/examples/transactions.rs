//! Distributed transactions (experimental): two stores, and two clients that move money between their accounts at the same time.

use pagewire::Node;
use pagewire_experimental::transactions::{Client, Store, StoreOptions, TransactionError};
use std::sync::Arc;

fn amount(value: &[u8]) -> i64 {
    value.try_into().map_or(0, i64::from_ne_bytes)
}

fn main() -> Result<(), TransactionError> {
    // Each could be another process. Tokens go to others by any means.
    let owners = [Arc::new(Node::alone()?), Arc::new(Node::alone()?)];
    let options = StoreOptions { cells: 16, value: 8, journal: None };
    let stores = [Store::new(&owners[0], &options)?, Store::new(&owners[1], &options)?];
    let tokens = [stores[0].token(), stores[1].token()];
    let mut served = Vec::new();
    for (place, store) in stores.into_iter().enumerate() {
        served.push(store.serve(&owners[place], place, &tokens)?);
    }

    let work = |amount_moved: i64| -> Result<(), TransactionError> {
        let node = Node::alone()?;
        let mut client = Client::new(&node, &tokens)?;
        for _ in 0..100 {
            client.run(|transaction| {
                let from = amount(&transaction.get(0, 3)?) - amount_moved;
                let to = amount(&transaction.get(1, 5)?) + amount_moved;
                transaction.put(0, 3, &from.to_ne_bytes())?;
                transaction.put(1, 5, &to.to_ne_bytes())
            })?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let clients = [1, 2].map(|amount_moved| scope.spawn(move || work(amount_moved)));
        clients.into_iter().try_for_each(|client| client.join().unwrap_or(Err(TransactionError::Conflict)))
    })?;

    let balance = |store: usize, cell| served[store].cell(cell).map(|(_, value)| amount(&value));
    println!("account 3 of store 0: {:?}, account 5 of store 1: {:?}", balance(0, 3), balance(1, 5));
    Ok(())
}
