//! The rates, round-trip times and losses that copies found on paths, kept in a file between copies
//! (RFC 9959).
//!
//! A path is identified by the other host's network (an IPv4 /24 or an IPv6 /48), this host's
//! address, and the direction. The file has one line for each path, and only its owner can read it.
//! If the file is missing or damaged, a copy treats the path as new.

use std::cmp::Reverse;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_proto::remembered::Remembered;
use longhaul_proto::time::Span;
use longhaul_proto::units::{LossRatio, Rate};
use longhaul_text::reason;

use crate::error::{Error, ErrorKind, public};
use crate::session::Rewriting;

/// Maximum number of entries in the file; the oldest are removed first.
const MAX_ENTRIES: usize = 1000;
/// Maximum bytes read from the file. A line has at most about 140 bytes.
const MAX_BYTES: u64 = 1 << 18;
/// Maximum age of an entry.
const LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// Maximum age of an entry for a read of a remote file. A read does not measure the path, so it
/// cannot correct an entry.
const LIFETIME_FOR_READS: Duration = Duration::from_secs(24 * 3600);
const HEAD: &str = "# Paths that longhaul measured: network, own address, bit/s, round trip in ns, \
                    loss, Unix time, direction of the data, bytes of a datagram.\n";
/// The smallest UDP payload in bytes that a server accepts.
const SMALLEST_DATAGRAM: u16 = 256;
/// Number of words in a line without the size of a datagram: the next copy on this path sends no
/// first flight (data before the session is open).
const WITHOUT_DATAGRAM: usize = 7;
/// Number of words in a line without a direction, as earlier releases wrote it.
const WITHOUT_DIRECTION: usize = 6;

/// The file of remembered paths. Clones name the same file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathMemory {
    file: PathBuf,
}

/// One remembered path.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KnownPath {
    /// The network of the other host, as `192.0.2.0/24` or `2001:db8:7::/48`.
    pub network: String,
    /// This host's address on the path to that network.
    pub own_address: IpAddr,
    /// Whether the data of the copy came to this host.
    pub receives: bool,
    /// The rate that a copy found, in bits a second of UDP payload.
    pub rate: Rate,
    /// The smaller of the round-trip times at the start and at the end of the copy.
    pub rtt: Span,
    /// The fraction of datagrams that were lost, from 0 to 1.
    pub loss: f64,
    /// When the copy ended, to the second.
    pub date: SystemTime,
    /// The UDP payload of the copy's datagrams in bytes, if the data went to a server that takes
    /// data before the session is open.
    pub datagram: Option<u16>,
}

/// What a first flight (data before the session is open) has to know.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct KnownFlight {
    pub(crate) path: Remembered,
    pub(crate) datagram: u16,
}

impl PathMemory {
    /// Returns the memory in `file`. The first copy that finds a rate creates the file and its
    /// folder.
    pub fn in_file(file: impl Into<PathBuf>) -> PathMemory {
        PathMemory { file: file.into() }
    }

    /// Returns the file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the remembered paths that are not too old, newest first; none if the file is
    /// missing.
    ///
    /// # Errors
    /// [`ErrorKind::LocalFile`]: the file cannot be read, or has an invalid line.
    pub fn list(&self) -> Result<Vec<KnownPath>, public::Error> {
        Ok(self.entries()?)
    }

    /// Removes the paths to the network of `host`, or all paths. Returns their number; if all paths
    /// of an invalid file are removed, returns 0.
    ///
    /// # Errors
    /// [`ErrorKind::LocalFile`]: the file cannot be changed; or, with a `host`, it cannot be read
    /// or has an invalid line.
    pub fn forget(&self, host: Option<IpAddr>) -> Result<usize, public::Error> {
        let rewriting = match Rewriting::wait(self.folder()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            locked => locked.map_err(|error| self.trouble("cannot change the paths in", &error))?,
        };
        let mut entries = match host {
            Some(_) => self.entries()?,
            // An invalid file does not prevent this call from removing all paths.
            None => self.entries().unwrap_or_default(),
        };
        let (network, before) = (host.map(network_of), entries.len());
        entries.retain(|entry| network.as_ref().is_some_and(|network| entry.network != *network));
        self.write(&rewriting, &entries)?;
        Ok(before - entries.len())
    }

