//! The kernel's TCP counters of a session.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use longhaul_net::socket::{Segments, tcp_segments};

pub(crate) type Counted = Arc<OwnedFd>;

/// Counts the segments that a session has sent. Does not keep the session open.
#[derive(Clone, Debug)]
pub struct SegmentWatch(Weak<OwnedFd>);

impl SegmentWatch {
    pub(crate) fn new(connection: &Counted) -> SegmentWatch {
        SegmentWatch(Arc::downgrade(connection))
    }

    /// Returns the counts so far; `None` after the session's end, or if the kernel reports none.
    pub fn now(&self) -> Option<Segments> {
        tcp_segments(&*self.0.upgrade()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    #[test]
    fn a_connection_reports_its_segments_until_it_ends() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut there, _) = listener.accept().unwrap();
        let counted: Counted = Arc::new(here.try_clone().unwrap().into());
        let watch = SegmentWatch::new(&counted);
        assert_eq!(watch.now().unwrap().sent, 0);
        here.write_all(b"12345").unwrap();
        there.read_exact(&mut [0; 5]).unwrap();
        assert_eq!(watch.now(), Some(Segments { sent: 1, retransmitted: 0 }));
        drop(counted);
        assert_eq!(watch.now(), None);
    }
}
