//! The system calls that need `unsafe`: all unsafe code of the emulator is here, with the reason
//! why it is sound.

use std::ffi::CStr;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::thread::UnshareFlags;

/// The name of every host's network card.
pub(super) const DEVICE: &str = "wan0";

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Gives the calling thread new namespaces; a user namespace applies to the whole process, which
/// must have one thread.
pub(super) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    debug_assert!(!flags.contains(UnshareFlags::FILES), "descriptors stay shared");
    // SAFETY: unsharing is unsafe only for the descriptor table, which stays shared.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(io::Error::from)
}

/// Makes `command` enter the network namespace `namespace` after the fork, with the hostname
/// `name`. The descriptor `namespace` must stay open until the spawn.
pub(super) fn enter_on_spawn(command: &mut Command, namespace: RawFd, name: &str) {
    let name = name.as_bytes().to_vec();
    let enter = move || {
        // SAFETY: setns reads no memory. As a system call it is allowed between fork and exec.
        checked(unsafe { libc::setns(namespace, libc::CLONE_NEWNET) })?;
        // SAFETY: system calls on bytes that live as long as this closure. A refused hostname does
        // no harm.
        unsafe {
            if libc::unshare(libc::CLONE_NEWUTS) == 0 {
                libc::sethostname(name.as_ptr().cast(), name.len());
            }
        }
        Ok(())
    };
    // SAFETY: the closure only makes system calls and allocates nothing.
    unsafe { command.pre_exec(enter) };
}

fn request(name: &str) -> libc::ifreq {
    assert!(name.len() < libc::IFNAMSIZ, "a device name of at most 15 bytes");
    // SAFETY: an ifreq is plain bytes and a union of plain types; all zeros is valid.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn interface_ioctl(
    socket: BorrowedFd<'_>,
    code: libc::c_ulong,
    request: &mut libc::ifreq,
) -> io::Result<()> {
    // SAFETY: every code used here takes a pointer to an ifreq, which is valid for the call.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), code as _, request) }).map(drop)
}

/// Turns an open `/dev/net/tun` into [`DEVICE`] of the thread's network namespace. Returns the
/// kinds of super-packets that the kernel supports.
pub(super) fn make_tun(tun: BorrowedFd<'_>) -> io::Result<Offload> {
    let mut request = request(DEVICE);
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    interface_ioctl(tun, libc::TUNSETIFF as libc::c_ulong, &mut request)?;
    offload(|flags| {
        // SAFETY: TUNSETOFFLOAD takes its flags by value.
        let result = unsafe {
            libc::ioctl(tun.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(flags))
        };
        checked(result).map(drop)
    })
}

/// Requests super-packets through `set`; returns whether UDP is included. Kernels before 6.2 refuse
/// UDP.
fn offload(set: impl Fn(libc::c_uint) -> io::Result<()>) -> io::Result<Offload> {
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    match set(tcp | libc::TUN_F_USO4 | libc::TUN_F_USO6) {
        Ok(()) => Ok(Offload::TcpAndUdp),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            set(tcp).map(|()| Offload::TcpOnly)
        }
        Err(error) => Err(error),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offload {
    /// TSO and USO.
    TcpAndUdp,
    /// TSO only: the kernel splits UDP super-packets before the device gets them.
    TcpOnly,
}

pub(super) fn index_of(socket: BorrowedFd<'_>, device: &str) -> io::Result<i32> {
    let mut request = request(device);
    interface_ioctl(socket, libc::SIOCGIFINDEX as libc::c_ulong, &mut request)?;
    // SAFETY: SIOCGIFINDEX has just written this member of the union.
    Ok(unsafe { request.ifr_ifru.ifru_ifindex })
}

pub(super) fn set_mtu(socket: BorrowedFd<'_>, device: &str, mtu: i32) -> io::Result<()> {
    let mut request = request(device);
    request.ifr_ifru.ifru_mtu = mtu;
    interface_ioctl(socket, libc::SIOCSIFMTU as libc::c_ulong, &mut request)
}

pub(super) fn set_up(socket: BorrowedFd<'_>, device: &str) -> io::Result<()> {
    let mut request = request(device);
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    interface_ioctl(socket, libc::SIOCSIFFLAGS as libc::c_ulong, &mut request)
}

pub(super) fn set_ipv4(
    socket: BorrowedFd<'_>,
    device: &str,
    address: Ipv4Addr,
    mask: Ipv4Addr,
) -> io::Result<()> {
    for (code, value) in [(libc::SIOCSIFADDR, address), (libc::SIOCSIFNETMASK, mask)] {
        let mut request = request(device);
        // SAFETY: a sockaddr_in is plain integers, and as large as the sockaddr it is put into.
        request.ifr_ifru.ifru_addr = unsafe {
            core::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: 0,
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(value.octets()) },
                sin_zero: [0; 8],
            })
        };
        interface_ioctl(socket, code as libc::c_ulong, &mut request)?;
    }
    Ok(())
}

