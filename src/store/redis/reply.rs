//! What the server's replies mean.

use std::{sync::Arc, time::Duration};

use redis::{FromRedisValue, ServerError, Value};

use crate::{
    Expiry, Holder, Inspection,
    error::Source,
    keys,
    store::{Acquired, Failure, Found, Resource, SeveralAcquired, Turn, because},
};

/// Said to a request of many words, in place of NOAUTH.
const UNAUTHENTICATED: &str = "unauthenticated multibulk length";

const NO_CLUSTER: &str = "cluster support disabled";

const NO_MORE_CLIENTS: &str = "max number of clients";

/// The answer to an acquire of `resource`.
pub(super) fn acquired(reply: Value, resource: &Resource) -> Result<Acquired, Failure> {
    match usable(reply, resource)? {
        Value::Int(fencing_token) if fencing_token > 0 => Ok(Acquired::Granted {
            fencing_token: fencing_token as u64,
        }),
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

/// One of several servers' answer to its part in a grant of `resource`.
pub(in crate::store) fn part(reply: Value, resource: &Resource) -> Result<Part, Failure> {
    match usable(reply, resource)? {
        Value::Array(parts) => match parts[..] {
            [Value::Int(clock), Value::Int(drawn)] if clock > 0 && drawn > 0 => Ok(Part {
                clock: clock as u64,
                outcome: Acquired::Granted {
                    fencing_token: drawn as u64,
                },
            }),
            [Value::Int(clock), Value::Int(0), Value::Int(ttl)] if clock > 0 => Ok(Part {
                clock: clock as u64,
                outcome: Acquired::Busy {
                    ttl: u64::try_from(ttl).ok().map(Duration::from_millis),
                    place: None,
                },
            }),
            _ => Err(unexpected(&Value::Array(parts))),
        },
        other => Err(unexpected(&other)),
    }
}

/// What one of several servers says to a grant.
pub(in crate::store) struct Part {
    /// Its clock, in microseconds.
    pub(in crate::store) clock: u64,
    pub(in crate::store) outcome: Acquired,
}

/// The answer to an attempt to acquire several, whose keys these are.
pub(super) fn several_acquired<'a>(
    reply: Value,
    mut keys: impl Iterator<Item = &'a [u8]>,
) -> Result<SeveralAcquired, Failure> {
    if let Value::ServerError(error) = &reply
        && error.code() == "KEYCONFLICT"
        && let Some(at) = error.details().and_then(|at| at.parse::<usize>().ok())
        && let Some(key) = keys.nth(at.saturating_sub(1))
    {
        return Err(Failure::KeyConflict(key.to_vec()));
    }
    let (taken, fencing_tokens): (usize, Vec<u64>) = parsed(reply)?;
    Ok(SeveralAcquired {
        fencing_tokens,
        taken: taken.checked_sub(1),
    })
}

/// The answer to a change of the limit of `resource`.
pub(super) fn limit_set(reply: Value, resource: &Resource) -> Result<(), Failure> {
    match usable(reply, resource)? {
        Value::Int(0) => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// The answer, unless it is an error: one of the server's, or of a script that cannot use what stands at the keys of
/// `resource`.
fn usable(reply: Value, resource: &Resource) -> Result<Value, Failure> {
    let Value::ServerError(error) = reply else {
        return Ok(reply);
    };
    Err(match error.code() {
        _ if is_wrong_type(&error) => Failure::KeyConflict(resource.key.to_vec()),
        "KEYCONFLICT" => {
            let kind = error.details().unwrap_or_default();
            Failure::KeyConflict(keys::helper(kind, &resource.key))
        }
        "LIMITMISMATCH" => match error.details().and_then(|stored| stored.parse().ok()) {
            Some(stored) => Failure::LimitMismatch {
                key: resource.key.to_vec(),
                declared: resource.limit(),
                stored,
            },
            None => failure(error),
        },
        _ => failure(error),
    })
}

/// The answer to a renewal or release.
pub(in crate::store) fn found(reply: Value) -> Result<Found, Failure> {
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

/// What stands in place of a holder's token before what is left to a waiter that was knocked for.
const CLAIM: &[u8] = b"redlatch:claim:";

/// The answer to a look at `resource`.
pub(in crate::store) fn inspection(reply: Value, resource: &Resource) -> Result<Inspection, Failure> {
    type Holders = Vec<(Vec<u8>, i64)>;
    let (found, counter, waiters, declared_limit, limit): (Holders, Option<Vec<u8>>, usize, u32, u32) =
        parsed(usable(reply, resource)?)?;
    let mut holders: Vec<Holder> = Vec::new();
    let mut reserved = 0;
    for (member, left) in found {
        if member.starts_with(CLAIM) {
            reserved += 1;
            continue;
        }
        // The first permit of several bears the token alone, the others, which come after it, a number behind it.
        let first = without_number(&member).filter(|_| !resource.is_exclusive());
        match holders.iter_mut().find(|holder| Some(&holder.token[..]) == first) {
            Some(holder) => holder.permits += 1,
            None => holders.push(Holder {
                token: member,
                expiry: u64::try_from(left).map_or(Expiry::Never, |left| Expiry::In(Duration::from_millis(left))),
                permits: 1,
            }),
        }
    }
    // What stands there may be no counter; an acquire would say so.
    let fencing_token = counter.and_then(|digits| str::from_utf8(&digits).ok()?.parse().ok());
    Ok(Inspection {
        fencing_token: fencing_token.filter(|_| !holders.is_empty()),
        holders,
        waiters,
        reserved,
        limit,
        declared_limit,
    })
}

/// What stands before the last colon and a number.
fn without_number(member: &[u8]) -> Option<&[u8]> {
    let colon = member.iter().rposition(|&byte| byte == b':')?;
    let number = &member[colon + 1..];
    (!number.is_empty() && number.iter().all(u8::is_ascii_digit)).then(|| &member[..colon])
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

/// Whether a node of a cluster has a part of the keys only, since their slot is being moved.
pub(super) fn is_split(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "TRYAGAIN")
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
    } else if matches!(error.code(), "MOVED" | "ASK") {
        wrong_scheme("a node of a cluster: write `redis-cluster://`", &error)
    } else if says(&error, NO_CLUSTER) {
        wrong_scheme("not in a cluster: write `redis://`", &error)
    } else {
        Failure::Refused(in_its_words(&error))
    }
}

/// The failure of a request to a server that is not what the URL says.
fn wrong_scheme(what: &str, error: &ServerError) -> Failure {
    let words = in_its_words(error);
    Failure::Refused(because(format!("the server is {what} in the URL (it says: {words})")))
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

pub(super) fn unexpected(reply: &Value) -> Failure {
    Failure::Refused(because(format!("unexpected reply {reply:?}")))
}
