//! Listings of folders as HTML, as JSON, and for WebDAV's PROPFIND (RFC 4918).

use std::fmt::Write;
use std::io;

use hyper::header::{self, HeaderMap};
use hyper::{Response, StatusCode};
use longhaul_files::edit::look;
use longhaul_files::list::{NameKind, Named};
use longhaul_files::{DiskPermit, Place, list};
use tokio::runtime::Handle;

use crate::body::{Body, Pieces};
use crate::caller::Caller;
use crate::condition::{self, at};
use crate::disk::Client;
use crate::reply::{self, Reply};
use crate::url;

/// Approximate size of a piece of the reply, in bytes.
const PIECE: usize = 32 << 10;
/// Maximum number of sorted names; further names follow in the system's order.
const SORTED: usize = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Page,
    Json,
    Dav,
}

/// Returns the format of a listing for GET: JSON if `Accept` names JSON, and does not name HTML
/// before JSON; otherwise a page.
fn wanted(headers: &HeaderMap) -> Form {
    let accepted = condition::text(headers, header::ACCEPT).unwrap_or_default();
    match (accepted.find("application/json"), accepted.find("text/html")) {
        (Some(json), html) if html.is_none_or(|html| json < html) => Form::Json,
        _ => Form::Page,
    }
}

/// Answers GET and HEAD for the folder at `place`; `path` is the path of the URL.
pub(crate) async fn page(
    caller: &Caller,
    place: Place,
    path: &str,
    headers: &HeaderMap,
    is_head: bool,
) -> Reply {
    let form = wanted(headers);
    let (kind, head) = match form {
        Form::Json => ("application/json", "[".to_owned()),
        _ => ("text/html; charset=utf-8", page_head(path)),
    };
    let body = match is_head {
        true => Body::whole(String::new()),
        false => match listing(caller, place, form, String::new(), head).await {
            Ok(body) => body,
            Err(reply) => return reply,
        },
    };
    let reply = reply::with(Response::new(body), header::CONTENT_TYPE, kind);
    let policy = "default-src 'none'; style-src 'unsafe-inline'";
    let reply = reply::with(reply, header::CONTENT_SECURITY_POLICY, policy);
    reply::with(reply, header::VARY, "accept")
}

/// Answers PROPFIND for `found` at `place`; with `names`, also for the names in the folder `found`.
/// `path` is the path of the URL.
pub(crate) async fn properties(
    caller: &Caller,
    place: Place,
    path: &str,
    found: &Named,
    names: bool,
) -> Reply {
    let mut head =
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n".to_owned();
    let is_folder = found.kind == NameKind::Folder;
    let slash = if is_folder && !path.ends_with('/') { "/" } else { "" };
    let base = format!("{path}{slash}");
    dav(&mut head, &base, found);
    let body = match is_folder && names {
        false => Body::whole(head + DAV_END),
        true => match listing(caller, place, Form::Dav, base, head).await {
            Ok(body) => body,
            Err(reply) => return reply,
        },
    };
    let mut reply = Response::new(body);
    *reply.status_mut() = StatusCode::MULTI_STATUS;
    reply::with(reply, header::CONTENT_TYPE, "application/xml; charset=utf-8")
}

/// Returns a body: `head`, then the names at `place`.
async fn listing(
    caller: &Caller,
    place: Place,
    form: Form,
    base: String,
    head: String,
) -> Result<Body, Reply> {
    let busy = || {
        let reply =
            reply::plain(StatusCode::SERVICE_UNAVAILABLE, "too many listings at the same time");
        reply::with(reply, header::RETRY_AFTER, "10")
    };
    let seat = caller.seat_for_listing().await.ok_or_else(busy)?;
    let (pieces, body) = Body::pieces();
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let mut writing = Writing { runtime, pieces, form, base, text: head, is_first: true };
        writing.all(&place, seat);
    });
    Ok(body)
}

struct Writing {
    runtime: Handle,
    pieces: Pieces,
    form: Form,
    base: String,
    text: String,
    is_first: bool,
}

impl Writing {
    fn all(&mut self, place: &Place, _seat: DiskPermit<Client>) {
        let mut sorted = Some(Vec::new());
        let mut reads_on = true;
        let listed = list::list(place, &mut |named| {
            // A link is listed as its target. Broken links, links that lead out of the root, and
            // special files such as devices are left out.
            let Some(named) = followed(place, named) else { return true };
            match &mut sorted {
                Some(names) if names.len() < SORTED => {
                    names.push(named);
                    return true;
                }
                first => reads_on = first.take().is_none_or(|names| self.sorted(names)),
            }
            reads_on = reads_on && self.name(&named);
            reads_on
        });
        if let Err(error) = listed {
            let error = Err(io::Error::other(error.what));
            let _ = self.runtime.block_on(self.pieces.send(error));
            return;
        }
        if sorted.take().is_none_or(|names| self.sorted(names)) && reads_on {
            self.text.push_str(match self.form {
                Form::Page => "</table></body></html>\n",
                Form::Json => "\n]\n",
                Form::Dav => DAV_END,
            });
            self.flush();
            self.runtime.block_on(self.pieces.end());
        }
    }

    fn sorted(&mut self, mut names: Vec<Named>) -> bool {
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        names.iter().all(|named| self.name(named))
    }

    /// Writes a name; `false` if the client no longer reads.
    fn name(&mut self, named: &Named) -> bool {
        match self.form {
            Form::Page => row(&mut self.text, named),
            Form::Json => {
                self.text.push_str(if self.is_first { "\n" } else { ",\n" });
                self.text.push_str(&json(named));
            }
            Form::Dav => {
                let slash = if named.kind == NameKind::Folder { "/" } else { "" };
                let path = format!("{}{}{slash}", self.base, url::encode(&named.name));
                dav(&mut self.text, &path, named);
            }
        }
        self.is_first = false;
        self.text.len() < PIECE || self.flush()
    }

