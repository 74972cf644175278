//! Senders and subscribers of a room.

use std::io::{PipeWriter, Write};
use std::process::Command;

use crate::rig::{Child, Ended};

/// The texts that a subscriber printed with `--json`.
pub(super) fn texts(ended: &Ended) -> Vec<String> {
    let events = ended.events("message");
    events.iter().map(|event| event["text"].as_str().unwrap_or_default().to_owned()).collect()
}

pub(super) fn hears(child: &mut Child, text: &str) {
    child.event(|event| event["text"] == text);
}

/// A sender that reads its messages from a pipe of the test.
pub(super) struct Speaker {
    pub(super) child: Child,
    feed: PipeWriter,
}

impl Speaker {
    pub(super) fn start(mut command: Command) -> Speaker {
        let (input, feed) = std::io::pipe().unwrap();
        Speaker { child: Child::spawn(command.stdin(input)), feed }
    }

    pub(super) fn say(&mut self, text: &str) {
        self.feed.write_all(format!("{text}\n").as_bytes()).unwrap();
    }

    pub(super) fn end(self) -> Ended {
        drop(self.feed);
        self.child.end()
    }
}
