//! The permissions that redlatch needs, and how it says which one is missing.

mod support;

use std::collections::BTreeSet;

use redlatch::{Client, Error, LostReason, Wait};
use support::{Proxy, SECOND, Server, everything_said, is_acquire, is_release, lost, millis, wait_until};

const SECRET: &str = "correcthorsebatterystaple";

/// What the README's `ACL SETUSER` says that a user needs, as far as it begins with `sign`.
fn least(sign: char) -> Vec<&'static str> {
    let (_, rest) = include_str!("../README.md")
        .split_once("redis-cli ACL SETUSER app reset on ")
        .unwrap();
    let (command, _) = rest.split_once("```").unwrap();
    let words = command.split_whitespace().map(|word| word.trim_matches('\''));
    words.filter(|word| word.starts_with(sign)).collect()
}

/// The permissions that an audit needs.
const AUDIT: [&str; 3] = ["+scan", "+pttl", "+type"];

/// A server with a proxy before it that lets in a user with few permissions.
struct Fixture {
    server: Server,
    proxy: Proxy,
}

impl Fixture {
    fn new() -> Self {
        let server = Server::start();
        let proxy = Proxy::to(&server);
        Self { server, proxy }
    }

    /// A client of a user who has these permissions only.
    fn client(&self, permissions: &[&str], keys: &[&str]) -> Client {
        let (keys, permissions) = (keys.join(" "), permissions.join(" "));
        self.server
            .run(&format!("ACL SETUSER app reset on >{SECRET} {keys} {permissions}"));
        let url = self.proxy.url().replace("redis://", &format!("redis://app:{SECRET}@"));
        Client::builder().url(url).command_timeout(SECOND).build().unwrap()
    }
}

fn all_but(lacking: &str) -> Vec<&'static str> {
    let mut rest = least('+');
    let before = rest.len();
    rest.retain(|permission| *permission != lacking);
    assert_eq!(rest.len(), before - 1, "{lacking} is not among the least permissions");
    rest
}

/// Asserts that an error names what is missing, and gives no secret away.
#[track_caller]
fn assert_names(error: &Error, missing: &str) {
    let said = everything_said(error);
    let named = [format!("`{missing}`"), format!("'{missing}'")];
    assert!(named.iter().any(|name| said.contains(name)), "{missing} in {said}");
    assert!(!said.contains(SECRET), "{said}");
}

#[test]
fn the_least_permissions_suffice() {
    let fixture = Fixture::new();
    let client = fixture.client(&least('+'), &least('~'));
    let lock = client.lock("x").lease(SECOND);
    let guard = lock.acquire().unwrap();
    assert!(lock.try_acquire().unwrap().is_none());
    assert!(!lock.inspect().unwrap().is_free());
    // It is renewed, also when its TTL has become too short.
    assert!(!guard.wait_lost(SECOND * 3 / 2));
    guard.extend(SECOND * 60).unwrap();
    guard.release().unwrap();
    lock.with_lock(|| ()).unwrap();
    let guard = lock.acquire().unwrap();
    assert!(lock.force_release().unwrap());
    assert!(guard.release().is_err());
    assert_eq!(fixture.server.run("ACL LOG"), redis::Value::Array(Vec::new()));
}

#[test]
fn an_audit_needs_its_own_permissions_and_names_the_missing_one() {
    let fixture = Fixture::new();
    fixture.server.run("SET lock:eternal token");
    let client = fixture.client(&AUDIT, &["~lock:*"]);
    assert_eq!(client.audit("lock:*").unwrap().map(Result::unwrap).count(), 1);
    // Without the permission to ask who it is, every new connection is to a stranger.
    let fill = redis::Script::new("for i = 1, 5000 do redis.call('SET', 'lock:' .. i, 'token') end");
    fill.invoke::<()>(&mut fixture.server.connection()).unwrap();
    let mut audit = client.audit("lock:*").unwrap();
    audit.next().unwrap().unwrap();
    fixture.server.run("CLIENT KILL TYPE normal SKIPME yes");
    let keys: BTreeSet<_> = audit.map(|finding| finding.unwrap().key).collect();
    assert_eq!(keys.len(), 5_001);
    for lacking in AUDIT {
        let rest: Vec<_> = AUDIT.into_iter().filter(|permission| *permission != lacking).collect();
        let client = fixture.client(&rest, &["~lock:*"]);
        let mut audit = client.audit("lock:*").unwrap();
        let error = audit.next().unwrap().unwrap_err();
        assert!(matches!(error, Error::Server(_)), "{error:?}");
        assert_names(&error, &lacking[1..]);
        assert!(audit.next().is_none());
    }
}