    /// Returns the entry for data sent to `peer`, or, if `receives`, for data received from `peer`.
    pub(crate) fn find(&self, peer: IpAddr, receives: bool) -> Option<Remembered> {
        self.find_since(peer, receives, LIFETIME)
    }

    pub(crate) fn find_for_reads(&self, peer: IpAddr) -> Option<Remembered> {
        self.find_since(peer, true, LIFETIME_FOR_READS)
    }

    /// Returns the entry for a first flight to `peer`.
    pub(crate) fn find_flight(&self, peer: IpAddr) -> Option<KnownFlight> {
        let entry = self.entry(own_address(peer)?, SystemTime::now(), peer, false, LIFETIME)?;
        Some(KnownFlight { datagram: entry.datagram?, path: entry.remembered() })
    }

    fn find_since(&self, peer: IpAddr, receives: bool, age: Duration) -> Option<Remembered> {
        let (own, now) = (own_address(peer)?, SystemTime::now());
        self.find_from(own, now, peer, receives, age)
    }

    fn find_from(
        &self,
        own: IpAddr,
        now: SystemTime,
        peer: IpAddr,
        receives: bool,
        age: Duration,
    ) -> Option<Remembered> {
        self.entry(own, now, peer, receives, age).map(|entry| entry.remembered())
    }

    fn entry(
        &self,
        own: IpAddr,
        now: SystemTime,
        peer: IpAddr,
        receives: bool,
        age: Duration,
    ) -> Option<KnownPath> {
        let mut entries = self.list_at(now).ok()?.into_iter();
        let entry = entries.find(|entry| entry.is_of(peer, own, receives))?;
        let is_fresh = now.duration_since(entry.date).unwrap_or_default() <= age;
        is_fresh.then_some(entry)
    }

    /// Stores the result of a copy. If the copy is no evidence of the path's rate
    /// ([`Found::is_evidence`]), a stored entry with a higher rate stays, and only the size of its
    /// datagrams changes. Does not wait: if another process has locked the file, nothing is stored.
    pub(crate) fn note(&self, found: Found) -> Result<(), Error> {
        own_address(found.peer).map_or(Ok(()), |own| self.note_from(own, found))
    }

    fn note_from(&self, own: IpAddr, found: Found) -> Result<(), Error> {
        let folder = self.folder();
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        let locked = made.and_then(|()| Rewriting::begin(folder));
        let locked = locked.map_err(|error| self.trouble("cannot keep paths in", &error))?;
        let Some(rewriting) = locked else { return Ok(()) };
        let mut entries = self.entries()?;
        let is_of = |entry: &KnownPath| entry.is_of(found.peer, own, found.receives);
        let place = entries.iter().position(is_of);
        let before = place.map(|place| entries.remove(place));
        let is_evidence = found.is_evidence;
        let found = KnownPath {
            network: network_of(found.peer),
            own_address: own,
            receives: found.receives,
            rate: found.rate,
            rtt: found.rtt,
            loss: found.loss,
            date: SystemTime::now(),
            datagram: found.datagram,
        };
        entries.push(match before {
            // The entry keeps its date, so a rate that no copy confirms becomes old.
            Some(before) if !is_evidence && before.rate > found.rate => {
                KnownPath { datagram: found.datagram, ..before }
            }
            _ => found,
        });
        entries.sort_by_key(|entry| Reverse(entry.date));
        self.write(&rewriting, &entries)
    }

    fn entries(&self) -> Result<Vec<KnownPath>, Error> {
        self.list_at(SystemTime::now())
    }

