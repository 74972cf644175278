//! Ciphers, receive strategies, parallel TCP, JSON output and exit statuses of copies. Also
//! connections and datagrams of foreign programs.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};

use crate::rig::{Ended, Pair, bytes, content, remains, write};

/// Pushes and pulls a file of a few chunks.
fn both_ways(pair: &Pair, flags: &[&str]) -> [Ended; 2] {
    let object = bytes(5_000_001, 7);
    write(&pair.here.join("file"), &object);
    let copy = |from: &OsStr, to: &OsStr| pair.copy(flags, from, to).end();
    let _ = fs::remove_file(pair.there.join("file"));
    let _ = fs::remove_file(pair.here.join("back"));
    let push = copy(OsStr::new("file"), &pair.at("file"));
    let pushed = fs::read(pair.there.join("file")).ok();
    assert!(pushed.is_none_or(|pushed| pushed == object), "{push}");
    write(&pair.there.join("file"), &object);
    let pull = copy(&pair.at("file"), OsStr::new("back"));
    let pulled = fs::read(pair.here.join("back")).ok();
    assert!(pulled.is_none_or(|pulled| pulled == object), "{pull}");
    assert!(remains(&pair.here).is_empty() && remains(&pair.there).is_empty());
    [push, pull]
}

#[test]
fn every_cipher_and_every_receive_strategy_works_both_ways() {
    let pair = Pair::with(&["--allow-plain"]);
    for cipher in ["auto", "aes-128-gcm", "chacha20-poly1305", "none"] {
        for receive in ["naive", "scatter"] {
            let (cipher_, receive) = (format!("--cipher={cipher}"), format!("--receive={receive}"));
            for ended in both_ways(&pair, &[&cipher_, &receive]) {
                let summary = ended.summary();
                assert_eq!(summary["verified"], true);
                let used = summary["cipher"].as_str().unwrap();
                match cipher {
                    "auto" => assert!(used == "aes-128-gcm" || used == "chacha20-poly1305"),
                    cipher => assert_eq!(used, cipher),
                }
            }
            assert!(pair.here.join("back").exists() && pair.there.join("file").exists());
        }
    }
}

#[test]
fn unencrypted_data_need_the_servers_consent() {
    let pair = Pair::new();
    for ended in both_ways(&pair, &["--cipher=none"]) {
        ended.is(3, &["in the clear", "--allow-plain"]);
    }
    assert!(!pair.here.join("back").exists());
}

#[test]
fn a_fake_copy_writes_nothing_and_reports_that() {
    let pair = Pair::new();
    write(&pair.here.join("file"), &bytes(5_000_001, 7));
    write(&pair.there.join("source"), &bytes(5_000_001, 8));
    let before = [content(&pair.here), content(&pair.there)];
    let push = pair.cp(&[&"--receive=fake", &"file", &pair.at("")]);
    let pull = pair.cp(&[&"--receive=fake", &pair.at("source"), &"back"]);
    for ended in [push, pull] {
        ended.is(0, &["nothing was written"]);
        assert_eq!(ended.summary()["verified"], false);
        assert!(ended.summary()["received"].as_u64() > Some(0), "{ended}");
    }
    assert_eq!([content(&pair.here), content(&pair.there)], before);
}

#[test]
fn a_dry_run_refuses_the_receive_flag() {
    let pair = Pair::new();
    write(&pair.here.join("file"), b"f");
    write(&pair.there.join("source"), b"s");
    let flag = "--receive=fake";
    pair.cp(&[&"-n", &flag, &"file", &pair.at("")]).is(2, &["dry", "--receive"]);
    pair.cp(&[&"-n", &flag, &pair.at("source"), &"."]).is(2, &["dry", "--receive"]);
}

#[test]
fn parallel_tcp_carries_a_copy_both_ways() {
    let pair = Pair::new();
    for ended in both_ways(&pair, &["--protocol=tcp", "--streams=3"]) {
        let summary = ended.summary();
        assert_eq!(summary["protocol"], "tcp");
        assert_eq!(summary["verified"], true);
        assert_eq!(summary["blake3"], blake3::hash(&bytes(5_000_001, 7)).to_string());
    }
    assert!(pair.here.join("back").exists());
}

