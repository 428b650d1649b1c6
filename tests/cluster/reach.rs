//! Nodes that cannot be reached, or do not answer.

use std::{
    io::Write,
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use redlatch::{Client, Error, Guard};

use crate::{
    MINUTE, PROMPT, builder, client, lock_on,
    support::{Cluster, ReservedPort, SECOND, Server, chain},
};

const TIMEOUT: Duration = SECOND;

/// A cluster that never fails over.
fn lasting_cluster() -> Cluster {
    let cluster = Cluster::start();
    for node in cluster.servers() {
        node.run("CONFIG SET cluster-node-timeout 600000");
    }
    cluster
}

/// So short that a lease whose renewal waits for a silent node ends.
const SHORT: Duration = SECOND;

#[test]
fn a_node_that_does_not_answer_costs_no_lease_on_the_others() {
    let cluster = lasting_cluster();
    // Each time others.
    let mut prefixes = (0..).map(|nth| format!("{nth}:"));
    let mut guards_on = |client: &Client, master: &Server, lease: Duration| -> Vec<Guard> {
        let names = prefixes
            .by_ref()
            .take(10)
            .map(|prefix| lock_on(&cluster, master, &prefix));
        names
            .map(|name| client.lock(name).lease(lease).acquire().unwrap())
            .collect()
    };
    let [stopped, others @ ..] = &cluster.masters()[..] else {
        panic!("three masters");
    };
    // The one has leases at the node as well, of which some last long and some end soon; the other has none there. What
    // a busy machine costs, it costs both.
    let [client, spared] = [(); 2].map(|()| crate::client(&cluster));
    let mut lost = Vec::new();
    for lease in [SHORT, SECOND * 2, SECOND * 5, MINUTE] {
        lost.extend(guards_on(&client, stopped, lease));
    }
    let mut on_others = |client| -> Vec<Guard> {
        let guards = others.iter().flat_map(|other| guards_on(client, other, SHORT));
        guards.collect()
    };
    let [kept, compared] = [&client, &spared].map(&mut on_others);
    let lost_of = |guards: &[Guard]| guards.iter().filter(|guard| !guard.is_held()).count();
    let lost_before = lost_of(&kept);
    stopped.stop_process();
    thread::sleep(SECOND * 20);
    let (lost_of_kept, lost_of_compared) = (lost_of(&kept) - lost_before, lost_of(&compared));
    stopped.continue_process();
    println!(
        "lost: {lost_of_kept} of {}, without the node {lost_of_compared}",
        kept.len()
    );
    assert!(lost_of(&lost) > 0);
    assert!(
        lost_of_kept <= lost_of_compared + kept.len() / 4,
        "{lost_of_kept} and {lost_of_compared}"
    );
}

#[test]
fn a_lease_that_begins_while_the_renewals_of_a_silent_node_wait_is_kept() {
    let cluster = lasting_cluster();
    // The wait for its answer is longer than the leases that begin meanwhile.
    let client = builder(&cluster).command_timeout(SECOND * 10).build().unwrap();
    let (stopped, kept) = (cluster.node(0), lock_on(&cluster, cluster.node(1), "kept"));
    let lost = client.lock(lock_on(&cluster, stopped, "lost")).lease(SECOND * 12);
    let _lost = lost.acquire().unwrap();
    stopped.stop_process();
    // By then its renewal is on its way: nothing was there that asked for less patience.
    thread::sleep(SECOND * 5);
    let end = Instant::now() + SECOND * 8;
    while Instant::now() < end {
        let guard = client.lock(&kept).lease(SECOND).acquire().unwrap();
        assert!(!guard.wait_lost(SECOND * 3));
        guard.release().unwrap();
    }
    stopped.continue_process();
}

#[test]
fn every_call_ends_in_its_time_when_no_node_answers() {
    let cluster = lasting_cluster();
    let connected = builder(&cluster).command_timeout(TIMEOUT).build().unwrap();
    let lock = connected.lock("x").lease(MINUTE);
    let guard = lock.acquire().unwrap();
    for node in cluster.servers() {
        node.stop_process();
    }
    let within = |what: &str, bound: Duration, call: &mut dyn FnMut() -> Result<(), Error>| {
        let start = Instant::now();
        let error = call().unwrap_err();
        let took = start.elapsed();
        assert!(took < bound + PROMPT, "{what} took {took:?}");
        error
    };
    let fresh = builder(&cluster).command_timeout(TIMEOUT).build().unwrap();
    for client in [&connected, &fresh] {
        let lock = client.lock("y");
        within("a try", TIMEOUT, &mut || lock.try_acquire().map(drop));
        let error = within("a wait", TIMEOUT * 2, &mut || lock.acquire_timeout(TIMEOUT).map(drop));
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        within("a look", TIMEOUT * 2, &mut || lock.inspect().map(drop));
        within("an audit", TIMEOUT * 2, &mut || {
            client.audit("*")?.next().unwrap().map(drop)
        });
    }
    within("an extension", TIMEOUT * 2, &mut || guard.extend(MINUTE * 2));
    let mut guard = Some(guard);
    within("a release", TIMEOUT * 2, &mut || guard.take().unwrap().release());
    let start = Instant::now();
    drop((lock, connected, fresh));
    assert!(start.elapsed() < TIMEOUT * 2 + PROMPT);
    for node in cluster.servers() {
        node.continue_process();
    }
}

#[test]
fn a_cluster_of_which_nobody_can_be_reached_is_told_at_once() {
    let cluster = lasting_cluster();
    let connected = client(&cluster);
    connected.lock("x").acquire().unwrap().release().unwrap();
    for node in cluster.servers() {
        node.kill();
    }
    for client in [connected, client(&cluster)] {
        let start = Instant::now();
        let error = client.lock("x").acquire().unwrap_err();
        assert!(matches!(error, Error::Connection(_)), "{error:?}");
        assert!(chain(&error).contains("refused"), "{error:?}");
        assert!(start.elapsed() < PROMPT);
    }
}

#[test]
fn nodes_of_the_url_that_are_away_are_passed_over() {
    let cluster = Cluster::shared();
    let url = format!("redis-cluster://127.0.0.1:1,127.0.0.1:{}", cluster.node(4).port());
    let client = Client::open(url).unwrap();
    client.lock("{passed over}").acquire().unwrap().release().unwrap();
}

#[test]
fn a_master_that_cannot_be_reached_is_waited_for() {
    let cluster = lasting_cluster();
    let (home, name) = (cluster.node(1), lock_on(&cluster, cluster.node(1), "x"));
    let client = builder(&cluster).command_timeout(TIMEOUT).build().unwrap();
    home.kill();
    let lock = client.lock(&name);
    let start = Instant::now();
    let error = lock.try_acquire().unwrap_err();
    assert!(matches!(error, Error::Connection(_)), "{error:?}");
    assert!(start.elapsed() < TIMEOUT + PROMPT);
    let waiting = thread::spawn(move || lock.acquire_timeout(MINUTE).map(drop));
    thread::sleep(TIMEOUT * 3);
    assert!(!waiting.is_finished());
    home.restart();
    waiting.join().unwrap().unwrap();
}

#[test]
fn a_server_that_is_in_no_cluster_is_told_so() {
    let server = Server::start();
    let client = Client::open(format!("redis-cluster://127.0.0.1:{}", server.port())).unwrap();
    let start = Instant::now();
    let error = client.lock("x").acquire().unwrap_err();
    assert!(matches!(error, Error::Server(_)), "{error:?}");
    assert!(chain(&error).contains("cluster support disabled"), "{error:?}");
    assert!(start.elapsed() < PROMPT);
}

/// A node that has every slot, as it says, and sends everybody who asks for a key to itself. Counts how often.
fn node_in_a_loop() -> (u16, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, asked) = (listener.local_addr().unwrap().port(), Arc::new(AtomicU32::new(0)));
    let counter = asked.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, counter) = (stream.unwrap(), counter.clone());
            thread::spawn(move || {
                let mut parser = redis::Parser::new();
                while let Ok(redis::Value::Array(words)) = parser.parse_value(&mut stream) {
                    let answer = if words[0] == redis::Value::BulkString(b"CLUSTER".into()) {
                        format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:{port}\r\n")
                    } else {
                        counter.fetch_add(1, Ordering::SeqCst);
                        format!("-MOVED 1 :{port}\r\n")
                    };
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            });
        }
    });
    (port, asked)
}

