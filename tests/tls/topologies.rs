//! TLS with more than one server.

use std::{sync::Arc, thread, time::Duration};

use redlatch::Client;

use super::support::{
    SECOND,
    tls::{Authority, TlsServer},
    wait_until,
};

/// How long handshakes and answers may take on a busy machine.
const PATIENCE: Duration = SECOND.saturating_mul(30);

/// Long enough to be renewed on a busy machine.
const LEASE: Duration = SECOND.saturating_mul(6);

fn client(url: &str, authority: &Authority, max_lease: Duration) -> Client {
    let identity = authority.client();
    let builder = Client::builder()
        .url(url)
        .tls(true)
        .tls_ca(authority.pem())
        .connect_timeout(PATIENCE)
        .command_timeout(PATIENCE)
        .node_timeout(LEASE / 3)
        .max_lease(max_lease);
    let builder = builder.tls_client_certificate(identity.certificate, identity.key);
    builder.build().unwrap()
}

/// Holds a lock past a renewal, and has a waiter come after it.
fn hold_and_hand_on(client: &Client, other: &Client) {
    let guard = client.lock("x").lease(LEASE).acquire().unwrap();
    assert!(!guard.wait_lost(LEASE * 3 / 2));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| other.lock("x").lease(LEASE).acquire_timeout(PATIENCE));
        guard.release().unwrap();
        waiting.join().unwrap().unwrap().release().unwrap();
    });
}

#[test]
fn sentinels_and_their_master_are_spoken_to_over_tls() {
    let authority = Arc::new(Authority::new("authority"));
    let Some(master) = TlsServer::of(&authority, "", &["--tls-replication", "yes"]) else {
        return;
    };
    let config = format!(
        "sentinel monitor main 127.0.0.1 {} 1\nsentinel announce-ip 127.0.0.1\n",
        master.port()
    );
    let Some(sentinel) = TlsServer::of(&authority, &config, &["--sentinel", "--tls-replication", "yes"]) else {
        return;
    };
    let url = format!("redis-sentinel://127.0.0.1:{}/2#main", sentinel.port());
    let [one, other] = [(); 2].map(|()| client(&url, &authority, SECOND * 60));
    hold_and_hand_on(&one, &other);
}

#[test]
fn a_cluster_is_spoken_to_over_tls() {
    let Some(node) = TlsServer::cluster() else { return };
    let url = format!("redis-cluster://127.0.0.1:{}", node.port());
    let [one, other] = [(); 2].map(|()| client(&url, node.authority(), SECOND * 60));
    hold_and_hand_on(&one, &other);
}

#[test]
fn a_redlock_is_spoken_to_over_tls() {
    let authority = Arc::new(Authority::new("authority"));
    let nodes = [(); 3].map(|()| TlsServer::of(&authority, "", &[]));
    let addresses: Vec<String> = nodes
        .iter()
        .flatten()
        .map(|node| format!("127.0.0.1:{}", node.port()))
        .collect();
    if addresses.is_empty() {
        return;
    }
    let url = format!("redlock://{}", addresses.join(","));
    let [one, other] = [(); 2].map(|()| client(&url, &authority, LEASE));
    // They vote once they have been up for longer than the longest lease.
    wait_until("the nodes to vote", PATIENCE, || {
        one.lock("y").lease(SECOND).try_acquire().is_ok()
    });
    hold_and_hand_on(&one, &other);
}
