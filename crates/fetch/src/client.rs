//! Sends requests: redirects, proxies, TLS, authorization.

use std::sync::Arc;
use std::time::Duration;

use longhaul_text::CallOption;
use rustls::crypto::aws_lc_rs;
use ureq::config::RedirectAuthHeaders;
use ureq::http::{HeaderMap, Response};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body, Proxy};

use crate::error::{Error, Kind, cut};
use crate::url::Url;

/// Maximum number of redirects of one request.
const REDIRECTS: u32 = 10;
/// Timeout of a name lookup, and of connecting.
const CONNECT: Duration = Duration::from_secs(20);
/// Maximum bytes of a reply's header.
const HEADER: usize = 64 << 10;

/// How requests are made.
#[derive(Clone, Debug)]
pub struct Options {
    /// The bearer token, sent only to the server of the file's own address.
    pub token: Option<String>,
    /// Whether to follow a redirect from https to http.
    pub allow_downgrade: bool,
    /// Timeout for a connection that delivers no data.
    pub silence: Duration,
    /// Maximum number of connections that are kept for reuse.
    pub connections: usize,
}

/// Makes requests for one file. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    agent: Agent,
    url: Url,
    authorization: Option<String>,
}

impl Client {
    /// Returns a client for the file at `url`. The usual environment variables set proxies. The
    /// client trusts the certificate authorities in `SSL_CERT_FILE` and `SSL_CERT_DIR`, or the
    /// system's if neither is set.
    ///
    /// # Errors
    /// [`Kind::Usage`]: `url` is https and there are no trusted authorities.
    pub fn new(url: &Url, options: &Options) -> Result<Client, Error> {
        let bearer = options.token.as_ref().map(|token| format!("Bearer {token}"));
        let authorization = bearer.or_else(|| url.basic());
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .https_only(url.is_https() && !options.allow_downgrade)
            .max_redirects(REDIRECTS)
            // Never repeat the credentials after a redirect: another port of the same host may
            // belong to another user's server.
            .redirect_auth_headers(RedirectAuthHeaders::Never)
            .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
            .accept("*/*")
            .accept_encoding("identity")
            .max_response_header_size(HEADER)
            .input_buffer_size(256 << 10)
            .max_idle_connections(options.connections)
            .max_idle_connections_per_host(options.connections)
            .timeout_resolve(Some(CONNECT))
            .timeout_connect(Some(CONNECT))
            .timeout_send_request(Some(options.silence))
            .timeout_recv_response(Some(options.silence))
            .timeout_per_read(Some(options.silence))
            .proxy(Proxy::try_from_env());
        let config = match url.is_https() {
            true => config.tls_config(tls()?),
            false => config.tls_config(tls().unwrap_or_else(|_| bare())),
        };
        Ok(Client { agent: config.build().into(), url: url.clone(), authorization })
    }

    /// Returns the address of the file.
    pub fn url(&self) -> &Url {
        &self.url
    }

    pub(crate) fn is_own(&self, to: &ureq::http::Uri) -> bool {
        let own = self.url.uri();
        (to.scheme(), to.authority()) == (own.scheme(), own.authority())
    }

    /// Sends a request to `to`: the file's own address, or the target of a redirect.
    pub(crate) fn send(
        &self,
        head: bool,
        to: &ureq::http::Uri,
        fields: &[(&str, &str)],
    ) -> Result<Response<Body>, Error> {
        let mut request = if head { self.agent.head(to) } else { self.agent.get(to) };
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        if let Some(authorization) = self.authorization.as_ref().filter(|_| self.is_own(to)) {
            request = request.header("authorization", authorization);
        }
        let host = to.authority().map_or("", |host| host.as_str());
        request.call().map_err(|error| Error::of_request(host, error))
    }

    pub(crate) fn refused(&self, status: u16, headers: &HeaderMap) -> Error {
        let (host, url) = (self.url.host(), cut(&self.url.to_string()));
        match status {
            401 if self.authorization.is_some() => {
                let what = format!("{host} does not accept the given token or password (401)");
                let advice = format!("check {}, or the password in the address", CallOption::Token);
                Error::new(Kind::Unreachable, what).advise(advice)
            }
            401 | 407 => {
                Error::new(Kind::Unreachable, format!("{host} asks for credentials ({status})"))
                    .advise(format!("give a token with {}", CallOption::Token))
            }
            403 => Error::new(Kind::Unreachable, format!("{host} refuses access to {url} (403)")),
            404 | 410 => Error::new(Kind::File, format!("{url} does not exist ({status})")),
            412 | 416 => Error::new(Kind::Changed, format!("{url} has changed ({status})")),
            408 | 425 | 429 | 500..=599 => {
                Error::new(Kind::Lost, format!("{host} cannot answer now ({status})"))
            }
            300..=399 => {
                let to = crate::headers::text(headers, "location").map_or_else(String::new, cut);
                Error::new(
                    Kind::File,
                    format!("{host} redirects {url} without a valid target ({status}) {to}"),
                )
            }
            _ => Error::new(Kind::File, format!("{host} does not deliver {url} ({status})")),
        }
    }
}

fn tls() -> Result<TlsConfig, Error> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let why = found.errors.first().map_or_else(String::new, |error| format!(": {error}"));
        let what = format!("there are no trusted authorities for https{why}");
        return Err(Error::new(Kind::Usage, what)
            .advise("install ca-certificates, or set SSL_CERT_FILE to a file of authorities"));
    }
    let roots = found.certs.iter().map(|der| Certificate::from_der(der).to_owned());
    let roots: Vec<Certificate<'static>> = roots.collect();
    let with = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&roots));
    Ok(with.unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider())).build())
}

/// Returns TLS settings that trust no authority, so a redirect to https fails.
fn bare() -> TlsConfig {
    let with = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&[]));
    with.unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider())).build()
}
