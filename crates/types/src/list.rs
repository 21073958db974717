//! Paginated lists.

use serde::{Deserialize, Serialize};

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "ListOf{T}")]
pub struct List<T> {
    pub items: Vec<T>,
    /// The `cursor` of the next page; `null` after the last.
    pub next: Option<String>,
}

impl<T> List<T> {
    pub fn whole(items: Vec<T>) -> Self {
        Self { items, next: None }
    }
}
