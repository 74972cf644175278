//! Follows pages of docs/ as a reader does. Commands run as written, but the tests replace hosts,
//! addresses, ids and folders, and add flags such as `--json`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use tempfile::TempDir;

use super::http::has;
use super::mount::fuse;
use crate::rig::{Child, Ended, Host, Server, binary, need};

/// The pages' name of the host that runs the server.
const SERVER: &str = "dtn.example.org";
const SERVER_PROMPT: &str = "dtn$ ";
/// The first word of the line with a command's exit status. This line follows the command's output.
const MARK: &str = "the-command-ended-with";

/// A command of a page and the output shown below it, in which `…` stands for any text.
#[derive(Debug)]
struct Step {
    command: String,
    at_server: bool,
    shown: String,
}

fn text(page: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    fs::read_to_string(path).expect("the page is there")
}

fn steps(text: &str) -> Vec<Step> {
    // A block begins with the name of its language, if any.
    let blocks = text.split("\n```").skip(1).step_by(2);
    blocks.flat_map(|block| steps_of_block(block.lines().skip(1))).collect()
}

fn steps_of_block<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in lines {
        let own = line.strip_prefix("$ ").map(|command| (command, false));
        let command = own.or_else(|| Some((line.strip_prefix(SERVER_PROMPT)?, true)));
        if let Some((command, at_server)) = command {
            let command = command.to_owned();
            steps.push(Step { command, at_server, shown: String::new() });
        } else if let Some(step) = steps.last_mut() {
            step.shown += line;
            step.shown.push('\n');
        }
    }
    steps
}

