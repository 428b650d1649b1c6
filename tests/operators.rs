//! What operators see and do: looking at locks, throwing out their holders, finding locks that nobody will ever free.

mod support;

use std::{collections::BTreeSet, process::Command, time::Instant};

use redlatch::{Client, DataType, Error, Expiry, LostReason};
use support::{Fault, Proxy, SECOND, SLACK, Server, is_inspect, is_release, lost, millis};

fn client_at(url: &str) -> Client {
    Client::builder().url(url).command_timeout(SECOND).build().unwrap()
}

fn client(server: &Server) -> Client {
    client_at(&server.url())
}

/// The keys that an audit finds.
fn found(client: &Client, pattern: &str) -> BTreeSet<String> {
    let findings = client.audit(pattern).unwrap();
    findings
        .map(|finding| String::from_utf8(finding.unwrap().key).unwrap())
        .collect()
}

#[test]
fn a_foreign_lock_without_a_ttl_is_shown_as_one_and_freed_only_by_force() {
    let server = Server::start();
    server.run("SET lock:x crashed");
    let lock = client(&server).lock("x");
    let seen = lock.inspect().unwrap();
    assert_eq!(seen.holders.len(), 1);
    assert_eq!(seen.holders[0].token, b"crashed");
    assert_eq!(seen.holders[0].expiry, Expiry::Never);
    assert_eq!(seen.to_string(), "held by `crashed` (no expiry)");
    // A look changes nothing.
    assert_eq!(server.get("lock:x").as_deref(), Some("crashed"));
    assert_eq!(server.ttl("lock:x"), None);

    assert!(lock.force_release().unwrap());
    assert!(lock.try_acquire().unwrap().is_some());
}

#[test]
fn a_foreign_token_may_be_any_bytes() {
    let server = Server::start();
    let token = b"\xff\0\r\n\x80";
    redis::cmd("SET")
        .arg("lock:x")
        .arg(token)
        .exec(&mut server.connection())
        .unwrap();
    let lock = client(&server).lock("x");
    assert_eq!(lock.inspect().unwrap().holders[0].token, token);
    assert!(lock.force_release().unwrap());
    assert!(lock.inspect().unwrap().is_free());
}

#[test]
fn a_key_that_is_no_lock_is_a_conflict_for_operators_too_and_stays_untouched() {
    let server = Server::start();
    let lock = client(&server).lock("x");
    for meddle in ["HSET lock:x field value", "LPUSH lock:x element"] {
        server.run("FLUSHALL");
        server.run(meddle);
        let before = server.run("DUMP lock:x");
        for error in [lock.inspect().unwrap_err(), lock.force_release().unwrap_err()] {
            assert!(
                matches!(&error, Error::KeyConflict { key, .. } if key == b"lock:x"),
                "{meddle}: {error:?}"
            );
        }
        assert_eq!(server.run("DUMP lock:x"), before);
    }
}

#[test]
fn a_counter_that_is_none_hides_no_holder_and_hinders_no_forced_release() {
    let server = Server::start();
    let lock = client(&server).lock("x");
    for counter in [
        "HSET COUNTER field value",
        "SET COUNTER words",
        "SET COUNTER -1",
        "SET COUNTER inf",
        "SET COUNTER 1e300",
    ] {
        server.run("FLUSHALL");
        server.run("SET lock:x crashed");
        server.run(&counter.replace("COUNTER", "{lock:x}:redlatch:fencing:lock:x"));
        let seen = lock.inspect().unwrap();
        assert_eq!(seen.holders[0].token, b"crashed");
        assert_eq!(seen.fencing_token, None, "{counter}");
        assert!(lock.force_release().unwrap());
        assert_eq!(server.get("lock:x"), None);
    }
}

#[test]
fn only_the_holder_that_was_seen_is_thrown_out() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let direct = client(&server).lock("x");
    // The server learns the script, so that what is held back is not merely its digest.
    direct.acquire().unwrap().release().unwrap();

    let seen = direct.acquire().unwrap();
    let operators = client_at(proxy.url()).lock("x");
    let held = proxy.on(is_release).apply(Fault::HoldRequest);
    std::thread::scope(|scope| {
        let forcing = scope.spawn(|| operators.force_release());
        held.wait_hit(SECOND * 10);
        seen.release().unwrap();
        let next = direct.acquire().unwrap();
        proxy.release_held();
        assert!(forcing.join().unwrap().unwrap(), "somebody held it");
        assert_eq!(server.get("lock:x").as_deref(), Some(next.token()));
        next.release().unwrap();
    });
}

