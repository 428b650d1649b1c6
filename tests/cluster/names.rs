//! Row 12 of the reported faults: CROSSSLOT.

use redlatch::{Client, Error};

use crate::{
    client,
    support::{Cluster, SECOND, chain},
};

#[test]
fn names_with_braces_work_or_are_refused_before_anything_is_sent() {
    let cluster = Cluster::shared();
    let client = client(cluster);
    for name in [
        "{a}",
        "{a}b",
        "a{b}c",
        "{a",
        "a{{b}}",
        "{a}{b}",
        "{a}b}",
        "x{",
        "}{a}",
        "\u{1F512}{\u{1F511}}",
    ] {
        let lock = client.lock(name);
        let guard = lock.acquire().unwrap();
        let helper = cluster.keys("*:redlatch:fencing:lock:*");
        let counter = helper.iter().find(|key| key.ends_with(name.as_bytes())).unwrap();
        assert_eq!(cluster.slot_of(counter), cluster.slot_of(format!("lock:{name}")));
        assert!(lock.try_acquire().unwrap().is_none());
        assert_eq!(lock.inspect().unwrap().holders.len(), 1);
        guard.release().unwrap();

        let semaphore = client.semaphore(name, 3);
        semaphore.acquire().unwrap().release().unwrap();
        semaphore.set_limit(2).unwrap();
        assert_eq!(semaphore.available().unwrap(), 2);
    }
    for name in ["a}b", "a{}b", "}", "{}", "{}{a}", "a}{b"] {
        let told = |error: Error| {
            assert!(matches!(error, Error::InvalidArgument(_)), "{name}: {error:?}");
            assert!(chain(&error).contains("hash tag"), "{error}");
        };
        told(client.lock(name).acquire().unwrap_err());
        told(client.lock(name).inspect().unwrap_err());
        told(client.lock(name).force_release().unwrap_err());
        told(client.semaphore(name, 1).try_acquire().unwrap_err());
        told(client.semaphore(name, 1).set_limit(3).unwrap_err());
    }
}

#[test]
fn a_prefix_may_have_the_hash_tag() {
    let cluster = Cluster::shared();
    let client = crate::builder(cluster).prefix("{app}:").build().unwrap();
    for name in ["a", "a}b", "{}"] {
        let guard = client.lock(name).lease(SECOND * 5).acquire().unwrap();
        assert!(!cluster.keys("{app}:lock:*").is_empty());
        guard.release().unwrap();
    }
}

#[test]
fn urls_that_cannot_be_used_are_refused() {
    for url in [
        "redis-cluster://",
        "redis-cluster://h1,,h2",
        "redis-cluster://h1,h2/1",
        "redis-cluster://h1/x",
        "redis-cluster://h1?a=b",
        "redis-cluster://h1#main",
        "redis-cluster://user@h1",
        "redis-cluster://h1:port",
    ] {
        let error = Client::open(url).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{url}: {error:?}");
    }
    for url in [
        "redis-cluster://h1",
        "redis-cluster://u:p@h1:1,[::1]:2",
        "redis-cluster://h1,h2/0",
    ] {
        Client::open(url).unwrap();
    }
}
