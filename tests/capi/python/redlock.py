"""Waits on a Redlock, on the main thread: they go on until a majority grants it."""

import contextlib
import socket
import time
import unittest

import redlatch
from scenario import PATIENCE, URL, Scenario

NODES = URL.split("://")[1].split(",")


def uptime(node):
    """For how many seconds a server has been up."""
    host, port = node.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rb") as stream:
        connection.sendall(b"INFO server\r\n")
        for line in stream:
            if line.startswith(b"uptime_in_seconds:"):
                return int(line.split(b":")[1])
    raise AssertionError(f"{node} does not tell for how long it has been up")


class Waits(Scenario):
    def test_servers_without_a_vote_are_waited_for(self):
        for several in (False, True):
            with self.subTest(several=several):
                # However long they have been up, they have no vote yet.
                client = redlatch.Client(URL, max_lease=max(map(uptime, NODES)) + 3)
                name = self.a_name()
                lock = client.multi_lock([name, self.a_name()]) if several else client.lock(name)
                with lock.acquire(timeout=PATIENCE) as guard:
                    guard.check()

    def test_a_wait_without_a_majority_ends_at_its_time(self):
        with contextlib.ExitStack() as taken:
            nodes = NODES[:1]
            for _ in range(2):
                # A port that nobody listens on, since this process has it.
                port = taken.enter_context(socket.socket())
                port.bind(("127.0.0.1", 0))
                nodes.append(f"127.0.0.1:{port.getsockname()[1]}")
            client = redlatch.Client("redlock://" + ",".join(nodes))
            name = self.a_name()
            for lock in (client.lock(name), client.multi_lock([name, self.a_name()])):
                with self.subTest(lock):
                    with self.assertRaises(redlatch.NoQuorum):
                        lock.try_acquire()
                    started = time.monotonic()
                    with self.assertRaises(redlatch.LockTimeout):
                        lock.acquire(timeout=1)
                    self.assertGreaterEqual(time.monotonic() - started, 1)

    def test_the_default_lease_is_no_longer_than_the_longest(self):
        client = redlatch.Client(URL, max_lease=3)
        for lock in (client.lock(self.a_name()), client.multi_lock([self.a_name(), self.a_name()])):
            with self.subTest(lock), lock.acquire(timeout=PATIENCE) as guard:
                self.assertLessEqual(guard.remaining, 3)


if __name__ == "__main__":
    unittest.main()
