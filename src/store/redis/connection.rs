//! One connection: opened when first used, never used again after anything went wrong on it.

use std::{
    error, fmt,
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use redis::{
    Cmd, ConnectionAddr, ConnectionInfo, Parser, RedisConnectionInfo, RedisError, RedisResult, ServerError, Value,
};

use super::{
    Settings,
    process::Sighting,
    reply,
    sentinel::Sentinels,
    socket::{Aside, HangUp, Socket},
    stream::Stream,
    tls::Tls,
};
use crate::store::{Failure, because};

/// Shorter passwords are likely to occur in any text.
const SHORTEST_SECRET: usize = 6;

/// Opens connections to one server, or to whichever is the master now.
pub(in crate::store) struct Opener {
    address: Address,
    login: RedisConnectionInfo,
    connect_timeout: Duration,
    tls: Option<Tls>,
    aside: Aside,
    /// Raised when the server closes a connection, or says that it is not the one to ask: those opened before are
    /// likely of no use any more either (it was restarted or demoted, or an operator or a middlebox cut them off), so
    /// the next request on each opens anew.
    generation: AtomicU64,
}

/// Where the server is.
pub(super) enum Address {
    Fixed(ConnectionAddr),
    /// Where these say that the master is.
    Master(Sentinels),
}

/// Why no connection could be opened.
#[derive(Debug, thiserror::Error)]
#[error("could not connect to {address}")]
struct NotConnected {
    // Without user and password, which are not part of the address.
    address: ConnectionAddr,
    source: io::Error,
}

impl Opener {
    pub(in crate::store) fn new(info: &ConnectionInfo, settings: &Settings) -> Self {
        let address = Address::Fixed(info.addr().clone());
        Self::at(address, info.redis_settings().clone(), settings)
    }

    pub(super) fn at(address: Address, login: RedisConnectionInfo, settings: &Settings) -> Self {
        Self {
            address,
            login,
            connect_timeout: settings.connect_timeout,
            tls: settings.tls.clone(),
            aside: Aside::default(),
            generation: AtomicU64::new(0),
        }
    }

    pub(super) fn open(&self, deadline: Instant) -> Result<Wire, Failure> {
        let deadline = deadline.min(Instant::now() + self.connect_timeout);
        match &self.address {
            Address::Fixed(address) => self.open_at(address, deadline),
            Address::Master(sentinels) => sentinels.open_master(self, deadline),
        }
    }

    /// Opens a connection to the server at `address`, whichever that is.
    pub(super) fn open_at(&self, address: &ConnectionAddr, deadline: Instant) -> Result<Wire, Failure> {
        let generation = self.generation.load(Ordering::SeqCst);
        let not_connected = |source| {
            let address = address.clone();
            Arc::new(NotConnected { address, source })
        };
        let socket = Socket::connect(address, deadline, &self.aside)
            .map_err(|source| Failure::Unreachable(not_connected(source)))?;
        let stream = match &self.tls {
            None => Stream::plain(socket),
            Some(tls) => {
                let secured = tls.secure(socket, address);
                Stream::Secure(Box::new(
                    secured.map_err(|source| Failure::Unreachable(not_connected(source)))?,
                ))
            }
        };
        let mut wire = Wire {
            stream,
            parser: Parser::new(),
            generation,
            proven: false,
            process: None,
        };
        self.log_in(&mut wire, deadline)?;
        Ok(wire)
    }

    /// Whether the server may be another one the next time.
    fn may_move(&self) -> bool {
        matches!(self.address, Address::Master(_))
    }

    /// Whether nothing has been heard since `wire` was opened by which it should be of no use any more.
    pub(super) fn is_current(&self, wire: &Wire) -> bool {
        wire.generation == self.generation.load(Ordering::SeqCst)
    }

    /// Notes that connections as old as `wire` are of no use any more. Only the first of a generation raises it,
    /// whoever else finds out.
    fn supersede(&self, wire: &Wire) {
        let (old, new) = (wire.generation, wire.generation + 1);
        let _ = self
            .generation
            .compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Says who we are and which database we mean, in one round trip, if there is anything to say.
    fn log_in(&self, wire: &mut Wire, deadline: Instant) -> Result<(), Failure> {
        let mut commands = Vec::new();
        if let Some(password) = self.login.password() {
            let mut auth = redis::cmd("AUTH");
            auth.arg(self.login.username()).arg(password);
            commands.push(auth);
        }
        if self.login.db() != 0 {
            let mut select = redis::cmd("SELECT");
            select.arg(self.login.db());
            commands.push(select);
        }
        if commands.is_empty() {
            return match &self.tls {
                None => Ok(()),
                Some(_) => self.await_consent(wire, deadline),
            };
        }
        let replies = wire
            .exchange(&commands, deadline)
            .map_err(|error| unanswered(error).before_the_request())?;
        for (nth, reply) in replies.into_iter().enumerate() {
            let failure = match reply {
                Value::Okay => continue,
                Value::ServerError(error) if nth == 0 && self.login.password().is_some() || self.gives_away(&error) => {
                    reply::auth_failure(&error)
                }
                Value::ServerError(error) => reply::failure(error),
                // A banner, say: the answer that repeats the password would come next, as that to the request.
                _ => Failure::Refused(because("the answer to AUTH or SELECT was neither OK nor an error")),
            };
            return Err(match failure {
                Failure::Unready(why) => Failure::Unreachable(why),
                Failure::Refused(why) => Failure::Denied(why),
                other => other,
            });
        }
        Ok(())
    }

    /// Hears what the server makes of our certificate, or that we have none: in TLS 1.3 it says so only after the
    /// handshake. A request that it refuses in that way would look like one that was cut off and may have run.
    fn await_consent(&self, wire: &mut Wire, deadline: Instant) -> Result<(), Failure> {
        let replies = wire
            .exchange([&redis::cmd("PING")], deadline)
            .map_err(|error| unanswered(error).before_the_request())?;
        // Whatever else it has to say, it says to the request too.
        match replies.iter().find_map(reply::turned_away) {
            Some(refusal) => Err(Failure::Unreachable(reply::in_its_words(&refusal))),
            None => Ok(()),
        }
    }

    /// Whether an error repeats the password, as it may if the answers are not to the requests that they seem to be.
    pub(super) fn gives_away(&self, error: &ServerError) -> bool {
        let secret = self
            .login
            .password()
            .filter(|password| password.len() >= SHORTEST_SECRET);
        secret.is_some_and(|secret| error.details().is_some_and(|details| details.contains(secret)))
    }
}

/// A place for a connection: open, or to be opened by the next request.
pub(in crate::store) struct Connection {
    opener: Arc<Opener>,
    wire: Option<Wire>,
}

impl Connection {
    pub(super) fn closed(opener: Arc<Opener>) -> Self {
        Self { opener, wire: None }
    }

    pub(super) fn is_open(&self) -> bool {
        self.wire.is_some()
    }

    /// Opens it by `deadline`, unless it is open and fit for use. Tells whether it had to.
    pub(in crate::store) fn open(&mut self, deadline: Instant) -> Result<bool, Failure> {
        let opens = !self.is_fit();
        if opens {
            self.wire = Some(self.opener.open(deadline)?);
        }
        Ok(opens)
    }

    /// Tells whether it is open and fit for use; one that is not is closed.
    pub(in crate::store) fn is_fit(&mut self) -> bool {
        self.wire = self.fit_wire();
        self.is_open()
    }

    /// Who answers on it, if it is open and that was [noted](Self::note_process) since it was opened.
    pub(in crate::store) fn process(&self) -> Option<&Arc<Sighting>> {
        self.wire.as_ref()?.process.as_ref()
    }

    /// Notes who answers on it: as long as the connection stands, nobody else does.
    pub(in crate::store) fn note_process(&mut self, process: Arc<Sighting>) {
        if let Some(wire) = &mut self.wire {
            wire.process = Some(process);
        }
    }

    /// What hangs it up, if it is open.
    pub(super) fn hanger_up(&self) -> Option<HangUp> {
        self.wire.as_ref().map(Wire::hanger_up)
    }

    /// Takes the wire out, if it is fit for use. One that is dead already must not be sent anything: whether that ran
    /// could not be known, while a request that was never sent has certainly not run.
    fn fit_wire(&mut self) -> Option<Wire> {
        let mut wire = self.wire.take()?;
        (self.opener.is_current(&wire) && wire.stream.is_quiet()).then_some(wire)
    }

    /// Sends `commands` at once and returns their replies, server errors among them, by `deadline`. It has to be open.
    ///
    /// After any failure the connection is closed: an overdue reply must never be taken for the answer to a
    /// later request. It is closed as well when the server says that it is not (or no longer) the one to ask.
    pub(super) fn exchange<'a>(
        &mut self,
        commands: impl IntoIterator<Item = &'a Cmd>,
        deadline: Instant,
    ) -> Result<Vec<Value>, Failure> {
        let sent = self.send(commands, deadline)?;
        self.receive(sent, deadline)
    }

    /// Sends `commands`, the first half of an [`exchange`](Self::exchange): until the other half the connection is
    /// closed.
    fn send<'a>(&mut self, commands: impl IntoIterator<Item = &'a Cmd>, deadline: Instant) -> Result<Sent, Failure> {
        let Some(mut wire) = self.wire.take() else {
            return Err(Failure::Cut(because("the connection broke")));
        };
        match wire.send(commands, deadline) {
            Ok(awaited) => Ok(Sent { wire, awaited }),
            Err(error) => Err(self.broken(&wire, error)),
        }
    }

    /// Reads the replies to what was sent, the second half of an [`exchange`](Self::exchange).
    fn receive(&mut self, Sent { mut wire, awaited }: Sent, deadline: Instant) -> Result<Vec<Value>, Failure> {
        match wire.receive_all(awaited, deadline) {
            Ok(replies) => {
                let gives_away =
                    |reply: &Value| matches!(reply, Value::ServerError(error) if self.opener.gives_away(error));
                if replies.iter().any(gives_away) {
                    return Err(Failure::Cut(because(
                        "the server's answer repeats the password, so it is not shown",
                    )));
                }
                if let Some(refusal) = replies.iter().find_map(reply::turned_away) {
                    return Err(Failure::Unreachable(reply::in_its_words(&refusal)));
                }
                if replies.iter().any(reply::sends_away) {
                    self.opener.supersede(&wire);
                } else {
                    wire.proven = true;
                    self.wire = Some(wire);
                }
                Ok(replies)
            }
            Err(error) => Err(self.broken(&wire, error)),
        }
    }

    /// What it means that `wire` failed.
    fn broken(&self, wire: &Wire, error: RedisError) -> Failure {
        // A master that is silent may have been replaced.
        let moved = error.is_timeout() && self.opener.may_move();
        if moved || wire.proven && error.is_connection_dropped() {
            self.opener.supersede(wire);
        }
        if wire.stream.wants_tls() {
            return Failure::Unreachable(Arc::new(Flat(error)));
        }
        unanswered(error)
    }
}

