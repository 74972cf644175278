//! `longhaul reflect`: a server for rooms and streams, without files.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use longhaul::units::Bytes;
use longhaul::{
    Allow, Client, Identity, Location, RoomLimits, Server, ServerPin, Trust, access_list, blocking,
    listen,
};

use super::log::Log;
use super::{Line, allow_list, first_list};
use crate::error::Error;
use crate::quantity::parse_bytes;
use crate::reach::parse_pin;
use crate::{config, console, descriptors, exit, json, notify, plain, signals};

/// Pass messages and streams between clients, and messages to other servers; serve no files
///
/// The first id that uses a room creates it; the right `channel=wo`, `ro` or `rw` suffices. With
/// --link, a room here and the room of the same name at another server are one room; chains and
/// rings of links are allowed. The other server needs --allow ID,channel=rw,link=rw with this
/// server's id. With --multicast, a room is also a multicast group of this network. The server
/// needs the same inbound ports as `longhaul serve`.
#[derive(clap::Args)]
#[command(after_help = exit::TABLE)]
pub(crate) struct ReflectArgs {
    /// Listen here: ADDRESS:PORT, ADDRESS or :PORT; [fe80::1%eth0]:PORT on one interface
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "[::]:7717")]
    #[arg(value_parser = listen::parse)]
    listen: SocketAddr,
    /// UDP port of all data [default: the port of --listen + 1]
    #[arg(long, value_name = "PORT")]
    data_port: Option<u16>,
    /// Allow an id to use rooms (channel=) and streams (stream=), if wanted only below a prefix,
    /// and to see the status (status=ro): ID,channel=rw:/lab,stream=ro,status=ro. Add link=rw for
    /// the id of a server that links to this one
    #[arg(long, value_name = "ID,channel=rw[:/PREFIX],...", value_parser = access_list::parse)]
    #[arg(required_unless_present_any = ["allow_file"])]
    allow: Vec<Allow>,
    /// Read --allow entries from this file, one a line; '#' starts a comment. Only this user and
    /// root may be able to change it. SIGHUP reads it again
    #[arg(long, value_name = "FILE")]
    allow_file: Option<PathBuf>,
    /// Link a room of this server to the room of the same name at HOST; may be repeated
    #[arg(long, value_name = "lh://HOST/ROOM")]
    link: Vec<Location>,
    /// Accept only a server with this id for --link. HOST=ID pins one of several servers
    #[arg(long, value_name = "[HOST=]ID", value_parser = parse_pin)]
    server_id: Vec<ServerPin>,
    /// Accept and remember new servers of --link; without it, only pinned and known servers are
    /// accepted
    #[arg(long)]
    accept_new: bool,
    /// Bridge a room to a multicast group of this network, for clients with --mode multicast, such
    /// as lab/poses=239.1.2.3:5000%eth0. Write an IPv6 group in brackets. Without %INTERFACE, the
    /// routing table selects the interface. Uses the UDP port of the group; may be repeated
    #[arg(long, value_name = "ROOM=GROUP:PORT[%INTERFACE]", value_parser = bridged)]
    multicast: Vec<(String, String)>,
    /// Hop limit of the datagrams of --multicast: 1 stays in the local network
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..))]
    multicast_hops: u8,
    /// Limit of messages in memory, for all rooms together
    #[arg(long, value_name = "SIZE", default_value = "512Mi", value_parser = parse_bytes)]
    memory: Bytes,
    /// Limit of rooms
    #[arg(long, value_name = "COUNT", default_value_t = RoomLimits::default().rooms)]
    rooms: usize,
    /// Limit of rooms that one id creates
    #[arg(long, value_name = "COUNT", default_value_t = RoomLimits::default().rooms_of_id)]
    rooms_of_id: usize,
    /// Limit of senders and subscribers in a room
    #[arg(long, value_name = "COUNT", default_value_t = RoomLimits::default().clients)]
    clients: usize,
    /// Limit of senders and subscribers of one id
    #[arg(long, value_name = "COUNT", default_value_t = RoomLimits::default().clients_of_id)]
    clients_of_id: usize,
    /// Messages that a room keeps for slow subscribers
    #[arg(long, value_name = "COUNT", default_value_t = RoomLimits::default().messages)]
    room_messages: usize,
    /// Size of the messages that a room keeps for slow subscribers
    #[arg(long, value_name = "SIZE", default_value = "32Mi", value_parser = parse_bytes)]
    room_size: Bytes,
    /// Write events as JSON to stdout, one object a line; the first one has the server's address
    #[arg(long)]
    json: bool,
    /// Do not log clients and refusals to stderr
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(args: &ReflectArgs) -> u8 {
    match serve(args) {
        Ok(()) => exit::DONE,
        Err(error) => {
            if args.json {
                console::out(json::error(&error, exit::status(error.kind)));
            }
            exit::fail(&error)
        }
    }
}

