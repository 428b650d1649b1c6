use std::io;

/// A free TCP port of 127.0.0.1, chosen by the kernel.
///
/// On Linux it stays ours: a bound socket that never listens keeps the kernel from giving the port
/// to anybody else, while a server that sets `SO_REUSEADDR` (Redis, Valkey and `TcpListener` all do)
/// can still listen there. As long as none does, connecting is refused, as with a dead server, and
/// a server that comes back finds its port free. Elsewhere the port is only likely to stay free.
pub struct ReservedPort {
    number: u16,
    #[cfg(target_os = "linux")]
    _bound: std::os::fd::OwnedFd,
}

impl ReservedPort {
    pub fn number(&self) -> u16 {
        self.number
    }

    #[cfg(not(target_os = "linux"))]
    pub fn reserve() -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        Ok(Self {
            number: listener.local_addr()?.port(),
        })
    }

    #[cfg(target_os = "linux")]
    pub fn reserve() -> io::Result<Self> {
        use std::mem::size_of;
        use std::net::{Ipv4Addr, TcpListener};
        use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

        fn check(result: libc::c_int) -> io::Result<libc::c_int> {
            if result < 0 {
                Err(io::Error::last_os_error())
            } else {
                Ok(result)
            }
        }

        // SAFETY: the call takes no pointers.
        let fd = check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: `fd` is a fresh descriptor that nothing else owns.
        let bound = unsafe { OwnedFd::from_raw_fd(fd) };

        let on: libc::c_int = 1;
        // SAFETY: the option's value is a c_int that outlives the call, and so is its size.
        check(unsafe {
            libc::setsockopt(
                bound.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_REUSEADDR,
                (&raw const on).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        })?;

        let address = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: 0,
            sin_addr: libc::in_addr {
                s_addr: u32::from(Ipv4Addr::LOCALHOST).to_be(),
            },
            sin_zero: [0; 8],
        };
        // SAFETY: `address` is an initialised sockaddr_in, its length is its own, and it outlives the call.
        check(unsafe {
            libc::bind(
                bound.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_in>() as libc::socklen_t,
            )
        })?;

        // Borrows std's getsockname; a socket that does not listen answers it as well.
        let number = TcpListener::from(bound.try_clone()?).local_addr()?.port();
        Ok(Self { number, _bound: bound })
    }
}
