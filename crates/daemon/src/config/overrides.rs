//! Overrides of the file by the environment: the address on which the API listens.

use std::net::{IpAddr, SocketAddr};

use super::access::{ApiConfig, DEFAULT_LISTEN};
use super::load::ConfigError;

const API_PORT: &str = "INTERCOM_API_PORT";
const API_BIND: &str = "INTERCOM_API_BIND";
/// The variable with a token that is valid besides the stored ones.
pub const API_TOKEN: &str = "INTERCOM_API_TOKEN";

impl ApiConfig {
    /// Applies the environment; empty variables are ignored.
    pub fn overridden(&mut self, environment: impl Fn(&str) -> Option<String>) -> Result<(), ConfigError> {
        let variable = |name: &str| environment(name).filter(|value| !value.trim().is_empty());
        let (port, bind) = (variable(API_PORT), variable(API_BIND));
        if port.is_none() && bind.is_none() {
            return Ok(());
        }
        let now = self.address().ok().flatten();
        let now = now.or_else(|| DEFAULT_LISTEN.parse().ok());
        let mut address = now.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
        if let Some(port) = port {
            let port = port.trim().parse().map_err(|_| ConfigError::Environment {
                name: API_PORT,
                message: format!("{port:?} is not a port"),
            })?;
            address.set_port(port);
        }
        if let Some(bind) = bind {
            let ip: IpAddr = match bind.trim() {
                "localhost" => IpAddr::from([127, 0, 0, 1]),
                text => text.parse().map_err(|_| ConfigError::Environment {
                    name: API_BIND,
                    message: format!("{bind:?} is not an address"),
                })?,
            };
            address.set_ip(ip);
        }
        self.listen = address.to_string();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(file: &str, port: &str, bind: &str) -> Result<String, String> {
        let mut api = ApiConfig { listen: file.to_owned(), ..ApiConfig::default() };
        let environment = |name: &str| Some(if name == API_PORT { port } else { bind }.to_owned());
        api.overridden(environment).map_err(|error| error.to_string())?;
        Ok(api.listen)
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let cases = [
            ("127.0.0.1:1", "", "", "127.0.0.1:1"),
            ("off", "", " ", "off"),
            ("127.0.0.1:1", "8765", "", "127.0.0.1:8765"),
            ("127.0.0.1:1", "", "::1", "[::1]:1"),
            ("off", "0", "localhost", "127.0.0.1:0"),
        ];
        for (file, port, bind, expected) in cases {
            assert_eq!(listen(file, port, bind).unwrap(), expected, "{file} {port} {bind}");
        }
        assert_eq!(listen("off", "http", "").unwrap_err(), "INTERCOM_API_PORT: \"http\" is not a port");
        assert_eq!(listen("off", "", "here").unwrap_err(), "INTERCOM_API_BIND: \"here\" is not an address");
    }
}