#[test]
fn a_loop_of_redirections_ends_in_time_and_does_not_spin() {
    let (port, asked) = node_in_a_loop();
    let client = Client::builder()
        .url(format!("redis-cluster://127.0.0.1:{port}"))
        .command_timeout(TIMEOUT)
        .build()
        .unwrap();
    let start = Instant::now();
    let error = client.lock("x").try_acquire().unwrap_err();
    assert!(matches!(error, Error::Server(_)), "{error:?}");
    assert!(start.elapsed() < TIMEOUT + PROMPT);
    assert!(asked.load(Ordering::SeqCst) < 100, "{asked:?}");
}

/// A node of the URL that tells everybody where the slots are: what it was given last.
fn guide() -> (u16, mpsc::Sender<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, maps) = mpsc::channel::<String>();
    thread::spawn(move || {
        let mut map = maps.recv().unwrap();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            map = maps.try_iter().last().unwrap_or(map);
            // One request a connection. Some are hung up on before there is any.
            if redis::Parser::new().parse_value(&mut stream).is_ok() {
                let _ = stream.write_all(map.as_bytes());
            }
        }
    });
    (port, sender)
}

/// An answer to `CLUSTER SLOTS`: these masters, which share the slots.
fn map_of(ports: &[u16]) -> String {
    let share = 16384_usize.div_ceil(ports.len());
    let ranges = ports.iter().enumerate().map(|(nth, port)| {
        let (first, last) = (nth * share, ((nth + 1) * share).min(16384) - 1);
        format!("*3\r\n:{first}\r\n:{last}\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n")
    });
    format!("*{}\r\n{}", ports.len(), ranges.collect::<String>())
}

