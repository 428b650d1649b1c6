//! Servers and networks that go away, stall or dawdle, under TLS.

use std::{thread, time::Instant};

use redlatch::{CancelToken, Error, Wait};

use super::{
    relay::Relay,
    support::{MINUTE, PROMPT, SECOND, chain, millis, tls::TlsServer, wait_until},
};

fn evals(server: &TlsServer) -> u64 {
    server.plain().command_calls("evalsha") + server.plain().command_calls("eval")
}

/// A connection that the server has closed while it was idle is not sent anything, so that nothing is in doubt.
#[test]
fn a_connection_that_was_killed_while_it_was_idle_is_sent_nothing() {
    let Some(server) = TlsServer::start() else { return };
    let client = server.client();
    client.lock("warm-up").with_lock(|| ()).unwrap();
    let before = evals(&server);
    for _ in 0..5 {
        server.plain().run("CLIENT KILL TYPE normal SKIPME yes");
        client.lock("x").with_lock(|| ()).unwrap();
    }
    // An attempt that was sent and not answered would have to be cleaned up after, when the client goes at the latest.
    drop(client);
    assert_eq!(evals(&server) - before, 10);
}

#[test]
fn a_lease_and_a_waiter_outlive_that_all_connections_are_killed() {
    let Some(server) = TlsServer::start() else { return };
    let (holder, waiter) = (server.client(), server.client());
    let guard = holder.lock("x").lease(SECOND * 2).acquire().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| waiter.lock("x").acquire_timeout(MINUTE));
        wait_until("a waiter", PROMPT, || holder.lock("x").inspect().unwrap().waiters == 1);
        for kind in ["normal", "pubsub", "normal", "pubsub"] {
            server.plain().run(&format!("CLIENT KILL TYPE {kind} SKIPME yes"));
            assert!(!guard.wait_lost(SECOND));
        }
        guard.release().unwrap();
        waiting.join().unwrap().unwrap().release().unwrap();
    });
}

#[test]
fn a_restart_is_ridden_out_by_a_waiter() {
    let Some(server) = TlsServer::start() else { return };
    let (holder, waiter) = (server.client(), server.client());
    let guard = holder.lock("x").lease(SECOND * 2).acquire().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| waiter.lock("x").acquire_timeout(MINUTE));
        wait_until("a waiter", PROMPT, || holder.lock("x").inspect().unwrap().waiters == 1);
        server.plain().restart_empty();
        let acquired = waiting.join().unwrap().unwrap();
        // The former holder is told.
        assert!(guard.wait_lost(PROMPT));
        assert!(matches!(guard.release(), Err(Error::Lost(_))));
        acquired.release().unwrap();
    });
}

#[test]
fn a_server_that_is_silent_from_the_first_byte_is_given_up_in_time() {
    let Some(server) = TlsServer::start() else { return };
    let relay = Relay::to(server.port());
    relay.swallow(true);
    let timeout = millis(500);
    let builder = server.builder().url(server.url_at("localhost", relay.port()));
    let client = builder
        .connect_timeout(timeout)
        .command_timeout(timeout)
        .build()
        .unwrap();
    let start = Instant::now();
    let error = client.lock("x").try_acquire().unwrap_err();
    assert!(matches!(error, Error::Connection(_)), "{error:?}");
    assert!(start.elapsed() >= timeout && start.elapsed() < timeout + PROMPT);

    // No wait begins with a server that has never shown who it is.
    let error = client.lock("x").acquire().unwrap_err();
    assert!(
        chain(&error).contains("does the server speak TLS at this port?"),
        "{error:?}"
    );
    relay.swallow(false);
    client.lock("x").with_lock(|| ()).unwrap();
}

#[test]
fn requests_that_are_swallowed_cost_their_timeout_and_no_more() {
    let Some(server) = TlsServer::start() else { return };
    let relay = Relay::to(server.port());
    let builder = server.builder().url(server.url_at("127.0.0.1", relay.port()));
    let timeout = millis(500);
    let client = builder.command_timeout(timeout).build().unwrap();
    let guard = client.lock("x").lease(SECOND * 4).acquire().unwrap();
    let end = Instant::now() + SECOND * 4;
    relay.swallow(true);
    let start = Instant::now();
    let error = client.lock("y").try_acquire().unwrap_err();
    assert!(
        matches!(error, Error::Unconfirmed(_) | Error::Connection(_)),
        "{error:?}"
    );
    assert!(
        start.elapsed() >= timeout && start.elapsed() < timeout * 2 + PROMPT,
        "{:?}",
        start.elapsed()
    );
    // Honest to the end: nobody could be asked.
    assert!(guard.wait_lost(PROMPT));
    assert!(Instant::now() < end + PROMPT);
    let start = Instant::now();
    drop(guard);
    assert!(start.elapsed() < timeout + PROMPT, "{:?}", start.elapsed());
    let start = Instant::now();
    drop(client);
    assert!(start.elapsed() < timeout + PROMPT, "{:?}", start.elapsed());
}

