//! The Slack of the tests, to try the daemon with by hand.

fn main() {
    intercom_testkit::slack::run_by_hand();
}
