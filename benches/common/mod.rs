//! What the benchmarks share: the server that they run against, and its description. Not each needs all of it.
#![allow(dead_code)]

use redis::Connection;

use crate::support::Server;

/// The URL of the server to measure: `REDIS_URL` if set, else that of one of its own, which runs as long as it is kept.
pub fn server(unix: bool) -> (String, Option<Server>) {
    match std::env::var("REDIS_URL") {
        Ok(url) => (url, None),
        Err(_) => {
            let server = Server::start();
            let url = if unix { server.unix_url() } else { server.url() };
            (url, Some(server))
        }
    }
}

pub fn server_version(redis: &mut Connection) -> redis::RedisResult<String> {
    let info: redis::InfoDict = redis::cmd("INFO").arg("server").query(redis)?;
    // Valkey gives the Redis version that it is compatible with as well.
    Ok(match info.get::<String>("valkey_version") {
        Some(version) => format!("Valkey {version}"),
        None => format!("Redis {}", info.get::<String>("redis_version").unwrap_or_default()),
    })
}

pub fn transport(url: &str) -> redis::RedisResult<&'static str> {
    use redis::ConnectionAddr::{Tcp, TcpTls, Unix};

    Ok(match redis::Client::open(url)?.get_connection_info().addr() {
        Tcp(..) => "TCP",
        TcpTls { .. } => "TLS",
        Unix(_) => "Unix socket",
        _ => "unknown transport",
    })
}
