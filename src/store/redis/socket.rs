//! A socket whose every read and write ends at one deadline.
//!
//! The timeouts of the system's sockets are not enough for that: they begin anew with each byte that trickles in, and
//! a signal handler, or the end of a stop, breaks off a call that has one.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs},
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use redis::ConnectionAddr;
use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};

use crate::signals;

pub(super) struct Socket {
    line: Arc<Line>,
    deadline: Instant,
    /// The timeout that the stream has now.
    armed: Option<Duration>,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

struct Line {
    stream: Stream,
    hung_up: AtomicBool,
}

/// Ends whatever is read from or written to a socket, now and later, from another thread.
pub(super) struct HangUp(Arc<Line>);

impl HangUp {
    pub(super) fn hang_up(&self) {
        self.0.hung_up.store(true, Ordering::SeqCst);
        // One that the peer has closed already needs no more.
        let _ = match &self.0.stream {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Socket {
    /// Connects by `deadline`.
    pub(super) fn connect(address: &ConnectionAddr, deadline: Instant, aside: &Aside) -> io::Result<Self> {
        let stream = match address {
            ConnectionAddr::Tcp(host, port) => Stream::Tcp(connect_tcp(host, *port, deadline, aside)?),
            ConnectionAddr::Unix(path) => {
                let path = path.clone();
                // It blocks while the backlog of a stopped server is full.
                let connected = aside.run(deadline, move || uninterrupted(|| UnixStream::connect(&path)));
                Stream::Unix(connected??)
            }
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        let hung_up = AtomicBool::new(false);
        Ok(Self {
            line: Arc::new(Line { stream, hung_up }),
            deadline,
            armed: None,
        })
    }

    /// Whether the peer has neither hung up nor sent anything that was not read yet. If it has, whatever is sent now
    /// gets no answer, or a wrong one.
    pub(super) fn is_quiet(&self) -> bool {
        let mut byte = [0_u8];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = match &self.line.stream {
            Stream::Tcp(stream) => recv(stream, &mut byte, flags),
            Stream::Unix(stream) => recv(stream, &mut byte, flags),
        };
        matches!(peeked, Err(Errno::WOULDBLOCK | Errno::INTR))
    }

    pub(super) fn is_tcp(&self) -> bool {
        matches!(self.line.stream, Stream::Tcp(_))
    }

    /// Reads what has come already, without waiting.
    #[cfg(feature = "tls")]
    pub(super) fn read_at_once(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let flags = RecvFlags::DONTWAIT;
        let (read, _) = match &self.line.stream {
            Stream::Tcp(stream) => recv(stream, buffer, flags)?,
            Stream::Unix(stream) => recv(stream, buffer, flags)?,
        };
        Ok(read)
    }

    pub(super) fn hanger_up(&self) -> HangUp {
        HangUp(self.line.clone())
    }

    /// Sets by when what follows must be done.
    pub(super) fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    /// Makes `call` with what is left of the time, as often as it is interrupted.
    fn in_time<T>(&mut self, mut call: impl FnMut(&Stream) -> io::Result<T>) -> io::Result<T> {
        let result = uninterrupted(|| {
            self.arm()?;
            call(&self.line.stream)
        });
        if self.line.hung_up.load(Ordering::SeqCst) {
            return Err(io::Error::other("the request was broken off"));
        }
        result.map_err(|error| match error.kind() {
            // What the system calls "resource temporarily unavailable".
            io::ErrorKind::WouldBlock => timed_out(),
            _ => error,
        })
    }

    /// Sets the stream's timeouts to what is left, in whole milliseconds: usually they stand there already.
    fn arm(&mut self) -> io::Result<()> {
        let left = Duration::from_millis(left(self.deadline)?.as_nanos().div_ceil(1_000_000) as u64);
        if self.armed != Some(left) {
            match &self.line.stream {
                Stream::Tcp(stream) => {
                    stream.set_read_timeout(Some(left))?;
                    stream.set_write_timeout(Some(left))?;
                }
                Stream::Unix(stream) => {
                    stream.set_read_timeout(Some(left))?;
                    stream.set_write_timeout(Some(left))?;
                }
            }
            self.armed = Some(left);
        }
        Ok(())
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.in_time(|stream| match stream {
            Stream::Tcp(stream) => (&*stream).read(buffer),
            Stream::Unix(stream) => (&*stream).read(buffer),
        })
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.in_time(|stream| match stream {
            Stream::Tcp(stream) => (&*stream).write(bytes),
            Stream::Unix(stream) => (&*stream).write(bytes),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn connect_tcp(host: &str, port: u16, deadline: Instant, aside: &Aside) -> io::Result<TcpStream> {
    let addresses = resolve(host, port, deadline, aside)?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for (tried, address) in addresses.iter().enumerate() {
        // Each gets its share of the time, so that a dead address leaves some for a live one.
        let share = left(deadline)? / (addresses.len() - tried) as u32;
        match TcpStream::connect_timeout(address, share) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn resolve(host: &str, port: u16, deadline: Instant, aside: &Aside) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let name = host.to_owned();
    // The system's resolver knows no deadline.
    let found = aside.run(deadline, move || (name, port).to_socket_addrs());
    Ok(found??.collect())
}

/// Runs system calls that cannot be given a deadline on threads of their own, which stay behind if they come too late.
#[derive(Default)]
pub(super) struct Aside {
    under_way: Arc<()>,
}

/// How many such threads there may be; a system that answers none of them will not answer one more.
const MOST_ASIDE: usize = 16;

impl Aside {
    fn run<T: Send + 'static>(&self, deadline: Instant, call: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let place = self.under_way.clone();
        if Arc::strong_count(&place) - 1 > MOST_ASIDE {
            return Err(io::Error::other("too many earlier attempts are still under way"));
        }
        let (sender, receiver) = mpsc::channel();
        let thread = thread::Builder::new().name("redlatch-connect".into());
        signals::blocked(|| {
            thread.spawn(move || {
                // Nobody listens any more once the deadline has passed.
                let _ = sender.send(call());
                drop(place);
            })
        })?;
        receiver.recv_timeout(left(deadline)?).map_err(|_| timed_out())
    }
}

fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn left(deadline: Instant) -> io::Result<Duration> {
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(timed_out()),
        left => Ok(left),
    }
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time")
}
