//! The HTTP gateway of `serve`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longhaul::units::Span;
use longhaul_gateway::{AccessRecord, Gateway, Settings, load_tokens};

use super::log::Log;
use crate::error::{Error, ErrorKind};
use crate::quantity::parse_span;

/// Flags of HTTP and WebDAV.
#[derive(Clone, clap::Args)]
pub(super) struct HttpArgs {
    /// Also serve the folder by HTTP and WebDAV at this address; an address other than loopback
    /// needs --http-cert
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,
    /// Read the tokens of HTTP clients from this file, one a line: TOKEN ro|rw[:/FOLDER]. The file
    /// must be readable only by this user. SIGHUP reads it again
    #[arg(long, value_name = "FILE", requires = "http")]
    http_tokens: Option<PathBuf>,
    /// Let everybody read by HTTP without a token
    #[arg(long, requires = "http")]
    http_public: bool,
    /// Certificate chain for HTTPS, as PEM
    #[arg(long, value_name = "FILE", requires_all = ["http", "http_key"])]
    http_cert: Option<PathBuf>,
    /// Private key for HTTPS, as PEM; the file must be readable only by this user
    #[arg(long, value_name = "FILE", requires = "http_cert")]
    http_key: Option<PathBuf>,
    /// Disconnect an HTTP client that neither receives nor sends a byte for this long
    #[arg(long, value_name = "TIME", default_value = "60s", requires = "http")]
    #[arg(value_parser = parse_timeout)]
    http_timeout: Span,
}

fn parse_timeout(text: &str) -> Result<Span, String> {
    match parse_span(text)? {
        Span::ZERO => Err("0s would disconnect every client; write 60s".to_owned()),
        span => Ok(span),
    }
}

pub(super) fn cli_error(error: longhaul_gateway::Error) -> Error {
    let kind = if error.is_usage { ErrorKind::Usage } else { ErrorKind::LocalFile };
    Error::new(kind, error.what).advise(error.advice)
}

impl HttpArgs {
    pub(super) fn is_wanted(&self) -> bool {
        self.http.is_some()
    }

    pub(super) fn has_clients(&self) -> bool {
        self.http_tokens.is_some() || self.http_public
    }

    pub(super) fn start(
        &self,
        root: &Path,
        read_only: bool,
        log: &Arc<Log>,
    ) -> Result<Option<Gateway>, Error> {
        let Some(listen) = self.http else { return Ok(None) };
        let tokens = self.http_tokens.as_deref().map(load_tokens).transpose().map_err(cli_error)?;
        let settings = Settings {
            listen,
            root: root.to_owned(),
            tokens: tokens.unwrap_or_default(),
            public: self.http_public,
            read_only,
            idle: Duration::from_nanos(self.http_timeout.as_nanos()),
            tls: self.http_cert.clone().zip(self.http_key.clone()),
        };
        let log = log.clone();
        let report = move |record: AccessRecord| log.write_http(&record);
        Gateway::start(settings, report).map(Some).map_err(cli_error)
    }

    /// Reads the token file again; `None` if no token file is configured.
    pub(super) fn reload(&self, gateway: &Gateway) -> Option<Result<&Path, Error>> {
        let path = self.http_tokens.as_deref()?;
        let loaded = load_tokens(path).map_err(cli_error);
        Some(loaded.map(|tokens| {
            gateway.set_tokens(tokens);
            path
        }))
    }
}
