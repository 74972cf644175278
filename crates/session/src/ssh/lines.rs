//! The messages through ssh before the session: lines of text with a mark, between banners and
//! other output.

use std::io;
use std::net::IpAddr;

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

use crate::id::PeerId;

/// Marks a longhaul line; a prompt may precede it.
const MARK: &str = "longhaul-ssh/1 ";

/// Maximum bytes kept of a line whose end has not arrived. More bytes count as other output.
const LONGEST_LINE: usize = 4096;

/// Maximum bytes of other output.
const MOST_NOISE: usize = 64 << 10;

/// Bytes of other output kept for an error message.
const SHOWN_NOISE: usize = 300;

/// Maximum number of addresses in an offer.
const MOST_ADDRESSES: usize = 16;

/// The remote side's first message: its id and addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContactOffer {
    pub(super) id: PeerId,
    /// The UDP and TCP port of the session.
    pub(super) port: u16,
    /// The UDP port of the data.
    pub(super) data_port: u16,
    pub(super) addresses: Vec<IpAddr>,
}

impl ContactOffer {
    pub(super) fn line(&self) -> String {
        let addresses: Vec<String> = self.addresses.iter().map(IpAddr::to_string).collect();
        format!(
            "{MARK}offer id={} port={} data={} at={}\n",
            self.id,
            self.port,
            self.data_port,
            addresses.join(",")
        )
    }

    /// Parses an offer; skips unknown fields.
    pub(super) fn parse(line: &str) -> Option<ContactOffer> {
        let words = line.strip_prefix("offer ")?;
        let (mut id, mut port, mut data_port, mut addresses) = (None, None, None, Vec::new());
        for (name, value) in words.split(' ').filter_map(|word| word.split_once('=')) {
            match name {
                "id" => id = Some(value.parse().ok()?),
                "port" => port = Some(value.parse().ok()?),
                "data" => data_port = Some(value.parse().ok()?),
                "at" => {
                    let named = value.split(',').take(MOST_ADDRESSES);
                    addresses = named.filter_map(|address| address.parse().ok()).collect();
                }
                _ => {}
            }
        }
        Some(ContactOffer { id: id?, port: port?, data_port: data_port?, addresses })
    }
}

/// A message of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The client's id, the only one that the server admits.
    Client(PeerId),
    /// From the next byte on, this channel carries TLS.
    Switch,
}

impl Word {
    pub(super) fn line(self) -> String {
        match self {
            Word::Client(id) => format!("{MARK}client id={id}\n"),
            Word::Switch => format!("{MARK}switch\n"),
        }
    }

    /// Parses a line with its mark.
    pub fn of_line(line: &str) -> Option<Word> {
        Word::parse(&ours(line.as_bytes())?)
    }

    pub(super) fn parse(line: &str) -> Option<Word> {
        if line == "switch" {
            return Some(Word::Switch);
        }
        Some(Word::Client(line.strip_prefix("client id=")?.parse().ok()?))
    }
}

/// Finds longhaul lines among others; leaves the bytes after such a line in the reader.
#[derive(Debug, Default)]
pub(super) struct Lines {
    line: Vec<u8>,
    /// The last [`SHOWN_NOISE`] bytes of other output.
    noise: Vec<u8>,
    /// Bytes of other output so far.
    noisy: usize,
}

impl Lines {
    /// Returns the next longhaul line without its mark; `None` at the end, or after too much other
    /// output. Cancel-safe.
    pub(super) async fn next(
        &mut self,
        reader: &mut (impl AsyncBufRead + Unpin),
    ) -> io::Result<Option<String>> {
        loop {
            let came = reader.fill_buf().await?;
            if came.is_empty() {
                self.skip();
                return Ok(None);
            }
            let end = came.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(came.len(), |at| at + 1);
            self.line.extend_from_slice(&came[..taken]);
            reader.consume(taken);
            if end.is_some()
                && let Some(ours) = ours(&self.line)
            {
                self.line.clear();
                return Ok(Some(ours));
            }
            if end.is_some() || self.line.len() > LONGEST_LINE {
                self.skip();
            }
            if self.noisy > MOST_NOISE {
                return Ok(None);
            }
        }
    }

    /// Returns the end of other programs' output, without control characters.
    pub(super) fn noise(&self) -> String {
        let text = String::from_utf8_lossy(&self.noise);
        let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
        printable.collect::<String>().trim().to_owned()
    }

    fn skip(&mut self) {
        self.noisy += self.line.len();
        self.noise.append(&mut self.line);
        let excess = self.noise.len().saturating_sub(SHOWN_NOISE);
        self.noise.drain(..excess);
    }
}