#[test]
fn a_lost_reply_to_an_operator_is_asked_for_again() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let lock = client_at(proxy.url()).lock("x");
    assert!(lock.inspect().unwrap().is_free());
    assert!(!lock.force_release().unwrap());

    let guard = client(&server).lock("x").acquire().unwrap();
    let _struck = proxy.on(is_inspect).apply(Fault::CutAfter);
    assert!(!lock.inspect().unwrap().is_free());
    for fault in [Fault::CutAfter, Fault::CutBefore] {
        server.run("SET lock:x crashed");
        let _struck = proxy.on(is_release).apply(fault);
        assert!(lock.force_release().unwrap(), "{fault:?}");
        assert_eq!(server.get("lock:x"), None);
    }
    assert_eq!(lost(guard.release().unwrap_err()), LostReason::Deleted);
}

#[test]
fn a_silent_server_costs_an_operator_a_bounded_time() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = client_at(proxy.url());
    let lock = client.lock("x");
    lock.inspect().unwrap();
    proxy.black_hole(true);
    let start = Instant::now();
    assert!(matches!(lock.inspect(), Err(Error::Unconfirmed(_))));
    assert!(start.elapsed() < SECOND + SLACK);
    let mut audit = client.audit("lock:*").unwrap();
    assert!(matches!(audit.next(), Some(Err(Error::Unconfirmed(_)))));
    assert!(audit.next().is_none(), "an error is the end");
    assert!(start.elapsed() < SECOND * 2 + SLACK);
}

#[test]
fn an_audit_finds_what_looks_like_a_lock_and_has_no_ttl() {
    let server = Server::start();
    for command in [
        "SET lock:eternal token",
        "HSET lock:redisson client:1 1",
        "SET {lock:other}:hand-rolled token",
        "SET lock:leased token PX 60000",
        "LPUSH lock:list element",
        "SADD lock:set element",
        "ZADD lock:scores 1 element",
        "XADD lock:stream * field value",
    ] {
        server.run(command);
    }
    let client = client(&server);
    let _held = client.lock("held").acquire().unwrap();
    client.lock("released").acquire().unwrap().release().unwrap();

    let findings: Vec<_> = client.audit("lock:*").unwrap().map(Result::unwrap).collect();
    let mut findings: Vec<_> = findings.iter().map(|found| (&found.key[..], found.data_type)).collect();
    findings.sort_unstable_by_key(|(key, _)| *key);
    assert_eq!(
        findings,
        [
            (&b"lock:eternal"[..], DataType::String),
            (&b"lock:redisson"[..], DataType::Hash)
        ]
    );
    assert_eq!(
        found(&client, "*hand-rolled"),
        ["{lock:other}:hand-rolled".to_owned()].into()
    );
    assert_eq!(found(&client, "nothing:*"), BTreeSet::new());
    assert_eq!(found(&client, "lock:eterna[k-m]"), ["lock:eternal".to_owned()].into());
    assert!(matches!(client.audit(""), Err(Error::InvalidArgument(_))));
}

#[test]
fn an_audit_goes_page_by_page_and_never_asks_for_all_keys() {
    let server = Server::start();
    let fill = redis::Script::new(
        "for i = 1, 20000 do redis.call('SET', 'lock:' .. i, 'token') redis.call('SET', 'data:' .. i, 'value', 'EX', 600) end",
    );
    fill.invoke::<()>(&mut server.connection()).unwrap();
    let client = client(&server);

    let mut audit = client.audit("lock:*").unwrap();
    assert_eq!(server.command_calls("scan"), 0, "nothing is sent before the first step");
    audit.next().unwrap().unwrap();
    assert_eq!(
        server.command_calls("scan"),
        1,
        "the first page suffices for the first finding"
    );
    // What stands still is found, and a page's keys do not pile up here.
    let all: BTreeSet<_> = audit.map(|finding| finding.unwrap().key).collect();
    assert!(all.len() >= 19_999, "{}", all.len());
    assert!(server.command_calls("scan") >= 20);
    assert_eq!(server.command_calls("keys"), 0);
}

