//! Counters of a gateway's requests and connections.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hyper::StatusCode;

/// The methods that are counted by name. Every other method counts as `other`.
const METHODS: [&str; 9] =
    ["GET", "HEAD", "OPTIONS", "PROPFIND", "PUT", "MKCOL", "DELETE", "MOVE", "other"];
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Counters that all connections of a listener share.
#[derive(Debug, Default)]
pub struct Traffic {
    requests: [[AtomicU64; CLASSES.len()]; METHODS.len()],
    received: AtomicU64,
    sent: AtomicU64,
    connections: AtomicU64,
}

/// The values of [`Traffic`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCounts {
    /// Answered requests: method, class of the status (such as `2xx`), and their number.
    /// Combinations without a request are left out.
    pub requests: Vec<(&'static str, &'static str, u64)>,
    /// Bytes received on all connections, with headers and TLS.
    pub received_bytes: u64,
    /// Bytes sent on all connections, with headers and TLS.
    pub sent_bytes: u64,
    /// Open connections.
    pub connections: u64,
}

impl Traffic {
    /// Returns the values now.
    pub fn counts(&self) -> HttpCounts {
        let rows = METHODS.iter().zip(&self.requests);
        let cells = rows.flat_map(|(method, row)| {
            let classes = CLASSES.iter().zip(row);
            classes.map(|(class, count)| (*method, *class, count.load(Relaxed)))
        });
        HttpCounts {
            requests: cells.filter(|(.., count)| *count > 0).collect(),
            received_bytes: self.received.load(Relaxed),
            sent_bytes: self.sent.load(Relaxed),
            connections: self.connections.load(Relaxed),
        }
    }

    pub(crate) fn answered(&self, method: &str, status: StatusCode) {
        let other = METHODS.len() - 1;
        let row = METHODS[..other].iter().position(|name| *name == method).unwrap_or(other);
        let class = usize::from(status.as_u16() / 100).clamp(1, CLASSES.len()) - 1;
        self.requests[row][class].fetch_add(1, Relaxed);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn opened(&self) {
        self.connections.fetch_add(1, Relaxed);
    }

    pub(crate) fn closed(&self) {
        self.connections.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invented_method_or_status_has_no_counter_of_its_own() {
        let traffic = Traffic::default();
        for (method, status) in [("GET", 206), ("GET", 200), ("get", 405), ("other", 999)] {
            traffic.answered(method, StatusCode::from_u16(status).unwrap());
        }
        let expected = vec![("GET", "2xx", 2), ("other", "4xx", 1), ("other", "5xx", 1)];
        assert_eq!(traffic.counts().requests, expected);
    }
}
