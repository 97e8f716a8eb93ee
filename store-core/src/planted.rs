//! Planted bugs: each breaks one promise on purpose, so that the tests can show that their harness would notice.
//! Compiled only with the feature `planted`, and inert unless a test asks for one by name.

/// A bug that a test harness must catch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bug {
    /// A checkpoint names its grandparent as its parent.
    WrongParent,
    /// A checkpoint's parent is decided on the state before LOCK was taken, not on the one under it.
    StaleParent,
}
