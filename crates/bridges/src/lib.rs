//! Bridges: the interfaces for operators. A bridge shows the log and the read model, and passes requests to operations;
//! it never uses a driver.

pub mod acp;
pub mod api;
mod compress;
pub mod health;
mod idle;
pub mod slack;
pub mod webhook;