#[test]
fn an_audit_rides_over_killed_connections() {
    let server = Server::start();
    let fill = redis::Script::new("for i = 1, 10000 do redis.call('SET', 'lock:' .. i, 'token') end");
    fill.invoke::<()>(&mut server.connection()).unwrap();
    let mut keys = BTreeSet::new();
    for (nth, finding) in client(&server).audit("lock:*").unwrap().enumerate() {
        keys.insert(finding.unwrap().key);
        if [500, 2_000, 12_000].contains(&nth) {
            server.run("CLIENT KILL TYPE normal SKIPME yes");
        }
    }
    assert_eq!(keys.len(), 10_000);
}

#[test]
fn an_audit_misses_nothing_when_the_server_is_restarted_with_its_data() {
    let server = Server::start();
    let fill = redis::Script::new("for i = 1, 20000 do redis.call('SET', 'lock:' .. i, 'token') end");
    fill.invoke::<()>(&mut server.connection()).unwrap();
    server.run("SAVE");
    let client = client(&server);
    let mut keys = BTreeSet::new();
    for (nth, finding) in client.audit("lock:*").unwrap().enumerate() {
        keys.insert(finding.unwrap().key);
        if nth == 5_000 {
            server.restart();
            // Another request opens a connection before the audit does.
            client.lock("x").acquire().unwrap().release().unwrap();
        }
    }
    assert_eq!(keys.len(), 20_000);
}

#[test]
fn an_audit_goes_on_when_an_idle_connection_was_cut_off() {
    let server = Server::start();
    let fill = redis::Script::new("for i = 1, 5000 do redis.call('SET', 'lock:' .. i, 'token') end");
    fill.invoke::<()>(&mut server.connection()).unwrap();
    let mut keys = Vec::new();
    for (nth, finding) in client(&server).audit("lock:*").unwrap().enumerate() {
        keys.push(finding.unwrap().key);
        if nth % 200 == 0 {
            server.run("CLIENT KILL TYPE normal SKIPME yes");
        }
    }
    // It is the same server, so no key comes twice.
    assert_eq!(keys.len(), 5_000);
}

#[test]
fn a_server_that_is_not_there_is_told_at_once() {
    let server = Server::start();
    let client = client(&server);
    server.kill();
    let start = Instant::now();
    assert!(matches!(client.lock("x").inspect(), Err(Error::Connection(_))));
    assert!(matches!(client.lock("x").force_release(), Err(Error::Connection(_))));
    assert!(matches!(
        client.audit("lock:*").unwrap().next(),
        Some(Err(Error::Connection(_)))
    ));
    assert!(start.elapsed() < millis(500) + SLACK);
}

/// What the example prints, and whether it succeeded.
fn run_example(url: &str, arguments: &[&str]) -> (String, bool) {
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--example", "audit", "--"])
        .args(arguments)
        .env("REDIS_URL", url)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&text).into_owned(), output.status.success())
}

#[test]
fn the_audit_example_prints_a_table_of_locks_without_expiry() {
    let server = Server::start();
    let (text, success) = run_example(&server.url(), &[]);
    assert!(success && text.contains("no lock without expiry"), "{text}");

    server.run("SET lock:eternal token");
    server.run("SET lock:leased token PX 60000");
    server.run("SET other:eternal token");
    let (text, success) = run_example(&server.url(), &[]);
    assert!(success && text.contains("lock:eternal"), "{text}");
    assert!(
        !text.contains("lock:leased") && !text.contains("other:eternal"),
        "{text}"
    );
    let (text, success) = run_example(&server.url(), &["other:*"]);
    assert!(success && text.contains("other:eternal"), "{text}");

    server.kill();
    let (text, success) = run_example(&server.url(), &[]);
    assert!(!success && text.contains("could not connect"), "{text}");
}

#[test]
fn a_lock_that_was_left_to_a_waiter_is_shown_as_reserved() {
    let server = Server::start();
    let lock = Client::open(server.url()).unwrap().lock("x");
    server.run("SET lock:x redlatch:claim:somebody PX 60000");
    let seen = lock.inspect().unwrap();
    assert!(seen.reserved == 1 && seen.holders.is_empty() && !seen.is_free());
    assert_eq!(seen.to_string(), "reserved for a waiter");
    assert!(lock.try_acquire().unwrap().is_none());
    // There is nobody to throw out.
    assert!(!lock.force_release().unwrap());
    assert_eq!(lock.inspect().unwrap().reserved, 1);
}