    fn list_at(&self, now: SystemTime) -> Result<Vec<KnownPath>, Error> {
        let mut text = String::new();
        match File::open(&self.file) {
            Ok(file) => file.take(MAX_BYTES).read_to_string(&mut text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
        .map_err(|error| self.trouble("cannot read", &error))?;
        let lines = text.lines().enumerate().filter(|(_, line)| {
            !line.starts_with('#') && line.split_whitespace().count() != WITHOUT_DIRECTION
        });
        let parsed = lines.map(|(at, line)| {
            line.parse::<KnownPath>().map_err(|()| {
                let what =
                    format!("{} line {}: not an entry of a path", self.file.display(), at + 1);
                let advice = "remove the line, or the file: the next copy creates it again";
                Error::new(ErrorKind::LocalFile, what).at(&self.file).advise(advice)
            })
        });
        let mut entries: Vec<KnownPath> = parsed.collect::<Result<_, _>>()?;
        // An entry dated in the future comes from a wrong clock; its age counts as zero.
        entries.retain(|entry| now.duration_since(entry.date).unwrap_or_default() <= LIFETIME);
        entries.sort_by_key(|entry| Reverse(entry.date));
        entries.truncate(MAX_ENTRIES);
        Ok(entries)
    }

    fn folder(&self) -> &Path {
        let folder = self.file.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.unwrap_or(Path::new("."))
    }

    fn write(&self, rewriting: &Rewriting, entries: &[KnownPath]) -> Result<(), Error> {
        let lines = entries.iter().take(MAX_ENTRIES).map(|entry| entry.line());
        let text = HEAD.to_owned() + &lines.collect::<String>();
        let written = rewriting.replace(&self.file, text.as_bytes());
        written.map_err(|error| self.trouble("cannot write", &error))
    }

    fn trouble(&self, what: &str, error: &io::Error) -> Error {
        let what = format!("{what} {}: {}", self.file.display(), reason(error));
        let advice = "make the file readable and writable for you, or remove it";
        Error::new(ErrorKind::LocalFile, what).at(&self.file).advise(advice)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) peer: IpAddr,
    pub(crate) receives: bool,
    pub(crate) rate: Rate,
    pub(crate) rtt: Span,
    /// The fraction of datagrams that were lost, from 0 to 1.
    pub(crate) loss: f64,
    /// Whether the copy shows that the path does not carry more: only the path limited it, and it
    /// was long or lost much.
    pub(crate) is_evidence: bool,
    /// The UDP payload of a datagram in bytes, if the next copy may send a first flight.
    pub(crate) datagram: Option<u16>,
}

impl KnownPath {
    fn is_of(&self, peer: IpAddr, own: IpAddr, receives: bool) -> bool {
        let is_same_direction = self.receives == receives;
        is_same_direction && self.own_address == own && self.network == network_of(peer)
    }

    fn remembered(&self) -> Remembered {
        let loss = LossRatio::new(self.loss).unwrap_or_default();
        Remembered { rate: self.rate, rtt: self.rtt, loss }
    }

    fn line(&self) -> String {
        let date = self.date.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (rate, rtt) = (self.rate.as_bps(), self.rtt.as_nanos());
        let KnownPath { network, own_address, loss, .. } = self;
        let direction = if self.receives { "in" } else { "out" };
        let datagram = self.datagram.map(|bytes| format!(" {bytes}")).unwrap_or_default();
        format!("{network} {own_address} {rate} {rtt} {loss:.6} {date} {direction}{datagram}\n")
    }
}

impl FromStr for KnownPath {
    type Err = ();

    fn from_str(line: &str) -> Result<KnownPath, ()> {
        let mut words: Vec<&str> = line.split_ascii_whitespace().collect();
        let last = if words.len() > WITHOUT_DATAGRAM { words.pop() } else { None };
        let datagram = last.map(|word| word.parse::<u16>()).transpose().map_err(drop)?;
        let &[network, own, rate, rtt, loss, date, direction] = &words[..] else { return Err(()) };
        let receives = match direction {
            "in" => true,
            "out" => false,
            _ => return Err(()),
        };
        let (address, _) = network.split_once('/').ok_or(())?;
        let address: IpAddr = address.parse().map_err(drop)?;
        let number = |word: &str| word.parse::<u64>().map_err(drop);
        let loss: f64 = loss.parse().map_err(drop)?;
        let date = UNIX_EPOCH.checked_add(Duration::from_secs(number(date)?)).ok_or(())?;
        let is_possible = datagram.is_none_or(|bytes| bytes >= SMALLEST_DATAGRAM);
        if network_of(address) != network || !(0.0..=1.0).contains(&loss) || !is_possible {
            return Err(());
        }
        Ok(KnownPath {
            network: network.to_owned(),
            own_address: own.parse().map_err(drop)?,
            receives,
            rate: Rate::from_bps(number(rate)?),
            rtt: Span::from_nanos(number(rtt)?),
            loss,
            date,
            datagram,
        })
    }
}

/// Returns the network of an address: hosts of one /24 or /48 share most of a path.
fn network_of(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            format!("{}/24", Ipv4Addr::new(a, b, c, 0))
        }
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => network_of(address.into()),
            None => {
                let [a, b, c, ..] = address.segments();
                format!("{}/48", Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0))
            }
        },
    }
}

