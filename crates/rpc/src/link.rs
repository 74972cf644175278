//! Moves the messages of a program's remote procedure calls over one connection, until the
//! connection ends.

use std::time::{Duration, Instant};

use longhaul_proto::rpc::Room;
use longhaul_session::{Error, FrameReader, FrameWriter, Kind, when};
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep_until};

use crate::convert;
use crate::ends::Ends;
use crate::handle::Order;
use crate::messages::Say;

/// The writer takes no further message while this many bytes wait in it.
const AHEAD: usize = 256 << 10;
/// How long the other side may read nothing while messages wait.
const UNREAD: Duration = Duration::from_secs(60);

/// Detects that the other side does not read.
#[derive(Default)]
struct Stuck(Option<(Instant, usize)>);

impl Stuck {
    /// Returns the time at which the other side counts as stuck if it reads nothing until then;
    /// `None` if no bytes are `queued`. `left` is the number of bytes that were queued at the last
    /// call and are not sent yet.
    fn at(&mut self, left: usize, queued: usize, now: Instant) -> Option<Instant> {
        self.0 = match self.0 {
            _ if queued == 0 => None,
            Some((since, before)) if left == before => Some((since, queued)),
            _ => Some((now, queued)),
        };
        self.0.map(|(since, _)| since + UNREAD)
    }
}

/// Moves messages until the other side says goodbye, or this program has finished. `room` limits
/// the calls of the other side. `noted` is called after each step: a message from the other side, a
/// request of this program, a deadline, or a write.
///
/// # Errors
/// The connection is lost, or the other side reads nothing for a minute, ends the stream with an
/// error, or breaks the protocol.
pub(crate) async fn run(
    ends: &mut Ends,
    orders: &mut mpsc::UnboundedReceiver<Order>,
    writer: &mut FrameWriter,
    reader: &mut FrameReader,
    room: impl Fn() -> Room,
    noted: impl Fn(&Ends),
) -> Result<(), Error> {
    let mut stuck = Stuck::default();
    loop {
        let left = writer.queued();
        while writer.queued() < AHEAD
            && let Some(message) = ends.poll()
        {
            writer.queue(&convert::say(message))?;
        }
        if ends.is_finished() && writer.queued() == 0 {
            return Ok(());
        }
        let late = stuck.at(left, writer.queued(), Instant::now());
        tokio::select! {
            sent = writer.flush(), if late.is_some() => sent?,
            () = when(late.map(until)) => {
                return Err(Error::new(Kind::Lost, "the other side does not read its messages"));
            }
            () = when(ends.deadline().map(until)) => ends.expire(),
            order = orders.recv() => order.into_iter().for_each(|order| ends.take(order)),
            said = reader.read::<Say>() => match said? {
                Some(say) => ends.on_message(say, room())?,
                None => return Ok(()),
            },
        }
        noted(ends);
    }
}

/// Handles requests and deadlines while there is no connection.
pub(crate) async fn idle(ends: &mut Ends, orders: &mut mpsc::UnboundedReceiver<Order>) {
    while !ends.is_finished() {
        tokio::select! {
            () = when(ends.deadline().map(until)) => ends.expire(),
            order = orders.recv() => order.into_iter().for_each(|order| ends.take(order)),
        }
    }
}

fn until(at: Instant) -> Sleep {
    sleep_until(at.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_stuck_if_it_reads_none_of_the_queued_bytes_for_a_minute() {
        let (mut stuck, begun) = (Stuck::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(stuck.at(0, 0, at(0)), None);
        assert_eq!(stuck.at(0, 100, at(1)), Some(at(61)));
        assert_eq!(stuck.at(100, 100, at(5)), Some(at(61)));
        assert_eq!(stuck.at(90, 90, at(7)), Some(at(67)), "some bytes were sent");
        assert_eq!(stuck.at(90, 200, at(8)), Some(at(67)), "more bytes wait");
        assert_eq!(stuck.at(0, 0, at(9)), None);
    }

    #[test]
    fn a_peer_that_reads_is_not_stuck_if_new_messages_refill_the_queue() {
        let (mut stuck, begun) = (Stuck::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(stuck.at(0, 100, at(1)), Some(at(61)));
        assert_eq!(stuck.at(60, 100, at(30)), Some(at(90)), "40 bytes were sent");
        assert_eq!(stuck.at(0, 100, at(50)), Some(at(110)), "all bytes were sent");
        assert_eq!(stuck.at(100, 300, at(60)), Some(at(110)), "none of them was sent");
    }
}
