//! The rate control laws of protocols that have none of their own.

/// A rate control law; the evaluation page compares them.
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
