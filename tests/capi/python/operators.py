import socket
import unittest
from urllib.parse import urlsplit

import redlatch
from scenario import URL, Scenario


def server(*command):
    """Has the server do something, over its own protocol; returns the first line of its answer."""
    url = urlsplit(URL)
    words = [word if isinstance(word, bytes) else str(word).encode() for word in command]
    request = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
    with socket.create_connection((url.hostname, url.port), timeout=10) as connection:
        connection.sendall(request)
        return connection.makefile("rb").readline().strip()


class Operators(Scenario):
    def test_an_inspection_shows_what_others_put_there(self):
        lock = self.client.lock(self.a_name())
        server("SET", f"lock:{lock.name}", b"\xffforeign")
        seen = lock.inspect()
        self.assertEqual(seen.holders, (redlatch.Holder("\udcffforeign", None, 1),))
        self.assertFalse(seen.is_free)
        self.assertIn("held", str(seen))
        self.assertTrue(lock.force_release())
        self.assertFalse(lock.force_release())
        self.assertEqual(lock.inspect().holders, ())

    def test_an_inspection_counts_and_times(self):
        lock = self.client.lock(self.a_name(), fair=True, lease=50)
        with lock as guard:
            waiting = self.wait_in_thread(lock)
            seen = lock.inspect()
            self.assertEqual((seen.waiters, seen.limit, seen.declared_limit, seen.available), (1, 1, 1, 0))
            self.assertEqual([holder.token for holder in seen.holders], [guard.token])
            self.assertTrue(0 < seen.holders[0].expires_in <= 50, seen)
        waiting.result(60).release()

    def test_a_hold_that_was_forced_out_is_lost(self):
        lock = self.client.lock(self.a_name())
        with self.assertRaises(redlatch.Lost) as raised:
            with lock:
                self.assertTrue(lock.force_release())
        self.assertEqual(raised.exception.reason, redlatch.LostReason.DELETED)

    def test_an_audit_finds_locks_without_expiry(self):
        prefix = self.a_name()
        server("SET", f"{prefix}:string", "x")
        server("HSET", f"{prefix}:hash".encode() + b"\0", "field", 1)
        server("SET", f"{prefix}:fine", "x", "PX", 100000)
        server("SADD", f"{prefix}:set", "x")
        found = {(found.key, found.data_type) for found in self.client.audit(f"{prefix}:*".replace("[", "?"))}
        self.assertEqual(found, {(f"{prefix}:string".encode(), "string"), (f"{prefix}:hash\0".encode(), "hash")})
        with self.assertRaises(redlatch.InvalidArgument):
            self.client.audit("")
        with self.assertRaises(redlatch.ConnectionFailed):
            list(redlatch.Client("redis://127.0.0.1:1/").audit())

    def test_a_key_of_another_kind_is_a_conflict(self):
        lock = self.client.lock(self.a_name())
        server("RPUSH", f"lock:{lock.name}", "x")
        for attempt in (lock.try_acquire, lock.acquire, lock.inspect):
            with self.assertRaises(redlatch.KeyConflict) as raised:
                attempt()
            self.assertEqual(raised.exception.code, -9)


if __name__ == "__main__":
    unittest.main()