/// A request that was sent, and whose replies are still to come.
struct Sent {
    wire: Wire,
    awaited: usize,
}

/// How long the replies that have come by the deadline may take to be read.
const GRACE: Duration = Duration::from_millis(5);

/// Makes an exchange on each of several connections, all at once: sends to all, then collects. What has come by the
/// deadline is read, however late this thread gets to it.
pub(super) fn exchange_all<'a, C: IntoIterator<Item = &'a Cmd>>(
    requests: impl Iterator<Item = (&'a mut Connection, C)>,
    deadline: Instant,
) -> Vec<Result<Vec<Value>, Failure>> {
    let send = |(connection, commands): (&'a mut Connection, C)| {
        let sent = connection.send(commands, deadline);
        (connection, sent)
    };
    let sent: Vec<_> = requests.map(send).collect();
    let receive = |(connection, sent): (&mut Connection, Result<Sent, Failure>)| {
        let mut sent = sent?;
        let now = Instant::now();
        let has_come = now >= deadline && !sent.wire.stream.is_quiet();
        connection.receive(sent, if has_come { now + GRACE } else { deadline })
    };
    // The last that was asked is likely the last to answer: so this thread sleeps once, and not once for each.
    let mut answers: Vec<_> = sent.into_iter().rev().map(receive).collect();
    answers.reverse();
    answers
}

/// An open connection.
pub(super) struct Wire {
    stream: Stream,
    /// Keeps what was read of the next reply.
    parser: Parser,
    generation: u64,
    /// Whether a request was answered on it.
    proven: bool,
    /// Who answers on it, once somebody has asked.
    process: Option<Arc<Sighting>>,
}

impl Wire {
    fn exchange<'a>(
        &mut self,
        commands: impl IntoIterator<Item = &'a Cmd>,
        deadline: Instant,
    ) -> RedisResult<Vec<Value>> {
        let sent = self.send(commands, deadline)?;
        self.receive_all(sent, deadline)
    }

    fn receive_all(&mut self, awaited: usize, deadline: Instant) -> RedisResult<Vec<Value>> {
        (0..awaited).map(|_| self.receive(deadline)).collect()
    }

    /// Sends `commands` by `deadline`; returns how many they were.
    pub(super) fn send<'a>(
        &mut self,
        commands: impl IntoIterator<Item = &'a Cmd>,
        deadline: Instant,
    ) -> RedisResult<usize> {
        let (mut bytes, mut sent) = (Vec::with_capacity(512), 0);
        for command in commands {
            command.write_packed_command(&mut bytes);
            sent += 1;
        }
        self.stream.set_deadline(deadline);
        self.stream.write_all(&bytes)?;
        Ok(sent)
    }

    /// Reads one reply, or message, by `deadline`. After a timeout it may be called again: what had come of it is kept.
    pub(super) fn receive(&mut self, deadline: Instant) -> RedisResult<Value> {
        self.stream.set_deadline(deadline);
        self.parser.parse_value(&mut self.stream)
    }

    pub(super) fn hanger_up(&self) -> HangUp {
        self.stream.hanger_up()
    }
}

/// Why a request's answer could not be read.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error("the connection broke")]
    Broken(#[source] Flat),
    #[error("the server's answer is not in the Redis protocol")]
    Nonsense(#[source] Flat),
}

/// An error of the client library, told once and in one line: its sources say the same again.
#[derive(Debug)]
struct Flat(RedisError);

impl fmt::Display for Flat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_string().trim().replace('\n', "; "))
    }
}

impl error::Error for Flat {}

/// What it means that a request's answer could not be read.
pub(super) fn unanswered(error: RedisError) -> Failure {
    if error.is_timeout() {
        Failure::Silent(Arc::new(Flat(error)))
    } else if error.is_io_error() {
        Failure::Cut(Arc::new(NoAnswer::Broken(Flat(error))))
    } else {
        Failure::Cut(Arc::new(NoAnswer::Nonsense(Flat(error))))
    }
}
