//! `longhaul serve`: serves a folder to the clients whose ids are allowed.

mod http;
mod log;
mod metrics;
mod reflect;
mod ui;

use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use longhaul::{
    Allow, CancelHandle, Identity, Server, SshRooms, SshServer, access_list, blocking, listen,
};
use longhaul_gateway::{Gateway, Page};
use longhaul_proto::units::Bytes;
use serde::Serialize;

use crate::error::{Error, ErrorKind};
use crate::quantity::{parse_bytes, parse_ports};
use crate::{config, console, descriptors, exit, json, notify, plain, signals};
use http::HttpArgs;
use log::Log;
use ui::UiArgs;

pub(crate) use reflect::{ReflectArgs, run as run_reflect};

const EXAMPLES: &str = "\
Examples:
  longhaul serve --root /data --allow ID              the client ID may read and write
  longhaul serve --root /data --allow ID:ro:run42     it may only read, below /data/run42
  longhaul serve --root /data --allow ID,files=ro,channel=rw,stream=rw
                                                      named services, with a right each
  longhaul serve --root /data --http 127.0.0.1:8080 --http-public
                                                      browsers and curl, on this host
ID is the output of `longhaul id` on the client's host.
";

/// Serve a folder, and more services, to the ids that are allowed
///
/// Clients copy, list, read and mount the files of the folder. With further rights they also meet
/// in rooms (`longhaul channel`), send and receive streams, share values (--share), and watch the
/// server (`longhaul top`).
///
/// When the server is ready, it prints one line with address and id, and one more each for --http
/// and --ui; with --json, it prints one line for all. It needs the inbound ports UDP P (control),
/// UDP P+1 (data of all transfers) and TCP P (fallback where UDP is blocked); P is the port of
/// --listen, 7717 by default.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n{}", exit::TABLE))]
pub(crate) struct ServeArgs {
    /// Listen here: ADDRESS:PORT, ADDRESS or :PORT; [fe80::1%eth0]:PORT on one interface
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "[::]:7717")]
    #[arg(value_parser = listen::parse)]
    listen: SocketAddr,
    /// UDP port of all data [default: the port of --listen + 1]
    #[arg(long, value_name = "PORT")]
    data_port: Option<u16>,
    /// Serve this folder; clients cannot leave it
    #[arg(long, value_name = "FOLDER", required_unless_present_any = ["ssh", "show_config"])]
    root: Option<PathBuf>,
    /// Refuse all writes of files, even of clients that --allow lets write
    #[arg(long)]
    read_only: bool,
    /// Allow an id to read (ro), write (wo) or both (rw, the default). With SUBFOLDER, which must
    /// exist, the id has access only below it. The long form allows only the named services, as in
    /// ID,files=ro:/SUBFOLDER,channel=rw. The services are files, share, stream, channel, link, rpc
    /// and status
    #[arg(long, value_name = "ID[:ro|wo|rw[:SUBFOLDER]]", value_parser = access_list::parse)]
    allow: Vec<Allow>,
    /// Read --allow entries from this file, one a line; '#' starts a comment. Only this user and
    /// root may be able to change it. SIGHUP reads it again and ends transfers of clients that lost
    /// their right
    #[arg(long, value_name = "FILE")]
    allow_file: Option<PathBuf>,
    /// End after one transfer
    #[arg(long)]
    once: bool,
    /// Allow unencrypted data if the client asks for --cipher none
    #[arg(long)]
    allow_plain: bool,
    /// Limit of received data in memory, for all transfers together: blocks of incomplete chunks,
    /// chunks that wait for the disk, and lists of files. Each receiving transfer reserves at least
    /// 32Mi. If less is free, a transfer waits up to 10 s, then its client retries. One id can
    /// have about half of all reservations
    #[arg(long, value_name = "SIZE", default_value = "512Mi", value_parser = parse_bytes)]
    memory: Bytes,
    /// Offer a tree of small values that clients share (`longhaul share`), and store it in FILE,
    /// which is created if missing. Clients need the right `share` in the long form of --allow, as
    /// in `share=rw:/PREFIX`
    #[arg(long, value_name = "FILE")]
    share: Option<PathBuf>,
    #[command(flatten)]
    http: HttpArgs,
    #[command(flatten)]
    ui: UiArgs,
    /// Write events as JSON to stdout, one object a line; the first one has the server's address
    #[arg(long)]
    json: bool,
    /// Do not log clients, transfers and refusals to stderr
    #[arg(short, long)]
    quiet: bool,
    /// Append the log to FILE instead of stderr, without the lines for the start of a request. With
    /// --json each line is a JSON object, and stdout gets only the server's address and an error
    /// that ends the server. Only this user can read a new FILE. SIGHUP reopens it, for logrotate
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Print the values in force and the origin of each (command line, file and line, or default),
    /// and do nothing else
    #[arg(long = "show-config", id = "show_config")]
    _show_config: bool,
    /// Serve the one client whose ssh started this process, over standard input and output
    #[arg(long, hide = true, conflicts_with_all = ["root", "allow", "allow_file", "json"])]
    #[arg(conflicts_with = "log_file")]
    ssh: bool,
    /// UDP ports that may be opened for an ssh copy
    #[arg(long, hide = true, requires = "ssh", value_parser = parse_ports)]
    ports: Option<(u16, u16)>,
    /// ID: connect this ssh client to the process that serves this user's channels and streams.
    /// serve: be that process
    #[arg(long, hide = true, requires = "ssh", value_name = "ID|serve")]
    rooms: Option<String>,
}

