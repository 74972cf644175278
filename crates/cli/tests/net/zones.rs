//! Link-local IPv6 addresses, which name an interface.

use std::fs;
use std::process::Command;

use longhaul_testbed::link::LinkSpec;

use super::Way;
use super::path::Wan;
use crate::rig::{Server, need, skip};

/// The host's link-local address as `fe80::1%wan0`, after the kernel has checked that it is unique.
fn own(wan: &Wan, host: &str) -> Option<String> {
    let mut list = Command::new("sh");
    // A line has address, interface number, prefix length, scope (link-local is 0x20), flags,
    // interface name. A tentative address has the flag 0x40.
    let wait = r#"while grep -q "^fe80[^ ]* [^ ]* [^ ]* 20 [4-7c-f]. " /proc/net/if_inet6
        do sleep 0.05; done; cat /proc/net/if_inet6"#;
    list.args(["-c", wait]);
    let ended = wan.run(host, &list).end();
    let of_line = |line: &String| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[address, _, _, "20", _, device] = &words[..] else { return None };
        let address = u128::from_str_radix(address, 16).expect("the kernel writes hexadecimal");
        Some(format!("{}%{device}", std::net::Ipv6Addr::from(address)))
    };
    ended.stdout.iter().find_map(of_line)
}

#[test]
fn a_server_is_reached_by_a_link_local_address_and_its_interface() {
    let link = LinkSpec::default();
    let wan = need!(Wan::over_v6(link, 1500, 3_000_000));
    let no_address = || skip::forbidden("the device of an emulated host has no link-local address");
    let zoned = need!(own(&wan, "b").ok_or_else(no_address));
    let address = format!("[{zoned}]:7721");
    let words = Server::words(&address, &wan.there, &["--allow", &wan.client.id]);
    let server = Server::ready(wan.run("b", &wan.host.command(words)));
    let in_uri = address.replacen('%', "%25", 1);
    let ways = [(Way::Push, &address), (Way::Pull, &address), (Way::Push, &in_uri)];
    for (way, address) in ways {
        for flag in ["--receive=scatter", "--protocol=tcp"] {
            let (from, to) = match way {
                Way::Push => ("object".to_owned(), format!("lh://{address}/copy")),
                Way::Pull => (format!("lh://{address}/source"), "copy".to_owned()),
            };
            let mut copy = wan.client.command(["cp", "--json", "--accept-new", flag]);
            copy.args([from, to]).current_dir(&wan.here);
            // No emulated link joins both hosts directly, so the client runs on the server's host.
            let ended = wan.run("b", &copy).end();
            let protocol = if flag.contains("tcp") { "tcp" } else { "rbudp" };
            assert_eq!(ended.summary()["protocol"], protocol, "{way:?} {ended}");
            assert!(ended.events("fallback").is_empty(), "{way:?} {ended}");
            wan.assert_copied(way);
        }
    }
    let at = format!("lh://{address}");
    let probe = ["probe", "--json", "--accept-new", "--udp", "--tcp", "--rate=10M", "--time=50ms"];
    let mut probe = wan.client.command(probe);
    probe.arg(&at);
    let summary = wan.run("b", &probe).end().summary();
    assert!(summary["udp_up_bps"].as_f64() > Some(0.0), "{summary}");
    let mut doctor = wan.client.command(["doctor", "--json", "--rate=1M", &at]);
    doctor.current_dir(&wan.here);
    let ended = wan.run("b", &doctor).end();
    let findings = ended.events("finding");
    for port in ["port-control", "port-data", "port-tcp"] {
        let finding = findings.iter().find(|finding| finding["name"] == port);
        assert!(finding.is_some_and(|finding| finding["grade"] == "ok"), "{port}: {ended}");
    }
    let known = fs::read_to_string(wan.client.config.join("known_servers")).unwrap();
    assert_eq!(known.matches(&address.to_lowercase()).count(), 1, "{known}");
    drop(server);
}

#[test]
fn the_error_names_an_interface_that_does_not_exist() {
    let scratch = tempfile::tempdir().unwrap();
    let host = crate::rig::Host::new(&scratch.path().join("host"));
    fs::write(scratch.path().join("file"), b"x").unwrap();
    let at = "lh://[fe80::1%nosuch0]:9/x";
    let run = |args: &[&str]| {
        let mut command = host.command(args);
        command.current_dir(scratch.path());
        crate::rig::Child::spawn(&mut command).end()
    };
    run(&["cp", "file", at]).is(3, &["no interface nosuch0"]);
    run(&["cp", at, "copy"]).is(3, &["no interface nosuch0"]);
    run(&["probe", at]).is(3, &["no interface nosuch0"]);
    run(&["doctor", "--rate=1M", at]).is(3, &["no interface nosuch0"]);
    let listen = "--listen=[fe80::1%nosuch0]:9";
    run(&["serve", listen, "--root=.", "--allow", &host.id]).is(2, &["no interface nosuch0"]);
}
