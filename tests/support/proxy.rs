mod resp;
mod rule;

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::port::ReservedPort;
use super::server::Server;
use super::time::{SECOND, wait_until};
use resp::{Request, read_reply, read_request, write_request};
use rule::{Matches, Rule};

pub use rule::{
    Fault, FaultHandle, RuleBuilder, Script, is_acquire, is_acquire_several, is_inspect, is_raise, is_registration,
    is_release, is_renew, is_set_limit, is_turn, is_withdraw, load_scripts, scripts,
};

/// How long the server may take to answer a request that had been held.
const PATIENCE: Duration = Duration::from_secs(10);

/// A TCP proxy in front of a [`Server`] that does what networks and stalled servers do, to the
/// command that a test picks.
///
/// Each connection goes one request and one reply at a time, so that a fault hits one command even
/// inside a pipeline. From a `SUBSCRIBE` on, bytes are relayed both ways as they come; of the faults
/// only the two cuts still work there.
///
/// Dropping it closes all connections and ends its threads.
pub struct Proxy {
    shared: Arc<Shared>,
    port: ReservedPort,
    url: String,
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

/// What the server is to be asked in place of a command, if not the same. For those that do not subscribe.
type Rewrite = Box<dyn Fn(&[Vec<u8>]) -> Option<Vec<Vec<u8>>> + Send + Sync>;

/// What the threads of a proxy share. No I/O is done with `state` locked.
struct Shared {
    server_port: u16,
    rewrite: Option<Rewrite>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    rules: Vec<Arc<Rule>>,
    black_hole: bool,
    accepting: bool,
    links: Vec<Link>,
    next_link: u64,
    /// Links with a lower id are to end.
    closed_below: u64,
    /// Links with a lower id are silent once they subscribe.
    muted_below: u64,
    /// The requests that are held back, by link. A link has one at most, since it then waits.
    held: BTreeMap<u64, Held>,
}

enum Held {
    Kept,
    Released,
    Answered(Vec<u8>),
    /// The connection to the server ended before the answer.
    Lost,
}

/// One proxied connection.
struct Link {
    client: TcpStream,
    server: TcpStream,
    thread: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy in front of `server`.
    pub fn to(server: &Server) -> Self {
        Self::start(server, None)
    }

    /// Starts a proxy that asks `server` something else: what `rewrite` makes of a command, if anything. Rules see the
    /// command as it came.
    pub fn rewriting(
        server: &Server,
        rewrite: impl Fn(&[Vec<u8>]) -> Option<Vec<Vec<u8>>> + Send + Sync + 'static,
    ) -> Self {
        Self::start(server, Some(Box::new(rewrite)))
    }

    fn start(server: &Server, rewrite: Option<Rewrite>) -> Self {
        let port = ReservedPort::reserve().expect("a free TCP port");
        let proxy = Self {
            shared: Arc::new(Shared {
                server_port: server.port(),
                rewrite,
                state: Mutex::default(),
                changed: Condvar::new(),
            }),
            url: server.url_at(port.number()),
            port,
            acceptor: Mutex::new(None),
        };
        proxy.go_up();
        proxy
    }