/// The value of `--rooms` for the process that serves the rooms of this user to all ssh clients.
const SERVE_ROOMS: &str = "serve";

pub(crate) fn run(args: &ServeArgs) -> u8 {
    match start(args) {
        Ok(()) => exit::DONE,
        Err(error) => {
            if args.json {
                console::out(json::error(&error, exit::status(error.kind)));
            }
            exit::fail(&error)
        }
    }
}

fn start(args: &ServeArgs) -> Result<(), Error> {
    descriptors::raise_limit();
    match (args.ssh, &args.rooms) {
        (_, Some(rooms)) => rooms_by_ssh(args.ports, rooms),
        (true, None) => serve_by_ssh(args),
        (false, None) => serve(args),
    }
}

/// Serves the rooms of this user (channels and streams) if `who` is `serve`. Otherwise connects the
/// ssh client with the id `who` to the process that serves the rooms.
fn rooms_by_ssh(ports: Option<(u16, u16)>, who: &str) -> Result<(), Error> {
    let rooms = SshRooms::new(config::folder()?).runtime(config::runtime_folder()).ports(ports);
    let start = || {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--ssh", "--rooms", SERVE_ROOMS]);
        if let Some((first, last)) = ports {
            command.args(["--ports", &format!("{first}-{last}")]);
        }
        // The new process outlives the ssh of the client that starts it.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.process_group(0).spawn().map(drop)
    };
    match who {
        SERVE_ROOMS => rooms.serve()?,
        id => rooms.join(id, start)?,
    }
    Ok(())
}

fn serve_by_ssh(args: &ServeArgs) -> Result<(), Error> {
    // There is no list of clients: ssh has authenticated the user, who may reach the same files
    // without longhaul.
    let identity = Identity::load_or_create(config::folder()?)?;
    let cancel = CancelHandle::default();
    signals::cancel_on_signal(cancel.clone(), signals::ENDING)?;
    let server = SshServer::new(identity).memory(args.memory).ports(args.ports);
    match blocking::wait(server.cancel_with(&cancel).serve()) {
        // A signal is the normal end of a server.
        Err(error) if error.kind == ErrorKind::Cancelled => Ok(()),
        ended => Ok(ended?),
    }
}

fn serve(args: &ServeArgs) -> Result<(), Error> {
    // SIGHUP is caught before the list is read, so that a SIGHUP after a change of the list is not
    // lost.
    let held = signals::hold_reload()?;
    let list = first_clients(args)?;
    if args.listen.port() == u16::MAX && args.data_port.is_none() {
        let what = "no data port follows port 65535";
        return Err(Error::new(ErrorKind::Usage, what).advise("choose one with --data-port"));
    }
    let root = root(args)?;
    let log = Arc::new(Log::open(args.log_file.as_deref(), args.json, args.quiet)?);
    let builder = Server::builder(Identity::load_or_create(config::folder()?)?)
        .root(root)
        .allow_all(list)
        .listen(args.listen)
        .data_port(args.data_port)
        .read_only(args.read_only)
        .once(args.once)
        .allow_plain(args.allow_plain)
        .memory(args.memory);
    let builder = match &args.share {
        Some(file) => builder.share(file),
        None => builder,
    };
    let mut server = blocking::wait(builder.start())?;
    let gateway = Arc::new(args.http.start(root, args.read_only, &log)?);
    let page = args.ui.start(root, &server, (*gateway).as_ref())?;
    let (reloading, ending) = (server.control(), server.control());
    let (allow, file) = (args.allow.clone(), args.allow_file.clone());
    let (reopened, http, served) = (log.clone(), args.http.clone(), gateway.clone());
    let read_again = move || {
        let has_log = reopened.reopen();
        let has_tokens = read_tokens_again(&http, (*served).as_ref());
        let Some(file) = &file else {
            if has_log || has_tokens {
                return;
            }
            console::note(format_args!(
                "longhaul: SIGHUP has no effect without --allow-file, --http-tokens or --log-file"
            ));
            return;
        };
        let reloaded = allow_list(&allow, Some(file))
            .and_then(|list| Ok(blocking::wait(reloading.set_access(list))?));
        match reloaded {
            Ok(()) => console::note(format_args!("longhaul: read {} again", file.display())),
            Err(error) => {
                let error = plain::text(&error.to_string());
                console::note(format_args!("longhaul: {error}; the old list stays in force"));
            }
        }
    };
    let reload = move || {
        notify::notify(&notify::reloading());
        read_again();
        notify::notify(notify::READY);
    };
    let shut_down = move || {
        notify::notify(notify::STOPPING);
        ending.shutdown(Duration::ZERO);
    };
    signals::direct_server(held, reload, shut_down)?;
    announce(root, &server, (*gateway).as_ref(), page.as_ref(), args.json);
    notify::notify(notify::READY);
    let mut events = server.events();
    while let Some(event) = blocking::wait(events.next()) {
        log.write(&event);
    }
    Ok(blocking::wait(server.ended())?)
}

