//! Which way an object goes, and between whom.

use std::path::PathBuf;

use crate::error::{Class, Error};
use crate::location::Location;
use crate::options::CopyOptions;

/// The other host of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// A running server.
    Daemon {
        /// Name or address.
        host: String,
        /// Control port.
        port: u16,
    },
    /// Through the user's ssh.
    Ssh {
        /// What ssh is given.
        destination: String,
    },
}

/// A copy's way.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// From here to there.
    Push {
        /// Local paths.
        sources: Vec<PathBuf>,
        /// The other host.
        host: Host,
        /// The path over there.
        destination: PathBuf,
    },
    /// From there to here.
    Pull {
        /// The other host.
        host: Host,
        /// Paths over there.
        sources: Vec<PathBuf>,
        /// The local path.
        destination: PathBuf,
    },
}

impl Route {
    /// The way of a copy.
    ///
    /// # Errors
    /// [`Class::Usage`] unless exactly one end is on another host.
    pub(crate) fn of(options: &CopyOptions) -> Result<Route, Error> {
        let usage = |what: &str| Error::new(Class::Usage, what);
        let split: Vec<_> = options.sources.iter().map(split).collect();
        let Some((first, _)) = split.first() else {
            return Err(usage("there is nothing to copy from"));
        };
        if split.iter().any(|(host, _)| host != first) {
            return Err(
                usage("the sources are on different hosts").advise("copy from one host at a time")
            );
        }
        let host = first.clone();
        let sources = split.iter().map(|(_, path)| path.clone()).collect();
        match (host, self::split(&options.destination)) {
            (None, (Some(host), destination)) => Ok(Route::Push { sources, host, destination }),
            (Some(host), (None, destination)) => Ok(Route::Pull { host, sources, destination }),
            (None, (None, _)) => {
                Err(usage("both ends are on this host").advise("cp does that as well"))
            }
            (Some(_), (Some(_), _)) => {
                Err(usage("both ends are on other hosts").advise("run longhaul on one of them"))
            }
        }
    }

    /// The other host.
    pub(crate) fn host(&self) -> &Host {
        match self {
            Route::Push { host, .. } | Route::Pull { host, .. } => host,
        }
    }
}

impl Host {
    /// The host of a location; nothing for this one.
    pub(crate) fn of(location: &Location) -> Option<Host> {
        match location {
            Location::Local(_) => None,
            Location::Ssh { destination, .. } => {
                Some(Host::Ssh { destination: destination.clone() })
            }
            Location::Daemon { host, port, .. } => {
                Some(Host::Daemon { host: host.clone(), port: *port })
            }
        }
    }
}

fn split(location: &Location) -> (Option<Host>, PathBuf) {
    let (Location::Local(path) | Location::Ssh { path, .. } | Location::Daemon { path, .. }) =
        location;
    (Host::of(location), path.clone())
}
