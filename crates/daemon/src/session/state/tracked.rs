//! A part of a session's state with a mark for changes since the last snapshot.

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};

/// A part that counts as changed as soon as it was borrowed mutably, so that no mutator can forget to mark it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Tracked<T> {
    part: T,
    #[serde(skip)]
    changed: bool,
}

impl<T> Tracked<T> {
    pub(super) fn new(part: T) -> Self {
        Self { part, changed: true }
    }

    /// Returns the part for changes that need no snapshot of their own: signs of life come by the thousand.
    pub(super) fn mut_unchanged(&mut self) -> &mut T {
        &mut self.part
    }

    /// Makes a snapshot due if `changed` is true.
    pub(super) fn touch_if(&mut self, changed: bool) {
        self.changed |= changed;
    }

    /// Returns true if the part was changed, and clears that.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }
}

impl<T> Deref for Tracked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.part
    }
}

impl<T> DerefMut for Tracked<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.changed = true;
        &mut self.part
    }
}

/// Equality ignores whether the part is stored yet.
impl<T: PartialEq> PartialEq for Tracked<T> {
    fn eq(&self, other: &Self) -> bool {
        self.part == other.part
    }
}

impl<T: Eq> Eq for Tracked<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_changed_by_whoever_could_change_it_and_not_by_readers() {
        let mut part = Tracked::new(vec![1]);
        assert!(part.take_changed(), "a new part is not stored yet");
        assert_eq!((part.len(), part.take_changed()), (1, false));
        part.mut_unchanged().push(2);
        assert!(!part.take_changed());
        part.push(3);
        assert!(part.take_changed() && !part.take_changed());
        part.touch_if(false);
        assert!(!part.take_changed());
        let stored = serde_json::to_string(&part).unwrap();
        assert_eq!(stored, "[1,2,3]", "it looks in a snapshot as it does alone");
        assert_eq!(serde_json::from_str::<Tracked<Vec<i32>>>(&stored).unwrap(), part);
    }
}
