//! A TCP relay that knows nothing of what it passes on, and does not always pass it on.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use super::support::millis;

/// Stands before a server until the test ends: its threads are left to themselves.
pub struct Relay {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    swallows: AtomicBool,
    /// Whether what the server says comes byte by byte, with pauses.
    trickles: AtomicBool,
    opened: AtomicU64,
}

impl Relay {
    pub fn to(server_port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::<State>::default();
        let shared = state.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                shared.opened.fetch_add(1, Ordering::SeqCst);
                let _ = shared.open(client, server_port);
            }
        });
        Self { port, state }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on, or until `false`, accepts connections and swallows what comes from either side.
    pub fn swallow(&self, on: bool) {
        self.state.swallows.store(on, Ordering::SeqCst);
    }

    /// From now on, or until `false`, passes on what the server says one byte after the other.
    pub fn trickle(&self, on: bool) {
        self.state.trickles.store(on, Ordering::SeqCst);
    }

    /// How many connections were opened.
    pub fn opened(&self) -> u64 {
        self.state.opened.load(Ordering::SeqCst)
    }
}

impl State {
    fn open(self: &Arc<Self>, client: TcpStream, server_port: u16) -> io::Result<()> {
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server_port))?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        for (from, to, from_server) in [
            (client.try_clone()?, server.try_clone()?, false),
            (server, client, true),
        ] {
            let state = self.clone();
            thread::spawn(move || {
                let _ = state.pump(&from, &to, from_server);
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
            });
        }
        Ok(())
    }

    fn pump(&self, mut from: &TcpStream, mut to: &TcpStream, from_server: bool) -> io::Result<()> {
        const PAUSE: Duration = millis(20);
        let mut buffer = [0; 16 * 1024];
        loop {
            let read = from.read(&mut buffer)?;
            if read == 0 {
                return Ok(());
            }
            if self.swallows.load(Ordering::SeqCst) {
                continue;
            }
            let pieces = if from_server && self.trickles.load(Ordering::SeqCst) {
                1
            } else {
                read
            };
            for piece in buffer[..read].chunks(pieces) {
                to.write_all(piece)?;
                if pieces < read {
                    thread::sleep(PAUSE);
                }
            }
        }
    }
}
