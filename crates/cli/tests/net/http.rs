//! HTTP and WebDAV of a server.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::rig::{Child, DEADLINE, Host, Server, Skipped, bytes, need, skip, write, write_private};

pub(super) const READER: &str = "reader-0123456789abcdef";
pub(super) const WRITER: &str = "writer-0123456789abcdef";

/// A server with two tokens: one may read `data`, the other may read and write below `in`.
pub(super) struct Http {
    pub(super) server: Server,
    pub(super) url: String,
    pub(super) data: PathBuf,
    _host: Host,
    pub(super) scratch: TempDir,
}

impl Http {
    pub(super) fn new(args: &[&str]) -> Http {
        let scratch = tempfile::tempdir().expect("there is room for a folder");
        let (data, tokens) = (scratch.path().join("data"), scratch.path().join("tokens"));
        fs::create_dir_all(data.join("in")).expect("the scratch folder is ours");
        write_private(&tokens, &format!("{READER} ro # Rita\n{WRITER} rw:/in\n"));
        let host = Host::new(&scratch.path().join("server"));
        let tokens = tokens.to_str().expect("our own name");
        let own = ["--http", "127.0.0.1:0", "--http-tokens", tokens];
        let words = Server::words("127.0.0.1:0", &data, &[&own, args].concat());
        let mut child = Child::spawn(&mut host.command(words));
        let ready = child.event(|event| event["event"] == "ready");
        let url = ready["http"].as_str().expect("the ready event has a URL").to_owned();
        let text = |name: &str| ready[name].as_str().expect("it is a text").to_owned();
        let server = Server { child, address: text("address"), data_port: 0, id: text("id") };
        Http { server, url, data, _host: host, scratch }
    }

    pub(super) fn address(&self) -> SocketAddr {
        let address = self.url.trim_start_matches("http://").trim_end_matches('/');
        address.parse().expect("an address")
    }

    /// Sends `head`, with CRLF as line ends, and `body`. Returns the whole reply.
    fn raw(&self, head: &str, body: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address()).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a time limit");
        // The server may close the connection before the end of the request.
        let _ = stream.write_all(head.replace('\n', "\r\n").as_bytes());
        let _ = stream.write_all(body);
        let mut all = Vec::new();
        // The server may reset a connection with unread data.
        let _ = stream.read_to_end(&mut all);
        String::from_utf8_lossy(&all).into_owned()
    }

    /// Sends a request, without a token if `token` is empty; `more` are header lines.
    pub(super) fn ask(&self, token: &str, method: &str, path: &str, more: &str) -> String {
        let auth = match token {
            "" => String::new(),
            token => format!("Authorization: Bearer {token}\n"),
        };
        let own = "Host: localhost\nConnection: close\n";
        let head = format!("{method} {path} HTTP/1.1\n{own}{auth}{more}\n");
        self.raw(&head, b"")
    }

    fn put(&self, token: &str, path: &str, content: &[u8]) -> String {
        let head = format!(
            "PUT {path} HTTP/1.1\nHost: localhost\nConnection: close\n\
             Authorization: Bearer {token}\nContent-Length: {}\n\n",
            content.len()
        );
        self.raw(&head, content)
    }
}

#[track_caller]
fn is(reply: &str, status: u16) {
    assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{status} was expected: {reply}");
}

fn body(reply: &str) -> &str {
    reply.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

fn header<'a>(reply: &'a str, name: &str) -> &'a str {
    let lines = reply.lines().take_while(|line| !line.is_empty());
    let mut pairs = lines.filter_map(|line| line.split_once(": "));
    pairs.find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
}

