//! A server of the tests' own, which says over TLS what no real one can be made to say.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use redlatch::Client;
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use super::support::{SECOND, tls::Authority, wait_until};

const PATIENCE: Duration = SECOND.saturating_mul(30);

type Session = BufReader<StreamOwned<ServerConnection, TcpStream>>;

/// What it does on the first connection, once it has granted a lock there.
type Deed = fn(&mut Session) -> io::Result<()>;

fn config(authority: &Authority) -> Arc<ServerConfig> {
    let identity = authority.server(&["127.0.0.1"]);
    let chain = vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth();
    Arc::new(builder.with_single_cert(chain, key).unwrap())
}

/// Reads a command and returns its name.
fn command(session: &mut Session) -> io::Result<String> {
    let mut line = String::new();
    let mut number = |session: &mut Session| -> io::Result<usize> {
        line.clear();
        session.read_line(&mut line)?;
        line.trim_start_matches(['*', '$'])
            .trim_end()
            .parse()
            .map_err(|_| io::ErrorKind::UnexpectedEof.into())
    };
    let mut words = Vec::new();
    for _ in 0..number(session)? {
        let mut word = vec![0; number(session)? + 2];
        session.read_exact(&mut word)?;
        words.push(String::from_utf8_lossy(&word).trim_end().to_owned());
    }
    Ok(words.swap_remove(0))
}

/// How many bytes the other end's system has not got yet.
fn not_received(socket: &TcpStream) -> libc::c_int {
    let mut count = 0;
    // SAFETY: the descriptor is open, and this request writes one int.
    assert_eq!(
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) },
        0
    );
    count
}

/// Has a lock granted and then released by a server that answers as it should, but for the deed in between. Returns how
/// many commands came on the first connection after that.
fn commands_after(deed: Deed) -> usize {
    let authority = Authority::new("authority");
    let config = config(&authority);
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let after = Arc::new(AtomicUsize::new(0));
    let (done, deeds) = mpsc::channel();
    // Only when the grant was read, so that nothing is read along with it.
    let (go_ahead, goes_ahead) = mpsc::channel::<()>();
    let (counted, goes_ahead) = (after.clone(), Arc::new(Mutex::new(goes_ahead)));
    thread::spawn(move || {
        for (nth, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let (config, done, after) = (config.clone(), done.clone(), counted.clone());
            let goes_ahead = goes_ahead.clone();
            thread::spawn(move || -> io::Result<()> {
                stream.set_nodelay(true)?;
                let session = ServerConnection::new(config).unwrap();
                let mut session = BufReader::new(StreamOwned::new(session, stream));
                let mut granted = false;
                loop {
                    let name = command(&mut session)?;
                    if granted && nth == 0 {
                        after.fetch_add(1, Ordering::SeqCst);
                    }
                    let answer: &[u8] = if name == "PING" { b"+PONG\r\n" } else { b":1\r\n" };
                    session.get_mut().write_all(answer)?;
                    session.get_mut().flush()?;
                    if nth == 0 && !granted && name == "EVALSHA" {
                        granted = true;
                        goes_ahead.lock().recv().unwrap();
                        deed(&mut session)?;
                        let socket = &session.get_ref().sock;
                        wait_until("the client to have it", PATIENCE, || not_received(socket) == 0);
                        done.send(()).unwrap();
                    }
                }
            });
        }
    });
    let client = Client::builder()
        .url(format!("rediss://{address}/"))
        .tls_ca(authority.pem());
    let client = client.build().unwrap();
    let guard = client.lock("x").try_acquire().unwrap().expect("a grant");
    go_ahead.send(()).unwrap();
    deeds.recv_timeout(PATIENCE).expect("the deed");
    guard.release().unwrap();
    after.load(Ordering::SeqCst)
}

#[test]
fn a_connection_on_which_something_was_said_unasked_is_not_used_again() {
    let deeds: [(&str, Deed); 4] = [
        ("data", |session| {
            session.get_mut().write_all(b"+unasked\r\n")?;
            session.get_mut().flush()
        }),
        // The connection below stays open.
        ("a goodbye", |session| {
            session.get_mut().conn.send_close_notify();
            session.get_mut().flush()
        }),
        ("what is no TLS", |session| {
            session.get_mut().sock.write_all(b"-ERR gone mad\r\n")
        }),
        ("a hang-up", |session| session.get_mut().sock.shutdown(Shutdown::Write)),
    ];
    for (what, deed) in deeds {
        assert_eq!(commands_after(deed), 0, "{what}");
    }
}

#[test]
fn what_concerns_the_session_only_is_no_reason_to_open_another_connection() {
    let renewal: Deed = |session| {
        session
            .get_mut()
            .conn
            .refresh_traffic_keys()
            .map_err(io::Error::other)?;
        session.get_mut().flush()
    };
    assert_eq!(commands_after(|_| Ok(())), 1);
    assert_eq!(commands_after(renewal), 1);
}

/// It is not known to be anything yet. The request that is sent then gets no answer that can be read, and is made again
/// on another connection.
#[test]
fn half_a_record_costs_a_connection_and_no_more() {
    let half: Deed = |session| session.get_mut().sock.write_all(&[23, 3, 3, 0, 100, 1, 2, 3]);
    let start = Instant::now();
    assert_eq!(commands_after(half), 1);
    assert!(start.elapsed() < PATIENCE);
}
