//! The direction of a copy, and its two ends.

use std::fmt;
use std::path::PathBuf;

use crate::error::{Error, ErrorKind};
use crate::location::Location;
use crate::options::CopyOptions;
use longhaul_files::Asked;
use longhaul_text::CallOption;

/// The other host of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// A running server.
    Daemon { host: String, port: u16 },
    /// A host reached through the user's ssh.
    Ssh {
        /// The argument for ssh.
        destination: String,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// From this host to the other.
    Push { sources: Vec<PathBuf>, host: Host, destination: PathBuf },
    /// From the other host to this host.
    Pull { host: Host, sources: Vec<PathBuf>, destination: PathBuf },
}

impl Route {
    /// Returns the routes of a copy: one for each host that has sources; for replicas, one for each
    /// source.
    pub(crate) fn all(options: &CopyOptions) -> Result<Vec<Route>, Error> {
        let usage = |what: &str| Error::new(ErrorKind::Usage, what);
        let split: Vec<_> = options.sources.iter().map(split).collect();
        if split.is_empty() {
            return Err(usage("there is nothing to copy from"));
        }
        if options.replicas && split.len() < 2 {
            let error =
                usage("a copy from replicas needs at least two sources, but only one is given");
            return Err(error.advise("name another copy of the files"));
        }
        let (to, destination) = self::split(&options.destination);
        let mut hosts: Vec<(Host, Vec<PathBuf>)> = Vec::new();
        let mut local = Vec::new();
        for (host, path) in split {
            let Some(host) = host else {
                local.push(path);
                continue;
            };
            match hosts.iter_mut().find(|(known, _)| *known == host && !options.replicas) {
                Some((_, paths)) => paths.push(path),
                None => hosts.push((host, vec![path])),
            }
        }
        match (local.is_empty(), hosts.is_empty(), to) {
            (false, false, None) => Err(usage("some sources are on this host and some on others")
                .advise("copy the sources on this host with cp")),
            (_, true, None) => Err(usage("both ends are on this host").advise("use cp")),
            (_, false, Some(_)) => Err(usage("a source and the destination are on other hosts")
                .advise("run longhaul on one of them")),
            (_, true, Some(_)) if options.replicas => {
                Err(usage("replicas must be on other hosts, but the sources are on this host")
                    .advise(format!("leave {} out", CallOption::Replicas)))
            }
            (_, true, Some(host)) => Ok(vec![Route::Push { sources: local, host, destination }]),
            (_, false, None) => {
                let pull = |(host, sources)| Route::Pull {
                    host,
                    sources,
                    destination: destination.clone(),
                };
                Ok(hosts.into_iter().map(pull).collect())
            }
        }
    }

    /// Returns the entries (files, folders, links) that a pull may contain; `None` for a push.
    pub(crate) fn asked(&self, options: &CopyOptions) -> Result<Option<Asked>, Error> {
        let Route::Pull { host, sources, .. } = self else { return Ok(None) };
        // Only the remote side can replace `~` with the path of the home folder.
        let is_home = |path: &PathBuf| path.as_os_str() == "~";
        if matches!(host, Host::Ssh { .. }) && sources.iter().any(is_home) {
            let what = format!("the name of the home folder on {host} is not known here");
            return Err(Error::new(ErrorKind::Usage, what)
                .advise("write ~/ for the content of the home folder, or name its path"));
        }
        Ok(Some(Asked::pull(sources, options.recursive, &options.filters)?))
    }

    pub(crate) fn host(&self) -> &Host {
        match self {
            Route::Push { host, .. } | Route::Pull { host, .. } => host,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Ssh { destination } => f.write_str(destination),
            Host::Daemon { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl Host {
    /// Returns the host of a location; `None` for this host, and for an HTTP address.
    pub(crate) fn of(location: &Location) -> Option<Host> {
        match location {
            Location::Local(_) | Location::Http { .. } => None,
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
    (Host::of(location), location.path().to_owned())
}
