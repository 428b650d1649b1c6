//! A socket with a TLS session on it. Its reads and writes end at the socket's deadline, and when that is hung up.

use std::io::{self, Read, Write};

use rustls::ClientConnection;

use super::{super::socket::Socket, reason::explained};

pub(crate) struct SecureSocket {
    socket: Socket,
    session: ClientConnection,
}

impl SecureSocket {
    /// Begins the session. Nothing is sent to a server before it has proven who it is; whether it takes *our*
    /// certificate shows only at the first answer, in TLS 1.3.
    pub(super) fn shake_hands(socket: Socket, session: ClientConnection) -> io::Result<Self> {
        let mut secure = Self { socket, session };
        secure.send_pending()?;
        while secure.session.is_handshaking() {
            let read = secure.take_in().map_err(|error| match error.kind() {
                // Redis itself takes the first words of a handshake for the beginning of a long command.
                io::ErrorKind::TimedOut => io::Error::new(
                    error.kind(),
                    "no answer to the TLS handshake in time: does the server speak TLS at this port?",
                ),
                _ => error,
            })?;
            if read == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the server hung up in the TLS handshake: does it speak TLS at this port?",
                ));
            }
            secure.send_pending()?;
        }
        Ok(secure)
    }

    pub(in super::super) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(in super::super) fn socket_mut(&mut self) -> &mut Socket {
        &mut self.socket
    }

    /// As [`Socket::is_quiet`]. What is not said to us but to the session, such as a ticket for another one, does not
    /// count; neither does half a record.
    pub(in super::super) fn is_quiet(&mut self) -> bool {
        loop {
            match self.session.process_new_packets() {
                Ok(state) if state.plaintext_bytes_to_read() == 0 && !state.peer_has_closed() => {}
                _ => return false,
            }
            match self.session.read_tls(&mut AtOnce(&self.socket)) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
            }
        }
    }

    /// Reads once, waiting for it, and returns how much came.
    fn take_in(&mut self) -> io::Result<usize> {
        let read = self.session.read_tls(&mut self.socket)?;
        if let Err(error) = self.session.process_new_packets() {
            // It is told why. That it cannot be is not worth a word beside the reason.
            let _ = self.session.write_tls(&mut self.socket);
            return Err(explained(error));
        }
        Ok(read)
    }

    /// Sends what the session has to say, whether it is our words or its own.
    fn send_pending(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            if let Err(error) = self.session.write_tls(&mut self.socket) {
                return Err(self.last_word().unwrap_or(error));
            }
        }
        Ok(())
    }

    /// Why the server hung up, if it has said so.
    fn last_word(&mut self) -> Option<io::Error> {
        while self.session.read_tls(&mut AtOnce(&self.socket)).ok()? > 0 {
            if let Err(error) = self.session.process_new_packets() {
                return Some(explained(error));
            }
        }
        None
    }
}

impl Read for SecureSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Whether it says goodbye before it hangs up makes no difference: every reply tells where it ends.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                result => return result,
            }
            // New keys may have been asked for.
            self.send_pending()?;
            self.take_in()?;
        }
    }
}

impl Write for SecureSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.session.writer().write(bytes)?;
        self.send_pending()?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads what has come already, and never waits.
struct AtOnce<'a>(&'a Socket);

impl Read for AtOnce<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read_at_once(buffer)
    }
}
