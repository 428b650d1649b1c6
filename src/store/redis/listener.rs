//! Hears knocks: a connection that is subscribed to one channel.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use redis::Value;

use super::{
    cluster::{Cluster, Endpoint},
    connection::{Opener, Wire, unanswered},
    reply,
    socket::HangUp,
};
use crate::{
    store::{Channel, Failure, Hold, Kind, Knock, Listener, Resource, Token, because},
    sync::Mutex,
};

pub(super) struct RedisListener {
    post: Post,
    channel: Channel,
    wire: Option<Wire>,
    /// Whether nothing was heard since the server was asked whether it is still there.
    doubtful: bool,
    stop: Arc<Stop>,
}

/// Where knocks are heard.
pub(super) enum Post {
    /// At the one server.
    Server(Arc<Opener>),
    /// At any node: a cluster tells all of them.
    Cluster {
        cluster: Arc<Cluster>,
        at: Option<Endpoint>,
        /// Where it was tried in vain since knocks were heard last.
        tried: Vec<Endpoint>,
    },
}

impl Post {
    pub(super) fn in_cluster(cluster: &Arc<Cluster>) -> Self {
        Self::Cluster {
            cluster: cluster.clone(),
            at: None,
            tried: Vec::new(),
        }
    }

    /// Where to listen next.
    fn choose(&mut self) -> Arc<Opener> {
        match self {
            Self::Server(opener) => opener.clone(),
            Self::Cluster { cluster, at, tried } => {
                let (address, node) = cluster.listening_post(tried);
                if tried.contains(&address) {
                    tried.clear();
                }
                *at = Some(address);
                node.opener().clone()
            }
        }
    }

    /// Takes in whether knocks are heard there.
    fn note(&mut self, failure: Option<&Failure>) {
        let Self::Cluster {
            cluster,
            at: Some(at),
            tried,
        } = self
        else {
            return;
        };
        cluster.note(at, failure);
        match failure {
            Some(_) => tried.push(at.clone()),
            None => tried.clear(),
        }
    }

    /// Whether there is nothing to say that `wire`, which was silent for `silence`, is of no use any more.
    fn is_fit(&self, wire: &Wire, silence: Duration) -> bool {
        match self {
            Self::Server(opener) => opener.is_current(wire),
            Self::Cluster { cluster, at, .. } => at.as_ref().is_none_or(|at| cluster.still_has(at, silence)),
        }
    }
}

#[derive(Default)]
struct Stop {
    stopped: AtomicBool,
    hang_up: Mutex<Option<HangUp>>,
}

impl Stop {
    fn hang_up(&self) {
        if let Some(hang_up) = self.hang_up.lock().take() {
            hang_up.hang_up();
        }
    }
}

impl RedisListener {
    pub(super) fn new(post: Post, channel: &Channel) -> Self {
        Self {
            post,
            channel: channel.clone(),
            wire: None,
            doubtful: false,
            stop: Arc::default(),
        }
    }

    fn subscribe(&self, opener: &Opener, deadline: Instant) -> Result<Wire, Failure> {
        let mut wire = opener.open(deadline)?;
        *self.stop.hang_up.lock() = Some(wire.hanger_up());
        // Looked at after the line was left for the stopper: whichever comes last sees the other.
        if self.stop.stopped.load(Ordering::SeqCst) {
            return Err(Failure::Cut(because("it was stopped")));
        }
        let mut subscribe = redis::cmd("SUBSCRIBE");
        subscribe.arg(&*self.channel.0);
        wire.send([&subscribe], deadline).map_err(unanswered)?;
        match wire.receive(deadline).map_err(unanswered)? {
            Value::ServerError(error) if opener.gives_away(&error) => Err(reply::auth_failure(&error)),
            Value::ServerError(error) => Err(reply::failure(error)),
            _ => Ok(wire),
        }
    }

