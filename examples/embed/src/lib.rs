//! The server of the examples of channels, and its clients.

use std::thread;

use longhaul::{Client, Error, Identity, Server, Trust, access_list, blocking};

/// Starts a server of rooms, as `longhaul reflect --allow ID,channel=rw` with the id of each of
/// `count` clients, and does the work of each client on a thread of its own. The work gets the
/// number of the client, the client, and the URL of the server.
///
/// # Errors
/// The first error of a client, or that the server cannot start.
pub fn with_clients<F: Future<Output = Result<(), Error>>>(
    count: usize,
    work: impl Fn(usize, Client, String) -> F + Sync,
) -> Result<(), Error> {
    let identities: Vec<Identity> = (0..count).map(|_| Identity::generate()).collect();
    let entry = |own: &Identity| access_list::parse(&format!("{},channel=rw", own.id()));
    let allowed = identities.iter().map(entry).collect::<Result<Vec<_>, Error>>()?;
    let server = Server::builder(Identity::generate()).rooms_only().allow_all(allowed);
    let server = blocking::wait(server.listen("127.0.0.1:0").start())?;
    let one = |(number, own)| {
        let client = Client::builder().identity(own).trust(Trust::only(server.id())).build()?;
        blocking::wait(work(number, client, format!("lh://{}", server.address())))
    };
    thread::scope(|threads| {
        let start = |client| threads.spawn(move || one(client));
        let all: Vec<_> = identities.into_iter().enumerate().map(start).collect();
        all.into_iter().try_for_each(|client| client.join().expect("no client panics"))
    })
}
