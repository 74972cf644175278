//! Converts the messages of remote procedure calls from and to the wire.

use longhaul_proto::rpc::{self, Message, RpcCode, RpcError};
use longhaul_session::{Error, Kind};

use crate::messages::{Answer, Call, Cancel, Credit, Finish, Have, Item, Said, Say};

/// Maximum characters of the reason of a failed call.
const REASON: usize = 1000;

/// Returns the message of the other side; `None` for a kind that this version does not know.
///
/// # Errors
/// The other side may not send this message now.
pub fn message(say: Say) -> Result<Option<Message>, Error> {
    let Some(said) = say.said else { return Ok(None) };
    Ok(Some(match said {
        Said::Begin(_) => return Err(wrong("a second Begin message on one stream")),
        Said::Call(Call { id, method, body, within, items, again }) => {
            Message::Call(rpc::Call { id, method, body, within, items, again })
        }
        Said::Item(Item { id, body }) => Message::Item(id, body),
        Said::Finish(Finish { id }) => Message::Finish(id),
        Said::Answer(Answer { id, code: 0, body, .. }) => Message::Answer(id, Ok(body)),
        Said::Answer(Answer { id, code, why, .. }) => {
            let reason: String = why.chars().filter(|c| !c.is_control()).take(REASON).collect();
            Message::Answer(id, Err(RpcError::new(RpcCode::of_number(code), reason)))
        }
        Said::Cancel(Cancel { id }) => Message::Cancel(id),
        Said::Credit(Credit { id, items }) => Message::Credit(id, items),
        Said::Have(Have { ids }) => Message::Have(ids),
    }))
}

/// Returns the message for the other side.
pub fn say(message: Message) -> Say {
    let said = match message {
        Message::Call(rpc::Call { id, method, body, within, items, again }) => {
            Said::Call(Call { id, method, body, within, items, again })
        }
        Message::Item(id, body) => Said::Item(Item { id, body }),
        Message::Finish(id) => Said::Finish(Finish { id }),
        Message::Answer(id, answer) => Said::Answer(match answer {
            Ok(body) => Answer { id, body, ..Answer::default() },
            Err(RpcError { code, reason }) => {
                let why = reason.chars().take(REASON).collect();
                Answer { id, code: code.number(), why, ..Answer::default() }
            }
        }),
        Message::Cancel(id) => Said::Cancel(Cancel { id }),
        Message::Credit(id, items) => Said::Credit(Credit { id, items }),
        Message::Have(ids) => Said::Have(Have { ids }),
    };
    Say { said: Some(said) }
}

pub(crate) fn wrong(what: &str) -> Error {
    Error::new(Kind::Usage, format!("the messages of the other side are invalid: {what}"))
        .advise("check that both sides run the same release")
}
