//! What a connection reads from and writes to: a socket, with or without TLS on it.

use std::{
    io::{self, Read, Write},
    time::Instant,
};

use super::{
    socket::{HangUp, Socket},
    tls::SecureSocket,
};

pub(super) enum Stream {
    Plain { socket: Socket, peer: Peer },
    Secure(Box<SecureSocket>),
}

const SPEAKS_TLS: &str = "the server speaks TLS at this port: write `rediss://` in the URL, or set `tls`";

/// What OpenSSL does, and so Redis does, when it is spoken to without TLS: it hangs up. But others do so as well.
const NOT_A_WORD: &str =
    "the server hung up without a word (if it speaks TLS at this port, write `rediss://` in the URL, or set `tls`)";

/// How a TLS alert begins: its type, and the version, of which the first half has never changed.
const ALERT: [u8; 2] = [21, 3];

/// What is known of a server that is spoken to in the clear.
pub(super) enum Peer {
    /// It has not said anything yet, and may turn out to want TLS.
    Stranger,
    /// It answers in TLS: it did not understand, let alone run, what it was sent.
    SpeaksTls,
    Known,
}

impl Stream {
    pub(super) fn plain(socket: Socket) -> Self {
        Self::Plain {
            peer: if socket.is_tcp() { Peer::Stranger } else { Peer::Known },
            socket,
        }
    }

    /// Whether the server answers in TLS, unasked, so that nothing it was sent has run.
    pub(super) fn wants_tls(&self) -> bool {
        matches!(
            self,
            Self::Plain {
                peer: Peer::SpeaksTls,
                ..
            }
        )
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
            Self::Plain { socket, peer } => {
                let outcome = socket.read(buffer);
                if !matches!(peer, Peer::Stranger) {
                    return outcome;
                }
                *peer = Peer::Known;
                match outcome {
                    Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, NOT_A_WORD)),
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                        Err(io::Error::new(error.kind(), NOT_A_WORD))
                    }
                    Ok(read) if buffer[..read].starts_with(&ALERT) => {
                        *peer = Peer::SpeaksTls;
                        Err(io::Error::new(io::ErrorKind::InvalidData, SPEAKS_TLS))
                    }
                    outcome => outcome,
                }
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
