//! The test support for more than one server: that clusters route, move slots and fail over, that Sentinels name a new
//! master, and that the nodes of a Redlock are apart.

mod support;

use redis::{RedisResult, cmd};
use support::{Cluster, Redlock, SECOND, Sentinels, Server, wait_until};

const SOON: std::time::Duration = SECOND.saturating_mul(30);

fn set(server: &Server, key: &str, value: &str) -> RedisResult<()> {
    cmd("SET").arg(key).arg(value).exec(&mut server.connection())
}

/// What the server says when it is asked for a key that it does not have: the first word of the error, and where it
/// sends one.
#[track_caller]
fn refusal(outcome: RedisResult<()>) -> (String, Option<String>) {
    let error = outcome.unwrap_err();
    let code = error.code().expect("an error of the server").to_owned();
    let elsewhere = error.redirect_node().map(|(address, _)| address.to_owned());
    (code, elsewhere)
}

fn address(server: &Server) -> Option<String> {
    Some(format!("127.0.0.1:{}", server.port()))
}

#[test]
fn a_cluster_routes_each_key_to_its_master_and_finds_all() {
    let cluster = Cluster::shared();
    assert_eq!(cluster.masters().len(), 3);
    let keys: Vec<_> = (0..30).map(|nth| format!("routed:{nth}")).collect();
    let mut used = Vec::new();
    for key in &keys {
        let master = cluster.master_of(key);
        set(master, key, "x").unwrap();
        used.push(master.port());
        let other = cluster.another_master_than_of(key);
        assert_eq!(refusal(set(other, key, "x")), ("MOVED".to_owned(), address(master)));
        let value: String = cmd("GET").arg(key).query(&mut cluster.connection_for(key)).unwrap();
        assert_eq!(value, "x");
    }
    used.sort_unstable();
    used.dedup();
    assert_eq!(used.len(), 3, "all masters have some");
    assert_eq!(cluster.keys("routed:*").len(), keys.len());
    assert_eq!(cluster.delete("routed:*"), keys.len());
    assert!(cluster.keys("routed:*").is_empty());
    assert_eq!(cluster.slot_of("{tag}a"), cluster.slot_of("b{tag}"));
}

#[test]
fn a_slot_moves_step_by_step() {
    let cluster = Cluster::start();
    let (one, two) = ("{moved}:1", "{moved}:2");
    let (from, to) = (cluster.master_of(one), cluster.another_master_than_of(one));
    for key in [one, two] {
        set(from, key, "x").unwrap();
    }
    let migration = cluster.begin_migration(one, to);
    set(from, one, "still here").unwrap();
    assert_eq!(refusal(set(from, "{moved}:3", "x")), ("ASK".to_owned(), address(to)));

    migration.move_key(two);
    assert_eq!(refusal(set(from, two, "x")), ("ASK".to_owned(), address(to)));
    let both = cmd("MGET").arg(one).arg(two).exec(&mut from.connection());
    assert_eq!(refusal(both).0, "TRYAGAIN");
    let (_, value): ((), String) = redis::pipe()
        .cmd("ASKING")
        .cmd("GET")
        .arg(two)
        .query(&mut to.connection())
        .unwrap();
    assert_eq!(value, "x");

    migration.move_keys();
    assert_eq!(cluster.master_of(one).port(), from.port());
    migration.finish();
    assert_eq!(cluster.master_of(one).port(), to.port());
    assert_eq!(refusal(set(from, one, "x")), ("MOVED".to_owned(), address(to)));
    assert_eq!(to.get(one).as_deref(), Some("still here"));

    cluster.migrate(one, from);
    assert_eq!(cluster.master_of(two).port(), from.port());
    assert_eq!(cluster.keys("{moved}*").len(), 2);
}

