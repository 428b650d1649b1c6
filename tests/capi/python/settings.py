"""Each setting that Python passes on is set, and no other: see programs/settings.c, which says more."""

import concurrent.futures
import contextlib
import functools
import os
import signal
import socket
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import redlatch
from scenario import PATIENCE, URL, Scenario, until

SERVER = int(os.environ["REDLATCH_TEST_SERVER_PID"])


def server_answers(*words):
    """What the server answers to a command of another library's, in one line."""
    port = int(URL.rsplit(":", 1)[1].rstrip("/"))
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rwb") as stream:
        stream.write(" ".join(words).encode() + b"\r\n")
        stream.flush()
        return stream.readline().decode().strip()


@contextlib.contextmanager
def stopped_server():
    os.kill(SERVER, signal.SIGSTOP)
    try:
        until(lambda: Path(f"/proc/{SERVER}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T", "it has stopped")
        yield
    finally:
        os.kill(SERVER, signal.SIGCONT)


def silent_port():
    """A socket at which connecting works, and where nothing is answered; and its port."""
    listening = socket.create_server(("127.0.0.1", 0))
    return listening, listening.getsockname()[1]


class Clients(Scenario):
    def test_prefixes_stand_before_names(self):
        client, name = redlatch.Client(URL, prefix="python:app:", lock_prefix="mutex:"), self.a_name()
        with client.lock(name), client.semaphore(name, 1):
            self.assertEqual(server_answers("EXISTS", f"python:app:mutex:{name}"), ":1")
            self.assertEqual(server_answers("EXISTS", f"python:app:semaphore:{name}"), ":1")

    def test_the_command_timeout_ends_a_request_without_an_answer(self):
        lock = redlatch.Client(URL, command_timeout=3.5).lock(self.a_name())
        with stopped_server():
            self.fails_after(3.499, redlatch.Unconfirmed, lock.try_acquire)

    def test_the_connect_timeout_ends_an_opening_without_an_answer(self):
        silent, port = silent_port()
        with silent:
            # With a database, which is chosen when a connection is opened.
            client = redlatch.Client(f"redis://127.0.0.1:{port}/1", connect_timeout=1.6)
            self.fails_after(1.599, redlatch.ConnectionFailed, client.lock("x").try_acquire)

    def test_a_redlocks_node_timeout_and_max_lease_are_acted_on(self):
        with contextlib.ExitStack() as silent:
            ports = []
            for _ in range(3):
                listening, port = silent_port()
                silent.enter_context(listening)
                ports.append(f"127.0.0.1:{port}")
            url = "redlock://" + ",".join(ports)
            client = redlatch.Client(url, max_lease=20, node_timeout=0.7, command_timeout=600)
            with self.assertRaises(redlatch.InvalidArgument):
                client.lock("x", lease=20.001).try_acquire()
            self.fails_after(0.699, redlatch.NoQuorum, client.lock("x", lease=20).try_acquire)

    def test_the_pool_size_is_how_many_connections_there_are(self):
        # Requests of so many threads, of which none is answered: with more room, each would have one of its own.
        listening, port = silent_port()
        lock = redlatch.Client(f"redis://127.0.0.1:{port}/", pool_size=3, command_timeout=PATIENCE).lock("x")
        with ThreadPoolExecutor(6) as pool:
            requests = [pool.submit(lock.try_acquire) for _ in range(6)]
            connections = []
            # So that nobody waits any longer.
            with contextlib.ExitStack() as hang_up:
                hang_up.callback(lambda: [connection.close() for connection in connections])
                hang_up.enter_context(listening)
                listening.settimeout(PATIENCE / 2)
                for _ in range(3):
                    connections.append(listening.accept()[0])
                listening.settimeout(0.3)
                with self.assertRaises(socket.timeout):
                    connections.append(listening.accept()[0])
            for request in requests:
                with self.assertRaises((redlatch.Unconfirmed, redlatch.ConnectionFailed)):
                    request.result(PATIENCE)

    def test_the_sentinel_login_is_what_a_sentinel_is_told(self):
        listening, port = silent_port()
        url = f"redis-sentinel://127.0.0.1:{port}/0#master"
        lock = redlatch.Client(url, sentinel_login=("watcher", "secret")).lock("x")
        expected = b"*3\r\n$4\r\nAUTH\r\n$7\r\nwatcher\r\n$6\r\nsecret\r\n"
        with ThreadPoolExecutor(1) as pool:
            request = pool.submit(lock.try_acquire)
            with listening:
                listening.settimeout(PATIENCE)
                connection = listening.accept()[0]
                with connection, connection.makefile("rb") as stream:
                    connection.settimeout(PATIENCE)
                    self.assertEqual(stream.read(len(expected)), expected)
            with self.assertRaises(redlatch.ConnectionFailed):
                request.result(PATIENCE)

    def test_the_poll_interval_is_when_waiters_look(self):
        lock = redlatch.Client(URL, poll_interval=600).lock(self.a_name())
        until(lambda: self.goes_unnoticed(lock), "a waiter does not look")

    def goes_unnoticed(self, lock):
        """Whether a release that wakes nobody goes unnoticed for twice the default interval.

        A waiter looks again just after the server knows of it, which may be after the release.
        """
        server_answers("SET", f"lock:{lock.name}", "anothers", "PX", "600000")
        stop = redlatch.CancelToken()
        waiting = self.wait_in_thread(lock, PATIENCE, cancel=stop)
        self.assertEqual(server_answers("DEL", f"lock:{lock.name}"), ":1")
        concurrent.futures.wait([waiting], timeout=2)
        stop.cancel()
        try:
            waiting.result(PATIENCE).release()
        except redlatch.Cancelled:
            return True
        return False

    def fails_after(self, least, error, call):
        started = time.monotonic()
        with self.assertRaises(error):
            call()
        took = time.monotonic() - started
        self.assertGreaterEqual(took, least)
        self.assertLess(took, PATIENCE)


class LocksAndSemaphores(Scenario):
    """On a server with one replica."""

    def both(self, client=None, **settings):
        """A lock and a semaphore that are set alike."""
        client, name = client or self.client, self.a_name()
        return client.lock(name, **settings), client.semaphore(name, 1, **settings)

    def test_fair_threads_have_places_of_their_own(self):
        # Of the others the server knows one for each client.
        for acquirable in self.both(fair=True):
            with self.subTest(acquirable), acquirable.acquire() as guard:
                waiting = [self.wait_in_thread(acquirable, PATIENCE) for _ in range(2)]
                self.assertEqual(acquirable.inspect().waiters, 2)
                guard.release()
                for _ in waiting:
                    until(lambda: any(one.done() for one in waiting), "the next one has it")
                    waiting.pop([one.done() for one in waiting].index(True)).result().release()

    def test_others_have_one_for_each_client(self):
        other = redlatch.Client(URL)
        for acquirable in self.both():
            make = other.lock if isinstance(acquirable, redlatch.Lock) else lambda name: other.semaphore(name, 1)
            with self.subTest(acquirable), acquirable, ThreadPoolExecutor(2) as pool:
                waited_for, stop = make(acquirable.name), redlatch.CancelToken()
                waiting = [pool.submit(waited_for.acquire, PATIENCE, cancel=stop) for _ in range(2)]
                until(lambda: acquirable.inspect().waiters > 0, "they wait")
                self.assertEqual(acquirable.inspect().waiters, 1)
                stop.cancel()
                for one in waiting:
                    with self.assertRaises(redlatch.Cancelled):
                        one.result(PATIENCE)

    def test_no_handoffs_are_none(self):
        for once in self.both(handoffs=1):
            until(lambda: self.is_handed_on(once), "it is handed on")
        for never in self.both(handoffs=0):
            self.assertFalse(any(self.is_handed_on(never) for _ in range(5)))

    def is_handed_on(self, acquirable):
        """Whether another thread that waits gets it without the server. That it waits can only be guessed."""

        def token():
            with acquirable.acquire(timeout=PATIENCE) as guard:
                return guard.token

        with ThreadPoolExecutor(1) as pool, acquirable.acquire() as guard:
            waiting = pool.submit(token)
            time.sleep(0.02)
            guard.release()
            return waiting.result() == guard.token

    def test_the_lease_is_how_long_it_stays_taken(self):
        # Longer than by default.
        for acquirable in self.both(lease=600):
            with acquirable.acquire() as guard:
                self.assertTrue(500 < guard.remaining <= 600, guard.remaining)

    def test_a_longest_hold_and_a_timed_lease_end(self):
        for acquirable in self.both(max_hold=0.8):
            self.is_lost_after(0.8, acquirable, redlatch.LostReason.MAX_HOLD)
        self.is_lost_after(0.8, self.client.timed_lock(self.a_name(), 0.8), redlatch.LostReason.EXPIRED)
        self.is_lost_after(0.8, self.client.semaphore(self.a_name(), 1, timed=0.8), redlatch.LostReason.EXPIRED)

    def is_lost_after(self, length, acquirable, reason):
        started = time.monotonic()
        guard = acquirable.acquire()
        self.assertTrue(guard.wait_lost(PATIENCE))
        # It ends earlier by what clocks may drift apart: 1 % and 2 ms.
        self.assertGreaterEqual(time.monotonic() - started, length * 0.99 - 0.003)
        self.assertEqual(guard.lost_reason, reason)

    def test_so_many_replicas_confirm_it_in_time(self):
        timed = functools.partial(self.client.timed_lock, self.a_name(), 600)
        for acquirable in (*self.both(replicas=(1, PATIENCE)), timed(replicas=(1, PATIENCE))):
            acquirable.acquire().release()
        for acquirable in (*self.both(replicas=(2, 2.5)), timed(replicas=(2, 2.5))):
            # Longer than the command timeout by default.
            started = time.monotonic()
            with self.assertRaises(redlatch.NotReplicated) as raised:
                acquirable.acquire()
            self.assertGreaterEqual(time.monotonic() - started, 2.499)
            self.assertEqual(raised.exception.code, -7)
            self.assertIn("by 1 of 2", str(raised.exception))

    def test_permits_are_what_one_acquire_takes(self):
        semaphore = self.client.semaphore(self.a_name(), 5, permits=3)
        with semaphore:
            self.assertEqual(semaphore.available(), 2)


if __name__ == "__main__":
    unittest.main()
