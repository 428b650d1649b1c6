//! What the outcome of a request to one node of a cluster means: whether that was the node to ask, and what to do if
//! not.

use redis::{ServerError, Value};

use super::slots::{Endpoint, NAMELESS};
use crate::store::{Failure, redis::reply};

/// What follows on a request to one node.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// This is what there is to know: an answer, or that there is none. A request that may have run is not repeated.
    Done,
    /// The slot is another node's.
    Moved(Endpoint),
    /// The keys, if they are anywhere, are at another node already, to which their slot is being moved.
    Ask(Endpoint),
    /// The keys are partly here and partly there. It will pass.
    Later,
    /// This node cannot do it: another one may have taken its part, or will.
    Relearn,
}

impl Next {
    /// What follows on `outcome` of a request to the node at `asked`.
    pub(super) fn after(outcome: &Result<Value, Failure>, asked: &Endpoint) -> Self {
        match outcome {
            Ok(Value::ServerError(error)) => Self::after_error(error, asked),
            Ok(_) => Self::Done,
            // Nothing was sent.
            Err(Failure::Unreachable(_) | Failure::NotSent(_)) => Self::Relearn,
            Err(_) => Self::Done,
        }
    }

    fn after_error(error: &ServerError, asked: &Endpoint) -> Self {
        match error.code() {
            // The map has more to say of one that has no name than that it is none.
            "MOVED" if names_nobody(error) => Self::Relearn,
            "MOVED" => address(error, asked).map_or(Self::Relearn, Self::Moved),
            "ASK" => address(error, asked).map_or(Self::Later, Self::Ask),
            "TRYAGAIN" => Self::Later,
            "CLUSTERDOWN" | "LOADING" | "READONLY" | "MASTERDOWN" => Self::Relearn,
            _ if is_cut_short(error) => Self::Later,
            _ => Self::Done,
        }
    }
}

/// The address in `<slot> <host>:<port>`.
fn address(error: &ServerError, asked: &Endpoint) -> Option<Endpoint> {
    let (_, address) = error.details()?.split_once(' ')?;
    Endpoint::parse(address, asked)
}

/// Whether it is `<slot> ?:<port>`.
fn names_nobody(error: &ServerError) -> bool {
    let address = error.details().and_then(|details| details.split_once(' '));
    address.is_some_and(|(_, address)| address.rsplit_once(':').is_some_and(|(host, _)| host == NAMELESS))
}

/// Whether a script was stopped since it touched a key that is missing while its slot is being moved. Those that might
/// leave something half done then are kept from running there by [`BARRIER`](crate::keys::BARRIER).
fn is_cut_short(error: &ServerError) -> bool {
    error
        .details()
        .is_some_and(|details| details.contains("access a non local key"))
}

/// The failure of a request that was sent to and fro until its time was over.
pub(super) fn gave_up(outcome: Result<Value, Failure>) -> Failure {
    match outcome {
        Ok(Value::ServerError(error)) => Failure::Unready(reply::in_its_words(&error)),
        Ok(other) => reply::unexpected(&other),
        Err(failure) => failure,
    }
}

/// Whether a part of it may have run.
pub(super) fn may_have_begun(outcome: &Result<Value, Failure>) -> bool {
    matches!(outcome, Ok(Value::ServerError(error)) if is_cut_short(error))
}

#[cfg(test)]
mod tests {
    use redis::Parser;

    use super::*;
    use crate::store::because;

    fn says(text: &str) -> Result<Value, Failure> {
        Ok(Parser::new().parse_value(format!("{text}\r\n").as_bytes()).unwrap())
    }

    fn at(host: &str, port: u16) -> Endpoint {
        let host = host.to_owned();
        Endpoint { host, port }
    }

    fn next(outcome: Result<Value, Failure>) -> Next {
        Next::after(&outcome, &at("asked", 1))
    }

    #[test]
    fn a_node_says_which_other_one_to_ask() {
        assert_eq!(
            next(says("-MOVED 3999 127.0.0.1:6381")),
            Next::Moved(at("127.0.0.1", 6381))
        );
        assert_eq!(next(says("-MOVED 3999 :6381")), Next::Moved(at("asked", 6381)));
        assert_eq!(next(says("-ASK 3999 ::1:6381")), Next::Ask(at("::1", 6381)));
        assert_eq!(next(says("-MOVED 3999 ?:6381")), Next::Relearn);
        assert_eq!(next(says("-ASK 3999 ?:6381")), Next::Ask(at("asked", 6381)));
    }

    #[test]
    fn what_passes_is_asked_again_and_what_a_failover_may_mend_of_another() {
        assert_eq!(
            next(says("-TRYAGAIN Multiple keys request during rehashing of slot")),
            Next::Later
        );
        let cut = "-ERR Script attempted to access a non local key in a cluster node script: f_1, on @user_script:9.";
        assert_eq!(next(says(cut)), Next::Later);
        assert!(may_have_begun(&says(cut)));
        for text in [
            "-CLUSTERDOWN The cluster is down",
            "-LOADING Redis is loading the dataset in memory",
            "-READONLY You can't write against a read only replica.",
            "-MOVED nonsense",
        ] {
            assert_eq!(next(says(text)), Next::Relearn, "{text}");
            assert!(matches!(gave_up(says(text)), Failure::Unready(_)), "{text}");
        }
        for unsent in [Failure::Unreachable, Failure::NotSent] {
            assert_eq!(next(Err(unsent(because("away")))), Next::Relearn);
        }
    }

    #[test]
    fn answers_stand_and_what_may_have_run_is_not_repeated() {
        for text in [
            ":1",
            "-ERR wrong",
            "-NOPERM no",
            "-WRONGTYPE no",
            "-CROSSSLOT no",
            "-OOM no",
        ] {
            assert_eq!(next(says(text)), Next::Done, "{text}");
        }
        for failure in [Failure::Cut, Failure::Silent, Failure::Denied, Failure::Refused] {
            assert_eq!(next(Err(failure(because("it")))), Next::Done);
        }
    }
}
