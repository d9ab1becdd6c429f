//! A stream between two processes (experimental): this one starts the other, which answers in capital letters.

use pagewire::{Node, Token};
use pagewire_experimental::stream::Endpoint;
use std::io::{BufRead, BufReader, Read, Result, Write, stdin};
use std::process::{Command, Stdio};

/// The buffer of a stream, in bytes.
const BUFFER: usize = 1 << 16;

fn to_text(token: &Token) -> String {
    token.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_text(text: &str) -> Result<Token> {
    let digits = text.trim().as_bytes().chunks(2).map(|pair| String::from_utf8_lossy(pair).into_owned());
    let bytes: std::result::Result<Vec<u8>, _> = digits.map(|pair| u8::from_str_radix(&pair, 16)).collect();
    Token::from_bytes(&bytes.map_err(std::io::Error::other)?).map_err(std::io::Error::other)
}

fn main() -> Result<()> {
    let node = Node::alone().map_err(std::io::Error::other)?;
    let end = Endpoint::new(&node, BUFFER)?;
    if std::env::args().nth(1).is_some() {
        println!("{}", to_text(&end.token()));
        let mut line = String::new();
        stdin().read_line(&mut line)?;
        let mut stream = end.connect(&node, &from_text(&line)?)?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        stream.write_all(text.to_uppercase().as_bytes())?;
        return stream.finish();
    }
    let mut other = Command::new(std::env::current_exe()?)
        .arg("other")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    if let Some(input) = &mut other.stdin {
        writeln!(input, "{}", to_text(&end.token()))?;
    }
    let mut line = String::new();
    if let Some(output) = other.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    let mut stream = end.connect(&node, &from_text(&line)?)?;
    stream.write_all(b"every byte is a put\n")?;
    stream.finish()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    print!("{answer}");
    other.wait()?;
    Ok(())
}
