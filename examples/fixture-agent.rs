//! The scripted agent of the tests and benchmarks; an example, so that it is built with them and never installed.

fn main() -> std::process::ExitCode {
    intercom_testkit::agent::main()
}
