//! A congestion window that never moves, for the control stream.
//!
//! Control is a few kilobytes a round trip, beside data that are paced by themselves. A controller
//! that backs off at each loss would starve it at 12 % random loss; a fixed small window cannot
//! congest anything that the data beside it would not.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use quinn::congestion::{Controller, ControllerFactory};

/// Bytes in flight.
const WINDOW: u64 = 64 << 10;

/// 64 KiB in flight, whatever happens.
#[derive(Clone, Copy, Debug)]
pub(super) struct FixedWindow;

impl Controller for FixedWindow {
    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: u64) {}

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        WINDOW
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(*self)
    }

    fn initial_window(&self) -> u64 {
        WINDOW
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl ControllerFactory for FixedWindow {
    fn build(self: Arc<Self>, _: Instant, _: u16) -> Box<dyn Controller> {
        Box::new(*self)
    }
}
