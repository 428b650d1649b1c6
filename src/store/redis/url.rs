//! What the URL of a Redis or Valkey server says. A part that would not be acted on is refused.

use redis::{ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

use crate::Error;

/// Where a server listens unless the URL says otherwise.
pub(in crate::store) const SERVER_PORT: u16 = 6379;

/// Where a sentinel listens unless the URL says otherwise.
const SENTINEL_PORT: u16 = 26379;

/// The servers that `scheme://[user:password@]host[:port],host[:port],…[/rest]` names, each as the URL of one server at
/// `default_port` unless it says otherwise; the log-in and the rest are the same for all.
pub(in crate::store) fn one_by_one(text: &str, default_port: u16) -> Result<Vec<String>, Error> {
    let (_, rest) = text.split_once("://").unwrap_or_default();
    let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (login, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
    let urls = hosts.split(',').map(|host| {
        // A colon within brackets is part of an address.
        let has_port = host.rfind(':') > host.rfind(']');
        let port = if has_port {
            String::new()
        } else {
            format!(":{default_port}")
        };
        (!host.is_empty()).then(|| format!("redis://{login}{host}{port}{rest}"))
    });
    let urls: Option<Vec<String>> = urls.collect();
    urls.ok_or_else(|| {
        Error::invalid("the URL cannot be used: it names no host, or has a comma too many between its hosts")
    })
}

/// The nodes that `redis-cluster://[user:password@]host[:port],…` names.
pub(super) fn parse_cluster(text: &str) -> Result<Vec<ConnectionInfo>, Error> {
    let nodes: Result<Vec<_>, _> = one_by_one(text, SERVER_PORT)?.iter().map(|url| parse(url)).collect();
    let nodes = nodes?;
    if nodes.iter().any(|node| node.redis_settings().db() != 0) {
        return Err(Error::invalid(
            "the URL cannot be used: a cluster has one database only, so nothing but 0 may stand behind the hosts",
        ));
    }
    Ok(nodes)
}

/// What a `redis-sentinel://` URL says.
pub(super) struct Watched {
    /// The name under which the sentinels know the master.
    pub(super) master: String,
    /// Where the sentinels are.
    pub(super) sentinels: Vec<ConnectionInfo>,
    /// The log-in and the database at the master.
    pub(super) login: RedisConnectionInfo,
}

/// Reads `redis-sentinel://[user:password@]host[:port],…[/database]#master`.
pub(super) fn parse_sentinels(text: &str) -> Result<Watched, Error> {
    let (text, master) = text.split_once('#').unwrap_or((text, ""));
    // The characters that sentinels allow in a name; none has to be written in another way in a URL.
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_".contains(byte);
    if master.is_empty() || !master.as_bytes().iter().all(allowed) {
        return Err(Error::invalid(
            "the URL cannot be used: it has to end with the name of the master, as in `redis-sentinel://host1,host2/#mymaster` \
             (in a password, write `%23` for `#`)",
        ));
    }
    let sentinels = one_by_one(text, SENTINEL_PORT)?;
    let sentinels: Vec<ConnectionInfo> = sentinels.iter().map(|url| parse(url)).collect::<Result<_, _>>()?;
    Ok(Watched {
        master: master.to_owned(),
        login: sentinels[0].redis_settings().clone(),
        sentinels,
    })
}

/// Reads a URL. No message repeats what may be a password, or a piece of one.
pub(in crate::store) fn parse(text: &str) -> Result<ConnectionInfo, Error> {
    let unusable = |why: &str| Error::invalid(format!("the URL cannot be used: {why}"));
    // Whether there is TLS is not for the client library to decide, which would have to be built with its own.
    let text = match text.split_once("://") {
        Some(("rediss", rest)) => &format!("redis://{rest}"),
        Some(("valkeys", rest)) => &format!("valkey://{rest}"),
        _ => text,
    };
    let host = text.split_once("://").map_or("", |(_, rest)| rest);
    let host = host.split(['/', '?', '#']).next().unwrap_or_default();
    if host.rsplit('@').next().is_some_and(|host| host.contains(',')) {
        return Err(unusable(
            "it names several hosts (write `redis-sentinel://`, `redis-cluster://` or `redlock://`)",
        ));
    }
    let Some(url) = redis::parse_redis_url(text) else {
        return Err(unusable(
            "it does not parse (in a password, write special characters as `%40` for `@`)",
        ));
    };
    let on_socket = url.scheme() == "unix";
    if on_socket && url.has_host() {
        return Err(unusable("a socket has no host: write `unix:///path/to/socket`"));
    }
    if url.fragment().is_some() {
        return Err(unusable(
            "it has a fragment (in a path or password, write `%23` for `#`)",
        ));
    }
    // No name is repeated: it may be the rest of a password that has a `?` or `&` in it.
    let mut seen = Vec::new();
    for (name, _) in url.query_pairs() {
        if !on_socket {
            return Err(unusable(
                "it has a parameter, and none is acted on (a database goes behind the host: `redis://host/3`)",
            ));
        }
        if !["user", "pass", "db"].contains(&&*name) || seen.contains(&name) {
            return Err(unusable(
                "of parameters only `user`, `pass` and `db` are acted on, each once",
            ));
        }
        seen.push(name);
    }
    let info = url.into_connection_info().map_err(|error| {
        // The text goes on with the error's kind, and perhaps with a part of the URL.
        unusable(error.to_string().split(" - ").next().unwrap_or_default())
    })?;
    let login = info.redis_settings();
    if login.username().is_some() && login.password().is_none() {
        return Err(unusable("it has a user name without a password"));
    }
    if login.db() < 0 {
        return Err(unusable("the database number is negative"));
    }
    Ok(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_hosts_share_the_login_and_the_database() {
        let urls = one_by_one("redlock://user:p,w@a,b:7000,[::1],[::1]:7001/2", 6379).unwrap();
        let hosts = ["a:6379", "b:7000", "[::1]:6379", "[::1]:7001"];
        assert_eq!(urls, hosts.map(|host| format!("redis://user:p,w@{host}/2")));
        for url in urls {
            parse(&url).unwrap();
        }
    }

    #[test]
    fn no_host_is_left_out() {
        for text in ["redlock://", "redlock://a,,b", "redlock://a,", "redlock://user@/1"] {
            assert!(
                matches!(one_by_one(text, 6379), Err(Error::InvalidArgument(_))),
                "{text}"
            );
        }
    }
}
