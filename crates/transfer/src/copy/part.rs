//! What a copy has for itself, or shares with the other sources of the same command.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::reach::{DataPorts, Reached};
use crate::driver::budget::Budget;
use crate::driver::claims::Claims;
use crate::driver::jobs::Jobs;
use crate::driver::joint::JointLink;
use crate::driver::shared_core::SharedCore;

/// What all sources share.
pub(super) struct Shared {
    pub(super) memory: Budget,
    /// Ports for data; nothing where each session opens its own.
    pub(super) ports: Option<DataPorts>,
    /// The receiving core of all flows, where the protocol has one for many.
    pub(super) core: Option<SharedCore>,
    /// Threads that write, which the sources share; none where each has its own.
    pub(super) writers: Vec<Jobs>,
    /// Names that no two sources may bring.
    pub(super) claims: Option<Arc<Claims>>,
}

impl Shared {
    /// The thread that writes what source `number` brings.
    pub(super) fn writer_of(&self, number: usize) -> Option<&Jobs> {
        self.writers.get(number % self.writers.len().max(1))
    }
}

/// One source's part.
pub(super) struct Part {
    pub(super) shared: Rc<Shared>,
    /// Its number among the sources.
    pub(super) number: usize,
    /// The destination, where several sources bring one object to it.
    pub(super) joint: Option<JointLink>,
    /// A session that stands already, for the first try.
    pub(super) reached: RefCell<Option<Reached>>,
}

impl Part {
    /// That of a copy which is alone.
    pub(super) fn alone(memory: Budget) -> Part {
        let shared = Shared { memory, ports: None, core: None, writers: Vec::new(), claims: None };
        Part { shared: Rc::new(shared), number: 0, joint: None, reached: RefCell::default() }
    }
}
