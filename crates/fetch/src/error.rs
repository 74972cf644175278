//! The reason why a request failed.

use std::fmt;

use longhaul_text::CallOption;

/// The kind of a failure, which decides what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The address or an option is invalid.
    Usage,
    /// The server cannot be reached, is not trusted, or refuses access.
    Unreachable,
    /// There is no such file, or the server cannot deliver it.
    File,
    /// The file has changed since it was opened.
    Changed,
    /// The connection was lost or the server is busy; a retry may succeed.
    Lost,
}

/// The reason for a failure, with advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The kind of failure.
    pub kind: Kind,
    /// What failed and why: one sentence without a full stop.
    pub what: String,
    /// The suggested action, if there is one.
    pub advice: Option<String>,
}

impl Error {
    pub(crate) fn new(kind: Kind, what: impl Into<String>) -> Error {
        Error { kind, what: what.into(), advice: None }
    }

    pub(crate) fn advise(self, advice: impl Into<String>) -> Error {
        Error { advice: Some(advice.into()), ..self }
    }

    pub(crate) fn of_request(host: &str, error: ureq::Error) -> Error {
        let lost = |why: String| Error::new(Kind::Lost, format!("{host}: {why}"));
        match error {
            ureq::Error::HostNotFound => {
                Error::new(Kind::Unreachable, format!("the host {host} has no address"))
                    .advise("check the name")
            }
            ureq::Error::RequireHttpsOnly(to) => {
                let what = format!("{host} redirects from https to {}", cut(&to));
                Error::new(Kind::Unreachable, what).advise(format!(
                    "to follow it without encryption, use {}",
                    CallOption::AllowDowngrade
                ))
            }
            ureq::Error::TooManyRedirects => {
                Error::new(Kind::File, format!("{host} redirects more than 10 times"))
            }
            ureq::Error::InvalidProxyUrl | ureq::Error::ConnectProxyFailed(_) => {
                Error::new(Kind::Unreachable, format!("the proxy to {host} failed: {error}"))
                    .advise("check http_proxy, https_proxy and no_proxy")
            }
            ureq::Error::Timeout(_) => lost("nothing arrived in time".to_owned()),
            ureq::Error::Rustls(error) => untrusted(host, &error.to_string()),
            ureq::Error::Tls(why) => untrusted(host, why),
            ureq::Error::Io(error) => {
                let tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
                match tls {
                    Some(error) => untrusted(host, &error.to_string()),
                    None => lost(error.to_string()),
                }
            }
            error => lost(error.to_string()),
        }
    }
}

fn untrusted(host: &str, why: &str) -> Error {
    Error::new(Kind::Unreachable, format!("no trusted TLS connection to {host}: {why}"))
        .advise("to trust other authorities, set SSL_CERT_FILE to a file with their certificates")
}

/// Shortens text from a server to 200 characters. Escapes quotes, backslashes, and all characters
/// except printable ASCII.
pub(crate) fn cut(text: &str) -> String {
    text.chars().take(200).flat_map(char::escape_default).collect()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.advice.as_ref().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

impl std::error::Error for Error {}
