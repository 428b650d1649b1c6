//! What the server's replies mean.

use std::{sync::Arc, time::Duration};

use redis::{FromRedisValue, ServerError, Value};

use crate::{
    Expiry, Holder, Inspection,
    error::Source,
    keys,
    store::{Acquired, Failure, Found, Turn, because},
};

/// Said to a request of many words, in place of NOAUTH.
const UNAUTHENTICATED: &str = "unauthenticated multibulk length";

const NO_MORE_CLIENTS: &str = "max number of clients";

/// The answer to an acquire of the lock `key`.
pub(super) fn acquired(reply: Value, key: &[u8]) -> Result<Acquired, Failure> {
    match reply {
        Value::ServerError(error) if is_wrong_type(&error) => Err(Failure::KeyConflict(key.to_vec())),
        Value::ServerError(error) => Err(failure(error)),
        Value::Int(fencing_token) if fencing_token > 0 => Ok(Acquired::Granted {
            fencing_token: fencing_token as u64,
        }),
        Value::Nil => Err(Failure::KeyConflict(keys::helper("fencing", key))),
        Value::Array(parts) => match parts[..] {
            [Value::Int(ttl), Value::Int(place)] => Ok(Acquired::Busy {
                ttl: u64::try_from(ttl).ok().map(Duration::from_millis),
                place: u64::try_from(place).ok().filter(|&place| place > 0),
            }),
            _ => Err(unexpected(&Value::Array(parts))),
        },
        other => Err(unexpected(&other)),
    }
}

/// The answer to a renewal or release.
pub(super) fn found(reply: Value) -> Result<Found, Failure> {
    match reply {
        // Whatever stands there now, it is not ours.
        Value::ServerError(error) if is_wrong_type(&error) => Ok(Found::Anothers),
        Value::ServerError(error) => Err(failure(error)),
        Value::Int(1) => Ok(Found::Ours),
        Value::Int(0) => Ok(Found::Nothing),
        Value::Int(-1) => Ok(Found::Anothers),
        other => Err(unexpected(&other)),
    }
}

/// The answer to the end of a grant.
pub(super) fn turn(reply: Value) -> Result<Turn, Failure> {
    match reply {
        Value::Array(parts) => match parts[..] {
            [Value::Int(fencing_token)] if fencing_token > 0 => Ok(Turn::Kept {
                fencing_token: fencing_token as u64,
            }),
            _ => Err(unexpected(&Value::Array(parts))),
        },
        reply => found(reply).map(Turn::Left),
    }
}

/// The answer to a look at the lock `key`.
pub(super) fn inspection(reply: Value, key: &[u8]) -> Result<Inspection, Failure> {
    if let Value::ServerError(error) = &reply
        && is_wrong_type(error)
    {
        return Err(Failure::KeyConflict(key.to_vec()));
    }
    let (token, ttl, counter, waiters): (Option<Vec<u8>>, i64, Option<Vec<u8>>, usize) = parsed(reply)?;
    // Left to a waiter that was knocked for.
    let reserved = token
        .as_ref()
        .is_some_and(|token| token.starts_with(b"redlatch:claim:"));
    let Some(token) = token.filter(|_| !reserved) else {
        return Ok(Inspection::not_held(reserved, waiters));
    };
    let expiry = u64::try_from(ttl).map_or(Expiry::Never, |ttl| Expiry::In(Duration::from_millis(ttl)));
    // What stands there may be no counter; an acquire would say so.
    let fencing_token = counter.and_then(|digits| str::from_utf8(&digits).ok()?.parse().ok());
    Ok(Inspection::held(Holder::new(&token, expiry), fencing_token, waiters))
}

/// The answer to a plain command.
pub(super) fn parsed<T: FromRedisValue>(reply: Value) -> Result<T, Failure> {
    match reply {
        Value::ServerError(error) => Err(failure(error)),
        reply => redis::from_redis_value(reply).map_err(|error| Failure::Refused(Arc::new(error))),
    }
}

/// Whether the server does not know a script by its digest.
pub(super) fn is_unknown_script(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "NOSCRIPT")
}

/// The error by which the server said that it takes no more clients, and hung up: the request was not read.
pub(super) fn turned_away(reply: &Value) -> Option<ServerError> {
    match reply {
        Value::ServerError(error) if says(error, NO_MORE_CLIENTS) => Some(error.clone()),
        _ => None,
    }
}

/// Whether the server says that another one, or a new connection, is the one to ask.
pub(super) fn sends_away(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if matches!(error.code(), "READONLY" | "LOADING" | "MASTERDOWN"))
}

/// Whether an error goes away without anybody changing the request, the permissions or the configuration.
fn passes(error: &ServerError) -> bool {
    match error.code() {
        "LOADING" | "BUSY" | "READONLY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "NOREPLICAS" | "MISCONF"
        | "OOM" | "UNKILLABLE" => true,
        "ERR" => says(error, NO_MORE_CLIENTS),
        _ => false,
    }
}

/// A server error as the server put it, and not as the client library spells its code.
pub(super) fn in_its_words(error: &ServerError) -> Source {
    because(format!("{} {}", error.code(), error.details().unwrap_or_default()))
}

/// What a server error means for the request.
pub(super) fn failure(error: ServerError) -> Failure {
    if passes(&error) {
        Failure::Unready(in_its_words(&error))
    } else if error.code() == "NOAUTH" || says(&error, UNAUTHENTICATED) {
        Failure::Denied(because(
            "the server wants a password (NOAUTH): give it in the URL, as in `redis://user:password@host/`",
        ))
    } else {
        Failure::Refused(in_its_words(&error))
    }
}

/// What a server error means as the answer to AUTH. In our words: the server may repeat the arguments in its own, and
/// they hold the password.
pub(super) fn auth_failure(error: &ServerError) -> Failure {
    if passes(error) {
        return Failure::Unready(because("the server is not ready for AUTH, or takes no more clients"));
    }
    let why = match error.code() {
        "WRONGPASS" => "the user name or the password is wrong, or the user is disabled",
        "ERR" => {
            "the server has no password set; or it is older than Redis 6, and the password is wrong or user names \
             are unknown to it"
        }
        "NOPERM" => "the user has no permission to log in",
        "DENIED" => "the server is in protected mode and lets in local clients only",
        _ => "the server gave a reason that is not repeated here, as it may hold the password",
    };
    Failure::Denied(because(format!("AUTH failed: {why}")))
}

fn is_wrong_type(error: &ServerError) -> bool {
    // Servers before Redis 7 put a script's error into the text of their own.
    error.code() == "WRONGTYPE" || says(error, "WRONGTYPE")
}

fn says(error: &ServerError, words: &str) -> bool {
    error.details().is_some_and(|details| details.contains(words))
}

fn unexpected(reply: &Value) -> Failure {
    Failure::Refused(because(format!("unexpected reply {reply:?}")))
}
