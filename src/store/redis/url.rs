//! What the URL of a Redis or Valkey server says. A part that would not be acted on is refused.

use redis::{ConnectionInfo, IntoConnectionInfo};

use crate::Error;

/// Reads a URL. No message repeats what may be a password, or a piece of one.
pub(super) fn parse(text: &str) -> Result<ConnectionInfo, Error> {
    let unusable = |why: &str| Error::invalid(format!("the URL cannot be used: {why}"));
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