#[test]
fn a_summary_has_the_main_documented_fields_and_its_counts_are_consistent() {
    const NAMES: &str = "bytes files seconds setup_seconds goodput_bps protocol rate_bps \
        rtt_seconds payload_bytes blocks path_lost blocks_lost reported_lost socket_lost \
        retransmitted sent received duplicates waste bound_by rounds resumed_bytes cipher blake3 \
        verified";
    let pair = Pair::new();
    for ended in both_ways(&pair, &["--rate=200M"]) {
        let summary = ended.summary();
        for name in NAMES.split_whitespace() {
            assert!(summary.get(name).is_some_and(|value| !value.is_null()), "{name}: {summary}");
        }
        let number = |name: &str| summary[name].as_u64().unwrap();
        assert_eq!((number("bytes"), number("files")), (5_000_001, 1));
        assert_eq!(number("sent"), number("blocks") + number("retransmitted"));
        assert_eq!(number("received") + number("path_lost"), number("sent"));
        assert!(number("blocks") * number("payload_bytes") >= 5_000_001);
        let seconds = summary["seconds"].as_f64().unwrap();
        let setup = summary["setup_seconds"].as_f64().unwrap();
        assert!(0.0 < setup && setup < seconds, "{summary}");
        assert_eq!(ended.events("start").len(), 1);
        assert_eq!(ended.events("connected").len(), 1);
        assert!(!ended.events("progress").is_empty());
    }
}

#[test]
fn json_mode_prints_errors_as_json_and_plain_mode_prints_nothing_on_stdout() {
    let pair = Pair::new();
    write(&pair.here.join("file"), b"f");
    let id = format!("--server-id={}", pair.server.id);
    let from = pair.here.join("file");
    let there = pair.at("");
    let words = [OsStr::new("cp"), OsStr::new(&id), from.as_os_str(), &there];
    let plain = pair.client.run(words);
    plain.is(0, &["copied 1 file, 1 B", "verified"]);
    assert!(plain.stdout.is_empty(), "{plain}");
    let refused = pair.cp(&[&"missing", &pair.at("")]);
    let last = refused.is(4, &[]).last();
    assert_eq!((&last["event"], &last["class"]), (&"error".into(), &"local-file".into()));
    assert_eq!(last["status"], 4);
}

/// A TLS ClientHello without extensions, so without longhaul's ALPN name.
const CLIENT_HELLO: &[u8] = b"\x16\x03\x01\x00\x2d\x01\x00\x00\x29\x03\x03aaaaaaaaaaaaaaaaaaaaaaaa\
    aaaaaaaa\x00\x00\x02\x13\x01\x01\x00";

#[test]
fn a_copy_completes_despite_silent_and_foreign_connections() {
    const SILENT: usize = 1000;
    let pair = Pair::new();
    let address = pair.server.address.as_str();
    write(&pair.here.join("file"), &bytes(9 << 20, 1));
    let mut silent = Vec::new();
    for number in 0..SILENT {
        match TcpStream::connect(address) {
            Ok(mut stream) => {
                // Half of the connections stop in the middle of a handshake.
                if number % 2 == 0 {
                    let _ = stream.write_all(&CLIENT_HELLO[..20]);
                }
                silent.push(stream);
            }
            Err(error) => panic!("connection {} is refused: {error}", silent.len()),
        }
    }
    let random = bytes(100_000, 9);
    let foreign: [&[u8]; 4] =
        [&random, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", CLIENT_HELLO, b"SSH-2.0-OpenSSH_9.6\r\n"];
    for said in foreign {
        let mut stream = TcpStream::connect(address).unwrap();
        // The server may disconnect in the middle of the write.
        let _ = stream.write_all(said);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    for said in foreign {
        let said = &said[..said.len().min(1400)];
        udp.send_to(said, address).unwrap();
        udp.send_to(said, ("127.0.0.1", pair.server.data_port)).unwrap();
    }
    pair.cp(&[&"file", &pair.at("")]).summary();
    pair.cp(&[&pair.at("file"), &"back"]).summary();
    assert!(fs::read(pair.here.join("back")).unwrap() == bytes(9 << 20, 1));
    pair.cp(&[&"--protocol=tcp", &pair.at("file"), &"by tcp"]).summary();
    pair.cp(&[&"--protocol=tcp", &"file", &pair.at("by tcp")]).summary();
    drop(silent);
}

#[test]
fn the_exit_status_is_3_for_a_missing_server_and_2_for_a_server_flag_of_a_local_copy() {
    let pair = Pair::new();
    write(&pair.here.join("file"), b"f");
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let nowhere = format!("lh://127.0.0.1:{port}/");
    pair.cp(&[&"file", &nowhere]).is(3, &[&port.to_string()]);
    pair.cp(&[&"file", &"lh://no-such-host.invalid/"]).is(3, &["no-such-host.invalid"]);
    pair.cp(&[&"file", &"other"]).is(2, &["is for a server"]);
}