#[test]
fn a_file_is_served_whole_or_by_ranges_and_not_if_the_client_has_it() {
    let http = Http::new(&[]);
    write(&http.data.join("file"), b"0123456789");
    let get = |more: &str| http.ask(READER, "GET", "/file", more);
    let whole = get("");
    is(&whole, 200);
    assert_eq!((body(&whole), header(&whole, "content-length")), ("0123456789", "10"));
    assert_eq!(header(&whole, "accept-ranges"), "bytes");
    let (etag, modified) = (header(&whole, "etag"), header(&whole, "last-modified"));
    assert!(etag.len() > 30 && modified.ends_with(" GMT"), "{whole}");
    let part = get("Range: bytes=2-4\n");
    is(&part, 206);
    assert_eq!((body(&part), header(&part, "content-range")), ("234", "bytes 2-4/10"));
    let several = get("Range: bytes=0-1,-2\n");
    is(&several, 206);
    assert!(header(&several, "content-type").starts_with("multipart/byteranges; boundary="));
    assert!(body(&several).contains("bytes 0-1/10\r\n\r\n01\r\n--"), "{several}");
    assert!(body(&several).contains("bytes 8-9/10\r\n\r\n89\r\n--"), "{several}");
    assert_eq!(body(&several).len().to_string(), header(&several, "content-length"));
    let none = get("Range: bytes=10-\n");
    is(&none, 416);
    assert_eq!(header(&none, "content-range"), "bytes */10");
    is(&get(&format!("If-None-Match: {etag}\n")), 304);
    is(&get(&format!("If-Modified-Since: {modified}\n")), 304);
    is(&get("If-Match: \"other\"\n"), 412);
    is(&get(&format!("Range: bytes=2-4\nIf-Range: {etag}\n")), 206);
    let head = http.ask(READER, "HEAD", "/file", "");
    is(&head, 200);
    assert_eq!((body(&head), header(&head, "content-length")), ("", "10"));
    write(&http.data.join("file"), b"another version");
    is(&get(&format!("If-None-Match: {etag}\n")), 200);
    let changed = get(&format!("Range: bytes=2-4\nIf-Range: {etag}\n"));
    is(&changed, 200);
    assert_eq!(body(&changed), "another version");
    is(&get("Range: bytes=0-\n"), 206);
}

#[test]
fn a_folder_is_listed_for_people_and_programs() {
    let http = Http::new(&[]);
    write(&http.data.join("in/<b>&"), b"12345");
    symlink("<b>&", http.data.join("in/link")).unwrap();
    symlink("/etc", http.data.join("in/out")).unwrap();
    fs::create_dir(http.data.join("in/folder")).unwrap();
    let moved = http.ask(READER, "GET", "/in", "");
    is(&moved, 301);
    assert_eq!(header(&moved, "location"), "/in/");
    let page = http.ask(READER, "GET", "/in/", "");
    is(&page, 200);
    assert!(page.contains("<a href=\"./%3Cb%3E%26\">&lt;b&gt;&amp;</a>"), "{page}");
    assert!(page.contains("folder/") && page.contains("link") && !page.contains("out<"), "{page}");
    assert!(header(&page, "content-security-policy").contains("default-src 'none'"));
    assert_eq!(header(&page, "x-content-type-options"), "nosniff");
    let json = http.ask(READER, "GET", "/in/", "Accept: application/json\n");
    assert!(json.contains("\"bytes\":5") && json.contains("\"type\":\"folder\""), "{json}");
    let dav = http.ask(READER, "PROPFIND", "/in", "Depth: 1\n");
    is(&dav, 207);
    assert_eq!(dav.matches("<D:response>").count(), 4, "{dav}");
    assert!(dav.contains("<D:href>/in/</D:href>") && dav.contains("/in/folder/</D:href>"), "{dav}");
    let own = http.ask(READER, "PROPFIND", "/in/", "Depth: 0\n");
    assert_eq!(own.matches("<D:response>").count(), 1, "{own}");
    is(&http.ask(READER, "PROPFIND", "/in/", "Depth: infinity\n"), 403);
    is(&http.ask(READER, "PROPFIND", "/none", "Depth: 0\n"), 404);
    let options = http.ask(READER, "OPTIONS", "/", "");
    assert_eq!(header(&options, "dav"), "1");
}

#[test]
fn a_token_has_the_rights_of_its_line_and_requests_without_a_token_are_refused() {
    let mut http = Http::new(&[]);
    write(&http.data.join("file"), b"f");
    write(&http.data.join("in/mine"), b"m");
    for token in ["", "unknown-0123456789abcdef", "reader-0123456789abcde"] {
        let refused = http.ask(token, "GET", "/file", "");
        is(&refused, 401);
        assert_eq!(header(&refused, "www-authenticate"), "Bearer realm=\"longhaul\"");
        is(&http.ask(token, "PROPFIND", "/", "Depth: 1\n"), 401);
        is(&http.ask(token, "DELETE", "/file", ""), 401);
    }
    for (method, more) in [("DELETE", ""), ("MKCOL", ""), ("MOVE", "Destination: /in/x\n")] {
        is(&http.ask(READER, method, "/file", more), 403);
    }
    is(&http.put(READER, "/in/new", b"n"), 403);
    // A token's paths start at its folder.
    is(&http.ask(WRITER, "GET", "/file", ""), 404);
    assert_eq!(body(&http.ask(WRITER, "GET", "/mine", "")), "m");
    is(&http.put(WRITER, "/new", b"n"), 201);
    assert_eq!(fs::read(http.data.join("in/new")).unwrap(), b"n");
    assert!(http.data.join("file").exists() && !http.data.join("in/in").exists());
    // A token may come as a password. At SIGHUP the server reads the tokens again.
    let basic = "Authorization: Basic YW55OnJlYWRlci0wMTIzNDU2Nzg5YWJjZGVm\n";
    is(&http.ask("", "GET", "/file", basic), 200);
    write_private(&http.scratch.path().join("tokens"), &format!("{WRITER} ro\n"));
    http.server.reload();
    is(&http.ask(READER, "GET", "/file", ""), 401);
    is(&http.put(WRITER, "/new", b"n"), 403);
}

