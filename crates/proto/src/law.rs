//! The names of the laws by which a protocol without a rate finds one.

/// A way to find the rate: what the evaluation page compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Law {
    /// [`crate::rate::train::Trains`].
    #[default]
    Trains,
    /// [`crate::rate::shadow::Shadow`].
    Shadow,
}

impl Law {
    /// Every law, with its name in a scenario.
    pub const ALL: [(&'static str, Law); 2] = [("trains", Law::Trains), ("shadow", Law::Shadow)];
}
