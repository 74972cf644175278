//! Checks which of a server's ports can be reached. Needs no permission: a server shows its id to
//! everybody, and answers small probes of the path.

use std::net::SocketAddr;

use longhaul_net::zone;

use crate::error::Error;
use crate::reach::data_size;
use crate::reactor;
use crate::session::connect::{look, resolve};
use crate::session::{Carriers, Identity, Settings};

/// The answer of each of a server's ports, or the reason why there was none.
#[derive(Clone, Debug)]
pub struct Ports {
    /// The address that was tried.
    pub address: SocketAddr,
    /// The id that the control port showed over UDP, or the reason why it did not.
    pub udp_control: Result<String, String>,
    /// The id that the control port showed over TCP, or the reason why it did not.
    pub tcp_control: Result<String, String>,
    /// The number of the data port.
    pub data_port: u16,
    /// The largest packet that the data port answered, including the IP header; `None` if the port
    /// is silent.
    pub data_mtu: Option<u16>,
}

/// Tries each port of the server at `host` and `port`; blocks until each has answered or timed out.
/// Without `data_port`, tries the port after `port` as the data port.
///
/// # Errors
/// The name cannot be resolved, or no socket can be opened.
pub fn look_at_ports(
    host: &str,
    port: u16,
    data_port: Option<u16>,
    identity: Identity,
) -> Result<Ports, Error> {
    reactor::block_on("the check of the ports", async {
        let addresses = resolve(host, port, &Settings::default()).await?;
        let address = addresses[0];
        let data_port = data_port.unwrap_or(port.wrapping_add(1));
        let tried = async |carriers| {
            let settings = Settings { carriers, ..Settings::default() };
            let found = look(&[address], &identity, &settings).await;
            found.map(|id| id.to_string())
        };
        let (udp_control, tcp_control, data_mtu) = tokio::join!(
            tried(Carriers::Quic),
            tried(Carriers::Tcp),
            data_size(zone::at_port(address, data_port)),
        );
        Ok(Ports { address, udp_control, tcp_control, data_port, data_mtu: data_mtu? })
    })
}
