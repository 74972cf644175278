//! `longhaul path`: lists and forgets remembered rates.

use std::net::{IpAddr, ToSocketAddrs};
use std::time::UNIX_EPOCH;

use clap::Subcommand;
use longhaul::{KnownPath, PathMemory};
use serde_json::json;

use crate::error::{Error, ErrorKind};
use crate::{config, console, exit, utc};

const ABOUT: &str = "\
List or forget the rates of earlier copies

longhaul remembers for 30 days the rate and the loss that a copy without --rate and --bwlimit \
found: one entry for each network of the other host (IPv4 /24 or IPv6 /48), address of this host, \
and direction of the data. The next copy over the same path in the same direction starts at half \
of that rate, and then searches for the current rate. RBUDP also adds coded symbols (which \
replace lost blocks) for the remembered loss. Over a remembered path, a copy to a server sends \
its first data before the session is open. cp --no-path-memory turns the memory off.";

/// List or forget the rates of earlier copies
#[derive(clap::Args)]
#[command(long_about = ABOUT, after_help = exit::TABLE)]
pub(crate) struct PathArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List the remembered paths, newest first
    List {
        /// Write each path as a JSON object to stdout, one a line
        #[arg(long)]
        json: bool,
    },
    /// Forget the paths to the network of a host, or all paths
    #[command(arg_required_else_help = true)]
    Forget {
        /// The host, by name or address
        host: Option<String>,
        /// Forget all paths
        #[arg(long, conflicts_with = "host")]
        all: bool,
    },
}

pub(crate) fn run(args: &PathArgs) -> u8 {
    let memory = config::path_file().map(PathMemory::in_file);
    let done = memory.and_then(|memory| match &args.action {
        Action::List { json } => list(&memory, *json),
        Action::Forget { host, .. } => forget(&memory, host.as_deref()),
    });
    match done {
        Ok(()) => exit::DONE,
        Err(error) => exit::fail(&error),
    }
}

fn list(memory: &PathMemory, as_json: bool) -> Result<(), Error> {
    for path in memory.list()? {
        let KnownPath { network, own_address, receives, rate, rtt, loss, .. } = &path;
        let date = path.date.duration_since(UNIX_EPOCH).unwrap_or_default();
        let date = utc::time(date.as_secs() as i64);
        if as_json {
            console::out(json!({
                "event": "known-path",
                "network": network,
                "own_address": own_address.to_string(),
                "receives": receives,
                "rate_bps": rate.as_bps(),
                "rtt_seconds": rtt.as_secs_f64(),
                "loss": loss,
                "date": date,
            }));
            continue;
        }
        let loss = 100.0 * loss;
        let way = match receives {
            true => format!("{network} to {own_address}"),
            false => format!("{own_address} to {network}"),
        };
        console::out(format!("{way}: {rate}, round trip {rtt}, loss {loss:.2} %, {date}"));
    }
    Ok(())
}

fn forget(memory: &PathMemory, host: Option<&str>) -> Result<(), Error> {
    let mut forgotten = 0;
    match host {
        None => forgotten = memory.forget(None)?,
        Some(host) => {
            for address in addresses(host)? {
                forgotten += memory.forget(Some(address))?;
            }
        }
    }
    let noun = if forgotten == 1 { "path" } else { "paths" };
    console::out(format!("{forgotten} {noun} forgotten"));
    Ok(())
}

fn addresses(host: &str) -> Result<Vec<IpAddr>, Error> {
    let found = (host, 0).to_socket_addrs().map_err(|error| {
        let what = format!("no address of {host}: {error}");
        Error::new(ErrorKind::Usage, what).advise("name a host or an address, without a port")
    })?;
    Ok(found.map(|address| address.ip()).collect())
}
