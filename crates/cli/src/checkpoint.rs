//! `pagewire checkpoint`: what a file of checkpoints has, whether it is whole, and its bytes; and the request to save.

mod extract;
mod now;

use crate::arguments::CheckpointArguments;
use crate::output::table::Table;
use anyhow::{Result, ensure};
use pagewire_active::{CheckpointInfo, Inspection, Verified};
use serde_json::{Map, Value, json};
use std::io::Write;
use std::path::Path;

/// Does what the command line asks for; gives the exit status: 1 if a file is no such file, its last checkpoint is of no use, it has none that
/// `--verify` could find, or a process has not saved.
///
/// # Errors
/// If it cannot be printed.
pub fn checkpoint(arguments: &CheckpointArguments) -> Result<u8> {
    if !arguments.now.is_empty() {
        return now::save(&arguments.now, arguments.json);
    }
    if let Some(to) = &arguments.extract {
        ensure!(
            arguments.files.len() == 1,
            "--extract takes one FILE, and {} are named",
            arguments.files.len()
        );
        return extract::extract(&arguments.files[0], arguments.number, to);
    }
    let mut out = anstream::stdout().lock();
    let mut code = 0;
    for path in &arguments.files {
        match Looked::at(path, arguments.verify) {
            Ok(looked) => {
                match arguments.json {
                    true => looked.write_json(&mut out)?,
                    false => looked.write_table(&mut out)?,
                }
                code |= u8::from(looked.tell_damage());
            }
            Err(error) => {
                crate::tell!("pagewire: {error}");
                code = 1;
            }
        }
    }
    Ok(code)
}

/// A file that was looked at.
struct Looked<'p> {
    path: &'p Path,
    inspection: Inspection,
    /// Whether each checkpoint can be restored, if that was asked.
    verified: Option<Vec<Verified>>,
    /// What a verbs program says of its region.
    region: Option<Map<String, Value>>,
}

