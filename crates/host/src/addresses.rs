//! The addresses of this machine, according to the kernel (`man 7 rtnetlink`).
//!
//! A list of addresses would be out of date with the next interface, and would lack those that only a route makes ours.
//! So the kernel is asked for the route of a packet to the address: to this machine, or out of it.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use super::netlink;

/// Constants of `linux/rtnetlink.h`.
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const ROUTE_MESSAGE: usize = 12;
const ROUTE_TYPE: usize = 7;
const LOCAL: u8 = 2;
const DESTINATION: u16 = 1;
const OUTGOING_INTERFACE: u16 = 4;
const NETWORK_UNREACHABLE: i32 = -(nix::errno::Errno::ENETUNREACH as i32);
const HOST_UNREACHABLE: i32 = -(nix::errno::Errno::EHOSTUNREACH as i32);

/// Reports whether a connection from this address was made on this machine.
pub fn is_own_address(address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    if ip.is_loopback() {
        return true;
    }
    // If the kernel does not answer, an address that can be bound is ours.
    routed_here(ip, scope(address)).unwrap_or_else(|| UdpSocket::bind((ip, 0)).is_ok())
}

/// Returns the interface of a link-local address: on another interface, the same address belongs to another machine.
fn scope(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    }
}

fn routed_here(ip: IpAddr, scope: u32) -> Option<bool> {
    let answer = netlink::ask(nix::sys::socket::SockProtocol::NetlinkRoute, &request(ip, scope))?;
    match netlink::message(&answer)? {
        (NEW_ROUTE, body) => Some(*body.get(ROUTE_TYPE)? == LOCAL),
        (netlink::ERROR, body) => {
            let error = i32::from_ne_bytes(*body.first_chunk()?);
            matches!(error, NETWORK_UNREACHABLE | HOST_UNREACHABLE).then_some(false)
        }
        _ => None,
    }
}

/// A netlink header, an `rtmsg`, the address, and the interface if there is one.
fn request(ip: IpAddr, scope: u32) -> Vec<u8> {
    let (family, bytes) = match ip {
        IpAddr::V4(v4) => (nix::libc::AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (nix::libc::AF_INET6, v6.octets().to_vec()),
    };
    let mut body = vec![0; ROUTE_MESSAGE];
    body[0] = u8::try_from(family).unwrap_or_default();
    body[1] = if bytes.len() == 4 { 32 } else { 128 };
    body.extend(netlink::attribute(DESTINATION, &bytes));
    if scope != 0 {
        body.extend(netlink::attribute(OUTGOING_INTERFACE, &scope.to_ne_bytes()));
    }
    netlink::request(GET_ROUTE, netlink::REQUEST, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(address: &str) -> bool {
        is_own_address(address.parse().unwrap())
    }

    #[test]
    fn every_loopback_address_is_ours_and_those_of_others_are_not() {
        for ours in ["127.0.0.1:1", "127.0.0.2:1", "127.255.255.254:1", "[::1]:1", "[::ffff:127.0.0.3]:1"] {
            assert!(own(ours), "{ours}");
        }
        // For documentation: nobody's.
        for others in ["198.51.100.7:1", "[::ffff:198.51.100.7]:1", "[2001:db8::7]:1"] {
            assert!(!own(others), "{others}");
        }
    }

    #[test]
    fn the_addresses_of_all_interfaces_are_ours() {
        let interfaces = nix::ifaddrs::getifaddrs().unwrap();
        let addresses = interfaces.filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::from(std::net::SocketAddrV4::from(*v4)));
            v4.or_else(|| {
                address.as_sockaddr_in6().map(|v6| SocketAddr::from(std::net::SocketAddrV6::from(*v6)))
            })
        });
        let addresses: Vec<SocketAddr> = addresses.collect();
        assert!(!addresses.is_empty());
        for address in addresses {
            assert!(is_own_address(address), "{address}");
        }
    }

    #[test]
    fn a_request_has_the_length_that_it_says() {
        for (ip, scope) in [("10.0.0.1", 0), ("fe80::1", 7)] {
            let request = request(ip.parse().unwrap(), scope);
            assert_eq!(
                request.len(),
                usize::try_from(u32::from_ne_bytes(*request.first_chunk().unwrap())).unwrap()
            );
            assert!(request.len() > netlink::HEADER + ROUTE_MESSAGE);
        }
    }
}
