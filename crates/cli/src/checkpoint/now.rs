//! The request to a process to save its regions now.

use crate::explain::{Silence, checkpoint, titled};
use crate::output::report::printable;
use crate::output::table::Table;
use anyhow::Result;
use serde_json::Value;
use std::io::Write;

/// Has processes save; gives the exit status: 1 if one has not saved all.
///
/// # Errors
/// If it cannot be printed.
pub fn save(processes: &[u32], as_json: bool) -> Result<u8> {
    let mut out = anstream::stdout().lock();
    let mut code = 0;
    for pid in processes {
        match answer(*pid) {
            Ok(round) if as_json => {
                code |= u8::from(has_error(&round));
                writeln!(out, "{round}")?;
            }
            Ok(round) => {
                code |= u8::from(has_error(&round));
                write(&mut out, *pid, &round)?;
            }
            Err(why) => {
                code = 1;
                crate::tell!("pagewire: {}: {why}", titled(*pid));
            }
        }
    }
    out.flush()?;
    Ok(code)
}

fn answer(pid: u32) -> Result<Value, String> {
    let text = checkpoint(pid).map_err(|silence| match silence {
        Silence::NoEngine => {
            "it saves no regions: it was not started by pagewire run --checkpoint, has registered none yet, or could make no \
             folder there, which it has then told on its standard error output"
                .to_owned()
        }
        silence => silence.to_string(),
    })?;
    serde_json::from_str(&text).map_err(|error| format!("its answer is not understood: {error}"))
}

fn regions(round: &Value) -> impl Iterator<Item = &Value> {
    round["regions"].as_array().into_iter().flatten()
}

fn has_error(round: &Value) -> bool {
    regions(round).any(|region| region.get("error").is_some())
}

fn write(out: &mut impl Write, pid: u32, round: &Value) -> Result<()> {
    let folder = printable(round["folder"].as_str().unwrap_or("?"));
    writeln!(out, "{}: round {} in {folder}", titled(pid), round["round"])?;
    let mut table = Table::new(&["file", "bytes", "checkpoint", "kind", "pages"]);
    for region in regions(round) {
        let file = region["file"].as_str().and_then(|file| file.rsplit('/').next()).unwrap_or("?");
        let number = |name: &str| region[name].as_u64().map_or("-".to_owned(), |number| number.to_string());
        let kind = region["kind"].as_str().unwrap_or("not saved");
        table.row(vec![
            printable(file),
            number("length"),
            number("checkpoint"),
            kind.to_owned(),
            number("pages"),
        ]);
    }
    table.write(out, "  ")?;
    for region in regions(round) {
        if let Some(error) = region["error"].as_str() {
            writeln!(out, "  not saved: {}", printable(error))?;
        }
    }
    Ok(())
}
