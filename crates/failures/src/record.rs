//! What fired, as a line of the log. `pagewire run --fail @LOG` makes rules of such lines, which fire at exactly these events.

use crate::event::ObjectOrdinal;

/// One firing of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Which rule, from 1.
    pub rule: usize,
    pub role: String,
    pub thread: Option<u32>,
    /// The name of the verb, or the word for the point.
    pub event: &'static str,
    /// The queue whose events are counted by themselves.
    pub object: Option<ObjectOrdinal>,
    /// Which of the events of that thread and queue, from 1.
    pub ordinal: u64,
    /// The time of a rule that has one, in nanoseconds.
    pub after: Option<u64>,
    /// As in the text of a rule.
    pub action: String,
}

/// A text as a JSON string.
fn quoted(text: &str) -> String {
    let escaped: String = text
        .chars()
        .map(|c| match c {
            '"' => "\\\"".to_owned(),
            '\\' => "\\\\".to_owned(),
            c if c < ' ' => format!("\\u{:04x}", u32::from(c)),
            c => c.to_string(),
        })
        .collect();
    format!("\"{escaped}\"")
}

impl Record {
    /// A line of JSON, with the line feed.
    pub fn line(&self, pid: u32) -> String {
        let thread = self.thread.map_or("null".to_owned(), |thread| thread.to_string());
        let object = self.object.map_or("null".to_owned(), |object| quoted(&object.to_string()));
        let after = self.after.map_or("null".to_owned(), |after| after.to_string());
        format!(
            "{{\"rule\":{},\"role\":{},\"pid\":{pid},\"thread\":{thread},\"event\":{},\"object\":{object},\"ordinal\":{},\"after\":{after},\"action\":{}}}\n",
            self.rule,
            quoted(&self.role),
            quoted(self.event),
            self.ordinal,
            quoted(&self.action),
        )
    }
}

/// What did not happen, and why: a line of the log that is no firing, and that repeats nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note<'a> {
    pub role: &'a str,
    pub text: &'a str,
}

impl Note<'_> {
    /// A line of JSON, with the line feed.
    pub fn line(&self, pid: u32) -> String {
        format!("{{\"note\":{},\"role\":{},\"pid\":{pid}}}\n", quoted(self.text), quoted(self.role))
    }

    /// Whether a line of the log is a note.
    pub fn is_line(line: &str) -> bool {
        line.starts_with("{\"note\":")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_json() {
        let record = Record {
            rule: 2,
            role: "a\"b\\\n".into(),
            thread: Some(0),
            event: "ibv_reg_mr",
            object: None,
            ordinal: 3,
            after: None,
            action: "errno=ENOMEM".into(),
        };
        let line = "{\"rule\":2,\"role\":\"a\\\"b\\\\\\u000a\",\"pid\":7,\"thread\":0,\"event\":\"ibv_reg_mr\",\"object\":null,\
                    \"ordinal\":3,\"after\":null,\"action\":\"errno=ENOMEM\"}\n";
        assert_eq!(record.line(7), line);
        assert!(!Note::is_line(line));
        let note = Note { role: "a", text: "not stopped" }.line(7);
        assert_eq!(note, "{\"note\":\"not stopped\",\"role\":\"a\",\"pid\":7}\n");
        assert!(Note::is_line(&note));
    }
}
