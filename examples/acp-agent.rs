//! The scripted agent of the tests and benchmarks that speaks ACP.

fn main() -> std::process::ExitCode {
    intercom_testkit::acp_agent::main()
}
