//! What the tests and benchmarks of all crates share. It stands on none of them, so that each of them may use it.

mod published;

pub use published::assert_published;
