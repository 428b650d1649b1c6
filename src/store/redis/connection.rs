//! One connection: opened when first used, never used again after anything went wrong on it.

use std::{
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use redis::{Cmd, ConnectionAddr, ConnectionInfo, RedisConnectionInfo, Value, io::tcp::TcpSettings};

use super::reply;
use crate::store::{Because, Failure};

/// Opens connections to one server.
pub(super) struct Opener {
    address: ConnectionAddr,
    login: RedisConnectionInfo,
    connect_timeout: Duration,
    /// Raised when the server closes a connection: those opened before are likely dead as well (it was
    /// restarted, or an operator or a middlebox cut them off), so the next request on each opens anew.
    generation: AtomicU64,
}

impl Opener {
    pub(super) fn new(info: ConnectionInfo, connect_timeout: Duration) -> Self {
        Self {
            address: info.addr().clone(),
            login: info.redis_settings().clone(),
            connect_timeout,
            generation: AtomicU64::new(0),
        }
    }

    fn open(&self, deadline: Instant) -> Result<Wire, Failure> {
        let deadline = deadline.min(Instant::now() + self.connect_timeout);
        let generation = self.generation.load(Ordering::SeqCst);
        let stream = self
            .connect(deadline)
            .map_err(|error| Failure::Unreachable(Box::new(error)))?;
        let mut wire = Wire {
            stream,
            generation,
            armed: None,
        };
        self.log_in(&mut wire, deadline)?;
        Ok(wire)
    }

    fn connect(&self, deadline: Instant) -> redis::RedisResult<redis::Connection> {
        let ConnectionAddr::Tcp(host, port) = &self.address else {
            // A Unix socket's connect knows no timeout either: it blocks while a stopped server's backlog is full.
            let (address, left) = (self.address.clone(), remaining(deadline)?);
            return give_up_at(deadline, "connecting", move || connect_to(address, left))?;
        };
        let addresses = resolve(host, *port, deadline)?;
        let mut last = io::Error::new(io::ErrorKind::NotFound, format!("no address for `{host}`")).into();
        for (tried, address) in addresses.iter().enumerate() {
            // Each gets its share of the time, so that a dead address leaves some for a live one.
            let share = remaining(deadline)? / (addresses.len() - tried) as u32;
            match connect_to(ConnectionAddr::Tcp(address.ip().to_string(), address.port()), share) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Says who we are and which database we mean, in one round trip, if there is anything to say. Done here because
    /// redis-rs's own handshake waits the whole timeout once for each of its commands.
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
            return Ok(());
        }
        let replies = wire
            .exchange(&commands, deadline)
            .map_err(|error| match unanswered(error) {
                Failure::Cut(source) => Failure::Unreachable(source),
                silent => silent,
            })?;
        for reply in replies {
            if let Value::ServerError(error) = reply {
                return Err(if reply::passes(&error) {
                    Failure::Unreachable(Box::new(error))
                } else {
                    Failure::Denied(Box::new(error))
                });
            }
        }
        Ok(())
    }
}

/// A place for a connection: open, or to be opened by the next request.
pub(super) struct Connection {
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

    /// Sends `commands` at once and returns their replies, server errors among them, by `deadline`.
    ///
    /// After any failure the connection is closed: an overdue reply must never be taken for the answer to a
    /// later request. It is closed as well when the server says that it is not (or no longer) the one to ask.
    pub(super) fn exchange(&mut self, commands: &[Cmd], deadline: Instant) -> Result<Vec<Value>, Failure> {
        let current = self.opener.generation.load(Ordering::SeqCst);
        let mut wire = match self.wire.take() {
            Some(wire) if wire.generation == current => wire,
            _ => self.opener.open(deadline)?,
        };
        match wire.exchange(commands, deadline) {
            Ok(replies) => {
                if !replies.iter().any(reply::sends_away) {
                    self.wire = Some(wire);
                }
                Ok(replies)
            }
            Err(error) => {
                if error.is_connection_dropped() {
                    // Only the first of a generation raises it, whoever else finds its connection dead.
                    let _ = self.opener.generation.compare_exchange(
                        wire.generation,
                        wire.generation + 1,
                        Ordering::SeqCst,
                        Ordering::SeqCst,
                    );
                }
                Err(unanswered(error))
            }
        }
    }
}

/// An open connection.
struct Wire {
    stream: redis::Connection,
    generation: u64,
    /// The timeout that the socket has now.
    armed: Option<Duration>,
}

impl Wire {
    fn exchange(&mut self, commands: &[Cmd], deadline: Instant) -> redis::RedisResult<Vec<Value>> {
        let mut bytes = Vec::new();
        for command in commands {
            command.write_packed_command(&mut bytes);
        }
        self.arm(deadline)?;
        self.stream.send_packed_command(&bytes)?;
        let mut replies = Vec::with_capacity(commands.len());
        for _ in commands {
            self.arm(deadline)?;
            replies.push(self.stream.recv_response()?);
        }
        Ok(replies)
    }

    /// Sets the socket's timeouts to what is left, in whole milliseconds: usually they stand there already.
    fn arm(&mut self, deadline: Instant) -> redis::RedisResult<()> {
        let left = Duration::from_millis(remaining(deadline)?.as_nanos().div_ceil(1_000_000) as u64);
        if self.armed != Some(left) {
            self.stream.set_read_timeout(Some(left))?;
            self.stream.set_write_timeout(Some(left))?;
            self.armed = Some(left);
        }
        Ok(())
    }
}

/// What it means that a request's answer could not be read.
fn unanswered(error: redis::RedisError) -> Failure {
    if error.is_timeout() {
        // The system's own words are "resource temporarily unavailable".
        Failure::Silent(Box::new(Because("the server did not answer in time".into())))
    } else {
        Failure::Cut(Box::new(error))
    }
}

fn remaining(deadline: Instant) -> io::Result<Duration> {
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::Error::new(io::ErrorKind::TimedOut, "timed out")),
        left => Ok(left),
    }
}

/// Connects without a word: no credentials and no name, so that redis-rs sends nothing of its own.
fn connect_to(address: ConnectionAddr, timeout: Duration) -> redis::RedisResult<redis::Connection> {
    let info = redis::IntoConnectionInfo::into_connection_info(address)?
        .set_tcp_settings(TcpSettings::default().set_nodelay(true))
        .set_redis_settings(RedisConnectionInfo::default().set_skip_set_lib_name());
    redis::Client::open(info)?.get_connection_with_timeout(timeout)
}

fn resolve(host: &str, port: u16, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let name = host.to_owned();
    // The system's resolver knows no deadline.
    let found = give_up_at(deadline, "looking up the host", move || (name, port).to_socket_addrs());
    Ok(found??.collect())
}

/// Runs a system call that cannot be given a deadline on a thread of its own, which stays behind if it comes too late.
fn give_up_at<T: Send + 'static>(
    deadline: Instant,
    what: &str,
    call: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new().name("redlatch-connect".into()).spawn(move || {
        // Nobody listens any more once the deadline has passed.
        let _ = sender.send(call());
    })?;
    let left = deadline.saturating_duration_since(Instant::now());
    let too_late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("{what} timed out"));
    receiver.recv_timeout(left).map_err(too_late)
}