/// Reads the token file again, if there is one; returns whether there is one.
fn read_tokens_again(http: &HttpArgs, gateway: Option<&Gateway>) -> bool {
    let Some(read) = gateway.and_then(|gateway| http.reload(gateway)) else { return false };
    match read {
        Ok(path) => console::note(format_args!("longhaul: read {} again", path.display())),
        Err(error) => {
            let error = plain::text(&error.to_string());
            console::note(format_args!("longhaul: {error}; the old tokens stay in force"));
        }
    }
    true
}

fn allow_list(named: &[Allow], file: Option<&PathBuf>) -> Result<Vec<Allow>, Error> {
    let mut list = named.to_vec();
    let Some(file) = file else { return Ok(list) };
    list.extend(access_list::load(file).map_err(|error| match Error::from(error) {
        error if error.kind == ErrorKind::LocalFile && error.advice.is_none() => {
            error.advise("check --allow-file")
        }
        error => error,
    })?);
    Ok(list)
}

/// Reads the list at the start of the server. Refuses an empty list if there is a file; a reload of
/// the file may make the list empty.
fn first_list(named: &[Allow], file: Option<&PathBuf>) -> Result<Vec<Allow>, Error> {
    let list = allow_list(named, file)?;
    if let (Some(file), true) = (file, list.is_empty()) {
        let what = format!("{} lists no client, so nobody could connect", file.display());
        let advice = "write a line ID[:ro|wo|rw[:subfolder]] for each client";
        return Err(Error::new(ErrorKind::Usage, what).advise(advice));
    }
    Ok(list)
}

/// Like [`first_list`]; also refuses a server without clients.
fn first_clients(args: &ServeArgs) -> Result<Vec<Allow>, Error> {
    let list = first_list(&args.allow, args.allow_file.as_ref())?;
    if !list.is_empty() || args.http.has_clients() {
        return Ok(list);
    }
    let advice = match args.http.is_wanted() {
        true => {
            "let clients of HTTP in by --http-tokens FILE or --http-public, and clients of lh:// \
             by --allow ID"
        }
        false => "let a client in by --allow ID; `longhaul id` on the client's host prints the ID",
    };
    let what = "nobody could connect to this server";
    Err(Error::new(ErrorKind::Usage, what).advise(advice))
}

fn root(args: &ServeArgs) -> Result<&Path, Error> {
    let missing =
        || Error::new(ErrorKind::Usage, "a server needs a folder").advise("name one with --root");
    let root = args.root.as_deref().ok_or_else(missing)?;
    if !root.is_dir() {
        let (what, advice) = match root.symlink_metadata() {
            Ok(_) => ("is not a folder", "choose its parent folder as --root"),
            Err(_) => ("does not exist", "create the folder, or choose another --root"),
        };
        let what = format!("{} {what}", root.display());
        return Err(Error::new(ErrorKind::LocalFile, what).advise(advice));
    }
    Ok(root)
}

/// The ready line as JSON.
#[derive(Serialize)]
struct Line<'a> {
    event: &'static str,
    root: String,
    address: String,
    data_port: u16,
    id: &'a str,
    /// The address of HTTP, if enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    http: Option<String>,
    /// The address of the monitoring page, with its token.
    #[serde(skip_serializing_if = "Option::is_none")]
    ui: Option<String>,
}

fn announce(
    root: &Path,
    server: &Server,
    gateway: Option<&Gateway>,
    page: Option<&Page>,
    json: bool,
) {
    let ui = page.map(Page::url);
    let (address, data_port, id) = (server.address(), server.data_port(), server.id());
    let http = gateway.map(Gateway::url);
    if !json {
        let root = root.display();
        console::out(format_args!(
            "longhaul serving {root} on {address} (data {data_port}) as {id}"
        ));
        if let Some(http) = http {
            console::out(format_args!("longhaul serving {root} on {http}"));
        }
        if let Some(ui) = ui {
            console::out(format_args!("longhaul showing this server on {ui}"));
        }
        return;
    }
    let line = Line {
        event: "ready",
        root: root.display().to_string(),
        address: address.to_string(),
        data_port,
        id,
        http,
        ui,
    };
    console::out(serde_json::to_string(&line).expect("strings and numbers are JSON"));
}
