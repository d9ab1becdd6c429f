//! Reads `vectors/packets.txt`; see `vectors/generate.py` for what it is.

/// A packet with what others say about it.
pub struct Vector {
    pub name: String,
    pub bytes: Vec<u8>,
    /// The ICRC as it stands on the wire.
    pub icrc: Option<[u8; 4]>,
    /// tshark's fields.
    pub fields: Vec<(String, String)>,
}

impl Vector {
    /// An IP datagram; the others begin with a GRH.
    pub fn is_datagram(&self) -> bool {
        !self.name.starts_with("grh")
    }
}

pub fn vectors() -> Vec<Vector> {
    let mut vectors: Vec<Vector> = Vec::new();
    for line in include_str!("../vectors/packets.txt").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["packet", name] => vectors.push(Vector {
                name: name.to_string(),
                bytes: Vec::new(),
                icrc: None,
                fields: Vec::new(),
            }),
            ["bytes", hex] => vectors.last_mut().unwrap().bytes = unhex(hex),
            ["icrc", hex, _by] => {
                vectors.last_mut().unwrap().icrc = Some(unhex(hex).try_into().unwrap());
            }
            ["field", name, value] => {
                vectors.last_mut().unwrap().fields.push((name.to_string(), value.to_string()));
            }
            ["#", ..] | [""] => {}
            _ => panic!("not a line of packets.txt: {line}"),
        }
    }
    assert!(vectors.len() > 100, "only {} vectors", vectors.len());
    vectors
}

fn unhex(hex: &str) -> Vec<u8> {
    assert!(hex.len() % 2 == 0);
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}
