//! Audits go through all masters.

use std::collections::BTreeSet;

use crate::{
    client,
    support::{Cluster, Server},
};

fn leave(server: &Server, key: &str) {
    redis::cmd("SET")
        .arg(key)
        .arg("left")
        .exec(&mut server.connection())
        .unwrap();
}

#[test]
fn locks_without_expiry_are_found_on_every_master() {
    let cluster = Cluster::shared();
    let keys: BTreeSet<Vec<u8>> = (0..50).map(|nth| format!("audited:{nth}").into_bytes()).collect();
    for key in &keys {
        leave(cluster.master_of(key), str::from_utf8(key).unwrap());
    }
    let found = client(cluster).audit("audited:*").unwrap();
    let found: Vec<Vec<u8>> = found.map(|finding| finding.unwrap().key).collect();
    assert_eq!(found.len(), keys.len());
    assert_eq!(BTreeSet::from_iter(found), keys);
}

#[test]
fn keys_that_are_moved_to_a_master_that_was_looked_through_are_found() {
    let cluster = Cluster::start();
    let ports: Vec<u16> = cluster.masters().iter().map(|master| master.port()).collect();
    let mut on_masters = vec![Vec::new(); ports.len()];
    for nth in 0..30 {
        let name = format!("paged:{{{nth}}}");
        let owner = cluster.master_of(&name).port();
        on_masters[ports.iter().position(|port| *port == owner).unwrap()].push(name);
    }
    for (names, master) in on_masters.iter().zip(cluster.masters()) {
        for name in names {
            leave(master, name);
        }
    }
    let all: BTreeSet<Vec<u8>> = on_masters
        .iter()
        .flatten()
        .map(|name| name.clone().into_bytes())
        .collect();
    let mut audit = client(&cluster).audit("paged:*").unwrap();
    // The first finding comes from the master that is looked through first. All slots with findings on the others go
    // there.
    let first = audit.next().unwrap().unwrap().key;
    let home = cluster.master_of(&first);
    for name in on_masters.iter().flatten() {
        if cluster.master_of(name).port() != home.port() {
            cluster.migrate(name, home);
        }
    }
    let mut found: BTreeSet<Vec<u8>> = audit.map(|finding| finding.unwrap().key).collect();
    found.insert(first);
    assert_eq!(found, all);
}
