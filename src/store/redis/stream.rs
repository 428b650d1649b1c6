//! What a connection reads from and writes to: a socket, with or without TLS on it.

use std::{
    io::{self, Read, Write},
    time::Instant,
};

use redis::RedisError;

use super::{
    socket::{HangUp, Socket},
    tls::SecureSocket,
};

pub(super) enum Stream {
    Plain {
        socket: Socket,
        /// Whether nothing has been read yet.
        fresh: bool,
    },
    Secure(Box<SecureSocket>),
}

/// The server answers in TLS: it did not understand, let alone run, what it was sent.
#[derive(Debug, thiserror::Error)]
#[error("the server speaks TLS at this port: write `rediss://` in the URL, or set `tls`")]
struct SpeaksTls;

/// How a TLS alert begins: its type, and the version, of which the first half has never changed.
const ALERT: [u8; 2] = [21, 3];

/// Whether a request was never understood, since the server speaks TLS.
pub(super) fn needs_tls(error: &RedisError) -> bool {
    let source = std::error::Error::source(error);
    let io = source.and_then(|source| source.downcast_ref::<io::Error>());
    io.and_then(io::Error::get_ref)
        .is_some_and(|inner| inner.is::<SpeaksTls>())
}

impl Stream {
    pub(super) fn plain(socket: Socket) -> Self {
        Self::Plain { socket, fresh: true }
    }

    /// Whether the peer has neither hung up nor sent anything that was not read yet. If it has, whatever is sent now
    /// gets no answer, or a wrong one.
    pub(super) fn is_quiet(&mut self) -> bool {
        match self {
            Self::Plain { socket, .. } => socket.is_quiet(),
            Self::Secure(socket) => socket.is_quiet(),
        }
    }

    pub(super) fn hanger_up(&self) -> HangUp {
        match self {
            Self::Plain { socket, .. } => socket.hanger_up(),
            Self::Secure(socket) => socket.socket().hanger_up(),
        }
    }

    /// Sets by when what follows must be done.
    pub(super) fn set_deadline(&mut self, deadline: Instant) {
        match self {
            Self::Plain { socket, .. } => socket.set_deadline(deadline),
            Self::Secure(socket) => socket.socket_mut().set_deadline(deadline),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain { socket, fresh } => {
                let read = socket.read(buffer)?;
                if std::mem::take(fresh) && buffer[..read].starts_with(&ALERT) {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, SpeaksTls));
                }
                Ok(read)
            }
            Self::Secure(socket) => socket.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain { socket, .. } => socket.write(bytes),
            Self::Secure(socket) => socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
