//! Checks socket buffers, UDP offloads, the clock, and what the emulator needs.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use longhaul_net::socket::{RECEIVE_BUFFER, Socket};
use longhaul_proto::time::Span;
use longhaul_proto::units::Bytes;

use super::{Finding, Grade, Want};

/// The socket buffer must hold the data that arrive in this time: the first for the grade `Ok`, the
/// second for `Warn`.
const STALLS: [Span; 2] = [Span::from_millis(5), Span::from_millis(2)];
/// Size that a sending socket requests.
const SEND_BUFFER: u64 = 4 << 20;
/// Largest buffer of a connection. The kernel counts its bytes in a signed number of 32 bits, and
/// the largest TCP window is half of this (RFC 7323, section 2.3).
const TCP_BUFFER: u64 = i32::MAX as u64;
/// Reading the clock takes longer than this if the kernel asks a device instead of the processor.
const SLOW_CLOCK: Span = Span::from_nanos(300);
const READINGS: u32 = 20_000;

pub(super) fn look(want: Want) -> Vec<Finding> {
    let mut findings = udp(want);
    findings.extend(tcp(want));
    findings.push(clock());
    findings
}

fn numbers(file: &str) -> Option<Vec<u64>> {
    let text = fs::read_to_string(file).ok()?;
    text.split_whitespace().map(|word| word.parse().ok()).collect()
}

fn udp(want: Want) -> Vec<Finding> {
    let socket = Socket::bind((Ipv4Addr::UNSPECIFIED, 0).into())
        .or_else(|_| Socket::bind((Ipv6Addr::UNSPECIFIED, 0).into()));
    let socket = match socket {
        Ok(socket) => socket,
        Err(error) => {
            let what = format!("no UDP socket can be opened: {error}");
            return vec![Finding::new("udp", Grade::Bad, what, "ask this host's administrator")];
        }
    };
    let most = numbers("/proc/sys/net/core/rmem_max").and_then(|most| most.first().copied());
    let mut findings = vec![receive_buffer(want, socket.receive_buffer() as u64, most)];
    findings.extend(numbers("/proc/sys/net/core/wmem_max").map(|most| send_buffer(&most)));
    let (segments, joins) = (socket.segments(), socket.joins());
    let what = format!("{segments} datagrams in one system call (GSO)");
    let mend = "use Linux 4.18 or later, on a device with segmentation offload (ethtool -k DEVICE)";
    findings.push(Finding::new("udp-gso", Grade::unless(segments > 1, Grade::Warn), what, mend));
    let what =
        if joins { "datagrams arrive merged (GRO)" } else { "each datagram arrives separately" };
    let mend = "use Linux 5.0 or later";
    findings.push(Finding::new("udp-gro", Grade::unless(joins, Grade::Warn), what, mend));
    findings
}

/// Grades a buffer of `granted` bytes; `most` is the limit for users other than root.
fn receive_buffer(want: Want, granted: u64, most: Option<u64>) -> Finding {
    let [enough, least] = STALLS.map(|stall| want.rate.over(stall));
    let enough = enough.get().min(RECEIVE_BUFFER as u64);
    let judge = |bytes: u64| match bytes {
        _ if bytes >= enough => Grade::Ok,
        _ if bytes >= least.get() => Grade::Warn,
        _ => Grade::Bad,
    };
    let most = most.unwrap_or(granted);
    let key = "net.core.rmem_max";
    let (shown, bound) = (Bytes::new(granted), Bytes::new(most));
    let (grade, got) = match most < granted {
        // Copies may run as another user, even if this process runs as root.
        true => {
            let others = if judge(most) == Grade::Ok { Grade::Ok } else { Grade::Warn };
            let got = format!("{shown} granted to root; other users get {bound} ({key})");
            (judge(granted).max(others), got)
        }
        false => (judge(granted), format!("{shown} granted ({key} {bound})")),
    };
    let enough = Bytes::new(enough);
    let stall = STALLS[0];
    let what =
        format!("{got}; wanted {enough}, for the data that arrive while a thread waits {stall}");
    let mend = format!("sudo sysctl -w {key}={RECEIVE_BUFFER}");
    Finding::new("udp-receive", grade, what, mend)
}

fn send_buffer(most: &[u64]) -> Finding {
    let most = most.first().copied().unwrap_or(0);
    let (shown, wanted) = (Bytes::new(most), Bytes::new(SEND_BUFFER));
    let what = format!("net.core.wmem_max {shown}; wanted {wanted}");
    let mend = format!("sudo sysctl -w net.core.wmem_max={SEND_BUFFER}");
    let grade = Grade::unless(most >= SEND_BUFFER, Grade::Warn);
    Finding::new("udp-send", grade, what, mend)
}

