//! The server and the clients of the channel examples.

use std::thread;

use longhaul::{Client, Error, Identity, Server, Trust, access_list, blocking};

/// Starts a server of rooms that allows `count` clients, and runs `work` for each client on a
/// separate thread. `work` gets the client's number, the client, and the server's URL.
///
/// # Errors
/// Returns the first error of a client, or the error of a server that cannot start.
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