impl<'p> Looked<'p> {
    fn at(path: &'p Path, verify: bool) -> Result<Looked<'p>> {
        let inspection = Inspection::open(path)?;
        let verified = verify.then(|| inspection.verify()).transpose()?;
        let last = inspection.checkpoints().last().copied();
        let region = last.map(|last| inspection.note(last.number)).transpose()?;
        let region = region.and_then(|note| serde_json::from_slice::<Map<_, _>>(&note).ok());
        let region = region.filter(|region| region.contains_key("program") && region.contains_key("address"));
        Ok(Looked { path, inspection, verified, region })
    }

    fn verdict(&self, index: usize) -> Option<Verified> {
        self.verified.as_ref().and_then(|verified| verified.get(index).copied())
    }

    fn write_json(&self, out: &mut impl Write) -> Result<()> {
        let checkpoints = self.inspection.checkpoints();
        let checkpoints: Vec<_> = checkpoints
            .iter()
            .enumerate()
            .map(|(index, info)| {
                let bytes = info.end - info.start;
                let mut object = json!({ "number": info.number, "kind": info.kind.name(), "pages": info.pages, "bytes": bytes, "note": info.note, "time": info.time });
                match self.verdict(index) {
                    Some(Verified::Whole) => object["whole"] = true.into(),
                    Some(Verified::DamagedAt(at)) => {
                        (object["whole"], object["damaged_at"]) = (false.into(), at.into());
                    }
                    None => {}
                }
                object
            })
            .collect();
        let mut object = json!({
            "file": self.path.display().to_string(),
            "regions": self.inspection.regions(),
            "verified": self.verified.is_some(),
            "unfinished": self.inspection.unfinished(),
            "checkpoints": checkpoints,
        });
        if let Some(region) = &self.region {
            object["region"] = region.clone().into();
        }
        Ok(writeln!(out, "{object}")?)
    }

    fn write_table(&self, out: &mut impl Write) -> Result<()> {
        let regions: Vec<String> = self.inspection.regions().iter().map(u64::to_string).collect();
        match regions.is_empty() {
            true => writeln!(out, "{}", self.path.display())?,
            false => writeln!(out, "{}: regions of {} bytes", self.path.display(), regions.join(", "))?,
        }
        if let Some(region) = &self.region {
            writeln!(out, "  {}", region_sentence(region))?;
        }
        let mut titles = vec!["checkpoint", "kind", "pages", "bytes", "note"];
        titles.extend(self.verified.as_ref().map(|_| "data"));
        let mut table = Table::new(&titles);
        for (index, info) in self.inspection.checkpoints().iter().enumerate() {
            let bytes = info.end - info.start;
            let numbers = [info.pages, bytes, u64::from(info.note)].map(|number| number.to_string());
            let mut row = vec![info.number.to_string(), info.kind.name().to_owned()];
            row.extend(numbers);
            row.extend(self.verdict(index).map(|verdict| match verdict {
                Verified::Whole => "whole".to_owned(),
                Verified::DamagedAt(at) => format!("damaged at byte {at}"),
            }));
            table.row(row);
        }
        table.write(out, "  ")?;
        if self.inspection.unfinished() > 0 {
            writeln!(out, "  {} bytes of one that is not finished", self.inspection.unfinished())?;
        }
        let last = self.inspection.checkpoints().last().map(|info| info.number);
        let whole = self.verified.as_ref().map(|all| all.iter().all(|verdict| *verdict == Verified::Whole));
        match (last, whole) {
            (None, _) => writeln!(out, "  no checkpoint")?,
            (Some(last), Some(true)) => {
                writeln!(out, "  all data are what was saved; {last} is the last")?;
            }
            (Some(last), Some(false)) => writeln!(out, "  {last} is the last")?,
            (Some(last), None) => writeln!(out, "  {last} is the last (--verify reads all data)")?,
        }
        Ok(())
    }

    /// Says what is damaged; whether the last checkpoint is, or, with `--verify`, there is none.
    fn tell_damage(&self) -> bool {
        let checkpoints = self.inspection.checkpoints();
        let damaged = |(info, verdict): (&CheckpointInfo, Option<Verified>)| match verdict {
            Some(Verified::DamagedAt(at)) => Some((info.number, at)),
            _ => None,
        };
        let verdicts = checkpoints.iter().enumerate().map(|(index, info)| (info, self.verdict(index)));
        let found: Vec<(u64, u64)> = verdicts.filter_map(damaged).collect();
        let Some(last) = checkpoints.last() else {
            // Only --verify says whether something can be restored.
            if self.verified.is_some() {
                crate::tell!("pagewire: {} has no checkpoint: nothing can be restored", self.path.display());
            }
            return self.verified.is_some();
        };
        let Some((first, at)) = found.first() else { return false };
        let is_last = found.last().is_some_and(|(number, _)| *number == last.number);
        let other = match is_last {
            false => format!("checkpoint {}, the last one, is whole", last.number),
            true => {
                let is_whole =
                    |info: &&CheckpointInfo| !found.iter().any(|(number, _)| *number == info.number);
                match checkpoints.iter().rev().find(is_whole) {
                    Some(whole) => format!("the last one that is whole is {}", whole.number),
                    None => "none is whole".to_owned(),
                }
            }
        };
        crate::tell!(
            "pagewire: {} is damaged at byte {at}, so checkpoint {first} cannot be restored: {other}",
            self.path.display()
        );
        is_last
    }
}

/// Which region of which program it is.
fn region_sentence(region: &Map<String, Value>) -> String {
    let number = |name: &str| region.get(name).and_then(Value::as_u64).unwrap_or_default();
    let program = region.get("program").and_then(Value::as_str).unwrap_or("?");
    let mut text = format!(
        "region {} of {} (PID {}): {} bytes at {:#x}",
        number("region"),
        crate::output::report::printable(program),
        number("pid"),
        number("length"),
        number("address"),
    );
    if region.contains_key("round") {
        text += &format!(", in round {}", number("round"));
    }
    text
}