/// Splits `ROOM=GROUP:PORT`.
fn bridged(text: &str) -> Result<(String, String), String> {
    let (room, group) = text.split_once('=').ok_or("write ROOM=GROUP:PORT")?;
    Ok((room.to_owned(), group.to_owned()))
}

fn limits(args: &ReflectArgs) -> RoomLimits {
    let mut limits = RoomLimits::default();
    limits.rooms = args.rooms;
    limits.rooms_of_id = args.rooms_of_id;
    limits.clients = args.clients;
    limits.clients_of_id = args.clients_of_id;
    limits.messages = args.room_messages;
    limits.bytes = usize::try_from(args.room_size.get()).unwrap_or(usize::MAX);
    limits
}

fn serve(args: &ReflectArgs) -> Result<(), Error> {
    descriptors::raise_limit();
    // SIGHUP is held before the list is read, so that a SIGHUP after a change of the list is not
    // lost.
    let held = signals::hold_reload()?;
    let list = first_list(&args.allow, args.allow_file.as_ref())?;
    let log = Log::open(None, args.json, args.quiet)?;
    let folder = config::folder()?;
    let mut builder = Server::builder(Identity::load_or_create(folder.clone())?)
        .rooms_only()
        .room_limits(limits(args))
        .allow_all(list)
        .listen(args.listen)
        .data_port(args.data_port)
        .memory(args.memory);
    if !args.link.is_empty() {
        let trust = Trust::known_servers(&folder).pins(args.server_id.clone());
        let trust = if args.accept_new { trust.or_accept_new() } else { trust };
        let client = Client::builder().identity_in(folder).trust(trust).build()?;
        builder = args.link.iter().fold(builder, |builder, to| builder.link(&client, to.clone()));
    }
    for (room, group) in &args.multicast {
        builder = builder.multicast(room, group, args.multicast_hops);
    }
    let mut server = blocking::wait(builder.start())?;
    let (reloading, ending) = (server.control(), server.control());
    let (allow, file) = (args.allow.clone(), args.allow_file.clone());
    let reload = move || {
        notify::notify(&notify::reloading());
        let reloaded = allow_list(&allow, file.as_ref())
            .and_then(|list| Ok(blocking::wait(reloading.set_access(list))?));
        if let Err(error) = reloaded {
            let error = plain::text(&error.to_string());
            console::note(format_args!("longhaul: {error}; the old list stays in force"));
        }
        notify::notify(notify::READY);
    };
    let shut_down = move || {
        notify::notify(notify::STOPPING);
        ending.shutdown(Duration::ZERO);
    };
    signals::direct_server(held, reload, shut_down)?;
    let (address, data_port, id) = (server.address(), server.data_port(), server.id());
    if args.json {
        let (root, address) = (String::new(), address.to_string());
        let line = Line { event: "ready", root, address, data_port, id, http: None, ui: None };
        console::out(serde_json::to_string(&line).expect("strings and numbers are JSON"));
    } else {
        console::out(format_args!("longhaul reflecting on {address} (data {data_port}) as {id}"));
    }
    notify::notify(notify::READY);
    let mut events = server.events();
    while let Some(event) = blocking::wait(events.next()) {
        log.write(&event);
    }
    Ok(blocking::wait(server.ended())?)
}