#[test]
fn a_link_that_replaces_the_folder_of_a_token_is_not_followed() {
    let http = Http::new(&[]);
    write(&http.data.join("secret/file"), b"s");
    is(&http.put(WRITER, "/file", b"f"), 201);
    fs::rename(http.data.join("in"), http.data.join("old")).unwrap();
    symlink("secret", http.data.join("in")).unwrap();
    is(&http.ask(WRITER, "GET", "/file", ""), 404);
    is(&http.put(WRITER, "/new", b"n"), 404);
    is(&http.ask(WRITER, "DELETE", "/file", ""), 404);
    assert_eq!(fs::read_dir(http.data.join("secret")).unwrap().count(), 1);
}

#[test]
fn public_folders_are_readable_and_read_only_servers_refuse_all_writes() {
    let http = Http::new(&["--http-public", "--read-only"]);
    write(&http.data.join("file"), b"f");
    is(&http.ask("", "GET", "/file", ""), 200);
    let foreign = "GET /file HTTP/1.1\nHost: example.org\nConnection: close\n\n";
    is(&http.raw(foreign, b""), 403);
    is(&http.ask("unknown-0123456789abcdef", "GET", "/file", ""), 401);
    for refused in [http.put(WRITER, "/new", b"n"), http.ask("", "DELETE", "/file", "")] {
        is(&refused, 403);
        assert!(body(&refused).starts_with("this server is read-only"), "{refused}");
    }
    let http = Http::new(&["--http-public"]);
    for (token, why) in [("", "without a token you may only"), (READER, "this token may only")] {
        let refused = http.ask(token, "DELETE", "/file", "");
        is(&refused, 403);
        assert!(body(&refused).starts_with(why), "{refused}");
    }
}

