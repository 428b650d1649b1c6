import gc
import threading
import time
import unittest
import warnings
from datetime import timedelta

import redlatch
from scenario import URL, Scenario, until


class Guards(Scenario):
    def test_a_guard_tells_about_its_hold(self):
        name = self.a_name()
        lock = self.client.lock(name, lease=20)
        guard = lock.acquire()
        self.assertEqual((guard.name, lock.name), (name, name))
        self.assertTrue(guard.is_held)
        self.assertTrue(0 < guard.remaining <= 20, guard.remaining)
        self.assertIsNone(guard.lost_reason)
        guard.check()
        holder = lock.inspect().holders[0]
        self.assertEqual(holder.token, guard.token)
        self.assertEqual(lock.inspect().fencing_token, guard.fencing_token)
        self.assertIn("held", repr(guard))
        guard.release()
        self.assertFalse(guard.is_held)
        self.assertEqual(guard.remaining, 0)
        self.assertTrue(lock.inspect().is_free)

    def test_fencing_tokens_rise(self):
        lock = self.client.lock(self.a_name())
        tokens = []
        for _ in range(5):
            with lock as guard:
                tokens.append(guard.fencing_token)
        self.assertEqual(tokens, sorted(set(tokens)))

    def test_after_its_release_a_guard_refuses_everything(self):
        guard = self.client.lock(self.a_name()).acquire()
        token = guard.fencing_token
        guard.release()
        for use in (guard.check, guard.release, guard.wait_lost, lambda: guard.extend(10)):
            with self.assertRaises(redlatch.InvalidState) as raised:
                use()
            self.assertEqual(raised.exception.code, -14)
        self.assertEqual(guard.fencing_token, token)

    def test_a_guard_that_nobody_refers_to_is_released(self):
        lock = self.client.lock(self.a_name())
        # As users of threading.Lock may write it: they are told.
        with self.assertWarnsRegex(RuntimeWarning, lock.name):
            lock.acquire(timeout=10)
            gc.collect()
        self.assertTrue(lock.inspect().is_free)

    def test_a_guard_that_was_released_or_lost_is_dropped_in_silence(self):
        lock = self.client.lock(self.a_name())
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            lock.acquire().release()
            with lock:
                pass
            guard = lock.acquire()
            lock.force_release()
            with self.assertRaises(redlatch.Lost):
                guard.extend(60)
            del guard
            gc.collect()
        self.assertEqual([str(warning.message) for warning in warned if warning.category is RuntimeWarning], [])

    def test_another_thread_may_release(self):
        lock = self.client.lock(self.a_name())
        guard = lock.acquire()
        thread = threading.Thread(target=guard.release)
        thread.start()
        thread.join()
        self.assertFalse(guard.is_held)
        self.assertTrue(lock.inspect().is_free)

    def test_client_and_lock_may_go_before_the_guard(self):
        client = redlatch.Client(URL)
        lock = client.lock(self.a_name())
        guard = lock.acquire()
        del client, lock
        gc.collect()
        guard.check()
        guard.extend(timedelta(minutes=1))
        self.assertGreater(guard.remaining, 31)
        guard.release()

    def test_an_extension_sets_the_end_and_never_shortens(self):
        guard = self.client.timed_lock(self.a_name(), 20).acquire()
        guard.extend(100)
        self.assertTrue(60 < guard.remaining <= 100, guard.remaining)
        guard.extend(1)
        self.assertGreater(guard.remaining, 60)

    def test_a_lost_lease_is_told_by_everything(self):
        name = self.a_name()
        lock = self.client.timed_lock(name, 0.05)
        guard = lock.acquire()
        self.assertTrue(guard.wait_lost(timedelta(seconds=30)))
        self.assertFalse(guard.is_held)
        self.assertEqual(guard.lost_reason, redlatch.LostReason.EXPIRED)
        for use in (guard.check, lambda: guard.extend(10), guard.release):
            with self.assertRaises(redlatch.Lost) as raised:
                use()
            self.assertEqual(raised.exception.reason, redlatch.LostReason.EXPIRED)
            self.assertEqual(raised.exception.name, name)
            self.assertEqual(raised.exception.fencing_token, guard.fencing_token)
            self.assertEqual(raised.exception.code, -4)
            self.assertIn("ran out", str(raised.exception))
        self.assertEqual(guard.lost_reason, redlatch.LostReason.EXPIRED)

    def test_a_wait_for_a_loss_ends_at_its_time_and_by_a_release(self):
        guard = self.client.lock(self.a_name()).acquire()
        for timeout in (0, 0.01, 0.12):
            started = time.monotonic()
            self.assertFalse(guard.wait_lost(timeout))
            self.assertGreaterEqual(time.monotonic() - started, timeout)
        raised = []

        def wait():
            try:
                guard.wait_lost()
            except redlatch.InvalidState as error:
                raised.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        guard.release()
        thread.join()
        self.assertEqual(len(raised), 1)


