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
    connection::{Opener, Wire, unanswered},
    reply,
    socket::HangUp,
};
use crate::{
    store::{Channel, Failure, Hold, Knock, Listener, Token, because},
    sync::Mutex,
};

pub(super) struct RedisListener {
    opener: Arc<Opener>,
    channel: Channel,
    wire: Option<Wire>,
    /// Whether nothing was heard since the server was asked whether it is still there.
    doubtful: bool,
    stop: Arc<Stop>,
}

#[derive(Default)]
struct Stop {
    stopped: AtomicBool,
    line: Mutex<Option<HangUp>>,
}

impl RedisListener {
    pub(super) fn new(opener: Arc<Opener>, channel: &Channel) -> Self {
        Self {
            opener,
            channel: channel.clone(),
            wire: None,
            doubtful: false,
            stop: Arc::default(),
        }
    }

    fn subscribe(&self, deadline: Instant) -> Result<Wire, Failure> {
        let mut wire = self.opener.open(deadline)?;
        *self.stop.line.lock() = Some(wire.hanger_up());
        // Looked at after the line was left for the stopper: whichever comes last sees the other.
        if self.stop.stopped.load(Ordering::SeqCst) {
            return Err(Failure::Cut(because("it was stopped")));
        }
        let mut subscribe = redis::cmd("SUBSCRIBE");
        subscribe.arg(&*self.channel.0);
        wire.send([&subscribe], deadline).map_err(unanswered)?;
        match wire.receive(deadline).map_err(unanswered)? {
            Value::ServerError(error) if self.opener.gives_away(&error) => Err(reply::auth_failure(&error)),
            Value::ServerError(error) => Err(reply::failure(error)),
            _ => Ok(wire),
        }
    }
}

impl Listener for RedisListener {
    fn open(&mut self, timeout: Duration) -> Result<(), Failure> {
        self.wire = Some(self.subscribe(Instant::now() + timeout)?);
        self.doubtful = false;
        Ok(())
    }

    fn next(&mut self, limit: Duration) -> Result<Option<Knock>, Failure> {
        let Some(mut wire) = self.wire.take() else {
            return Err(Failure::Cut(because("the connection broke")));
        };
        let deadline = Instant::now() + limit;
        let knock = match wire.receive(deadline) {
            Ok(message) => {
                self.doubtful = false;
                knock(&message)
            }
            Err(error) if error.is_timeout() && !self.doubtful => {
                self.doubtful = true;
                wire.send([&redis::cmd("PING")], Instant::now() + limit)
                    .map_err(unanswered)?;
                None
            }
            Err(error) => return Err(unanswered(error)),
        };
        self.wire = Some(wire);
        Ok(knock)
    }

    fn stopper(&self) -> Box<dyn Fn() + Send + Sync> {
        let stop = self.stop.clone();
        Box::new(move || {
            stop.stopped.store(true, Ordering::SeqCst);
            if let Some(line) = &*stop.line.lock() {
                line.hang_up();
            }
        })
    }
}

/// What a message says: `<in how many ms> <token> <key>`.
fn knock(message: &Value) -> Option<Knock> {
    let Value::Array(parts) = message else {
        return None;
    };
    let [Value::BulkString(kind), _, Value::BulkString(text)] = &parts[..] else {
        return None;
    };
    let mut words = text.splitn(3, |&byte| byte == b' ');
    let millis = str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let (token, key) = (words.next()?, words.next()?);
    (kind == b"message").then(|| Knock {
        hold: Hold {
            key: key.into(),
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
        let heard = knock(&message("message", b"25 abc lock:with a space\xff")).unwrap();
        assert_eq!(heard.after, Duration::from_millis(25));
        assert_eq!(heard.hold.token, Token::found(b"abc"));
        assert_eq!(&*heard.hold.key, b"lock:with a space\xff");
    }

    #[test]
    fn what_is_no_knock_is_passed_over() {
        assert_eq!(knock(&message("subscribe", b"0 abc lock:x")), None);
        for nonsense in [&b""[..], b"0", b"0 abc", b"soon abc lock:x", b"-1 abc lock:x"] {
            assert_eq!(knock(&message("message", nonsense)), None);
        }
        assert_eq!(knock(&Value::SimpleString("PONG".into())), None);
    }
}