/// Returns the address that this host uses towards `peer`; `None` if `peer` is a loopback or
/// unspecified address, or has no route. Sends no packet.
fn own_address(peer: IpAddr) -> Option<IpAddr> {
    if peer.is_loopback() || peer.is_unspecified() {
        return None;
    }
    let any: IpAddr = match peer {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((peer, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn entry(network: &str, date: u64) -> KnownPath {
        KnownPath {
            network: network.to_owned(),
            own_address: Ipv4Addr::new(192, 0, 2, 9).into(),
            receives: true,
            rate: Rate::from_mbps(938),
            rtt: Span::from_millis(100),
            loss: 0.001,
            date: at(date),
            datagram: None,
        }
    }

    fn memory(text: &str) -> (tempfile::TempDir, PathMemory) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("paths");
        std::fs::write(&file, text).expect("a file");
        (folder, PathMemory::in_file(file))
    }

    #[test]
    fn a_written_line_parses_to_the_same_value() {
        let line = entry("198.51.100.0/24", NOW).line();
        assert_eq!(line, "198.51.100.0/24 192.0.2.9 938000000 100000000 0.001000 1800000000 in\n");
        assert_eq!(line.trim_end().parse(), Ok(entry("198.51.100.0/24", NOW)));
        let sized = KnownPath { datagram: Some(1_452), ..entry("198.51.100.0/24", NOW) };
        assert_eq!(sized.line(), line.replace("in\n", "in 1452\n"));
        assert_eq!(sized.line().trim_end().parse(), Ok(sized));
    }

    #[test]
    fn hosts_of_one_network_share_a_path() {
        let network = |address: &str| network_of(address.parse().unwrap());
        assert_eq!(network("198.51.100.7"), "198.51.100.0/24");
        assert_eq!(network("::ffff:198.51.100.7"), "198.51.100.0/24");
        assert_eq!(network("2001:db8:7:1::2"), "2001:db8:7::/48");
    }

    #[test]
    fn an_entry_lives_for_thirty_days() {
        let (_folder, memory) = memory(&entry("198.51.100.0/24", NOW).line());
        let month = LIFETIME.as_secs();
        assert_eq!(memory.list_at(at(NOW + month)).unwrap().len(), 1);
        assert_eq!(memory.list_at(at(NOW + month + 1)).unwrap().len(), 0);
        assert_eq!(memory.list_at(at(NOW - 5)).unwrap().len(), 1, "the clock was set back");
    }

    #[test]
    fn a_broken_line_is_an_error_with_its_number_and_a_copy_finds_no_path_in_the_file() {
        let good = entry("198.51.100.0/24", NOW).line();
        let (peer, own) = (Ipv4Addr::new(198, 51, 100, 7).into(), entry("", 0).own_address);
        let found = |memory: &PathMemory| memory.find_from(own, at(NOW), peer, true, LIFETIME);
        let (_folder, sound) = memory(&format!("{HEAD}{good}"));
        assert!(found(&sound).is_some());
        for bad in [
            "nonsense",
            "198.51.100.7/24 192.0.2.9 1 1 0 1 in",
            "198.51.100.0/24 192.0.2.9 1 1 1.5 1 in",
            "198.51.100.0/24 192.0.2.9 1 1 NaN 1 in",
            "198.51.100.0/24 192.0.2.9 -1 1 0 1 in",
            "198.51.100.0/24 192.0.2.9 1 1 0 18446744073709551615 in",
            "198.51.100.0/24 192.0.2.9 1 1 0 1 1",
            "198.51.100.0/24 192.0.2.9 1 1 0 1 in 255",
            "198.51.100.0/24 192.0.2.9 1 1 0 1 in 65536",
            "198.51.100.0/24 192.0.2.9 1 1 0 1 in 1452 1",
        ] {
            let (_folder, memory) = memory(&format!("{HEAD}{good}{bad}\n"));
            let error = memory.entries().expect_err(bad);
            assert!(error.what.contains("line 3"), "{bad}: {}", error.what);
            assert_eq!(found(&memory), None, "{bad}");
        }
    }

    #[test]
    fn only_the_newest_thousand_paths_of_a_file_are_used() {
        // One entry per second, the newest last: the first hundred are dropped.
        let lines: String = (0..1_100u64)
            .map(|n| entry(&format!("10.{}.{}.0/24", n / 256, n % 256), NOW + n).line())
            .collect();
        let (_folder, memory) = memory(&lines);
        let kept = memory.list_at(at(NOW)).unwrap();
        assert_eq!((kept.len(), &*kept[0].network), (1_000, "10.4.75.0/24"));
        assert_eq!(kept[999].network, "10.0.100.0/24");
    }

    #[test]
    fn a_copy_stores_nothing_and_does_not_wait_while_another_process_has_locked_the_file() {
        let (folder, memory) = memory("");
        let (peer, own) = (Ipv4Addr::new(10, 0, 0, 5).into(), Ipv4Addr::new(10, 1, 0, 1).into());
        let (rate, rtt) = (Rate::from_mbps(500), Span::from_millis(20));
        let found =
            Found { peer, receives: true, rate, rtt, loss: 0.0, is_evidence: true, datagram: None };
        let other = Rewriting::wait(folder.path()).unwrap();
        memory.note_from(own, found).unwrap();
        assert!(memory.list().unwrap().is_empty());
        drop(other);
        memory.note_from(own, found).unwrap();
        assert_eq!(memory.list().unwrap()[0].network, "10.0.0.0/24");
    }

    #[test]
    fn each_direction_of_a_path_has_its_own_rate_and_a_read_needs_a_rate_of_the_last_day() {
        // An older version wrote lines without a direction.
        let (_folder, memory) = memory("198.51.100.0/24 192.0.2.9 7 7 0 1800000000\n");
        let (peer, own) = (Ipv4Addr::new(198, 51, 100, 7).into(), entry("", 0).own_address);
        assert!(memory.list_at(at(NOW)).unwrap().is_empty(), "no direction is known");
        let note = |receives, mbps| {
            let (rate, rtt) = (Rate::from_mbps(mbps), Span::from_millis(20));
            let (loss, is_evidence, datagram) = (0.0, true, None);
            let found = Found { peer, receives, rate, rtt, loss, is_evidence, datagram };
            memory.note_from(own, found).unwrap();
        };
        note(true, 500);
        note(false, 30);
        let entries = memory.list().unwrap();
        let noted = entries.iter().find(|entry| entry.receives).expect("it was noted").date;
        let rate = |receives, age, later| {
            let now = noted + Duration::from_secs(later);
            memory.find_from(own, now, peer, receives, age).map(|found| found.rate)
        };
        assert_eq!(rate(true, LIFETIME, 9), Some(Rate::from_mbps(500)));
        assert_eq!(rate(false, LIFETIME, 9), Some(Rate::from_mbps(30)));
        let day = LIFETIME_FOR_READS.as_secs();
        assert!(rate(true, LIFETIME_FOR_READS, day).is_some());
        assert_eq!(rate(true, LIFETIME_FOR_READS, day + 2), None);
        assert!(rate(true, LIFETIME, day + 2).is_some());
    }

    #[test]
    fn forget_removes_the_paths_to_one_network_or_all_paths() {
        let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let lines = entry("10.0.0.0/24", today).line() + &entry("10.0.1.0/24", today).line();
        let (_folder, memory) = memory(&lines);
        let host = |last| Some(Ipv4Addr::new(10, 0, last, 5).into());
        assert_eq!(memory.forget(host(2)).unwrap(), 0);
        assert_eq!(memory.forget(host(1)).unwrap(), 1);
        assert_eq!(memory.list().unwrap()[0].network, "10.0.0.0/24");
        assert_eq!(memory.forget(None).unwrap(), 1);
        assert!(memory.list().unwrap().is_empty());
        let none = PathMemory::in_file("/nonexistent/longhaul/paths");
        assert_eq!(none.forget(None).unwrap(), 0);
        assert!(none.list().unwrap().is_empty());
    }
}