/// A connection's window is at most half its buffer. A small buffer is only a warning: longhaul
/// uses TCP only if UDP is blocked or the user chose it.
fn tcp(want: Want) -> Vec<Finding> {
    let look = |name: &'static str, key: &str| {
        let limits = numbers(&format!("/proc/sys/net/ipv4/{key}"))?;
        tcp_buffer(want, name, key, &limits)
    };
    [look("tcp-receive", "tcp_rmem"), look("tcp-send", "tcp_wmem")].into_iter().flatten().collect()
}

/// Grades the maximum of `limits`: the minimum, default and maximum size of a buffer.
fn tcp_buffer(want: Want, name: &'static str, key: &str, limits: &[u64]) -> Option<Finding> {
    let [least, usual, most] = *limits else { return None };
    let needed = want.bdp().get().saturating_mul(2);
    let wanted = needed.min(TCP_BUFFER);
    let shown = Bytes::new(most);
    let (bdp, needed) = (want.bdp(), Bytes::new(needed));
    let need = format!("{needed} (twice rate × RTT, {bdp})");
    let what = format!("net.ipv4.{key} up to {shown}; one connection needs {need}");
    let parallel = match wanted < needed.get() {
        true => "   (one connection cannot have more: use several, --streams)",
        false => "",
    };
    let mend = format!("sudo sysctl -w net.ipv4.{key}='{least} {usual} {wanted}'{parallel}");
    Some(Finding::new(name, Grade::unless(most >= wanted, Grade::Warn), what, mend))
}

fn clock() -> Finding {
    let folder = "/sys/devices/system/clocksource/clocksource0";
    let source = |file: &str| {
        fs::read_to_string(format!("{folder}/{file}")).unwrap_or_default().trim().to_owned()
    };
    let began = Instant::now();
    for _ in 1..READINGS {
        std::hint::black_box(Instant::now());
    }
    let reading = Span::from_nanos(began.elapsed().as_nanos() as u64 / u64::from(READINGS));
    let (name, others) = (source("current_clocksource"), source("available_clocksource"));
    let name = if name.is_empty() { "unknown".to_owned() } else { name };
    let what = format!("{name}, {} ns a reading", reading.as_nanos());
    let grade = Grade::unless(reading <= SLOW_CLOCK, Grade::Warn);
    let mend = match others.split_whitespace().any(|other| other == "tsc" && other != name) {
        true => format!("echo tsc | sudo tee {folder}/current_clocksource"),
        false => format!("no faster clock is available here (available: {others})"),
    };
    Finding::new("clock", grade, what, mend)
}

/// Checks whether `longhaul emulate` works here, by running it.
#[cfg(target_os = "linux")]
pub(super) fn emulator() -> Vec<Finding> {
    use std::process::{Command, Stdio};

    let Ok(program) = std::env::current_exe() else { return Vec::new() };
    let mut command = Command::new(program);
    command.args(["emulate", "--quiet", "--", "true"]).stdin(Stdio::null());
    let tried = command.output();
    let name = "emulator";
    let finding = match tried {
        Ok(output) if output.status.success() => {
            Finding::new(name, Grade::Ok, "namespaces and a TUN device can be made", "")
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let why = said.lines().next_back().unwrap_or("no error message");
            let why = why.strip_prefix("longhaul emulate: ").unwrap_or(why).to_owned();
            Finding::new(name, Grade::Warn, why, make_emulator_work(&mend_namespaces()))
        }
        Err(error) => {
            let what = format!("longhaul itself cannot be started: {error}");
            Finding::new(name, Grade::Warn, what, "start longhaul by its full path")
        }
    };
    vec![finding]
}

/// Commands that allow namespaces and TUN devices, for each known setting that forbids them.
#[cfg(target_os = "linux")]
fn mend_namespaces() -> Vec<String> {
    let opened = fs::File::options().read(true).write(true).open("/dev/net/tun");
    let mut commands: Vec<String> =
        opened.err().and_then(|error| mend_tun(&error)).into_iter().collect();
    let apparmor = "kernel.apparmor_restrict_unprivileged_userns";
    for (key, forbids, allows) in [("user.max_user_namespaces", 0, 15_000), (apparmor, 1, 0)] {
        let file = format!("/proc/sys/{}", key.replace('.', "/"));
        if numbers(&file).is_some_and(|value| value == [forbids]) {
            commands.push(format!("sudo sysctl -w {key}={allows}"));
        }
    }
    commands
}

