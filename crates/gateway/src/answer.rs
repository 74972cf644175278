//! Handles one request: authentication, rights, and the handler of its method.

use std::io;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::http::uri::Authority;
use hyper::{Method, Request, StatusCode};
use longhaul_files::edit::look;
use longhaul_files::list::NameKind;
use longhaul_files::{Place, Root};

use crate::accept::Answers;
use crate::caller::Caller;
use crate::condition;
use crate::reply::{self, Reply};
use crate::shared::{AccessRecord, Shared};
use crate::tokens::{Right, bearer};
use crate::url::{self, UrlPath};
use crate::{change, folder, get};

const METHODS: &str = "OPTIONS, GET, HEAD, PROPFIND, PUT, MKCOL, DELETE, MOVE";

impl Answers for Shared {
    fn answer(
        self: Arc<Self>,
        address: std::net::SocketAddr,
        request: Request<Incoming>,
    ) -> Pin<Box<dyn Future<Output = Reply>>> {
        Box::pin(answer(self, address, request))
    }

    fn disconnected(&self, record: AccessRecord) {
        self.report(AccessRecord { disconnected_after: Some(self.idle()), ..record });
    }
}

async fn answer(
    shared: Arc<Shared>,
    address: std::net::SocketAddr,
    request: Request<Incoming>,
) -> Reply {
    let (method, mut path) = (request.method().to_string(), request.uri().path().to_owned());
    let mut destination = None;
    let length = condition::text(request.headers(), header::CONTENT_LENGTH);
    let bytes = length.and_then(|length| length.parse().ok());
    let (mut reply, name) = match right(&shared, request.headers()) {
        Ok(right) => {
            // The log has paths from the root, not from the token's folder.
            let encoded = |path: &Path| url::encode(path.as_os_str().as_bytes());
            let folder = right.folder.as_deref().map(|folder| format!("/{}", encoded(folder)));
            let folder = folder.unwrap_or_default();
            path.insert_str(0, &folder);
            if method == "MOVE" {
                let to = self::destination(request.headers());
                destination = to.map(|to| format!("{folder}/{}", encoded(&to.path)));
            }
            let caller = Caller::new(shared.clone(), address.ip(), right.name.clone());
            (respond(&caller, &right, request).await, right.name)
        }
        Err(reply) => (reply, None),
    };
    let status = reply.status();
    shared.traffic().answered(&method, status);
    let disconnected_after = (status == StatusCode::REQUEST_TIMEOUT).then(|| shared.idle());
    let status = status.as_u16();
    let record = AccessRecord {
        address,
        name,
        method,
        path,
        destination,
        bytes,
        status,
        left: reply.extensions_mut().remove().map(|change::Left(text)| text),
        disconnected_after,
    };
    let is_reported = record.is_refused() || record.is_write() || record.left.is_some();
    if is_reported || record.disconnected_after.is_some() {
        shared.report(record.clone());
    }
    let nosniff = HeaderName::from_static("x-content-type-options");
    let mut reply = reply::with(reply, nosniff, "nosniff");
    reply.extensions_mut().insert(record);
    reply
}

/// Returns the right of the request's token; without a token, the public right.
fn right(shared: &Shared, headers: &HeaderMap) -> Result<Right, Reply> {
    let Some(said) = headers.get(header::AUTHORIZATION) else {
        let public = shared.public().ok_or_else(|| unknown("a token is needed"))?;
        if shared.is_loopback_only && !names_this_host(condition::text(headers, header::HOST)) {
            let text =
                "without a token, the host of the address must be localhost or an IP address";
            return Err(reply::plain(StatusCode::FORBIDDEN, text));
        }
        return Ok(public);
    };
    let said = said.to_str().unwrap_or_default();
    token(said)
        .and_then(|token| shared.right(&token))
        .ok_or_else(|| unknown("the token is unknown"))
}