    fn hear(&mut self, limit: Duration) -> Result<Option<Knock>, Failure> {
        let Some(wire) = &mut self.wire else {
            return Err(Failure::Cut(because("the connection broke")));
        };
        match wire.receive(Instant::now() + limit) {
            Ok(message) => {
                self.doubtful = false;
                Ok(knock(&message))
            }
            // The server may be well, and no longer the one that knocks.
            Err(error) if error.is_timeout() && !self.post.is_fit(wire, limit) => {
                Err(Failure::Cut(because("the connection is of no use any more")))
            }
            Err(error) if error.is_timeout() && !self.doubtful => {
                self.doubtful = true;
                let ping = redis::cmd("PING");
                wire.send([&ping], Instant::now() + limit).map_err(unanswered)?;
                Ok(None)
            }
            Err(error) => Err(unanswered(error)),
        }
    }

    /// After a failure the line is closed for good: a server that believes it to stand would leave keys to those who do
    /// not hear of it.
    fn or_hang_up<T>(&mut self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        self.post.note(outcome.as_ref().err());
        if outcome.is_err() {
            self.wire = None;
            self.stop.hang_up();
        }
        outcome
    }
}

impl Listener for RedisListener {
    fn open(&mut self, timeout: Duration) -> Result<(), Failure> {
        let opener = self.post.choose();
        let subscribed = self.subscribe(&opener, Instant::now() + timeout);
        self.wire = Some(self.or_hang_up(subscribed)?);
        self.doubtful = false;
        Ok(())
    }

    fn next(&mut self, limit: Duration) -> Result<Option<Knock>, Failure> {
        let heard = self.hear(limit);
        self.or_hang_up(heard)
    }

    fn stopper(&self) -> Box<dyn Fn() + Send + Sync> {
        let stop = self.stop.clone();
        Box::new(move || {
            stop.stopped.store(true, Ordering::SeqCst);
            stop.hang_up();
        })
    }
}

/// What a message says: `<in how many ms> <limit> <permits> <token> <key>`, with 0 and 0 for a lock.
fn knock(message: &Value) -> Option<Knock> {
    let Value::Array(parts) = message else {
        return None;
    };
    let [Value::BulkString(kind), _, Value::BulkString(text)] = &parts[..] else {
        return None;
    };
    let mut words = text.splitn(5, |&byte| byte == b' ');
    let mut number = || str::from_utf8(words.next()?).ok()?.parse::<u64>().ok();
    let millis = number()?;
    let (limit, permits) = (u32::try_from(number()?).ok()?, u32::try_from(number()?).ok()?);
    let (token, key) = (words.next()?, words.next()?);
    let resource = Resource {
        key: key.into(),
        kind: match (limit, permits) {
            (0, 0) => Kind::Lock,
            _ => Kind::Semaphore { limit, permits },
        },
    };
    (kind == b"message").then(|| Knock {
        hold: Hold {
            resource,
            token: Token::found(token),
        },
        after: Duration::from_millis(millis),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: &str, text: &[u8]) -> Value {
        let parts = [kind.as_bytes(), b"redlatch:1", text];
        Value::Array(parts.map(|part| Value::BulkString(part.to_vec())).into())
    }

    #[test]
    fn a_knock_says_who_should_come_for_what_and_when() {
        let heard = knock(&message("message", b"25 0 0 abc lock:with a space\xff")).unwrap();
        assert_eq!(heard.after, Duration::from_millis(25));
        assert_eq!(heard.hold.token, Token::found(b"abc"));
        assert_eq!(&*heard.hold.resource.key, b"lock:with a space\xff");
        assert_eq!(heard.hold.resource.kind, Kind::Lock);

        let heard = knock(&message("message", b"0 5 2 abc semaphore:x")).unwrap();
        assert_eq!(heard.hold.resource.kind, Kind::Semaphore { limit: 5, permits: 2 });
    }

    #[test]
    fn what_is_no_knock_is_passed_over() {
        assert_eq!(knock(&message("subscribe", b"0 0 0 abc lock:x")), None);
        for nonsense in [
            &b""[..],
            b"0",
            b"0 0 0 abc",
            b"0 abc lock:x",
            b"soon 0 0 abc lock:x",
            b"-1 0 0 abc lock:x",
            b"0 5 4294967296 abc semaphore:x",
        ] {
            assert_eq!(knock(&message("message", nonsense)), None);
        }
        assert_eq!(knock(&Value::SimpleString("PONG".into())), None);
    }
}