/// Returns the command that makes the TUN device usable, if the device could not be opened because
/// of `error`. The command loads the kernel module, or gives all users access, as udev does. `None`
/// for other errors, such as those of a container.
#[cfg(target_os = "linux")]
fn mend_tun(error: &std::io::Error) -> Option<String> {
    use rustix::io::Errno;

    match Errno::from_io_error(error)? {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => Some("sudo modprobe tun".to_owned()),
        Errno::ACCESS => Some("sudo chmod 0666 /dev/net/tun".to_owned()),
        _ => None,
    }
}

#[cfg(target_os = "linux")]
fn make_emulator_work(commands: &[String]) -> String {
    match commands {
        [] => "run it as root, outside of containers that forbid namespaces".to_owned(),
        commands => commands.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_proto::units::Rate;

    #[test]
    fn a_receive_buffer_is_judged_by_the_rate() {
        let rtt = Span::from_millis(100);
        let want = |megabits| Want { rate: Rate::from_mbps(megabits), rtt, is_asked: true };
        // The kernel grants 106,496 bytes. At 300 Mbit/s 188 kB arrive in 5 ms (`Ok`), and 75 kB in
        // 2 ms (`Warn`).
        assert_eq!(receive_buffer(want(1), 106_496, None).grade, Grade::Ok);
        assert_eq!(receive_buffer(want(300), 106_496, None).grade, Grade::Warn);
        let bad = receive_buffer(want(1_000), 106_496, Some(212_992));
        assert_eq!(bad.grade, Grade::Bad);
        assert!(bad.what.contains("wanted 625.00 kB, for the data that arrive"), "{}", bad.what);
        assert!(bad.mend.is_some_and(|mend| mend.contains("net.core.rmem_max=33554432")));
        // The wanted size never exceeds the size that the socket requests.
        assert_eq!(receive_buffer(want(100_000), 32 << 20, None).grade, Grade::Ok);
    }

    #[test]
    fn a_larger_buffer_for_root_is_reported_with_the_limit_of_other_users() {
        let rtt = Span::from_millis(100);
        let want = |megabits| Want { rate: Rate::from_mbps(megabits), rtt, is_asked: true };
        let found = receive_buffer(want(1_000), 32 << 20, Some(212_992));
        assert_eq!(found.grade, Grade::Warn);
        assert!(found.what.starts_with("33.55 MB granted to root; other users get 212.99 kB"));
        assert!(found.mend.is_some_and(|mend| mend.contains("net.core.rmem_max=33554432")));
        assert_eq!(receive_buffer(want(1), 32 << 20, Some(212_992)).grade, Grade::Ok);
    }

    #[test]
    fn the_advice_gives_access_to_the_tun_device_or_loads_its_kernel_module() {
        let mend = |code| mend_tun(&std::io::Error::from_raw_os_error(code));
        use rustix::io::Errno;
        let command = mend(Errno::ACCESS.raw_os_error());
        assert_eq!(command.as_deref(), Some("sudo chmod 0666 /dev/net/tun"));
        assert_eq!(mend(Errno::NOENT.raw_os_error()).as_deref(), Some("sudo modprobe tun"));
        assert_eq!(mend(Errno::PERM.raw_os_error()), None);
    }

    #[test]
    fn a_tcp_buffer_should_be_twice_the_bdp_but_at_most_the_kernels_limit() {
        let found = |gigabits: u64, limits: &[u64]| {
            let (rate, rtt) = (Rate::from_mbps(gigabits * 1_000), Span::from_millis(100));
            tcp_buffer(Want { rate, rtt, is_asked: true }, "tcp-send", "tcp_wmem", limits)
        };
        let stock = [4_096, 16_384, 4_194_304];
        let one = found(1, &stock).unwrap();
        assert_eq!(one.grade, Grade::Warn);
        let command = "sudo sysctl -w net.ipv4.tcp_wmem='4096 16384 25000000'";
        assert_eq!(one.mend.as_deref(), Some(command));
        assert!(one.what.contains("25.00 MB (twice rate × RTT, 12.50 MB)"), "{}", one.what);
        assert_eq!(found(1, &[4_096, 16_384, 25_000_000]).unwrap().grade, Grade::Ok);
        let hundred = found(100, &stock).unwrap().mend.unwrap();
        assert!(hundred.contains(" 2147483647'") && hundred.contains("--streams"), "{hundred}");
        assert!(found(1, &stock[1..]).is_none());
    }

    #[test]
    fn the_emulators_advice_lists_all_commands_or_else_says_to_run_it_as_root() {
        assert!(make_emulator_work(&[]).contains("root"));
        let both = ["sudo modprobe tun".to_owned(), "sudo sysctl -w a=1".to_owned()];
        assert_eq!(make_emulator_work(&both), "sudo modprobe tun; sudo sysctl -w a=1");
    }
}