fn fits(shown: &str, printed: &str) -> bool {
    let parts: Vec<&str> = shown.trim_end().split('…').collect();
    let printed = printed.trim_end();
    let [first, middle @ .., last] = &parts[..] else { return shown.trim_end() == printed };
    let Some(mut rest) = printed.strip_prefix(first) else { return false };
    for part in middle {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// Links the program under test into `tools`. Returns a PATH that begins with this folder.
pub(super) fn path_with_longhaul(tools: &Path) -> String {
    fs::create_dir_all(tools).expect("there is room for a folder");
    symlink(binary(), tools.join("longhaul")).expect("the folder has no file of this name");
    format!("{}:{}", tools.display(), std::env::var("PATH").expect("PATH is set"))
}

/// A reader of a page, with a shell on each of the page's two hosts.
struct Reader {
    /// A host, address, id or folder on the page, and its replacement in the test.
    places: Vec<(&'static str, String)>,
    own: Shell,
    server: Shell,
    /// Commands that run until they are ended: servers and mounts.
    running: Vec<(String, Child)>,
    // This is the last field, so that the folder is removed after the processes have ended.
    scratch: TempDir,
}

/// A shell that reads commands from a pipe.
struct Shell {
    child: Child,
    host: Host,
    path: String,
    folder: PathBuf,
}

impl Shell {
    fn new(host: Host, path: &str, folder: &Path) -> Shell {
        let mut shell = Shell::command(&host, path, folder);
        let child = Child::spawn(shell.stdin(Stdio::piped()));
        Shell { child, host, path: path.to_owned(), folder: folder.to_owned() }
    }

    fn command(host: &Host, path: &str, folder: &Path) -> Command {
        let mut command = Command::new("sh");
        command.env("LONGHAUL_CONFIG_DIR", &host.config).env("PATH", path);
        // A proxy would not know the addresses of the test.
        command.env("HOME", folder).env("no_proxy", "*").env("NO_COLOR", "1").current_dir(folder);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command to its end; returns its status and its output.
    fn run(&mut self, line: &str) -> (String, String) {
        let group = format!("{{ {line}\n}} < /dev/null 2> errors");
        let script = format!("{group}; status=$?; echo; echo {MARK} $status\n");
        self.child.say(&script);
        let mut printed = String::new();
        loop {
            let line = self.child.line().expect("the shell runs");
            if let Some(status) = line.strip_prefix(MARK) {
                return (status.trim().to_owned(), printed);
            }
            printed += &line;
            printed.push('\n');
        }
    }
}

impl Reader {
    fn new() -> Reader {
        let scratch = tempfile::tempdir().expect("there is room for a folder");
        let at = |name: &str| scratch.path().join(name);
        let path = path_with_longhaul(&at("tools"));
        let shell = |name: &str| {
            let (config, folder) = (at(name), at(&format!("{name}-home")));
            fs::create_dir(&folder).expect("there is room for a folder");
            Shell::new(Host::new(&config), &path, &folder)
        };
        let (own, server) = (shell("own"), shell("server"));
        let data = at("data").display().to_string();
        let places = vec![
            ("~/data", data),
            ("ID,", format!("{},", own.host.id)),
            ("127.0.0.1:8080", "127.0.0.1:0".to_owned()),
            ("127.0.0.1:7719", "127.0.0.1:0".to_owned()),
        ];
        Reader { places, own, server, running: Vec::new(), scratch }
    }

    fn in_place(&self, line: &str) -> String {
        self.places.iter().fold(line.to_owned(), |line, (from, to)| line.replace(from, to))
    }

    /// Starts a command that runs until it is ended, and waits until it is ready.
    fn start(&mut self, step: &Step, verb: &str, ready: &str) -> serde_json::Value {
        let shell = if step.at_server { &self.server } else { &self.own };
        let listen = if verb == "serve" { " --listen 127.0.0.1:0" } else { "" };
        let line = self.in_place(&step.command);
        let (from, to) = (format!("longhaul {verb}"), format!("longhaul {verb} --json{listen}"));
        let line = format!("exec {}", line.replacen(&from, &to, 1));
        let mut command = Shell::command(&shell.host, &shell.path, &shell.folder);
        let mut child = Child::spawn(command.args(["-c", &line]).stdin(Stdio::null()));
        let event = child.event(|event| event["event"] == ready);
        self.running.push((verb.to_owned(), child));
        event
    }

    /// Starts the page's server. Later steps use its addresses.
    fn serve(&mut self, step: &Step) {
        let ready = self.start(step, "serve", "ready");
        let address = ready["address"].as_str().expect("the ready line has it").to_owned();
        for (name, port) in [("http", "127.0.0.1:8080"), ("ui", "127.0.0.1:7719")] {
            let url = ready[name].as_str().and_then(|url| url.split('/').nth(2));
            let place = self.places.iter_mut().find(|(from, _)| *from == port);
            if let (Some(url), Some(place)) = (url, place) {
                place.1 = url.to_owned();
            }
        }
        self.places.push(("localhost", address.clone()));
        self.places.push((SERVER, address));
    }

    fn follow(&mut self, step: &Step) {
        match step.command.split(' ').collect::<Vec<_>>()[..] {
            ["longhaul", "serve", ..] => return self.serve(step),
            ["longhaul", "mount", ..] => return drop(self.start(step, "mount", "mounted")),
            _ => {}
        }
        let line = self.in_place(&step.command);
        let shell = if step.at_server { &mut self.server } else { &mut self.own };
        let (status, printed) = shell.run(&line);
        let errors = fs::read_to_string(shell.folder.join("errors")).unwrap_or_default();
        let (command, shown) = (&step.command, self.in_place(&step.shown));
        assert_eq!(status, "0", "{command}: {printed}{errors}");
        assert!(fits(&shown, &printed), "{command} prints\n{printed}and not\n{shown}{errors}");
    }

    /// Ends the servers, and waits for the mounts to end. Commands of the page have unmounted them.
    fn end(mut self) {
        for (verb, mut child) in self.running.drain(..).rev() {
            if verb == "serve" {
                child.signal(Signal::TERM);
            }
            child.ended().is(0, &[]);
        }
    }
}

/// Follows those steps of a page for which `may` returns true. The page must have at least `least`
/// steps in all.
fn follow(page: &str, least: usize, may: impl Fn(&Step) -> bool) -> Reader {
    let steps = steps(&text(page));
    assert!(steps.len() >= least, "{steps:?}");
    let mut reader = Reader::new();
    for step in steps.iter().filter(|step| may(step)) {
        reader.follow(step);
    }
    reader
}

#[test]
fn the_page_on_sharing_can_be_followed() {
    follow("sharing.md", 14, |_| true).end();
}

#[test]
fn the_page_on_remote_files_can_be_followed() {
    let fuse = fuse();
    let may_mount = fuse.is_ok();
    follow("remote-files.md", 12, |step| may_mount || !step.command.contains("mnt")).end();
    need!(fuse);
}

#[test]
fn the_page_on_http_can_be_followed() {
    need!(has("curl"));
    need!(has("rclone"));
    let reader = follow("http.md", 18, |_| true);
    let put = fs::read(reader.scratch.path().join("data/results/result"));
    assert_eq!(put.expect("it was put"), b"42\n");
    reader.end();
}

#[test]
fn the_page_on_monitoring_can_be_followed() {
    need!(has("curl"));
    follow("monitoring.md", 10, |_| true).end();
}

/// The sections of docs/streaming.md whose commands need another program.
const PROGRAMS: [&str; 2] = ["ffmpeg", "GStreamer"];

/// The commands of clients in the section on `program`; with `None`, in the sections that need no
/// other program.
fn commands(program: Option<&str>) -> Vec<String> {
    let page = text("streaming.md");
    let of = |section: &&str| {
        let title = section.lines().next().unwrap_or_default();
        PROGRAMS.into_iter().find(|program| *program == title) == program
    };
    let steps = page.split("\n## ").filter(of).flat_map(steps);
    steps.filter(|step| !step.at_server).map(|step| step.command).collect()
}

/// Runs the page's server, and `commands` as one script in `folder`.
fn run_page(folder: &Path, commands: &[String]) -> Ended {
    let host = |name: &str| Host::new(&folder.join(name));
    let (client, host) = (host("c"), host("s"));
    let mut steps = steps(&text("streaming.md")).into_iter().filter(|step| step.at_server);
    let serve = steps.find(|step| step.command.starts_with("longhaul serve "));
    let serve = serve.expect("the page starts a server").command;
    // The page's command, with a free port and a real id.
    let words = serve.replace("ID", &client.id).replace("~/data", ".");
    let words = words.strip_prefix("longhaul serve ").expect("the step was found by this prefix");
    let mut command = host.command(["serve", "--json", "--listen", "127.0.0.1:0"]);
    let server = Server::start_as(command.args(words.split(' ')).current_dir(folder));
    let verbs = ["stream send", "stream receive", "channel send", "channel receive"];
    let script = commands.iter().map(|line| {
        let line = line.replace("dtn.example.org", &server.address);
        verbs.iter().fold(line, |line, verb| {
            let (binary, id) = (env!("CARGO_BIN_EXE_longhaul"), &server.id);
            let words = format!("{binary} {verb} --server-id={id} ");
            line.replace(&format!("longhaul {verb} "), &words)
        })
    });
    let script: Vec<String> = ["set -e".to_owned()].into_iter().chain(script).collect();
    let mut command = Command::new("sh");
    command.args(["-c", &script.join("\n")]).env("LONGHAUL_CONFIG_DIR", &client.config);
    let command = command.current_dir(folder).stdin(Stdio::null());
    Child::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped())).end()
}

#[test]
fn each_client_command_in_the_ffmpeg_section_of_the_streaming_page_works() {
    need!(has("ffmpeg"));
    let folder = tempfile::tempdir().unwrap();
    let ended = run_page(folder.path(), &commands(Some("ffmpeg")));
    ended.is(0, &["40 frames on time"]);
    let pictures = |name: &str| {
        let mut probe = Command::new("ffprobe");
        probe.args(["-v", "error", "-count_frames", "-show_entries", "stream=nb_read_frames"]);
        let output = probe.args(["-of", "csv=p=0", name]).current_dir(folder.path()).output();
        let text = String::from_utf8(output.expect("ffmpeg has ffprobe").stdout).expect("digits");
        text.lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(pictures("raw.mkv"), "40", "{ended}");
    assert_eq!(pictures("film.ts"), "50", "{ended}");
}

#[test]
fn each_client_command_in_the_gstreamer_section_of_the_streaming_page_works() {
    need!(has("gst-launch-1.0"));
    let folder = tempfile::tempdir().unwrap();
    let ended = run_page(folder.path(), &commands(Some("GStreamer")));
    ended.is(0, &["40 frames on time"]);
    // Returns the number of pictures in an Ogg file, each of `bytes` bytes as RGB, and the bytes
    // left over.
    let pictures = |name: &str, bytes: u64| {
        let mut decode = Command::new("gst-launch-1.0");
        let (from, to) = (format!("location={name}"), format!("location={name}.rgb"));
        decode.args(["-q", "filesrc", &from, "!", "oggdemux", "!", "theoradec", "!"]);
        decode.args(["videoconvert", "!", "video/x-raw,format=RGB", "!", "filesink", &to]);
        assert!(decode.current_dir(folder.path()).status().unwrap().success(), "{name}");
        let decoded = fs::metadata(folder.path().join(format!("{name}.rgb"))).unwrap();
        (decoded.len() / bytes, decoded.len() % bytes)
    };
    assert_eq!(pictures("raw.ogg", 320 * 240 * 3), (40, 0), "{ended}");
    assert_eq!(pictures("film.ogg", 640 * 360 * 3), (50, 0), "{ended}");
}

#[test]
fn each_client_command_of_the_streaming_page_without_ffmpeg_or_gstreamer_works() {
    let folder = tempfile::tempdir().unwrap();
    let all = commands(None);
    assert!(all.len() > 7, "{all:?}");
    let ended = run_page(folder.path(), &all);
    ended.is(0, &["5 frames on time"]);
    assert!(ended.stdout.iter().any(|line| line == "1.5 2.5 0.5"), "{ended}");
    assert_eq!(fs::read(folder.path().join("log")).unwrap(), b"run 42 begins\n");
    assert!(ended.stdout.iter().any(|line| line.trim() == "400000"), "{ended}");
}

#[test]
fn the_commands_of_a_page_and_their_output_are_found() {
    let page = "a\n```\n$ one 1\nfirst…\nlast\ndtn$ two\n```\ntext\n```toml\nkey = 1\n```\n\
                ```\n$ three\n```\n";
    let steps = steps(page);
    let commands: Vec<_> = steps.iter().map(|step| (&*step.command, step.at_server)).collect();
    assert_eq!(commands, [("one 1", false), ("two", true), ("three", false)]);
    assert_eq!(steps[0].shown, "first…\nlast\n");
    assert!(fits(&steps[0].shown, "first and\nmore\nlast\n") && fits("", ""));
    for printed in ["first\nmore", "the first\nlast", "first\nlast one", ""] {
        assert!(!fits(&steps[0].shown, printed), "{printed}");
    }
    assert!(!fits("", "something") && !fits("a…b…c", "a c"));
}
