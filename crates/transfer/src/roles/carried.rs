//! What carries the data of a sender's current pass (a run over the missing chunks).

use std::sync::mpsc::Sender;

use longhaul_proto::endpoint::FlowId;
use tokio::task::JoinHandle;

use super::lost_thread;
use super::wire::End;
use crate::error::ErrorKind;
use crate::flow::payloads::Payloads;
use crate::flow::send::{Done, SendCommand};
use crate::flow::stream;

pub(super) enum Carried {
    Flow {
        flow: FlowId,
        commands: Sender<SendCommand>,
        done: Done,
        /// Passes the messages of a first flight (a pass that began before the session) on to the
        /// session.
        forwarding: Option<JoinHandle<()>>,
    },
    Stream(stream::Outgoing),
}

impl Carried {
    /// Waits until a stopped pass has ended, and returns its payloads.
    pub(super) async fn payloads(self) -> Option<Payloads> {
        match self {
            // The pass ended by itself, and its result was taken.
            Carried::Flow { done, .. } if done.is_terminated() => None,
            Carried::Flow { done, forwarding, .. } => {
                let payloads = done.await.ok()?.ok();
                // The messages of the pass precede those of the next one.
                if let Some(forwarding) = forwarding {
                    let _ = forwarding.await;
                }
                payloads
            }
            Carried::Stream(outgoing) => outgoing.stop().await,
        }
    }
}

/// Returns the error of a pass that ended by itself; pending while the pass runs.
pub(super) async fn ended(carried: Option<&mut Carried>) -> End {
    let result = match carried {
        Some(Carried::Flow { done, .. }) => done.await,
        Some(Carried::Stream(outgoing)) => outgoing.ended().await,
        None => std::future::pending().await,
    };
    match result {
        // The connection failed, not the object: a new session may succeed.
        Ok(Err(error)) if error.kind == ErrorKind::Unfinished => End::Lost(error.what),
        Ok(Err(error)) => End::Fatal(error),
        Ok(Ok(_)) | Err(_) => End::Fatal(lost_thread()),
    }
}