    fn flush(&mut self) -> bool {
        let text = std::mem::take(&mut self.text).into_bytes();
        self.runtime.block_on(self.pieces.send(Ok(text)))
    }
}

fn followed(place: &Place, named: Named) -> Option<Named> {
    match named.kind {
        NameKind::File | NameKind::Folder => Some(named),
        NameKind::Link => {
            let there = look(&place.join(&named.name)).ok()?;
            let is_shown = matches!(there.kind, NameKind::File | NameKind::Folder);
            is_shown.then_some(Named { name: named.name, ..there })
        }
        _ => None,
    }
}

/// Escapes text for HTML and XML; replaces characters that XML forbids or terminals interpret.
fn escape(bytes: &[u8]) -> String {
    let mut out = String::new();
    for c in String::from_utf8_lossy(bytes).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

fn page_head(path: &str) -> String {
    let title = escape(path.as_bytes());
    let up = if path == "/" { "" } else { "<tr><td><a href=\"../\">../</a></td></tr>\n" };
    format!(
        "<!doctype html>\n<html><head><meta charset=\"utf-8\"><title>{title}</title>\n\
         <style>body{{font-family:sans-serif}}td{{padding:0 1em}}</style></head>\n\
         <body><h1>{title}</h1><table>\n{up}"
    )
}

fn row(out: &mut String, named: &Named) {
    let (slash, size) = match named.kind {
        NameKind::Folder => ("/", String::new()),
        _ => ("", named.size.to_string()),
    };
    let (href, name) = (url::encode(&named.name), escape(&named.name));
    let time = at(named.modified.seconds).map(httpdate::fmt_http_date).unwrap_or_default();
    // With `./` in front, every name is read as a relative path.
    let _ = writeln!(
        out,
        "<tr><td><a href=\"./{href}{slash}\">{name}{slash}</a></td>\
         <td>{size}</td><td>{time}</td></tr>"
    );
}

fn json(named: &Named) -> String {
    let kind = if named.kind == NameKind::Folder { "folder" } else { "file" };
    let name = String::from_utf8_lossy(&named.name);
    let mut value = serde_json::json!({
        "name": name,
        "type": kind,
        "modified_seconds": named.modified.seconds,
        "href": url::encode(&named.name),
    });
    if named.kind != NameKind::Folder {
        value["bytes"] = named.size.into();
    }
    value.to_string()
}

const DAV_END: &str = "</D:multistatus>\n";

fn dav(out: &mut String, path: &str, named: &Named) {
    let _ =
        write!(out, "<D:response><D:href>{}</D:href><D:propstat><D:prop>", escape(path.as_bytes()));
    match named.kind {
        NameKind::Folder => out.push_str("<D:resourcetype><D:collection/></D:resourcetype>"),
        _ => {
            let size = named.size;
            let _ = write!(
                out,
                "<D:resourcetype/><D:getcontentlength>{size}</D:getcontentlength>\
                 <D:getcontenttype>application/octet-stream</D:getcontenttype>"
            );
        }
    }
    if let Some(time) = at(named.modified.seconds) {
        let time = httpdate::fmt_http_date(time);
        let _ = write!(out, "<D:getlastmodified>{time}</D:getlastmodified>");
    }
    let name = escape(&named.name);
    let _ = writeln!(
        out,
        "<D:displayname>{name}</D:displayname></D:prop>\
         <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
    );
}

#[cfg(test)]
mod tests {
    use longhaul_files::manifest::FileTime;

    use super::*;

    fn named(name: &[u8], kind: NameKind) -> Named {
        let modified = FileTime { seconds: 1_000_000_000, nanos: 0 };
        Named { name: name.to_vec(), kind, mode: 0o644, size: 7, modified, target: None }
    }

    #[test]
    fn a_name_is_text_in_every_form_and_never_markup() {
        let evil = named(b"<script>\"'&\x1b\xff: a", NameKind::File);
        let mut out = String::new();
        row(&mut out, &evil);
        dav(&mut out, "/x", &evil);
        assert!(!out.contains("<script") && !out.contains('\x1b'), "{out}");
        assert!(out.contains("href=\"./%3Cscript%3E%22%27%26%1B%FF%3A%20a\""), "{out}");
        assert!(out.contains("&lt;script&gt;&quot;&#39;&amp;"), "{out}");
        let value: serde_json::Value = serde_json::from_str(&json(&evil)).unwrap();
        assert_eq!((&value["bytes"], &value["type"]), (&7.into(), &"file".into()));
        assert!(page_head("/<b>").contains("&lt;b&gt;"));
    }

    #[test]
    fn a_folder_is_a_collection_and_a_file_has_its_length_and_time() {
        let (mut file, mut folder) = (String::new(), String::new());
        dav(&mut file, "/f", &named(b"f", NameKind::File));
        dav(&mut folder, "/d/", &named(b"d", NameKind::Folder));
        assert!(file.contains("<D:getcontentlength>7</D:getcontentlength>"));
        assert!(file.contains("Sun, 09 Sep 2001 01:46:40 GMT"));
        assert!(folder.contains("<D:collection/>") && !folder.contains("getcontentlength"));
    }

    #[test]
    fn clients_that_prefer_json_get_json() {
        let form = |accept: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, header::HeaderValue::from_static(accept));
            wanted(&headers)
        };
        assert_eq!(wanted(&HeaderMap::new()), Form::Page);
        assert_eq!(form("*/*"), Form::Page);
        assert_eq!(form("application/json"), Form::Json);
        assert_eq!(form("application/json, text/html"), Form::Json);
        assert_eq!(form("text/html, application/json"), Form::Page);
    }
}
