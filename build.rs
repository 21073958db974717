//! Links the program at a fixed address (`docs/decisions/0019-fixed-address.md`).

use std::env::var;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Elsewhere the C runtime that is linked in may be made for one kind of program only.
    let is = |key: &str, value: &str| var(key).is_ok_and(|found| found == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo:rustc-link-arg-bin=intercom=-no-pie");
    }
}