#[test]
fn a_replica_takes_over_from_a_master_that_was_killed() {
    let cluster = Cluster::start();
    let former = cluster.master_of("kept");
    set(former, "kept", "x").unwrap();
    wait_until("the replica to have it", SOON, || {
        !cluster_copies(&cluster, former, "kept").is_empty()
    });
    let new = cluster.failover("kept");
    assert_ne!(new.port(), former.port());
    assert_eq!(new.get("kept").as_deref(), Some("x"));
    assert_eq!(cluster.masters().len(), 3);
    set(new, "kept", "y").unwrap();

    former.restart();
    cluster.wait_until_settled();
    assert_eq!(cluster.master_of("kept").port(), new.port());
    assert!(former.is_in_sync());
}

/// The replicas that have a key as `master` has it.
fn cluster_copies<'a>(cluster: &'a Cluster, master: &Server, key: &str) -> Vec<&'a Server> {
    let has_it = |server: &&Server| {
        let (_, value): ((), Option<String>) = redis::pipe()
            .cmd("READONLY")
            .cmd("GET")
            .arg(key)
            .query(&mut server.connection())
            .unwrap_or_default();
        value.is_some()
    };
    let others = cluster.servers().filter(|server| server.port() != master.port());
    others.filter(has_it).collect()
}

#[test]
fn sentinels_name_another_master_when_the_master_is_killed() {
    let sentinels = Sentinels::start();
    assert_eq!((sentinels.servers().len(), sentinels.sentinels().len()), (3, 3));
    set(sentinels.master(), "kept", "x").unwrap();
    wait_until("the replicas to have it", SOON, || {
        let replicas = sentinels.replicas();
        replicas.iter().all(|replica| replica.get("kept").is_some())
    });
    assert_eq!(refusal(set(sentinels.replicas()[0], "kept", "y")).0, "READONLY");
    let former = sentinels.kill_master();
    let new = sentinels.wait_for_new_master(former);
    assert_ne!(new.port(), former.port());
    assert_eq!(sentinels.master().port(), new.port());
    assert_eq!(new.get("kept").as_deref(), Some("x"));
    set(new, "kept", "y").unwrap();

    former.restart();
    sentinels.wait_until_settled();
    assert_eq!(sentinels.master().port(), new.port());
    assert_eq!(former.get("kept").as_deref(), Some("y"));
}

#[test]
fn sentinels_name_another_master_when_they_are_told_to() {
    let sentinels = Sentinels::start();
    let former = sentinels.master();
    let new = sentinels.failover();
    assert_ne!(new.port(), former.port());
    sentinels.wait_until_settled();
    assert_eq!(refusal(set(former, "x", "x")).0, "READONLY");
    // What a Sentinel has made of it outlives a restart.
    former.restart();
    wait_until("it to follow the new master", SOON, || former.is_in_sync());
    assert_eq!(former.info("replication", "master_port"), Some(new.port().to_string()));
}

#[test]
fn the_nodes_of_a_redlock_are_apart() {
    let redlock = Redlock::start_behind_proxies();
    for (nth, node) in redlock.nodes().iter().enumerate() {
        set(node, &format!("apart:{nth}"), "x").unwrap();
    }
    for (nth, node) in redlock.nodes().iter().enumerate() {
        assert_eq!(node.keys("*"), [format!("apart:{nth}").into_bytes()]);
        assert_eq!(node.info("replication", "role").as_deref(), Some("master"));
    }
    assert_eq!(redlock.delete("apart:*"), 5);

    assert_eq!(redlock.url().matches("127.0.0.1:").count(), 5);
    assert_eq!(
        redlock.url_of(&[4, 0]),
        format!(
            "redlock://127.0.0.1:{},127.0.0.1:{}",
            redlock.proxy(4).port(),
            redlock.proxy(0).port()
        )
    );
    redlock.proxy(2).go_down();
    let ping = |nth: usize| {
        let client = redis::Client::open(redlock.proxy(nth).url())?;
        cmd("PING").exec(&mut client.get_connection_with_timeout(SECOND)?)
    };
    assert!(ping(2).is_err());
    ping(1).unwrap();
    redlock.proxy(2).go_up();
    ping(2).unwrap();
}

#[test]
fn shared_nodes_of_a_redlock_are_old_enough_to_vote() {
    let redlock = Redlock::shared();
    assert!(redlock.nodes().iter().all(|node| node.uptime() > Redlock::MAX_LEASE));
}
