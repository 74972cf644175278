//! The keeper: the thread that starts all programs, and the process whose end kills them.
//!
//! In the thread's mount namespace, `/etc/hosts` also lists the emulated hosts. The thread's
//! children have a process namespace, whose first process waits on a pipe from the emulating
//! process. When the emulating process ends in any way, the first process of the namespace ends
//! too, and the kernel kills all other processes of the namespace.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, WaitOptions};
use rustix::thread::UnshareFlags;

use super::{EmulationError, sys};

/// A command, and the channel for the child or the error.
type Order = (Command, Sender<io::Result<Child>>);

/// Starts programs, and kills them all when dropped.
pub(super) struct Keeper {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the thread; `hosts` are lines for `/etc/hosts`.
    pub(super) fn start(hosts: String) -> Result<Keeper, EmulationError> {
        let (orders, inbox) = channel();
        let (ready, started) = channel();
        let thread = thread::Builder::new()
            .name("emulation-keeper".into())
            .spawn(move || match Household::new(&hosts) {
                Ok(household) => {
                    let _ = ready.send(Ok(()));
                    household.serve(&inbox);
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            })
            .map_err(EmulationError::system("start a thread"))?;
        started.recv().map_err(|_| EmulationError::Ended)??;
        Ok(Keeper { orders: Some(orders), thread: Some(thread) })
    }

    pub(super) fn spawn(&self, command: Command) -> io::Result<Child> {
        let ended = || io::Error::other("the emulation has ended");
        let (reply, answer) = channel();
        let orders = self.orders.as_ref().ok_or_else(ended)?;
        orders.send((command, reply)).map_err(|_| ended())?;
        answer.recv().map_err(|_| ended())?
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the panic has printed its message.
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Household {
    /// The end of the pipe that the emulating process holds.
    lifeline: Option<OwnedFd>,
    /// The first process of the process namespace.
    first: Pid,
    children: Vec<OwnedFd>,
}

impl Household {
    fn new(hosts: &str) -> Result<Household, EmulationError> {
        sys::unshare(UnshareFlags::NEWNS | UnshareFlags::NEWPID)
            .map_err(EmulationError::system("make mount and process namespaces"))?;
        name_hosts(hosts).map_err(EmulationError::system("name the hosts in /etc/hosts"))?;
        let fork = EmulationError::system("start the namespace's first process");
        let (waits, lifeline) = match rustix::pipe::pipe_with(PipeFlags::CLOEXEC) {
            Ok(pipe) => pipe,
            Err(error) => return Err(fork(error.into())),
        };
        let first = sys::fork_first(&waits).map_err(fork)?;
        let first = Pid::from_raw(first).ok_or(EmulationError::Ended)?;
        Ok(Household { lifeline: Some(lifeline), first, children: Vec::new() })
    }

    fn serve(mut self, inbox: &Receiver<Order>) {
        while let Ok((mut command, reply)) = inbox.recv() {
            let child = command.spawn();
            if let Ok(child) = &child
                && let Ok(pid) = i32::try_from(child.id())
                && let Some(pid) = Pid::from_raw(pid)
                && let Ok(child) = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            {
                self.children.push(child);
            }
            let _ = reply.send(child);
        }
    }
}

impl Drop for Household {
    fn drop(&mut self) {
        // The kernel ends the first process only after every child was waited for, here or by the
        // child's owner.
        self.lifeline = None;
        for child in &self.children {
            let _ = rustix::process::waitid(WaitId::PidFd(child.as_fd()), WaitIdOptions::EXITED);
        }
        let _ = rustix::process::waitpid(Some(self.first), WaitOptions::empty());
    }
}

/// Puts `hosts` before the lines of `/etc/hosts`, in the thread's mount namespace.
fn name_hosts(hosts: &str) -> io::Result<()> {
    const PATH: &str = "/etc/hosts";
    // The file is on an in-memory file system of this namespace, which hides `/tmp` for a moment.
    // After the unmount the file remains as the bind mount on `/etc/hosts`.
    const SCRATCH: &str = "/tmp";
    const FILE: &str = "/tmp/hosts";
    let whole = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", whole)?;
    let Ok(before) = fs::read_to_string(PATH) else {
        // Addresses still work without the file.
        return Ok(());
    };
    rustix::mount::mount("tmpfs", SCRATCH, "tmpfs", MountFlags::empty(), None)?;
    let bound = fs::write(FILE, format!("{hosts}{before}"))
        .and_then(|()| rustix::mount::mount_bind(FILE, PATH).map_err(Into::into));
    rustix::mount::unmount(SCRATCH, UnmountFlags::DETACH)?;
    bound
}
