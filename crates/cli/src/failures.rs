//! The rules of `pagewire run --fail`: as words on the command line, as a file of TOML, or as the log of an earlier run. The engine gets words.

use anyhow::{Context, Result, anyhow, bail};
use pagewire_failures::{Note, Rules, Verb, limits};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use toml::Spanned;

/// The words for the rules that an option names: RULES themselves, or `@FILE`, or FILE.toml, or FILE.jsonl.
///
/// # Errors
/// What is wrong, where, and what would be right.
pub fn words_of(option: &str) -> Result<String> {
    let is_file = |name: &str| name.ends_with(".toml") || name.ends_with(".jsonl");
    let text = match option.strip_prefix('@') {
        Some(file) => words_of_file(Path::new(file))?,
        None if is_file(option) && !option.contains('=') => words_of_file(Path::new(option))?,
        None => option.to_owned(),
    };
    let rules = Rules::parse(&text, "").map_err(|error| anyhow!("{error}"))?;
    // Those of all roles: an empty role has only the rules without one.
    if text.trim().is_empty() || rules.is_empty() {
        bail!("there is no rule");
    }
    Ok(text)
}

/// Bytes of a file of rules. A log is longer than the rules that it becomes.
const MAX_FILE: u64 = limits::MAX_TEXT as u64 * 8;

fn words_of_file(file: &Path) -> Result<String> {
    let named = || file.display().to_string();
    let mut text = String::new();
    let opened = File::open(file).with_context(named)?;
    opened.take(MAX_FILE + 1).read_to_string(&mut text).with_context(named)?;
    if text.len() as u64 > MAX_FILE {
        bail!("{} is longer than {} KiB", named(), MAX_FILE >> 10);
    }
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    let words = match first {
        Some(line) if line.starts_with('{') => of_log(&text),
        Some(line) if line.starts_with("[[rule]]") || line.starts_with("seed") && !line.contains(';') => {
            of_toml(&text)
        }
        _ if file.extension().is_some_and(|extension| extension == "toml") => of_toml(&text),
        _ => Ok(text),
    };
    words.with_context(named)
}

/// A file of rules in TOML.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    seed: Option<u64>,
    #[serde(default)]
    rule: Vec<Spanned<RuleTable>>,
}

/// A value of a key: text or a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Whole(u64),
    Share(f64),
    Text(String),
}

/// One rule: its keys are those of the words.
type RuleTable = BTreeMap<String, Scalar>;

fn of_toml(text: &str) -> Result<String> {
    // The error says the line, and which keys there are.
    let RuleFile { seed, rule } = toml::from_str(text)?;
    let mut words = String::new();
    if let Some(seed) = seed {
        writeln!(words, "seed={seed}")?;
    }
    for table in rule {
        let line = 1 + text[..table.span().start].matches('\n').count();
        let rule = words_of_table(table.get_ref()).with_context(|| format!("the rule in line {line}"))?;
        Rules::parse(&rule, "").map_err(|error| anyhow!("the rule in line {line}: {}", error.what))?;
        words.push_str(&rule);
        words.push('\n');
    }
    Ok(words)
}

fn words_of_table(table: &RuleTable) -> Result<String> {
    let mut words = Vec::new();
    for (key, value) in table {
        let value = match value {
            Scalar::Whole(number) => number.to_string(),
            Scalar::Share(share) => share.to_string(),
            Scalar::Text(text) => text.clone(),
        };
        if value.contains(|c: char| c.is_whitespace() || c == ';' || c == '#') {
            bail!("{key} '{value}' has a space, ';' or '#'");
        }
        words.push(format!("{key}={value}"));
    }
    Ok(words.join(" "))
}

/// A line of a log, as [`pagewire_failures::Record`] writes it.
#[derive(Deserialize)]
struct LogLine {
    role: String,
    thread: Option<u32>,
    event: String,
    object: Option<String>,
    ordinal: u64,
    after: Option<u64>,
    action: String,
}

