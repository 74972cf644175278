//! The state of a server: a page for browsers, events, and metrics for monitors.
//!
//! The page is read-only, and each request needs a token. The page is one file, and its
//! Content-Security-Policy forbids it to load anything from another server. The server renders the
//! state, and the metrics, at most about ten times a second for all readers together.

use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data_encoding::BASE64URL_NOPAD;
use hyper::body::Incoming;
use hyper::header::{self, HeaderName};
use hyper::{Method, Request, StatusCode};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::{MissedTickBehavior, interval};

use crate::accept::{Answers, Serving};
use crate::body::{Body, Pieces};
use crate::condition;
use crate::error::Error;
use crate::listening::Listening;
use crate::reply::{self, Reply};
use crate::tokens::{bearer, hash};

/// The page. Each reply has a new nonce in place of `{nonce}`.
const PAGE: &str = include_str!("page.html");
const NONCE: &str = "{nonce}";
/// Maximum number of pages that receive events at the same time.
const WATCHERS: usize = 32;
/// Minimum time between two events.
const EVERY: Duration = Duration::from_millis(100);
/// Interval of keep-alive comments while the state does not change.
const SIGN: Duration = Duration::from_secs(5);
/// Time limit of a browser that does not read.
const UNREAD: Duration = Duration::from_secs(60);
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A future with the text of the state or of the metrics; `None` after the watched server has
/// ended.
pub type Watching = Pin<Box<dyn Future<Output = Option<String>> + Send>>;

/// The source of a page's content.
pub trait Watched: Send + Sync + 'static {
    /// Returns the state as one JSON object.
    fn state(&self) -> Watching;

    /// Returns the metrics as OpenMetrics text.
    fn metrics(&self) -> Watching;
}

/// The address and token of a page.
#[derive(Clone, Debug)]
pub struct PageSettings {
    /// The address to listen on. It must be a loopback address, because the page has no TLS.
    pub listen: SocketAddr,
    /// The token that readers need; `None` generates a new one.
    pub token: Option<String>,
}

/// A running page. Dropping this value stops the page.
pub struct Page {
    listening: Listening,
    token: String,
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Page({})", self.listening.address())
    }
}

impl Page {
    /// Starts a page of `watched` on a separate thread.
    ///
    /// # Errors
    /// The address is not a loopback address (usage), or cannot be used.
    pub fn start(settings: PageSettings, watched: impl Watched) -> Result<Page, Error> {
        let PageSettings { listen, token } = settings;
        if !listen.ip().is_loopback() {
            let what = format!("{listen} would show the page in the clear, its token included");
            let advice = "listen on 127.0.0.1, and reach it through ssh -L";
            return Err(Error::usage(what, advice));
        }
        let token = token.map_or_else(random, Ok)?;
        let watchers = Arc::new(Semaphore::new(WATCHERS));
        let (state, metrics) = Default::default();
        let (watched, token_hash) = (Box::new(watched), hash(&token));
        let pages = Arc::new(Pages { watched, token_hash, state, metrics, watchers });
        let traffic = Arc::default();
        let serving = Serving { acceptor: None, answers: pages, idle: UNREAD, traffic };
        let listening = Listening::start("longhaul page", listen, serving)?;
        Ok(Page { listening, token })
    }

    /// Returns the address of the page with its token.
    pub fn url(&self) -> String {
        format!("http://{}/?token={}", self.listening.address(), self.token)
    }
}

/// Returns 144 random bits as text.
fn random() -> Result<String, Error> {
    let mut bytes = [0; 18];
    let random = rustls::crypto::aws_lc_rs::default_provider().secure_random;
    let none = |_| Error::host("the system has no random bytes".to_owned(), "try again");
    random.fill(&mut bytes).map_err(none)?;
    Ok(BASE64URL_NOPAD.encode(&bytes))
}

struct Pages {
    watched: Box<dyn Watched>,
    token_hash: [u8; 32],
    state: Recent,
    metrics: Recent,
    watchers: Arc<Semaphore>,
}

#[derive(Default)]
struct Recent(Mutex<Option<(Instant, Arc<str>)>>);

impl Recent {
    async fn text(&self, render: impl FnOnce() -> Watching) -> Option<Arc<str>> {
        let mut last = self.0.lock().await;
        if let Some((made, text)) = &*last
            && made.elapsed() < EVERY * 9 / 10
        {
            return Some(text.clone());
        }
        let text: Arc<str> = render().await?.into();
        *last = Some((Instant::now(), text.clone()));
        Some(text)
    }
}

impl Answers for Pages {
    fn answer(
        self: Arc<Self>,
        _: SocketAddr,
        request: Request<Incoming>,
    ) -> Pin<Box<dyn Future<Output = Reply>>> {
        Box::pin(async move {
            let mut reply = self.respond(&request).await;
            for (name, value) in [
                ("x-content-type-options", "nosniff"),
                ("referrer-policy", "no-referrer"),
                ("cache-control", "no-store"),
                ("cross-origin-resource-policy", "same-origin"),
            ] {
                reply = reply::with(reply, HeaderName::from_static(name), value);
            }
            reply
        })
    }
}