#[test]
fn a_cluster_all_of_whose_nodes_have_moved_is_found_again_by_the_url() {
    // Where they were nobody answers, nor refuses.
    let former: Vec<TcpListener> = (0..16).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let ports: Vec<u16> = former.iter().map(|node| node.local_addr().unwrap().port()).collect();
    let (guide, maps) = guide();
    maps.send(map_of(&ports)).unwrap();
    let client = Client::builder()
        .url(format!("redis-cluster://127.0.0.1:{guide}"))
        .command_timeout(TIMEOUT)
        .build()
        .unwrap();
    let lock = client.lock("x");
    lock.try_acquire().unwrap_err();
    let bus = ReservedPort::reserve().unwrap();
    let node = Server::start_with(&["--cluster-enabled", "yes", "--cluster-port", &bus.number().to_string()]);
    node.run("CLUSTER ADDSLOTSRANGE 0 16383");
    maps.send(map_of(&[node.port()])).unwrap();
    lock.acquire_timeout(MINUTE).unwrap().release().unwrap();
}

#[test]
fn a_url_of_another_kind_than_the_server_is_told_with_what_to_write() {
    let cluster = Cluster::shared();
    let one = Client::open(cluster.node(0).url()).unwrap();
    // It has some of the names and not all.
    let error = (0..100).find_map(|nth| one.lock(format!("elsewhere-{nth}")).try_acquire().err());
    let said = chain(&error.expect("a name in another node's slot"));
    assert!(said.contains("write `redis-cluster://`"), "{said}");

    let server = Server::start();
    let url = server.url().replace("redis://", "redis-cluster://");
    let error = Client::open(url).unwrap().lock("x").try_acquire().unwrap_err();
    assert!(chain(&error).contains("write `redis://`"), "{error:?}");
}
