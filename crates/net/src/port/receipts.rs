//! Receipts for early data: a sender whose session is not open yet asks the other host's port how
//! much of its flow has arrived.
//!
//! The question is a probe with the flow's id, in the clear, and the answer is never longer than
//! the question. The sender draws a random number that the answer must echo, so that only a host
//! on the path can forge an answer. What an answer may do: see
//! [`receipt`](longhaul_proto::receipt).

use aws_lc_rs::rand;
use longhaul_proto::endpoint::{FlowId, PacketNumber};
use longhaul_proto::receipt::Receipt;
use longhaul_proto::wire::header::{Header, Kind};

use super::mtu::{ANSWER_LEN, SHORTEST};
use crate::error::Error;

/// Bytes of an answer: first the usual answer to a probe, then the receipt.
const LEN: usize = ANSWER_LEN + Receipt::LEN;

/// Makes the questions about one flow, and reads their answers.
#[derive(Clone, Copy, Debug)]
pub struct Receipts {
    flow: FlowId,
    /// A random number in the block field of each question and answer.
    nonce: u64,
}

impl Receipts {
    /// The questions about `flow`.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn of(flow: FlowId) -> Result<Receipts, Error> {
        let mut random = [0; 6];
        rand::fill(&mut random)
            .map_err(|_| Error::new("the system's random number generator failed"))?;
        let nonce = random.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        Ok(Receipts { flow, nonce })
    }

    /// Returns a question.
    pub fn question(&self) -> [u8; SHORTEST] {
        let mut question = [0; SHORTEST];
        if let Some(head) = question.first_chunk_mut() {
            self.header(Kind::Probe).encode(head);
        }
        question
    }

    /// Returns the receipt in an answer to one of these questions; `None` for other datagrams.
    pub fn read(&self, datagram: &[u8]) -> Option<Receipt> {
        let answer: &[u8; LEN] = datagram.try_into().ok()?;
        let is_ours = Header::decode(answer)? == self.header(Kind::ProbeAnswer);
        is_ours.then_some(Receipt::decode(answer.last_chunk()?))
    }

    fn header(&self, kind: Kind) -> Header {
        Header { kind, flow: self.flow, number: PacketNumber(0), block: self.nonce }
    }
}

/// Returns the answer to a probe that asks about a flow: the usual answer `answer`, then the flow's
/// receipt.
pub(super) fn answer(answer: &[u8; ANSWER_LEN], receipt: &Receipt) -> [u8; LEN] {
    let mut whole = [0; LEN];
    whole[..ANSWER_LEN].copy_from_slice(answer);
    whole[ANSWER_LEN..].copy_from_slice(&receipt.encode());
    whole
}

const _: () = assert!(LEN <= SHORTEST, "no answer is longer than its question");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::mtu;

    #[test]
    fn only_the_answer_to_an_own_question_is_a_receipt() {
        let (own, other) = (Receipts::of(FlowId(7)).unwrap(), Receipts::of(FlowId(7)).unwrap());
        let question = own.question();
        let header = Header::decode(&question).unwrap();
        let plain = mtu::answer(&header, question.len()).unwrap();
        let receipt = Receipt { highest: 40, received: 33, train: None };
        let answer = answer(&plain, &receipt);
        assert_eq!(own.read(&answer), Some(receipt));
        assert_eq!(other.read(&answer), None, "the other number was not echoed");
        assert_eq!((own.read(&plain), own.read(&question)), (None, None));
        assert_eq!(own.read(&[&answer[..], &[0]].concat()), None);
    }
}