impl Pages {
    async fn respond(self: &Arc<Self>, request: &Request<Incoming>) -> Reply {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let text = "this page changes nothing: use GET";
            let reply = reply::plain(StatusCode::METHOD_NOT_ALLOWED, text);
            return reply::with(reply, header::ALLOW, "GET, HEAD");
        }
        if !self.may_read(request) {
            let text = "the token is missing or wrong: use the address that the server printed";
            return reply::plain(StatusCode::FORBIDDEN, text);
        }
        let reply = match request.uri().path() {
            "/" => page(),
            "/metrics" => typed(self.metrics.text(|| self.watched.metrics()).await, METRICS),
            "/state" => typed(self.state().await, "application/json"),
            "/events" if request.method() == Method::GET => self.events(),
            _ => reply::plain(StatusCode::NOT_FOUND, "there is no such page"),
        };
        // hyper sends no content of a reply to HEAD.
        reply
    }

    /// Returns whether the request has the token, in its URL or as a bearer token in a header.
    fn may_read(&self, request: &Request<Incoming>) -> bool {
        let query = request.uri().query().unwrap_or_default();
        let in_query = query.split('&').find_map(|pair| pair.strip_prefix("token="));
        let in_header = || condition::text(request.headers(), header::AUTHORIZATION);
        let token = in_query.or_else(|| in_header().and_then(bearer));
        token.is_some_and(|token| hash(token) == self.token_hash)
    }

    async fn state(&self) -> Option<Arc<str>> {
        self.state.text(|| self.watched.state()).await
    }

    fn events(self: &Arc<Self>) -> Reply {
        let Ok(seat) = self.watchers.clone().try_acquire_owned() else {
            let text = "too many pages are open: close one";
            return reply::plain(StatusCode::SERVICE_UNAVAILABLE, text);
        };
        let (pieces, body) = Body::pieces();
        let pages = self.clone();
        tokio::task::spawn_local(async move { pages.send_states(&pieces, seat).await });
        let mut reply = Reply::new(body);
        let kind = header::HeaderValue::from_static("text/event-stream");
        reply.headers_mut().insert(header::CONTENT_TYPE, kind);
        reply
    }

    async fn send_states(&self, pieces: &Pieces, _seat: OwnedSemaphorePermit) {
        let mut tick = interval(EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut sent, mut at) = (None, Instant::now());
        loop {
            tick.tick().await;
            let Some(state) = self.state().await else { return };
            let is_new = sent.as_ref() != Some(&state);
            let text = match is_new {
                true => format!("data: {state}\n\n"),
                false if at.elapsed() >= SIGN => ":\n\n".to_owned(),
                false => continue,
            };
            if !pieces.send(Ok(text.into_bytes())).await {
                return;
            }
            (sent, at) = (Some(state), Instant::now());
        }
    }
}

fn typed(text: Option<Arc<str>>, kind: &str) -> Reply {
    match text {
        Some(text) => {
            let reply = reply::plain(StatusCode::OK, text.trim_end());
            reply::with(reply, header::CONTENT_TYPE, kind)
        }
        None => reply::plain(StatusCode::SERVICE_UNAVAILABLE, "the server is ending"),
    }
}

/// Returns the page. Its Content-Security-Policy allows only the script and the style that have the
/// nonce.
fn page() -> Reply {
    let Ok(nonce) = random() else {
        return reply::plain(StatusCode::INTERNAL_SERVER_ERROR, "no random bytes");
    };
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let reply = reply::plain(StatusCode::OK, PAGE.replace(NONCE, &nonce).trim_end());
    let reply = reply::with(reply, header::CONTENT_TYPE, "text/html; charset=utf-8");
    reply::with(reply, header::CONTENT_SECURITY_POLICY, &policy)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[derive(Clone, Default)]
    struct Counted(Arc<AtomicU32>);

    impl Watched for Counted {
        fn state(&self) -> Watching {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Some("text".to_owned()) })
        }

        fn metrics(&self) -> Watching {
            self.state()
        }
    }

    #[test]
    fn many_requests_render_the_state_and_the_metrics_at_most_once_in_90_ms() {
        for path in ["state", "metrics"] {
            let counted = Counted::default();
            let listen = ([127, 0, 0, 1], 0).into();
            let token = Some("t".to_owned());
            let page = Page::start(PageSettings { listen, token }, counted.clone()).unwrap();
            let begun = Instant::now();
            for _ in 0..40 {
                let mut stream = TcpStream::connect(page.listening.address()).unwrap();
                let head = "HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
                write!(stream, "GET /{path}?token=t {head}").unwrap();
                let mut reply = String::new();
                stream.read_to_string(&mut reply).unwrap();
                assert!(reply.ends_with("\r\n\r\ntext\n"), "{reply}");
            }
            let most = 1 + begun.elapsed().as_millis() / 90;
            let rendered = counted.0.load(Ordering::Relaxed);
            assert!(u128::from(rendered) <= most, "{path}: {rendered} of {most}");
        }
    }

    #[test]
    fn the_page_loads_nothing_from_elsewhere() {
        for word in ["http://", "https://", "//cdn", "@import", "src=", "<link", "url("] {
            assert!(!PAGE.contains(word), "the page has {word}");
        }
        // Styles and handlers in attributes do not pass the policy.
        for word in [" style=", " onclick=", " onload=", "innerHTML", "eval("] {
            assert!(!PAGE.contains(word), "the page has {word}");
        }
        assert_eq!(PAGE.matches(NONCE).count(), 2);
    }

    #[test]
    fn tokens_have_24_characters_and_differ() {
        let (one, other) = (random().unwrap(), random().unwrap());
        assert!(one.len() == 24 && one != other, "{one} {other}");
    }
}