/// Returns whether the Host header is absent, `localhost` or an IP address. Other names are not
/// accepted: a web page's name may change its address to loopback, and then the page could read
/// the replies (DNS rebinding).
fn names_this_host(said: Option<&str>) -> bool {
    let Some(said) = said else { return true };
    let Ok(authority) = said.parse::<Authority>() else { return false };
    let host = authority.host();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

fn unknown(text: &str) -> Reply {
    let reply = reply::plain(StatusCode::UNAUTHORIZED, text);
    let mut reply = reply::with(reply, header::WWW_AUTHENTICATE, "Bearer realm=\"longhaul\"");
    // Makes browsers and WebDAV clients ask for a password; the token is the password.
    let basic = header::HeaderValue::from_static("Basic realm=\"longhaul\", charset=\"UTF-8\"");
    reply.headers_mut().append(header::WWW_AUTHENTICATE, basic);
    reply
}

/// Returns the token in an Authorization header: a bearer token, or a password with any user name.
fn token(said: &str) -> Option<String> {
    if let Some(token) = bearer(said) {
        return Some(token.to_owned());
    }
    let (scheme, value) = said.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = data_encoding::BASE64.decode(value.trim().as_bytes()).ok()?;
    let decoded = String::from_utf8(decoded).ok()?;
    decoded.split_once(':').map(|(_, password)| password.to_owned())
}

async fn respond(caller: &Caller, right: &Right, request: Request<Incoming>) -> Reply {
    let method = request.method().clone();
    if method == Method::OPTIONS {
        let reply = reply::with(reply::empty(StatusCode::OK), header::ALLOW, METHODS);
        return reply::with(reply, HeaderName::from_static("dav"), "1");
    }
    let text = request.uri().path().to_owned();
    let Some(path) = url::parse(&text) else {
        return reply::plain(StatusCode::BAD_REQUEST, "the path is not valid");
    };
    let root = match top(caller, right).await {
        Ok(root) => root,
        Err(error) => return reply::trouble(&error),
    };
    let at = |path: &UrlPath| Place::Within { root: root.clone(), path: path.path.clone() };
    let place = at(&path);
    match method.as_str() {
        "GET" | "HEAD" => read(caller, place, &path, &text, &request).await,
        "PROPFIND" => find(caller, place, &text, request.headers()).await,
        "PUT" | "MKCOL" | "DELETE" | "MOVE" if !caller.may_write(right) => {
            let why = match request.headers().contains_key(header::AUTHORIZATION) {
                _ if caller.is_read_only() => "this server is read-only",
                true => "this token may only read",
                false => "without a token you may only read",
            };
            reply::plain(StatusCode::FORBIDDEN, why)
        }
        "PUT" | "MKCOL" | "DELETE" | "MOVE" if path.path.as_os_str().is_empty() => {
            reply::plain(StatusCode::FORBIDDEN, "the top folder cannot be changed")
        }
        "PUT" if path.says_folder => {
            reply::plain(StatusCode::CONFLICT, "PUT cannot create a folder; use MKCOL")
        }
        "PUT" => {
            let (parts, body) = request.into_parts();
            change::put(caller, place, &parts.headers, body).await
        }
        "MKCOL" if has_body(request.headers()) => {
            reply::plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, "MKCOL takes no body")
        }
        "MKCOL" => change::make_folder(caller, place).await,
        "DELETE" => change::delete(caller, place, request.headers()).await,
        "MOVE" => {
            let headers = request.headers();
            match destination(headers) {
                Some(to) if to.path.as_os_str().is_empty() => {
                    reply::plain(StatusCode::FORBIDDEN, "the top folder cannot be changed")
                }
                Some(to) => change::move_to(caller, place, at(&to), headers).await,
                None => {
                    reply::plain(StatusCode::BAD_REQUEST, "Destination is not a path on this host")
                }
            }
        }
        "COPY" => reply::plain(StatusCode::NOT_IMPLEMENTED, "COPY is not offered"),
        _ => {
            let reply = reply::plain(StatusCode::METHOD_NOT_ALLOWED, "this method is not offered");
            reply::with(reply, header::ALLOW, METHODS)
        }
    }
}

fn destination(headers: &HeaderMap) -> Option<UrlPath> {
    let host = condition::text(headers, header::HOST);
    let said = condition::text(headers, HeaderName::from_static("destination"));
    said.and_then(|said| url::destination(said, host))
}

