//! The settings for access and for clearance decisions.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::choices::{OnExpiry, RiskName, RoleName, StartRole};
use intercom_types::{Risk, Role, parse_duration};

/// The API on the network.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApiConfig {
    /// The address and port on which the API listens, or "off".
    pub listen: String,
    /// The certificate and its key as PEM files; both or neither.
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    /// Further host names of the API, besides its addresses and `localhost`.
    pub hosts: Vec<String>,
}

/// The default address of the API.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:7411";
const OFF: &str = "off";

impl Default for ApiConfig {
    fn default() -> Self {
        Self { listen: DEFAULT_LISTEN.to_owned(), tls_cert: None, tls_key: None, hosts: Vec::new() }
    }
}

impl ApiConfig {
    /// Returns the address; `None` if the API does not listen. The error describes an invalid address.
    pub fn address(&self) -> Result<Option<SocketAddr>, String> {
        if self.listen == OFF {
            return Ok(None);
        }
        let host = self.listen.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        let text = host.as_deref().unwrap_or(&self.listen);
        text.parse().map(Some).map_err(|_| format!("{text:?} is neither an address with a port nor \"off\""))
    }

    pub fn tls(&self) -> Option<(&PathBuf, &PathBuf)> {
        self.tls_cert.as_ref().zip(self.tls_key.as_ref())
    }
}

/// Returns true if only this machine can reach the address.
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// The configurable permissions of roles.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AccessConfig {
    /// The least role that starts and resumes agents, as configured.
    start: StartRole,
}

impl AccessConfig {
    /// Returns the least role that may start and resume agents.
    pub(crate) fn start(&self) -> Role {
        self.start.role()
    }
}

/// A person, with their identity on each bridge.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorConfig {
    pub name: String,
    #[serde(rename = "role")]
    role_name: RoleName,
    /// The user id on the unix socket.
    pub uid: Option<u32>,
    /// The Slack user id.
    pub slack: Option<String>,
}

impl OperatorConfig {
    pub fn role(&self) -> Role {
        self.role_name.role()
    }
}

/// The settings for clearance decisions.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ClearanceConfig {
    /// The number of different people who must approve, by risk.
    pub(crate) quorum: ByRisk<u32>,
    /// The risk from which on approvals count only through the unix socket.
    pub(crate) local_only_from: Option<RiskName>,
    /// The time until pending clearances expire, by risk; without one they never expire.
    pub(crate) expire_after: ByRisk<String>,
    pub(crate) on_expiry: OnExpiry,
    /// True if the reason of a denial is sent as a prompt where the protocol has no place for it.
    pub(crate) reason_as_prompt: bool,
}

impl Default for ClearanceConfig {
    fn default() -> Self {
        Self {
            quorum: ByRisk::default(),
            local_only_from: None,
            expire_after: ByRisk::default(),
            on_expiry: OnExpiry::default(),
            reason_as_prompt: true,
        }
    }
}

impl ClearanceConfig {
    /// Returns the number of people who have to approve a request. A quorum also holds for every higher risk: claiming
    /// more risk never needs fewer people.
    pub(crate) fn needed(&self, risk: Risk) -> u32 {
        let up_to = Risk::ALL.into_iter().filter(|other| *other <= risk);
        up_to.filter_map(|risk| self.quorum.of(risk).copied()).max().unwrap_or(1)
    }

    pub(crate) fn limit(&self, risk: Risk) -> Option<Duration> {
        self.expire_after.of(risk).and_then(|text| parse_duration(text))
    }

    pub(crate) fn is_local_only(&self, risk: Risk) -> bool {
        self.local_only_from.is_some_and(|from| risk >= from.risk())
    }
}

/// One setting per risk.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ByRisk<T> {
    pub(crate) low: Option<T>,
    pub(crate) medium: Option<T>,
    pub(crate) high: Option<T>,
    pub(crate) critical: Option<T>,
}

impl<T> Default for ByRisk<T> {
    fn default() -> Self {
        Self { low: None, medium: None, high: None, critical: None }
    }
}

impl<T> ByRisk<T> {
    pub(crate) fn of(&self, risk: Risk) -> Option<&T> {
        match risk {
            Risk::Low => self.low.as_ref(),
            Risk::Medium => self.medium.as_ref(),
            Risk::High => self.high.as_ref(),
            Risk::Critical => self.critical.as_ref(),
        }
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = (&'static str, &T)> {
        [Risk::Low, Risk::Medium, Risk::High, Risk::Critical]
            .into_iter()
            .filter_map(|risk| self.of(risk).map(|value| (risk.as_str(), value)))
    }
}

/// The program that receives all events over HTTP.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebhookConfig {
    pub url: Option<String>,
    /// The file with the secret that signs each message.
    pub secret_file: Option<PathBuf>,
}

/// Copies of the audit's head outside of the database.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditAnchors {
    /// The file that gets a line with each new head.
    pub anchor_file: Option<PathBuf>,
    /// True if each new head is sent to the webhook.
    pub webhook: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn more_risk_never_needs_fewer_people(
            low in proptest::option::of(1u32..5), medium in proptest::option::of(1u32..5),
            high in proptest::option::of(1u32..5), critical in proptest::option::of(1u32..5),
        ) {
            let quorum = ByRisk { low, medium, high, critical };
            let settings = ClearanceConfig { quorum: quorum.clone(), ..ClearanceConfig::default() };
            let needed = Risk::ALL.map(|risk| settings.needed(risk));
            proptest::prop_assert!(needed.is_sorted(), "{needed:?}");
            for (risk, needed) in Risk::ALL.into_iter().zip(needed) {
                proptest::prop_assert!(needed >= quorum.of(risk).copied().unwrap_or(1));
            }
            // Nobody is asked for a number that was not written down.
            proptest::prop_assert!(needed.iter().all(|n| *n == 1 || [low, medium, high, critical].contains(&Some(*n))));
        }
    }

    #[test]
    fn addresses_are_numbers_or_localhost() {
        let of = |listen: &str| ApiConfig { listen: listen.to_owned(), ..ApiConfig::default() }.address();
        assert_eq!(of("off"), Ok(None));
        assert_eq!(of("localhost:0"), Ok(Some("127.0.0.1:0".parse().unwrap())));
        assert_eq!(of("[::1]:7411"), Ok(Some("[::1]:7411".parse().unwrap())));
        assert!(of("example.org:1").is_err() && of("7411").is_err());
    }

    #[test]
    fn an_address_of_this_machine_only_is_told_from_others() {
        for (text, expected) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("0.0.0.0", false),
            ("::", false),
        ] {
            assert_eq!(is_loopback(text.parse().unwrap()), expected, "{text}");
        }
    }
}
