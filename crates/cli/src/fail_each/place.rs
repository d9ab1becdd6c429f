//! Where a program calls a verb, as lists and reports name it.

use crate::output::symbols::SourceFrame;

/// Where a call is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallPlace {
    /// The frames, the innermost first.
    pub frames: Vec<SourceFrame>,
}

impl CallPlace {
    /// A place of one frame.
    #[cfg(test)]
    pub fn known(function: &str, file: &str, line: u32) -> CallPlace {
        let address = pagewire_checker::report::StackFrame { module: "/program".to_owned(), offset: 0x12 };
        let (function, file) = (Some(function.to_owned()), Some(file.to_owned()));
        CallPlace { frames: vec![SourceFrame { address, function, file, line: Some(line) }] }
    }

    /// The line of the program's call, else its function.
    pub fn short(&self) -> Option<String> {
        // Libraries, and headers without debug information, have functions of these names above the program's.
        let is_verb = |frame: &&SourceFrame| {
            let starts =
                |name: &String| ["ibv_", "__ibv_", "rdma_"].iter().any(|start| name.starts_with(start));
            frame.function.as_ref().is_some_and(starts)
        };
        let frame = self.frames.iter().find(|frame| !is_verb(frame)).or(self.frames.first())?;
        Some(frame.position().unwrap_or_else(|| frame.name()))
    }

    /// One line for each frame.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.frames.iter().map(|frame| match frame.position() {
            Some(position) => format!("{} ({position})", frame.name()),
            None => frame.name(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_checker::report::StackFrame;

    fn frame(function: Option<&str>) -> SourceFrame {
        let address = StackFrame { module: "/usr/bin/ibv_rc_pingpong".to_owned(), offset: 0x3f };
        SourceFrame { address, function: function.map(str::to_owned), file: None, line: None }
    }

    #[test]
    fn verb_is_no_place() {
        let of = |frames: &[SourceFrame]| CallPlace { frames: frames.to_vec() }.short();
        let own = CallPlace::known("setup", "/src/a.c", 3).frames.remove(0);
        assert_eq!(of(&[frame(Some("rdma_create_qp")), own]).as_deref(), Some("a.c:3"));
        assert_eq!(of(&[frame(None), frame(Some("main"))]).as_deref(), Some("ibv_rc_pingpong+0x3f"));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn lines_have_function_and_position() {
        let place = CallPlace { frames: vec![frame(None), frame(Some("main"))] };
        assert_eq!(place.lines().collect::<Vec<_>>(), ["ibv_rc_pingpong+0x3f", "main"]);
        assert_eq!(CallPlace::known("f", "a.c", 3).lines().collect::<Vec<_>>(), ["f (a.c:3)"]);
    }
}