fn has_body(headers: &HeaderMap) -> bool {
    let length = condition::text(headers, header::CONTENT_LENGTH);
    headers.contains_key(header::TRANSFER_ENCODING) || length.is_some_and(|length| length != "0")
}

async fn top(caller: &Caller, right: &Right) -> io::Result<Root> {
    let root = caller.root().clone();
    match right.folder.clone() {
        None => Ok(root),
        Some(folder) => caller.at_disk(move || root.below(&folder)).await,
    }
}

async fn read(
    caller: &Caller,
    place: Place,
    path: &UrlPath,
    text: &str,
    request: &Request<Incoming>,
) -> Reply {
    let (headers, is_head) = (request.headers(), request.method() == Method::HEAD);
    let looked = place.clone();
    let found = match caller.at_disk(move || look(&looked)).await {
        Ok(found) => found,
        Err(error) => return reply::trouble(&error),
    };
    match found.kind {
        NameKind::Folder if !path.says_folder => {
            let reply = reply::plain(StatusCode::MOVED_PERMANENTLY, "it is a folder");
            // Two slashes at the start would name another host.
            let to = format!("/{}/", text.trim_matches('/'));
            reply::with(reply, header::LOCATION, &to)
        }
        NameKind::Folder => folder::page(caller, place, text, headers, is_head).await,
        NameKind::File if path.says_folder => reply::plain(StatusCode::NOT_FOUND, "it is a file"),
        NameKind::File => get::file(caller, place, headers, is_head).await,
        _ => reply::plain(StatusCode::FORBIDDEN, "not a regular file"),
    }
}

async fn find(caller: &Caller, place: Place, text: &str, headers: &HeaderMap) -> Reply {
    let depth = condition::text(headers, HeaderName::from_static("depth"));
    let names = match depth {
        Some("0") => false,
        Some("1") => true,
        _ => {
            let text = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
                        <D:error xmlns:D=\"DAV:\"><D:propfind-finite-depth/></D:error>";
            let reply = reply::plain(StatusCode::FORBIDDEN, text);
            return reply::with(reply, header::CONTENT_TYPE, "application/xml; charset=utf-8");
        }
    };
    let looked = place.clone();
    match caller.at_disk(move || look(&looked)).await {
        Ok(found) => folder::properties(caller, place, text, &found, names).await,
        Err(error) => reply::trouble(&error),
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn localhost_and_all_ip_addresses_count_as_names_of_this_host() {
        let hosts =
            ["localhost", "LocalHost:80", "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:1"];
        for host in hosts {
            assert!(names_this_host(Some(host)), "{host}");
        }
        for host in ["", "example.org:8080", "localhost.example.org", "127.0.0.1.example.org"] {
            assert!(!names_this_host(Some(host)), "{host}");
        }
        assert!(names_this_host(None), "every browser sends the header");
    }

    #[test]
    fn a_foreign_name_in_the_host_header_needs_a_token_only_on_loopback_without_tls() {
        let top = tempfile::tempdir().unwrap();
        let may_read = |is_loopback_only, host| {
            let root = Root::open(top.path()).unwrap();
            let public = (true, true);
            let idle = std::time::Duration::from_secs(1);
            let mut shared = Shared::new(root, Vec::new(), public, idle, |_| {});
            shared.is_loopback_only = is_loopback_only;
            let headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static(host))]);
            right(&shared, &headers).map_err(|reply| reply.status())
        };
        assert_eq!(may_read(true, "example.org").unwrap_err(), StatusCode::FORBIDDEN);
        assert!(may_read(true, "localhost").is_ok() && may_read(false, "example.org").is_ok());
    }

    #[test]
    fn a_token_is_a_bearer_token_or_a_password() {
        assert_eq!(token("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(token("bearer  abc ").as_deref(), Some("abc"));
        let basic = data_encoding::BASE64.encode(b"any:abc");
        assert_eq!(token(&format!("Basic {basic}")).as_deref(), Some("abc"));
        for none in ["", "abc", "Digest abc", "Basic !", "Basic YWJj", "Bearer"] {
            assert_eq!(token(none), None, "{none}");
        }
    }
}