    /// The server's URL, through the proxy.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Begins a rule for the commands whose arguments, the command's name included, `matches`.
    ///
    /// A command counts once it has arrived. One that is answered by NOSCRIPT did nothing and does
    /// not count, nor does a fault strike it: the EVAL or second EVALSHA is the one that is meant.
    /// (`CutBefore` and `HoldRequest` strike before anyone can know that; load the script first.)
    pub fn on(&self, matches: impl Fn(&[Vec<u8>]) -> bool + Send + Sync + 'static) -> RuleBuilder<'_> {
        RuleBuilder::new(self, Box::new(matches))
    }

    fn add_rule(&self, rule: Rule) -> Arc<Rule> {
        let rule = Arc::new(rule);
        let rules = &mut self.shared.state.lock().rules;
        // A test may make thousands, and every command is held against all.
        rules.retain(Rule::is_needed);
        rules.push(Arc::clone(&rule));
        rule
    }

    /// How many requests are held back now.
    pub fn held(&self) -> usize {
        let state = self.shared.state.lock();
        let kept = |held: &&Held| matches!(held, Held::Kept);
        state.held.values().filter(kept).count()
    }

    /// Forwards the requests that [`Fault::HoldRequest`] kept, whether or not their clients are still
    /// there, and returns the server's replies, as they came, once all are in.
    ///
    /// Panics if the server does not answer, or answers NOSCRIPT: nothing was tested then.
    #[track_caller]
    pub fn release_held(&self) -> Vec<Vec<u8>> {
        let mut state = self.shared.state.lock();
        for held in state.held.values_mut() {
            *held = Held::Released;
        }
        self.shared.changed.notify_all();
        let open = |state: &mut State| state.held.values().any(|held| matches!(held, Held::Released));
        self.shared.changed.wait_while_for(&mut state, open, PATIENCE);
        let released = std::mem::take(&mut state.held);
        drop(state);

        let answer = |held| match held {
            Held::Answered(reply) => reply,
            _ => panic!("the server did not answer a request that had been held"),
        };
        let replies: Vec<Vec<u8>> = released.into_values().map(answer).collect();
        assert!(
            !replies.iter().any(|reply| resp::is_noscript(reply)),
            "the server did not know the script of a request that had been held"
        );
        replies
    }

    /// From now on, or until `false`, accepts connections and swallows what comes from either side.
    ///
    /// A connection of which a request was swallowed stays silent afterwards.
    pub fn black_hole(&self, on: bool) {
        self.shared.state.lock().black_hole = on;
    }

    /// From now on swallows what comes from either side of the connections that are open, if they are subscribed to
    /// something. They stay silent; others, and new ones, are not concerned.
    pub fn mute_subscribers(&self) {
        let mut state = self.shared.state.lock();
        state.muted_below = state.next_link;
    }

    /// Closes all connections, drops what is held, and refuses new connections.
    pub fn go_down(&self) {
        let mut acceptor = self.acceptor.lock();
        let Some(thread) = acceptor.take() else {
            return;
        };
        self.shared.state.lock().accepting = false;
        // Wakes the acceptor from its accept. If even that fails it is awake already.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port.number()));
        thread.join().expect("the proxy's acceptor");

        // No link can come up any more, so that these are all.
        let links = {
            let mut state = self.shared.state.lock();
            state.closed_below = state.next_link;
            std::mem::take(&mut state.links)
        };
        self.shared.changed.notify_all();
        for link in &links {
            link.close();
        }
        for link in links {
            link.thread.join().expect("a connection's thread");
        }
        self.shared.state.lock().held.clear();
    }

    /// Accepts connections again, at the same port.
    pub fn go_up(&self) {
        let mut acceptor = self.acceptor.lock();
        if acceptor.is_some() {
            return;
        }
        // A child of this process that is just being started, and has not come to its own program, still has it.
        let mut listener = None;
        wait_until("the proxy's port to be free", SECOND * 10, || {
            listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port.number())).ok();
            listener.is_some()
        });
        let listener = listener.expect("a port that is free");
        self.shared.state.lock().accepting = true;
        let shared = Arc::clone(&self.shared);
        *acceptor = Some(spawn("proxy-accept", move || accept(&shared, &listener)));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.go_down();
    }
}

impl Link {
    /// Ends the link's thread, whichever end it reads from or writes to.
    fn close(&self) {
        // Either end may be closed already.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn(run).expect("a thread")
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    for client in listener.incoming() {
        if !shared.state.lock().accepting {
            return;
        }
        // A client that is gone, or a server that is not there, costs only this connection.
        if let Ok(client) = client {
            let _ = open_link(shared, client);
        }
    }
}

fn open_link(shared: &Arc<Shared>, client: TcpStream) -> io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.server_port))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (client_end, server_end) = (client.try_clone()?, server.try_clone()?);

    let mut state = shared.state.lock();
    let id = state.next_link;
    state.next_link += 1;
    state.links.retain(|link| !link.thread.is_finished());
    let thread = spawn("proxy-link", {
        let shared = Arc::clone(shared);
        move || {
            // An error ends the connection at one end, which is the other's business too.
            let _ = Relay::new(&shared, id, &client_end, &server_end).run();
            let _ = client_end.shutdown(Shutdown::Both);
            let _ = server_end.shutdown(Shutdown::Both);
        }
    });
    state.links.push(Link { client, server, thread });
    Ok(())
}

/// What a link's thread works with.
struct Relay<'a> {
    shared: &'a Shared,
    id: u64,
    client: &'a TcpStream,
    server: &'a TcpStream,
    requests: BufReader<&'a TcpStream>,
    replies: BufReader<&'a TcpStream>,
}

impl<'a> Relay<'a> {
    fn new(shared: &'a Shared, id: u64, client: &'a TcpStream, server: &'a TcpStream) -> Self {
        Self {
            shared,
            id,
            client,
            server,
            requests: BufReader::new(client),
            replies: BufReader::new(server),
        }
    }

    /// Relays requests and replies in turn until one end closes.
    fn run(mut self) -> io::Result<()> {
        loop {
            let request = self.shared.rewritten(read_request(&mut self.requests)?);
            if self.shared.state.lock().black_hole {
                return self.stay_silent();
            }
            let matches = self.shared.match_rules(&request.args);
            match matches.fault() {
                Some(Fault::CutBefore) => {
                    self.close_client();
                    matches.hit();
                    return Ok(());
                }
                Some(Fault::HoldRequest) => {
                    if !self.hold(&matches) {
                        return Ok(());
                    }
                    let reply = self.ask(&request.raw);
                    self.shared.answered(self.id, reply.as_ref().ok());
                    // The client may have left long ago, with more requests in the pipe.
                    let _ = self.client.write_all(&reply?);
                    continue;
                }
                None if request.subscribes() => {
                    self.server.write_all(&request.raw)?;
                    return self.stream();
                }
                _ => {}
            }

            let reply = self.ask(&request.raw)?;
            if resp::is_noscript(&reply) {
                matches.take_back();
                self.client.write_all(&reply)?;
                continue;
            }
            if self.shared.state.lock().black_hole {
                return self.stay_silent();
            }
            match matches.fault() {
                Some(Fault::SwallowReply) => {
                    matches.hit();
                    return self.stay_silent();
                }
                Some(Fault::CutAfter) => {
                    self.close_client();
                    matches.hit();
                    return Ok(());
                }
                Some(Fault::Answer(bytes)) => {
                    matches.hit();
                    self.client.write_all(bytes.as_bytes())?;
                    continue;
                }
                Some(Fault::DelayReply(delay)) => {
                    matches.hit();
                    if !self.delay(delay) {
                        return Ok(());
                    }
                }
                _ => {}
            }
            self.client.write_all(&reply)?;
        }
    }