#[test]
fn a_lease_is_renewed_once_the_network_is_back() {
    let Some(server) = TlsServer::start() else { return };
    let relay = Relay::to(server.port());
    let builder = server.builder().url(server.url_at("127.0.0.1", relay.port()));
    let client = builder.command_timeout(millis(500)).build().unwrap();
    let guard = client.lock("x").lease(SECOND * 8).acquire().unwrap();
    // Longer than a third of the lease: renewals are swallowed.
    relay.swallow(true);
    assert!(!guard.wait_lost(SECOND * 4));
    relay.swallow(false);
    assert!(!guard.wait_lost(SECOND * 8));
    guard.release().unwrap();
}

/// Each byte that comes would start the system's own timeout anew.
#[test]
fn a_server_whose_words_trickle_in_cannot_exceed_the_timeout() {
    let Some(server) = TlsServer::start() else { return };
    let relay = Relay::to(server.port());
    let timeout = SECOND;
    let builder = server.builder().url(server.url_at("127.0.0.1", relay.port()));
    let client = builder
        .connect_timeout(timeout)
        .command_timeout(timeout)
        .build()
        .unwrap();
    relay.trickle(true);
    // A handshake has some 2000 bytes from the server, which take 40 s.
    let start = Instant::now();
    let error = client.lock("x").try_acquire().unwrap_err();
    assert!(matches!(error, Error::Connection(_)), "{error:?}");
    assert!(
        start.elapsed() >= timeout && start.elapsed() < timeout + PROMPT,
        "{:?}",
        start.elapsed()
    );

    relay.trickle(false);
    client.lock("x").with_lock(|| ()).unwrap();
    // An answer comes whole, if it is given the time.
    relay.trickle(true);
    let opened = relay.opened();
    let slow = client.lock("y").try_acquire();
    assert!(matches!(slow, Ok(Some(_)) | Err(Error::Unconfirmed(_))), "{slow:?}");
    assert_eq!(relay.opened(), opened);
}

#[test]
fn a_stopped_server_is_waited_for() {
    let Some(server) = TlsServer::start() else { return };
    let client = server.builder().command_timeout(millis(500)).build().unwrap();
    client.lock("x").with_lock(|| ()).unwrap();
    server.plain().stop_process();
    thread::scope(|scope| {
        // On the connection that is open, and then on new ones, whose handshake stays unanswered.
        let waiting = scope.spawn(|| client.lock("x").acquire_timeout(MINUTE));
        thread::sleep(SECOND * 2);
        assert!(!waiting.is_finished());
        server.plain().continue_process();
        waiting.join().unwrap().unwrap().release().unwrap();
    });
}

#[test]
fn a_cancelled_wait_breaks_off_its_request_at_once() {
    let Some(server) = TlsServer::start() else { return };
    let client = server
        .builder()
        .connect_timeout(MINUTE)
        .command_timeout(MINUTE)
        .build()
        .unwrap();
    client.lock("x").with_lock(|| ()).unwrap();
    server.plain().stop_process();
    let cancel = CancelToken::new();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| client.lock("x").acquire_with(Wait::forever().cancelled_by(&cancel)));
        // The request is under way soon; if it is not yet, cancelling is no harder.
        thread::sleep(millis(300));
        let start = Instant::now();
        cancel.cancel();
        assert!(matches!(waiting.join().unwrap(), Err(Error::Cancelled)));
        assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
    });
    server.plain().continue_process();
    // What was sent may have run: it is cleaned up.
    wait_until("the key to be gone", PROMPT, || server.plain().get("lock:x").is_none());
}

#[test]
fn a_client_that_listens_goes_at_once() {
    let Some(server) = TlsServer::start() else { return };
    let (holder, client) = (server.client(), server.client());
    let guard = holder.lock("x").acquire().unwrap();
    let waited = client.lock("x").acquire_timeout(millis(500));
    assert!(matches!(waited, Err(Error::Timeout { .. })), "{waited:?}");
    let start = Instant::now();
    drop(client);
    assert!(start.elapsed() < SECOND * 2 + PROMPT, "{:?}", start.elapsed());
    guard.release().unwrap();
}