class WithStatements(Scenario):
    def test_with_holds_for_its_body(self):
        lock = self.client.lock(self.a_name())
        for hold in (lambda: lock, lock.acquire):
            with hold() as guard:
                guard.check()
                self.assertIsNone(self.client.lock(lock.name).try_acquire())
            self.assertFalse(guard.is_held)
            self.assertTrue(lock.inspect().is_free)

    def test_with_raises_lost_if_the_body_did_not_raise(self):
        lock = self.client.timed_lock(self.a_name(), 0.05)
        for hold in (lambda: lock, lock.acquire):
            with self.assertRaises(redlatch.Lost):
                with hold() as guard:
                    self.assertTrue(guard.wait_lost())

    def test_the_exception_of_the_body_wins(self):
        lock = self.client.timed_lock(self.a_name(), 0.05)
        with self.assertRaisesRegex(KeyError, "of the body") as raised:
            with lock as guard:
                self.assertTrue(guard.wait_lost())
                raise KeyError("of the body")
        self.assertIsNone(raised.exception.__context__)

    def test_what_was_released_in_the_body_is_no_error(self):
        lock = self.client.lock(self.a_name())
        for hold in (lambda: lock, lock.acquire):
            with hold() as guard:
                guard.release()

    def test_a_release_that_nobody_confirms_is_no_error_at_the_end_of_a_body(self):
        # Long enough to be held when the server says nothing for a command timeout or two.
        client = redlatch.Client(URL, command_timeout=0.2, connect_timeout=0.2)
        name = self.a_name()
        lock = client.lock(name, lease=60)
        pause = _server("CLIENT", "PAUSE", "3000")
        with lock as guard:
            pause()
        self.assertFalse(guard.is_held)
        guard = lock.acquire(timeout=30)
        pause()
        with self.assertRaises(redlatch.Unconfirmed):
            guard.release()
        until(lambda: _is_free(lock), "the background has released it")

    def test_one_lock_serves_many_threads_and_nested_statements(self):
        lock = self.client.lock(self.a_name())
        semaphore = self.client.semaphore(self.a_name(), 2)
        inside = []

        def work():
            for _ in range(20):
                with lock:
                    inside.append(1)
                    self.assertEqual(len(inside), 1)
                    inside.pop()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with semaphore as outer, semaphore as inner:
            self.assertNotEqual(outer.fencing_token, inner.fencing_token)
            self.assertEqual(semaphore.available(), 0)
        self.assertEqual(semaphore.available(), 2)
        self.assertTrue(lock.inspect().is_free)

    def test_another_thread_cannot_leave_what_it_has_not_entered(self):
        lock = self.client.lock(self.a_name())
        with lock:
            raised = []

            def leave():
                try:
                    lock.__exit__(None, None, None)
                except redlatch.InvalidState as error:
                    raised.append(error)

            thread = threading.Thread(target=leave)
            thread.start()
            thread.join()
            self.assertEqual(len(raised), 1)


def _server(*command):
    """A command to the server, over its own protocol."""
    import socket
    from urllib.parse import urlsplit

    def send():
        url = urlsplit(URL)
        words = "".join(f"${len(word)}\r\n{word}\r\n" for word in command)
        with socket.create_connection((url.hostname, url.port), timeout=10) as connection:
            connection.sendall(f"*{len(command)}\r\n{words}".encode())
            assert connection.recv(100) == b"+OK\r\n"

    return send


def _is_free(lock):
    try:
        return lock.inspect().is_free
    except (redlatch.Unconfirmed, redlatch.ConnectionFailed):
        return False


if __name__ == "__main__":
    unittest.main()