    /// Forwards a request and returns the reply to it.
    fn ask(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        self.server.write_all(request)?;
        read_reply(&mut self.replies)
    }

    fn close_client(&self) {
        // The client may have been quicker.
        let _ = self.client.shutdown(Shutdown::Both);
    }

    /// Reads on, without a word, until the client closes.
    fn stay_silent(&mut self) -> io::Result<()> {
        io::copy(&mut self.requests, &mut io::sink()).map(drop)
    }

    /// Waits for `release_held`. False if the link is to end instead.
    fn hold(&self, matches: &Matches) -> bool {
        let mut state = self.shared.state.lock();
        state.held.insert(self.id, Held::Kept);
        matches.hit();
        let waits =
            |state: &mut State| !state.is_closed(self.id) && matches!(state.held.get(&self.id), Some(Held::Kept));
        self.shared.changed.wait_while(&mut state, waits);
        !state.is_closed(self.id)
    }

    /// Waits for `delay` to pass. False if the link is to end instead.
    fn delay(&self, delay: Duration) -> bool {
        let until = Instant::now() + delay;
        let mut state = self.shared.state.lock();
        let open = |state: &mut State| !state.is_closed(self.id);
        self.shared.changed.wait_while_until(&mut state, open, until);
        !state.is_closed(self.id)
    }

    /// Relays a subscriber's connection, on which the server speaks unasked.
    fn stream(mut self) -> io::Result<()> {
        thread::scope(|scope| {
            let (shared, id, client, replies) = (self.shared, self.id, self.client, &mut self.replies);
            scope.spawn(move || {
                let _ = pump(shared, id, replies, client);
                // Wakes the other half from its read.
                let _ = client.shutdown(Shutdown::Both);
            });
            let result = stream_requests(self.shared, self.id, &mut self.requests, self.server);
            // Wakes the pump from its read.
            let _ = self.server.shutdown(Shutdown::Both);
            let _ = self.client.shutdown(Shutdown::Both);
            result
        })
    }
}

/// The requests of a subscriber's connection.
fn stream_requests(
    shared: &Shared,
    id: u64,
    requests: &mut BufReader<&TcpStream>,
    mut server: &TcpStream,
) -> io::Result<()> {
    loop {
        let request = read_request(requests)?;
        let matches = shared.match_rules(&request.args);
        if shared.state.lock().swallows_of_subscriber(id) {
            continue;
        }
        match matches.fault() {
            Some(Fault::CutBefore) => {
                matches.hit();
                return Ok(());
            }
            Some(Fault::CutAfter) => {
                server.write_all(&request.raw)?;
                matches.hit();
                return Ok(());
            }
            _ => server.write_all(&request.raw)?,
        }
    }
}

/// The messages of a subscriber's connection.
fn pump(shared: &Shared, id: u64, from: &mut BufReader<&TcpStream>, mut to: &TcpStream) -> io::Result<()> {
    loop {
        let bytes = from.fill_buf()?;
        if bytes.is_empty() {
            return Ok(());
        }
        if !shared.state.lock().swallows_of_subscriber(id) {
            to.write_all(bytes)?;
        }
        let read = bytes.len();
        from.consume(read);
    }
}

impl Shared {
    /// Counts a command for the rules that it matches.
    fn match_rules(&self, args: &[Vec<u8>]) -> Matches {
        // A copy, since the predicates are the test's own code and must not run under our lock.
        let rules = self.state.lock().rules.clone();
        Matches::of(rules, args)
    }

    /// The request with the bytes that the server is to get.
    fn rewritten(&self, mut request: Request) -> Request {
        let rewritten = self.rewrite.as_ref().and_then(|rewrite| rewrite(&request.args));
        if let Some(args) = rewritten {
            request.raw = write_request(&args);
        }
        request
    }

    fn answered(&self, link: u64, reply: Option<&Vec<u8>>) {
        let outcome = reply.map_or(Held::Lost, |reply| Held::Answered(reply.clone()));
        self.state.lock().held.insert(link, outcome);
        self.changed.notify_all();
    }
}

impl State {
    fn is_closed(&self, link: u64) -> bool {
        link < self.closed_below
    }

    fn swallows_of_subscriber(&self, link: u64) -> bool {
        self.black_hole || link < self.muted_below
    }
}
