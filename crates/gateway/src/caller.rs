//! The client of a request, and its permits for disk accesses and listings.

use std::io;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use longhaul_files::DiskPermit;
use longhaul_net::network::Network;
use tokio::time::timeout;

use crate::disk::Client;
use crate::shared::Shared;

/// How long a listing waits for a permit.
const PATIENCE: Duration = Duration::from_secs(10);

/// The client of a request, and the gateway's state.
#[derive(Clone)]
pub(crate) struct Caller {
    shared: Arc<Shared>,
    client: Client,
}

impl Deref for Caller {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Caller {
    pub(crate) fn new(shared: Arc<Shared>, address: IpAddr, name: Option<String>) -> Caller {
        let client = match name {
            Some(name) => Client::User(name),
            None if address.to_canonical().is_loopback() => shared.disk.one_request(),
            None => Client::Network(Network::of(address)),
        };
        Caller { shared, client }
    }

    /// Waits for a permit for a listing; `None` after [`PATIENCE`].
    pub(crate) async fn seat_for_listing(&self) -> Option<DiskPermit<Client>> {
        timeout(PATIENCE, self.disk.listings.take(self.client.clone())).await.ok()
    }

    pub(crate) async fn at_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let permit = self.disk.accesses.take(self.client.clone()).await;
        let done = tokio::task::spawn_blocking(move || {
            // Keep the permit until the disk answers, even if the client disconnects earlier.
            let _permit = permit;
            work()
        });
        done.await.unwrap_or_else(|ended| Err(io::Error::other(ended)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::{Mutex, mpsc};

    use super::*;
    use crate::disk::{AT_DISK, LISTINGS};
    use crate::shared::tests::shared;

    /// A request to the gateway `shared` from the address 192.0.2.`address`.
    pub(crate) fn caller(shared: &Arc<Shared>, address: u8) -> Caller {
        Caller::new(shared.clone(), [192, 0, 2, address].into(), None)
    }

    #[tokio::test]
    async fn requests_of_one_client_on_a_hanging_disk_do_not_block_another_client() {
        let top = tempfile::tempdir().unwrap();
        let shared = shared(top.path());
        let (open, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let hanging: Vec<_> = (0..2 * AT_DISK)
            .map(|_| {
                let (client, gate) = (caller(&shared, 1), gate.clone());
                tokio::spawn(async move {
                    let work = move || {
                        let _ = gate.lock().unwrap().recv();
                        Ok(())
                    };
                    client.at_disk(work).await
                })
            })
            .collect();
        let other = caller(&shared, 2);
        let late = Duration::from_secs(60);
        for _ in 0..AT_DISK {
            // Lets all requests of the first client ask for a permit.
            tokio::task::yield_now().await;
            timeout(late, other.at_disk(|| Ok(()))).await.expect("it is served").unwrap();
        }
        drop(open);
        for request in hanging {
            timeout(late, request).await.expect("it is served").unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn listings_of_one_client_leave_permits_for_another_client() {
        let top = tempfile::tempdir().unwrap();
        let shared = shared(top.path());
        let first = caller(&shared, 1);
        let mut seats = Vec::new();
        for _ in 0..LISTINGS / 2 {
            seats.push(first.seat_for_listing().await.expect("half of all permits"));
        }
        assert!(timeout(Duration::ZERO, first.seat_for_listing()).await.is_err());
        assert!(caller(&shared, 2).seat_for_listing().await.is_some());
    }

    #[test]
    fn a_client_is_a_named_user_or_a_network_or_one_request_from_this_host() {
        let top = tempfile::tempdir().unwrap();
        let shared = shared(top.path());
        let of = |address: &str| Caller::new(shared.clone(), address.parse().unwrap(), None).client;
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2::9"));
        assert_ne!(of("::ffff:127.0.0.1"), of("::ffff:127.0.0.1"));
        assert_ne!(of("::1"), of("::1"));
        let mapped: IpAddr = "::ffff:192.0.2.1".parse().unwrap();
        assert!(Caller::new(shared.clone(), mapped, None).client == caller(&shared, 1).client);
        assert!(caller(&shared, 2).client != caller(&shared, 1).client);
        let user = Caller::new(shared.clone(), mapped, Some("ann".to_owned()));
        assert_eq!(user.client, Client::User("ann".to_owned()));
    }
}