/// Rules that fire where a log says that rules have fired.
fn of_log(text: &str) -> Result<String> {
    let mut words = String::new();
    let is_failure = |line: &str| !line.trim().is_empty() && !Note::is_line(line);
    let failures = text.lines().filter(|line| is_failure(line)).count();
    if failures > limits::MAX_RULES {
        bail!(
            "it has {failures} failures, and {} at most can be repeated: keep the lines of those that matter",
            limits::MAX_RULES
        );
    }
    for (place, line) in text.lines().enumerate().filter(|(_, line)| is_failure(line)) {
        let line: LogLine = serde_json::from_str(line).with_context(|| format!("line {}", place + 1))?;
        match (line.after, Verb::from_name(&line.event)) {
            (Some(after), _) => write!(words, "after={after}ns")?,
            (None, Some(verb)) => write!(words, "verb={} ordinal={}", verb.name(), line.ordinal)?,
            (None, None) => write!(words, "on={} ordinal={}", line.event, line.ordinal)?,
        }
        if !line.role.is_empty() {
            write!(words, " role={}", line.role)?;
        }
        if let Some(thread) = line.thread {
            write!(words, " thread={thread}")?;
        }
        if let Some(object) = line.object {
            write!(words, " {object}")?;
        }
        writeln!(words, " {}", line.action)?;
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(extension: &str, text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::Builder::new().suffix(extension).tempfile().expect("a file");
        std::fs::write(file.path(), text).expect("room");
        file
    }

    fn refusal(option: &str) -> String {
        format!("{:#}", words_of(option).expect_err(option))
    }

    #[test]
    fn toml_becomes_words() {
        let file = file(
            ".toml",
            "# the third registration\nseed = 7\n\n[[rule]]\nverb = \"ibv_reg_mr\"\nnth = 3\nerrno = \"ENOMEM\"\n\n\
             [[rule]]\non = \"completion\"\nprobability = 0.5\ndelay = \"5ms\"\n",
        );
        let expected =
            "seed=7\nerrno=ENOMEM nth=3 verb=ibv_reg_mr\ndelay=5ms on=completion probability=0.5\n";
        assert_eq!(words_of(file.path().to_str().unwrap()).unwrap(), expected);
        assert_eq!(words_of(&format!("@{}", file.path().display())).unwrap(), expected);
    }

    #[test]
    fn errors_name_line_and_remedy() {
        let unknown = file(".toml", "[[rule]]\nverb = \"ibv_reg_mr\"\nhow_often = 3\n");
        let told = refusal(unknown.path().to_str().unwrap());
        assert!(told.contains("the rule in line 1: 'how_often' is no key") && told.contains("nth"), "{told}");
        let wrong = file(".toml", "seed = 1\n\n[[rule]]\nverb = \"ibv_reg_mr\"\nerrno = \"EWHAT\"\n");
        let told = refusal(wrong.path().to_str().unwrap());
        assert!(told.contains("the rule in line 3: errno 'EWHAT'"), "{told}");
        let spaced = file(".toml", "[[rule]]\nverb = \"ibv_reg_mr nth=2\"\nerrno = \"EIO\"\n");
        assert!(refusal(spaced.path().to_str().unwrap()).contains("has a space"));
        assert!(refusal("verb=ibv_reg_mr errno=EWHAT").starts_with("rule 1: errno"));
        assert!(refusal("@/nowhere/rules.toml").contains("/nowhere/rules.toml"));
        assert!(refusal("seed=3").contains("no rule"));
        assert!(refusal("").contains("no rule"));
    }

    #[test]
    fn log_becomes_rules() {
        let log = "{\"rule\":1,\"role\":\"client\",\"pid\":7,\"thread\":0,\"event\":\"ibv_post_send\",\"object\":\"qp=1\",\
                   \"ordinal\":5,\"after\":null,\"action\":\"errno=ENOMEM\"}\n\
                   {\"rule\":2,\"role\":\"\",\"pid\":7,\"thread\":null,\"event\":\"completion\",\"object\":\"qp=0\",\"ordinal\":2,\
                   \"after\":null,\"action\":\"action=stop for=5ms\"}\n\
                   {\"note\":\"the process is not stopped\",\"role\":\"\",\"pid\":7}\n";
        let file = file(".jsonl", log);
        let expected = "verb=ibv_post_send ordinal=5 role=client thread=0 qp=1 errno=ENOMEM\n\
                        on=completion ordinal=2 qp=0 action=stop for=5ms\n";
        assert_eq!(words_of(file.path().to_str().unwrap()).unwrap(), expected);
    }
    #[test]
    fn long_log_is_refused_with_its_length() {
        let line = "{\"role\":\"\",\"event\":\"ibv_post_send\",\"ordinal\":1,\"action\":\"errno=ENOMEM\"}\n";
        let most = file(".jsonl", &line.repeat(limits::MAX_RULES));
        assert_eq!(words_of(most.path().to_str().unwrap()).unwrap().lines().count(), limits::MAX_RULES);
        let more = file(".jsonl", &line.repeat(limits::MAX_RULES + 44));
        let told = refusal(more.path().to_str().unwrap());
        assert!(told.contains("it has 300 failures, and 256 at most can be repeated"), "{told}");
        let huge = file(".jsonl", &line.repeat(10_000));
        assert!(refusal(huge.path().to_str().unwrap()).contains("is longer than 512 KiB"));
    }
}