/// Returns the text after the mark, if any.
fn ours(line: &[u8]) -> Option<String> {
    let mark = MARK.as_bytes();
    let at = line.windows(mark.len()).position(|window| window == mark)?;
    let text = std::str::from_utf8(&line[at + mark.len()..]).ok()?;
    Some(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: PeerId = PeerId([5; 32]);

    fn read(input: &[u8]) -> (Vec<String>, String) {
        read_in_parts(input, 7)
    }

    fn read_in_parts(input: &[u8], bytes: usize) -> (Vec<String>, String) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let mut lines = Lines::default();
        let mut reader = tokio::io::BufReader::with_capacity(bytes, input);
        let mut found = Vec::new();
        runtime.block_on(async {
            while let Some(line) = lines.next(&mut reader).await.expect("memory can be read") {
                found.push(line);
            }
        });
        (found, lines.noise())
    }

    #[test]
    fn longhaul_lines_are_found_among_banners() {
        let mut input = b"Welcome!\nlast login\xe9\r\n\xe9$ ".to_vec();
        input.extend_from_slice(Word::Switch.line().as_bytes());
        input.extend_from_slice(b"more\n");
        let (found, noise) = read(&input);
        assert_eq!(found, ["switch"]);
        assert!(noise.starts_with("Welcome!") && noise.ends_with("more"), "{noise}");
    }

    #[test]
    fn the_reader_gives_up_on_endless_noise_and_keeps_only_its_end() {
        let (found, noise) = read(&vec![b'x'; MOST_NOISE * 3]);
        assert!(found.is_empty());
        assert_eq!((noise.len(), MOST_NOISE), (300, 65_536));
        let (found, _) = read(&b"x\n".repeat(MOST_NOISE));
        assert!(found.is_empty());
    }

    #[test]
    fn a_line_is_found_after_up_to_64_kib_of_other_output_but_not_after_more() {
        for (more, found) in [("", &["switch"][..]), ("x\n", &[])] {
            let input =
                ["x\n".repeat(MOST_NOISE / 2).as_str(), more, &Word::Switch.line()].concat();
            let input = input.as_bytes();
            assert_eq!(read(input).0, found, "{more:?}");
        }
    }

    #[test]
    fn a_line_of_4096_bytes_that_arrive_one_by_one_is_found_and_a_longer_line_is_noise() {
        for (length, is_found) in [(4096, true), (4097, false)] {
            let mut line = [MARK.as_bytes(), &vec![b'x'; length - MARK.len()]].concat();
            line.push(b'\n');
            let (found, _) = read_in_parts(&line, 1);
            assert_eq!(found.len(), usize::from(is_found), "{length}");
        }
    }

    #[test]
    fn the_bytes_after_a_line_stay_in_the_reader() {
        crate::tests::run(async {
            let input = [Word::Switch.line().as_bytes(), b"then"].concat();
            let mut reader = &input[..];
            let line = Lines::default().next(&mut reader).await.expect("memory can be read");
            assert_eq!((line.as_deref(), reader), (Some("switch"), &b"then"[..]));
        });
    }

    #[test]
    fn offers_and_words_are_unchanged_after_encoding_and_parsing() {
        let offer = ContactOffer {
            id: ID,
            port: 1,
            data_port: 65535,
            addresses: vec![IpAddr::from([192, 0, 2, 1]), "2001:db8::1".parse().expect("one")],
        };
        let none = ContactOffer { addresses: Vec::new(), ..offer.clone() };
        for offer in [offer, none] {
            let (found, _) = read(offer.line().as_bytes());
            assert_eq!(ContactOffer::parse(&found[0]), Some(offer));
        }
        for word in [Word::Client(ID), Word::Switch] {
            let (found, _) = read(word.line().as_bytes());
            assert_eq!(Word::parse(&found[0]), Some(word));
            assert_eq!(Word::of_line(&word.line()), Some(word));
        }
        assert_eq!(Word::of_line("switch\n"), None, "it has no mark");
        let later = format!("offer id={ID} port=1 data=2 at= colour=blue");
        assert!(ContactOffer::parse(&later).is_some(), "fields of later releases are skipped");
        assert_eq!(ContactOffer::parse(&format!("offer id={ID} port=99999 data=2 at=")), None);
    }

    proptest! {
        #[test]
        fn no_line_makes_the_parsers_panic(text: String, bytes: Vec<u8>) {
            let _ = ContactOffer::parse(&format!("offer {text}"));
            let _ = Word::parse(&text);
            let _ = read(&bytes);
        }
    }
}
