//! What stands in for TLS in a build without it: nothing of this can exist.

use std::io::{self, Read, Write};

use redis::ConnectionAddr;

use super::{super::socket::Socket, TlsSettings};
use crate::Error;

#[derive(Clone)]
pub(crate) enum Tls {}

pub(crate) enum SecureSocket {}

impl Tls {
    pub(super) fn new(_: &TlsSettings) -> Result<Self, Error> {
        Err(Error::Unsupported(
            "this build has no TLS: it needs redlatch's feature `tls`".to_owned(),
        ))
    }

    pub(in super::super) fn secure(&self, _: Socket, _: &ConnectionAddr) -> io::Result<SecureSocket> {
        match *self {}
    }
}

impl SecureSocket {
    pub(in super::super) fn socket(&self) -> &Socket {
        match *self {}
    }

    pub(in super::super) fn socket_mut(&mut self) -> &mut Socket {
        match *self {}
    }

    pub(in super::super) fn is_quiet(&mut self) -> bool {
        match *self {}
    }
}

impl Read for SecureSocket {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }
}

impl Write for SecureSocket {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match *self {}
    }
}
