//! A copy before it starts: sources, destination and options.

use std::sync::Arc;
use std::time::Duration;

use longhaul_files::MemoryFolder;
use longhaul_proto::law::Weight;
use longhaul_proto::settings::Settings;
use longhaul_proto::units::{Bytes, Rate};

use super::client::Client;
use super::engine::{Reporter, Sink};
use super::events::Event;
use super::queue::Queue;
use super::running::Running;
use super::transfer::Transfer;
use crate::copy::copy;
use crate::error::public::Error;
use crate::location::Location;
use crate::options::{
    Cipher, CopyOptions, Delete, Filter, Input, Names, Output, Protocol, ReachOptions, Receive,
};
use crate::progress::Cancel;

const EVENTS: usize = 1024;

/// A copy that can be configured and started. By default it uses RBUDP, searches for the rate and
/// encrypts the data. It holds at most 512 MiB of incomplete data in memory, and retries a lost
/// connection for 5 minutes.
#[derive(Clone, Debug)]
#[must_use = "a copy does nothing before it is started"]
pub struct CopyRequest {
    client: Client,
    options: Result<CopyOptions, Error>,
    events: usize,
    cancel: Cancel,
    see: Option<Sink<Event>>,
}

impl CopyRequest {
    pub(super) fn new(
        client: &Client,
        ends: Result<(Vec<Location>, Location), Error>,
    ) -> CopyRequest {
        let options = ends.map(|(sources, destination)| {
            let mut options = CopyOptions::new(sources, destination, client.trust.options());
            options.key = client.key.clone();
            options.shared_memory = client.memory.clone();
            options.path_memory = client.paths.clone();
            options
        });
        CopyRequest {
            client: client.clone(),
            options,
            events: EVENTS,
            cancel: Cancel::default(),
            see: None,
        }
    }

    fn with(mut self, set: impl FnOnce(&mut CopyOptions)) -> CopyRequest {
        if let Ok(options) = &mut self.options {
            set(options);
        }
        self
    }

    /// Copies folders with their content.
    pub fn recursive(self, on: bool) -> CopyRequest {
        self.with(|options| options.recursive = on)
    }

    /// Keeps permissions, and the times of folders and links. The times of files are kept without
    /// this option too.
    pub fn preserve(self, on: bool) -> CopyRequest {
        self.with(|options| options.preserve = on)
    }

    /// Compares existing files, and partial files of an earlier run, by content instead of by size
    /// and time.
    pub fn checksum(self, on: bool) -> CopyRequest {
        self.with(|options| options.checksum = on)
    }

    /// Reports what would be copied, and copies nothing.
    pub fn dry_run(self, on: bool) -> CopyRequest {
        self.with(|options| options.dry_run = on)
    }

    /// Creates missing parent folders of the destination. Without this option, the copy creates
    /// only the last folder of the path. A server that does not know this option refuses the copy.
    pub fn make_path(self, on: bool) -> CopyRequest {
        self.with(|options| options.make_path = on)
    }

    /// Removes names at the destination that the source folder lacks, after the whole copy is on
    /// disk. If any file failed, nothing is removed. The source must be the content of one folder
    /// ([`Location::contents`]). Names excluded by filters stay. A source without files is refused.
    /// At a remote destination the client needs the right to read and to write. A server that does
    /// not know this option refuses the copy.
    pub fn delete(self, delete: Option<Delete>) -> CopyRequest {
        self.with(|options| options.delete = delete)
    }

    /// Declares that all sources hold the same files. Each chunk of 1 MiB may come from any source.
    pub fn replicas(self, on: bool) -> CopyRequest {
        self.with(|options| options.replicas = on)
    }

    /// Selects files of a tree: the first glob that matches a path decides. Size limits and listed
    /// paths ([`Filter::Only`]) restrict the selection further.
    pub fn filters(self, filters: Vec<Filter>) -> CopyRequest {
        self.with(|options| options.filters = filters)
    }

    /// Selects which files are reported by name; by default only those that fail.
    pub fn names(self, names: Names) -> CopyRequest {
        self.with(|options| options.names = names)
    }

    /// Sets the protocol that carries the data.
    pub fn protocol(self, protocol: Protocol) -> CopyRequest {
        self.with(|options| options.protocol = protocol)
    }

    /// Sets the protocol's settings.
    pub fn settings(self, settings: Settings) -> CopyRequest {
        self.with(|options| options.settings = settings)
    }

    /// Sets the protocol's settings for each source, in the order of the sources.
    pub fn source_settings(self, settings: Vec<Settings>) -> CopyRequest {
        self.with(|options| options.source_settings = settings)
    }

    /// Sets the rate of UDP payload: fixed, or an upper limit, as the protocol defines. With
    /// several sources it is the rate of each; `None` searches for the rate.
    pub fn rate(self, rate: Option<Rate>) -> CopyRequest {
        self.with(|options| options.rate = rate)
    }

    /// Limits the rate that the copy searches for. Several sources share the limit.
    pub fn rate_limit(self, limit: Option<Rate>) -> CopyRequest {
        self.with(|options| options.rate_limit = limit)
    }

    /// Sets the share that the copy takes of a path with other traffic; by default the share of one
    /// TCP flow.
    pub fn weight(self, weight: Weight) -> CopyRequest {
        self.with(|options| options.weight = weight)
    }