#[test]
fn a_missing_permission_to_acquire_is_named_at_once_and_changes_nothing() {
    let fixture = Fixture::new();
    let counter = "{lock:x}:redlatch:fencing:lock:x";
    let commands =
        ["+evalsha", "+eval", "+get", "+set", "+time"].map(|command| (all_but(command), least('~'), &command[1..]));
    let keys = [("~lock:*", "lock:x"), ("~{lock:*}:redlatch:*", counter)].map(|(lacking, missing)| {
        let mut rest = least('~');
        rest.retain(|key| *key != lacking);
        (least('+'), rest, missing)
    });
    for (permissions, keys, missing) in commands.into_iter().chain(keys) {
        let lock = fixture.client(&permissions, &keys).lock("x");
        // EVAL is for a server that does not know the script.
        fixture.server.run("SCRIPT FLUSH");
        for wait in [Wait::forever(), Wait::at_most(SECOND * 60), Wait::none()] {
            let attempts = fixture.proxy.on(is_acquire).watch();
            let error = lock.acquire_with(wait).unwrap_err();
            assert!(matches!(error, Error::Server(_)), "{missing}: {error:?}");
            assert_names(&error, missing);
            assert_eq!(attempts.seen(), 1, "{missing}: it is not asked again");
        }
        assert_eq!(fixture.server.get("lock:x"), None);
        assert_eq!(fixture.server.get(counter), None);
    }
}

#[test]
fn what_was_not_permitted_at_all_leaves_nothing_to_clean_up() {
    let fixture = Fixture::new();
    let client = fixture.client(&all_but("+evalsha"), &least('~'));
    let releases = fixture.proxy.on(is_release).watch();
    for _ in 0..10 {
        client.lock("x").try_acquire().unwrap_err();
    }
    // What is still to be cleaned up gets its last try.
    drop(client);
    assert_eq!(releases.seen(), 0);
}

#[test]
fn a_missing_permission_to_delete_is_named_by_the_unconfirmed_release() {
    let fixture = Fixture::new();
    let client = fixture.client(&all_but("+del"), &least('~'));
    let guard = client.timed_lock("x", SECOND * 2).acquire().unwrap();
    let error = guard.release().unwrap_err();
    assert!(matches!(error, Error::Unconfirmed(_)), "{error:?}");
    assert_names(&error, "del");
    wait_until("the key to expire by itself", SECOND * 10, || {
        fixture.server.get("lock:x").is_none()
    });
}

#[test]
fn a_missing_permission_to_renew_is_named_as_the_cause_of_the_loss() {
    let fixture = Fixture::new();
    for lacking in ["+pttl", "+pexpire"] {
        let client = fixture.client(&all_but(lacking), &least('~'));
        let guard = client.lock("x").lease(SECOND).acquire().unwrap();
        assert!(guard.wait_lost(SECOND * 10));
        let error = guard.release().unwrap_err();
        assert_names(&error, &lacking[1..]);
        assert_eq!(lost(error), LostReason::Expired);
    }
}

#[test]
fn a_missing_permission_to_look_or_to_see_who_is_there_is_named() {
    let fixture = Fixture::new();
    fixture.server.run("SET lock:x another PX 60000");
    for lacking in ["+get", "+pttl"] {
        let lock = fixture.client(&all_but(lacking), &least('~')).lock("x");
        for error in [
            lock.inspect().unwrap_err(),
            lock.force_release().unwrap_err(),
            lock.acquire_timeout(millis(100)).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Server(_)), "{error:?}");
            assert_names(&error, &lacking[1..]);
        }
    }
    assert_eq!(fixture.server.get("lock:x").as_deref(), Some("another"));
}