#[test]
fn files_are_put_moved_and_deleted_and_are_never_partial() {
    let http = Http::new(&[]);
    let top = http.data.join("in");
    let ask = |method: &str, path: &str, more: &str| http.ask(WRITER, method, path, more);
    is(&http.put(WRITER, "/file", b"one"), 201);
    is(&http.put(WRITER, "/file", b"two"), 204);
    is(&http.put(WRITER, "/none/file", b"x"), 409);
    is(&http.put(WRITER, "/folder/", b"x"), 409);
    is(&http.put(WRITER, "/.x.lh-part", b"x"), 403);
    is(&ask("PUT", "/file", "Content-Length: 0\nIf-None-Match: *\n"), 412);
    is(&ask("PUT", "/file", "Content-Length: 0\nContent-Range: bytes 0-0/1\n"), 400);
    is(&ask("MKCOL", "/folder", ""), 201);
    is(&ask("MKCOL", "/folder", ""), 405);
    is(&ask("MKCOL", "/a/b", ""), 409);
    is(&ask("MOVE", "/file", "Destination: http://localhost/folder/moved\n"), 201);
    is(&ask("MOVE", "/folder/moved", "Destination: http://elsewhere/x\n"), 400);
    is(&ask("MOVE", "/folder", "Destination: /folder/in\n"), 403);
    is(&http.put(WRITER, "/other", b"other"), 201);
    is(&ask("MOVE", "/other", "Destination: /folder/moved\nOverwrite: F\n"), 412);
    is(&ask("MOVE", "/other", "Destination: /folder/moved\n"), 204);
    assert_eq!(fs::read(top.join("folder/moved")).unwrap(), b"other");
    is(&ask("DELETE", "/", ""), 403);
    is(&ask("DELETE", "/folder", ""), 204);
    is(&ask("DELETE", "/folder", ""), 404);
    is(&ask("COPY", "/x", "Destination: /y\n"), 501);
    is(&ask("PATCH", "/x", ""), 405);
    // The client disconnects before the body is complete.
    is(&http.put(WRITER, "/file", b"old"), 201);
    let mut stream = TcpStream::connect(http.address()).unwrap();
    let head = format!(
        "PUT /file HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {WRITER}\r\n\
         Content-Length: 3000000\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&bytes(2_000_000, 1)).unwrap();
    crate::rig::wait_until("the partial file is there", || {
        fs::read_dir(&top).unwrap().count() == 2
    });
    drop(stream);
    crate::rig::wait_until("the partial file has gone", || {
        fs::read_dir(&top).unwrap().count() == 1
    });
    assert_eq!(fs::read(top.join("file")).unwrap(), b"old");
}

#[test]
fn the_conditions_of_a_put_are_checked_again_before_the_file_gets_its_name() {
    let http = Http::new(&[]);
    let top = http.data.join("in");
    is(&http.put(WRITER, "/old", b"one"), 201);
    let etag = header(&http.ask(WRITER, "GET", "/old", ""), "etag").to_owned();
    for (name, condition) in
        [("new", "If-None-Match: *".to_owned()), ("old", format!("If-Match: {etag}"))]
    {
        let before = fs::read_dir(&top).unwrap().count();
        let mut slow = TcpStream::connect(http.address()).unwrap();
        slow.set_read_timeout(Some(DEADLINE)).unwrap();
        let head = format!(
            "PUT /{name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Authorization: Bearer {WRITER}\r\nContent-Length: 4\r\n{condition}\r\n\r\n"
        );
        slow.write_all(head.as_bytes()).unwrap();
        crate::rig::wait_until("the conditions are judged", || {
            fs::read_dir(&top).unwrap().count() > before
        });
        let meanwhile = http.put(WRITER, &format!("/{name}"), b"another client's");
        assert!(meanwhile.starts_with("HTTP/1.1 20"), "{meanwhile}");
        slow.write_all(b"mine").unwrap();
        let mut reply = String::new();
        slow.read_to_string(&mut reply).unwrap();
        is(&reply, 412);
        assert_eq!(fs::read(top.join(name)).unwrap(), b"another client's");
    }
    assert_eq!(fs::read_dir(&top).unwrap().count(), 2, "no partial file stays");
}

#[test]
fn a_move_without_overwrite_does_not_replace_even_a_dangling_link() {
    let http = Http::new(&[]);
    let top = http.data.join("in");
    write(&top.join("file"), b"f");
    symlink("none", top.join("link")).unwrap();
    let moved =
        |more: &str| http.ask(WRITER, "MOVE", "/file", &format!("Destination: /link\n{more}"));
    is(&moved("Overwrite: F\n"), 412);
    assert!(top.join("link").is_symlink() && top.join("file").exists());
    is(&moved(""), 201);
    assert_eq!(fs::read(top.join("link")).unwrap(), b"f");
}

#[test]
fn a_failing_move_loses_nothing_and_conditions_apply_to_its_source() {
    let http = Http::new(&[]);
    let top = http.data.join("in");
    write(&top.join("folder/file"), b"kept");
    write(&top.join("other"), b"other");
    symlink("folder", top.join("link")).unwrap();
    let moved = |from: &str, to: &str, more: &str| {
        http.ask(WRITER, "MOVE", from, &format!("Destination: {to}\n{more}"))
    };
    is(&moved("/folder/file", "/folder", ""), 403);
    is(&moved("/link/file", "/folder", ""), 404);
    is(&moved("/other", "/none/other", ""), 409);
    is(&moved("/none", "/folder", ""), 404);
    is(&moved("/other", "/folder", "Overwrite: f\n"), 412);
    for condition in ["If-Match: \"a\",,\"b\"", "If-None-Match: *", "If-Match: W/\"a\""] {
        is(&moved("/folder", "/new", &format!("{condition}\n")), 412);
        is(&moved("/other", "/folder", &format!("{condition}\n")), 412);
    }
    assert_eq!(fs::read(top.join("folder/file")).unwrap(), b"kept");
    let etag = header(&http.ask(WRITER, "GET", "/other", ""), "etag").to_owned();
    is(&moved("/other", "/folder", &format!("If-Match: {etag}\n")), 204);
    assert_eq!(fs::read(top.join("folder")).unwrap(), b"other");
    assert_eq!(fs::read_dir(&top).unwrap().count(), 2, "the replaced folder is removed");
}

#[test]
fn no_request_leaves_the_root_by_names_encodings_or_links() {
    let http = Http::new(&[]);
    write(&http.scratch.path().join("secret"), b"secret");
    write(&http.data.join("secret"), b"secret");
    symlink("../secret", http.data.join("in/up")).unwrap();
    symlink("..", http.data.join("in/parent")).unwrap();
    symlink(http.scratch.path(), http.data.join("in/out")).unwrap();
    for path in [
        "/../secret",
        "/..%2fsecret",
        "/%2e%2e/secret",
        "/%2e%2e%2fsecret",
        "/a/../../secret",
        "/..%5csecret",
        "/%00",
        "/secret%00.txt",
        "/up",
        "/parent/secret",
        "/out/secret",
        "/out/",
        "//../secret",
        "/.%2e/secret",
        "/%c0%ae%c0%ae/secret",
        "/file:///etc/passwd",
        "/%",
    ] {
        for method in ["GET", "HEAD", "PROPFIND", "DELETE", "MKCOL"] {
            let reply = http.ask(WRITER, method, path, "Depth: 1\n");
            let status = reply.get(9..12).unwrap_or_default();
            let fine = ["400", "403", "404", "405", "409"].contains(&status);
            let is_own = method == "DELETE" && ["/up", "/out/"].contains(&path) && status == "204"
                || method == "MKCOL" && status == "201";
            assert!(fine || is_own, "{method} {path}: {reply}");
            assert!(!reply.contains("secret\r\n") && !body(&reply).ends_with("secret"), "{path}");
        }
        let put = http.put(WRITER, path, b"evil");
        assert!(!put.contains("500 "), "{path}: {put}");
        let moved = http.ask(WRITER, "MOVE", "/up", &format!("Destination: {path}\n"));
        assert!(!moved.contains("500 "), "{path}: {moved}");
    }
    assert_eq!(fs::read(http.scratch.path().join("secret")).unwrap(), b"secret");
    assert_eq!(fs::read(http.data.join("secret")).unwrap(), b"secret");
}

#[test]
fn oversized_headers_and_other_protocols_end_the_connection_and_not_the_server() {
    let http = Http::new(&["--http-public"]);
    write(&http.data.join("file"), b"f");
    let long = "x".repeat(100_000);
    is(&http.raw(&format!("GET / HTTP/1.1\nHost: localhost\nX: {long}\n\n"), b""), 431);
    let many: String = (0..500).map(|n| format!("X-{n}: y\n")).collect();
    is(&http.raw(&format!("GET / HTTP/1.1\nHost: localhost\n{many}\n"), b""), 431);
    is(&http.raw("nonsense\n\n", b"\x16\x03\x01\x02\x00"), 400);
    is(&http.raw("PUT /x HTTP/1.1\nHost: localhost\nContent-Length: -1\n\n", b""), 400);
    // The header of this request stays incomplete.
    let slow = http.raw("GET /file HTTP/1.1\nHost: ", b"");
    assert!(!slow.contains("200 OK"), "{slow}");
    is(&http.ask("", "GET", "/file", ""), 200);
}

#[test]
fn a_server_with_unsafe_or_unusable_http_options_does_not_start() {
    let scratch = tempfile::tempdir().unwrap();
    let host = Host::new(&scratch.path().join("server"));
    let tokens = scratch.path().join("tokens");
    write_private(&tokens, &format!("{READER} ro\n"));
    let tokens = tokens.to_str().unwrap();
    let start = |args: &[&str]| host.run(Server::words("127.0.0.1:0", scratch.path(), args));
    start(&["--http", "0.0.0.0:0", "--http-tokens", tokens]).is(2, &["in the clear"]);
    start(&["--http", "127.0.0.1:0", "--allow", &host.id]).is(2, &["no client could use HTTP"]);
    fs::set_permissions(tokens, fs::Permissions::from_mode(0o644)).unwrap();
    start(&["--http", "127.0.0.1:0", "--http-tokens", tokens]).is(4, &["chmod 600"]);
    fs::set_permissions(tokens, fs::Permissions::from_mode(0o600)).unwrap();
    let cert = ["--http-cert", tokens, "--http-key", tokens];
    let words = [&["--http", "127.0.0.1:0", "--http-public"][..], &cert].concat();
    start(&words).is(4, &["cannot be used for TLS"]);
}

fn shell(line: &str, folder: &Path) -> Output {
    let mut command = Command::new("sh");
    command.args(["-ec", line]).current_dir(folder).env("HOME", folder);
    command.output().expect("there is a shell")
}

#[track_caller]
pub(super) fn succeeds(line: &str, folder: &Path) -> String {
    let output = shell(line, folder);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(super) fn has(program: &str) -> Result<(), Skipped> {
    match Command::new(program).arg("--version").output() {
        Ok(_) => Ok(()),
        Err(_) => Err(skip::uninstalled(format!("{program} is not installed"))),
    }
}

#[test]
fn rclone_copies_both_ways_by_webdav_and_reads_by_http() {
    need!(has("rclone"));
    let http = Http::new(&["--http-public"]);
    let folder = http.scratch.path();
    let content = bytes(3_000_000, 2);
    write(&folder.join("tree/a b/deep/file"), &content);
    write(&folder.join("tree/ünï"), b"u");
    let dav = format!(
        "--config=/dev/null --webdav-url={} --webdav-bearer-token={WRITER} --retries=1",
        http.url
    );
    succeeds(&format!("rclone {dav} copy tree :webdav:up"), folder);
    assert_eq!(fs::read(http.data.join("in/up/a b/deep/file")).unwrap(), content);
    assert_eq!(fs::read(http.data.join("in/up/ünï")).unwrap(), b"u");
    succeeds(&format!("rclone {dav} copy :webdav:up back && diff -r tree back"), folder);
    succeeds(&format!("rclone {dav} moveto :webdav:up/ünï :webdav:up/moved"), folder);
    assert!(http.data.join("in/up/moved").exists() && !http.data.join("in/up/ünï").exists());
    succeeds(&format!("rclone {dav} purge :webdav:up"), folder);
    assert!(!http.data.join("in/up").exists());
    write(&http.data.join("pub/a b/file"), &content);
    let web = format!("--config=/dev/null --http-url={} --retries=1", http.url);
    let served = http.data.join("pub/a b/file");
    let served = served.display();
    let line = format!("rclone {web} copy :http:pub got && cmp 'got/a b/file' '{served}'");
    succeeds(&line, folder);
    let part = succeeds(
        &format!("rclone {web} cat --offset 5 --count 9 ':http:pub/a b/file' | wc -c"),
        folder,
    );
    assert_eq!(part.trim(), "9");
}

#[test]
fn the_log_has_each_change_of_the_folder_and_no_read() {
    let mut http = Http::new(&[]);
    is(&http.put(WRITER, "/new", b"12345"), 201);
    is(&http.ask(WRITER, "GET", "/new", ""), 200);
    is(&http.ask(WRITER, "DELETE", "/none", ""), 404);
    is(&http.ask(WRITER, "MOVE", "/new", "Destination: /moved\n"), 201);
    let mut next = || http.server.child().event(|event| event["event"] != "ready");
    let put = next();
    assert_eq!((&put["event"], &put["method"]), (&"http-write".into(), &"PUT".into()), "{put}");
    assert_eq!((&put["path"], &put["bytes"]), (&"/in/new".into(), &5.into()), "{put}");
    assert_eq!(put["http_status"], 201);
    let moved = next();
    assert_eq!((&moved["method"], &moved["path"]), (&"MOVE".into(), &"/in/new".into()), "{moved}");
    assert_eq!(moved["destination"], "/in/moved", "{moved}");
    let line = http.server.child().complaint("MOVE");
    assert!(line.contains("HTTP MOVE /in/new to /in/moved: done"), "{line}");
}

#[test]
fn https_uses_the_given_certificate() {
    need!(has("curl"));
    need!(has("openssl"));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    succeeds(
        "umask 077; openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem \
         -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost",
        folder,
    );
    write(&folder.join("data/file"), b"secure");
    let host = Host::new(&folder.join("server"));
    let tls = ["--http-cert", "cert.pem", "--http-key", "key.pem", "--http-public"];
    let words = Server::words("127.0.0.1:0", &folder.join("data"), &tls);
    let mut command = host.command(words);
    let mut child = Child::spawn(command.args(["--http", "127.0.0.1:0"]).current_dir(folder));
    let ready = child.event(|event| event["event"] == "ready");
    let url = ready["http"].as_str().unwrap().replace("127.0.0.1", "localhost");
    assert!(url.starts_with("https://localhost:"), "{url}");
    let got = succeeds(&format!("curl -sf --cacert cert.pem {url}file"), folder);
    assert_eq!(got, "secure");
    assert!(!shell(&format!("curl -sf {url}file"), folder).status.success());
}