    /// Sets how the data are encrypted.
    pub fn cipher(self, cipher: Cipher) -> CopyRequest {
        self.with(|options| options.cipher = cipher)
    }

    /// Sets how the receiving host moves the payloads of datagrams into memory.
    pub fn receive(self, receive: Receive) -> CopyRequest {
        self.with(|options| options.receive = receive)
    }

    /// Sets the size of a segment. A protocol sends the content as a sequence of segments, several
    /// at a time. Zero sends all content as one segment; `None` uses the default.
    pub fn segment(self, segment: Option<Bytes>) -> CopyRequest {
        self.with(|options| options.segment = segment)
    }

    /// Limits the incomplete data in memory. The limit has no effect if the client has a limit for
    /// all of its copies ([`ClientBuilder::memory`](super::ClientBuilder::memory)).
    pub fn memory(self, memory: Bytes) -> CopyRequest {
        self.with(|options| options.memory = memory)
    }

    /// Sets the UDP payload of a datagram in bytes; `None` searches the path for the largest.
    pub fn datagram(self, datagram: Option<u16>) -> CopyRequest {
        self.with(|options| options.datagram = datagram)
    }

    /// Sets how long to keep retrying a lost connection.
    pub fn retry_for(self, patience: Duration) -> CopyRequest {
        self.with(|options| options.retry_for = patience)
    }

    /// Sets how long the copy may make no progress before it fails.
    pub fn stall(self, patience: Duration) -> CopyRequest {
        self.with(|options| options.stall = patience)
    }

    /// Sets how other hosts are reached.
    pub fn reach(self, reach: ReachOptions) -> CopyRequest {
        self.with(|options| options.reach = reach)
    }

    /// Sets the bearer token for an HTTP source; only the server at the source's address gets it.
    pub fn token(self, token: Option<String>) -> CopyRequest {
        self.with(|options| options.token = token)
    }

    /// Follows HTTP redirects from https to http.
    pub fn allow_downgrade(self, is_allowed: bool) -> CopyRequest {
        self.with(|options| options.allow_downgrade = is_allowed)
    }

    /// Sets how many events may wait for a slow reader, by default 1,024. Further events are
    /// dropped, except failures of files and sources; [`Event::Lagged`](super::Event::Lagged)
    /// counts the dropped events. A newer progress event replaces an unread one, which is not
    /// counted.
    pub fn event_capacity(self, events: usize) -> CopyRequest {
        CopyRequest { events, ..self }
    }

    /// Treats local paths as files of `folder`, in memory. The content of `folder` does not count
    /// against the limit on incomplete data.
    pub fn local_files(self, folder: &MemoryFolder) -> CopyRequest {
        self.with(|options| options.local = Some(folder.clone()))
    }

    /// Replaces the source's content by everything that `reader` returns, which may have any
    /// length. The source's path only supplies a name. A separate thread reads at most
    /// [`CopyRequest::memory`] ahead of the data that have arrived. Content up to a sixteenth of
    /// that limit, but at most 256 MiB, is sent as a file. A copy of longer content cannot be
    /// resumed: it fails when its connection is lost. The file gets its name when it is complete.
    pub fn input(self, reader: impl std::io::Read + Send + 'static) -> CopyRequest {
        self.with(|options| options.input = Some(Input::new(reader)))
    }

    /// Writes the one file of the copy to `writer` instead of the destination. The destination's
    /// path only supplies a name. Bytes are written in order: a chunk of 1 MiB is written as soon
    /// as the chunk and all chunks before it are verified. A separate thread writes. A slow writer
    /// slows the sender and does not count as a stall. A lost connection is retried. A later copy
    /// starts from the beginning.
    pub fn output(self, writer: impl std::io::Write + Send + 'static) -> CopyRequest {
        self.with(|options| options.output = Some(Output::new(writer)))
    }

    /// Ends the copy when `handle` is cancelled. One handle may end many copies.
    pub fn cancel_with(self, handle: &Cancel) -> CopyRequest {
        CopyRequest { cancel: handle.clone(), ..self }
    }

    /// Passes each event to `see` instead of [`Transfer::events`]. No event is dropped: the copy's
    /// threads call `see` and wait until the call returns.
    pub fn on_event(self, see: impl Fn(Event) + Send + Sync + 'static) -> CopyRequest {
        CopyRequest { see: Some(Sink::Call(Arc::new(see))), ..self }
    }

    /// Starts the copy on its own threads, inside or outside a tokio runtime.
    ///
    /// # Errors
    /// An address is invalid, or the system cannot start a thread. [`Transfer::finish`] reports all
    /// other errors.
    pub fn start(self) -> Result<Transfer, Error> {
        let (options, queue) = (self.options?, Queue::new(self.events));
        let cancel = self.cancel.child();
        let sink = self.see.unwrap_or_else(|| Sink::Queue(queue.clone()));
        let reporter = Reporter::new(sink, self.client.trust.clone(), cancel.clone());
        let wish = cancel.clone();
        let running = Running::start("longhaul copy", queue, cancel, move || {
            copy(options, Arc::new(reporter), wish).map_err(Error::from)
        })?;
        Ok(Transfer(running))
    }
}
