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
    let (known, hint): (&[&str], _) = if on_socket {
        (&["user", "pass", "db"], "only `user`, `pass` and `db` are, each once")
    } else {
        (
            &[],
            "write `redis://user:password@host/3` to use database 3 as that user",
        )
    };
    let mut seen = Vec::new();
    for (name, value) in url.query_pairs() {
        let repeated = seen.contains(&name);
        if repeated || !known.contains(&&*name) {
            // It may be the rest of a password that has a `?` or `&` in it.
            let secret = value.is_empty()
                || url.query().is_some_and(|query| query.contains('@'))
                || seen.iter().any(|name| name == "pass");
            let parameter = if repeated || !secret {
                format!("its parameter `{}`", name.escape_debug())
            } else {
                "a parameter in it".to_owned()
            };
            return Err(unusable(&format!("{parameter} is not acted on: {hint}")));
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
