//! What happens to those who wait when something happens to their server, or to the line on which they are called.

use std::{sync::mpsc, thread, time::Instant};

use redlatch::{Client, LostReason};

use crate::{
    corner::Corner,
    support::{Proxy, SECOND, SLACK, lost},
    terms::PROMPT,
};

/// Has a thread for each of `clients` wait for the lock, then lets `event` happen. Returns how long after it, or after
/// the one before, each was served.
fn served_after(corner: &Corner, clients: &[&Client], event: impl FnOnce()) -> Vec<std::time::Duration> {
    let terms = corner.terms();
    let (sender, served) = mpsc::channel();
    thread::scope(|scope| {
        for (nth, client) in clients.iter().enumerate() {
            let (terms, sender) = (&terms, sender.clone());
            scope.spawn(move || {
                let guard = terms.acquire(client).unwrap();
                guard.check().unwrap();
                sender.send(Instant::now()).unwrap();
                guard.release().unwrap();
            });
            // Threads of one client stand behind each other, unless each has a place of its own.
            let mut before: Vec<_> = clients[..=nth].iter().map(|client| *client as *const Client).collect();
            before.sort_unstable();
            before.dedup();
            corner.wait_for_registered(if corner.fair { nth + 1 } else { before.len() });
        }
        drop(sender);
        let mut last = Instant::now();
        event();
        let served: Vec<_> = served.iter().collect();
        assert_eq!(served.len(), clients.len());
        let waits = served.into_iter().map(|at| {
            let waited = at - last;
            last = at;
            waited
        });
        waits.collect()
    })
}

pub fn a_flush_during_a_wait_leaves_nobody_waiting(corner: &Corner) {
    let poll_interval = SECOND;
    let clients = [(); 2].map(|()| corner.builder().poll_interval(poll_interval).build().unwrap());
    let guard = corner.hold();
    let waits = served_after(corner, &[&clients[0], &clients[0], &clients[1], &clients[0]], || {
        corner.server.run("FLUSHALL");
    });
    // Nobody tells them: each finds out for itself, or is told by one that has.
    assert!(waits.iter().all(|wait| *wait <= poll_interval + SLACK), "{waits:?}");
    let loss = lost(guard.release().unwrap_err());
    assert!(matches!(loss, LostReason::Deleted | LostReason::Taken), "{loss:?}");
    corner.wait_until_all_is_gone();
}

pub fn waiters_are_woken_once_a_server_is_back_without_its_data(corner: &Corner) {
    let clients = [corner.client(), corner.client()];
    let guard = corner.hold();
    let waits = served_after(corner, &[&clients[0], &clients[1]], || corner.server.restart_empty());
    assert!(waits.iter().all(|wait| *wait <= PROMPT), "{waits:?}");
    lost(guard.release().unwrap_err());
    corner.wait_until_all_is_gone();
}

pub fn waiters_keep_their_places_when_a_server_is_back_with_its_data(corner: &Corner) {
    let clients = [corner.client(), corner.client()];
    let mut guard = Some(corner.hold());
    let waits = served_after(corner, &[&clients[0], &clients[1]], || {
        corner.server.run("SAVE");
        corner.server.restart();
        assert_eq!(corner.registered(), 2);
        corner.wait_for_subscribers(2);
        guard.take().unwrap().release().unwrap();
    });
    assert!(waits.iter().all(|wait| *wait <= PROMPT), "{waits:?}");
    corner.wait_until_all_is_gone();
}

pub fn a_knock_that_is_lost_is_made_up_for_within_a_poll_interval(corner: &Corner) {
    let (proxy, poll_interval) = (Proxy::to(&corner.server), SECOND);
    let client = corner.builder().url(proxy.url()).poll_interval(poll_interval);
    let (client, other) = (client.build().unwrap(), corner.client());
    corner.have_listen(&client);
    corner.have_listen(&other);
    let mut guard = Some(corner.hold());
    // The one behind is not to suffer from it for long either.
    let waits = served_after(corner, &[&client, &other], || {
        proxy.mute_subscribers();
        guard.take().unwrap().release().unwrap();
    });
    assert!(waits.iter().all(|wait| *wait <= poll_interval + SLACK), "{waits:?}");
    corner.wait_until_all_is_gone();
}

pub fn a_line_that_has_fallen_silent_is_found_out(corner: &Corner) {
    // The server is asked once it has been silent for 5 s, and has as long to answer.
    let longest = PROMPT + SECOND * 3;
    let proxy = Proxy::to(&corner.server);
    let client = corner.builder().url(proxy.url()).build().unwrap();
    corner.have_listen(&client);
    let mut guard = Some(corner.hold());
    let waits = served_after(corner, &[&client], || {
        proxy.mute_subscribers();
        guard.take().unwrap().release().unwrap();
    });
    assert!(waits[0] > SECOND && waits[0] <= longest, "{waits:?}");
    // It can be called again.
    let mut guard = Some(corner.hold());
    let waits = served_after(corner, &[&client], || guard.take().unwrap().release().unwrap());
    assert!(waits[0] <= PROMPT / 2, "{waits:?}");
    corner.wait_until_all_is_gone();
}