/// Gives a device an IPv6 address; `socket` is an IPv6 socket.
pub(super) fn set_ipv6(
    socket: BorrowedFd<'_>,
    device: &str,
    address: Ipv6Addr,
    prefix: u32,
) -> io::Result<()> {
    let mut request = libc::in6_ifreq {
        ifr6_addr: libc::in6_addr { s6_addr: address.octets() },
        ifr6_prefixlen: prefix,
        ifr6_ifindex: index_of(socket, device)?,
    };
    // SAFETY: on an IPv6 socket SIOCSIFADDR takes a pointer to an in6_ifreq, valid for the call.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFADDR as _, &mut request) })
        .map(drop)
}

/// Lets the thread preempt ordinary threads. The kernel requires a privilege that root has only
/// outside user namespaces.
pub(super) fn run_first() -> io::Result<()> {
    schedule(libc::SCHED_RR, 1)
}

/// Gives the thread the lowest priority (`SCHED_IDLE`).
pub(super) fn run_last() -> io::Result<()> {
    schedule(libc::SCHED_IDLE, 0)
}

/// Sets the thread's scheduling by a direct system call, because musl's function always fails.
fn schedule(policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    // SAFETY: the kernel reads one int, valid for the call; 0 is the calling thread.
    let set = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &priority) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(super) fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option's value is an int, valid for the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), size)
    };
    checked(result).map(drop)
}

/// The numbers of segments with data that a TCP socket has sent, and of retransmissions.
pub(super) fn tcp_segments(socket: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    // Offsets in the kernel's `struct tcp_info` (include/uapi/linux/tcp.h), which only grows.
    const TOTAL_RETRANS: usize = 100;
    const DATA_SEGS_OUT: usize = 156;
    let mut answer = [0u8; 256];
    let mut len = answer.len() as libc::socklen_t;
    // SAFETY: the option writes at most `len` bytes into the buffer, and their number into `len`;
    // both are valid.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            answer.as_mut_ptr().cast(),
            &mut len,
        )
    };
    checked(result)?;
    let number = |at: usize| {
        let bytes = answer.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes)
    };
    Ok((number(DATA_SEGS_OUT), number(TOTAL_RETRANS)))
}

/// Forks the first process of the new process namespace, and returns its id. `lifeline` is the
/// reading end of a pipe. The process ends when the writing end closes; then the kernel kills the
/// namespace's other processes.
pub(super) fn fork_first(lifeline: &OwnedFd) -> io::Result<i32> {
    let lifeline = lifeline.as_fd().as_raw_fd();
    // SAFETY: the child makes system calls only, on memory from before the fork, and ends by _exit.
    unsafe {
        let pid = checked(libc::fork())?;
        if pid == 0 {
            first_process(lifeline);
        }
        Ok(pid)
    }
}

/// # Safety
/// Must be called in a newly forked child only.
unsafe fn first_process(lifeline: RawFd) -> ! {
    const PROC: &CStr = c"proc";
    const AT: &CStr = c"/proc";
    // SAFETY: plain system calls, strings are static; see `fork_first`.
    unsafe {
        // Other descriptors must not stay open.
        libc::dup2(lifeline, 0);
        // musl has no function for this call.
        libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0);
        libc::prctl(libc::PR_SET_NAME, c"emulated-init".as_ptr());
        // Lets the kernel reap orphans.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        // Programs look for themselves in /proc. Without this mount they would see the processes
        // of the old namespace.
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        libc::mount(PROC.as_ptr(), AT.as_ptr(), PROC.as_ptr(), flags, core::ptr::null());
        let mut byte = 0u8;
        while libc::read(0, (&raw mut byte).cast(), 1) > 0 {}
        libc::_exit(0)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_kernel_that_refuses_super_packets_of_udp_is_asked_for_those_of_tcp() {
        let uso = libc::TUN_F_USO4 | libc::TUN_F_USO6;
        let asked = RefCell::new(Vec::new());
        let old = |flags: libc::c_uint| {
            asked.borrow_mut().push(flags);
            match flags & uso {
                0 => Ok(()),
                _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
            }
        };
        assert_eq!(offload(old).unwrap(), Offload::TcpOnly);
        let asked = asked.into_inner();
        assert_eq!((asked.len(), asked[0] & !uso), (2, asked[1]));
        assert_eq!(offload(|_| Ok(())).unwrap(), Offload::TcpAndUdp);
        let refused = offload(|_| Err(io::Error::from_raw_os_error(libc::EPERM)));
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EPERM));
    }
}
