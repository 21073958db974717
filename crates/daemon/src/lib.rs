pub mod config;
pub mod ops;
pub mod remote;
pub mod session;
pub mod supervisor;
pub mod telemetry;
