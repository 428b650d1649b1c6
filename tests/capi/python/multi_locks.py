import queue
import threading
import unittest

import redlatch
from scenario import URL, Scenario, until


class MultiLocks(Scenario):
    def setUp(self):
        super().setUp()
        self.other = redlatch.Client(URL)
        self.given = [self.a_name() for _ in range(3)]

    def is_free(self, name):
        guard = self.other.lock(name).try_acquire()
        if guard is not None:
            guard.release()
        return guard is not None

    def free(self):
        return [name for name in self.given if self.is_free(name)]

    def test_all_are_held_or_none(self):
        locks = self.client.multi_lock(self.given)
        with locks as guard:
            self.assertEqual(self.free(), [])
            guard.check()
            self.assertTrue(guard.is_held and 0 < guard.remaining <= 30)
            guard.extend(60)
            self.assertGreater(guard.remaining, 30)
        self.assertEqual(self.free(), self.given)
        with self.other.lock(self.given[1]):
            self.assertIsNone(locks.try_acquire())
            with self.assertRaises(redlatch.LockTimeout) as raised:
                locks.acquire(timeout=0.02)
            self.assertIn(self.given[1], str(raised.exception))
            self.assertEqual(self.free(), [self.given[0], self.given[2]])

    def test_names_come_once_in_the_order_of_their_fencing_tokens(self):
        locks = self.client.multi_lock([*self.given, self.given[0], self.given[1].encode()])
        self.assertEqual(sorted(locks.names), sorted(self.given))
        self.assertEqual(self.client.multi_lock(reversed(self.given)).names, locks.names)
        before = [self.other.lock(name).acquire() for name in locks.names]
        for guard in before:
            guard.release()
        with locks as guard:
            self.assertEqual(guard.names, locks.names)
            self.assertEqual((guard.name, guard.fencing_token), (guard.names[0], guard.fencing_tokens[0]))
            self.assertEqual(self.other.lock(guard.name).inspect().holders[0].token, guard.token)
            for earlier, token in zip(before, guard.fencing_tokens):
                self.assertGreater(token, earlier.fencing_token)
            for name in locks.names:
                self.assertIn(repr(name), repr(guard))
        with self.client.lock(self.given[0]) as guard:
            self.assertEqual((guard.names, guard.fencing_tokens), ((self.given[0],), (guard.fencing_token,)))

    def test_names_are_bytes(self):
        given = [b"\0", b"\0\0", b"\xff\xfe", self.a_name()]
        with self.client.multi_lock(given) as guard:
            self.assertEqual(set(guard.names), set(given))
            self.assertFalse(self.is_free(b"\0\0"))

    def test_what_cannot_work_is_refused(self):
        for names in ([], [""], ["a", b""], [f"{number}" for number in range(1001)]):
            with self.assertRaises(redlatch.InvalidArgument):
                self.client.multi_lock(names)
        for names in ("ab", b"ab", [1], ["a", None]):
            with self.assertRaises(TypeError):
                self.client.multi_lock(names)
        with self.assertRaises(redlatch.InvalidArgument):
            self.client.multi_lock(["a"], lease=0.001)
        with self.assertRaises(redlatch.InvalidArgument):
            self.client.multi_lock(["a"], max_hold=0.001)

    def test_each_loss_is_told_by_its_name(self):
        told = queue.Queue()
        locks = self.client.multi_lock(self.given, lease=3, on_lost=told.put)
        guard = locks.acquire()
        self.assertTrue(self.other.lock(self.given[1]).force_release())
        self.assertTrue(guard.wait_lost(60))
        with self.assertRaises(redlatch.Lost) as raised:
            guard.check()
        at = guard.names.index(self.given[1])
        for lost in (raised.exception, told.get(timeout=60)):
            self.assertEqual(lost.reason, redlatch.LostReason.DELETED)
            self.assertEqual((lost.name, lost.fencing_token), (self.given[1], guard.fencing_tokens[at]))
        with self.assertRaises(redlatch.Lost) as raised:
            guard.release()
        self.assertEqual(raised.exception.name, self.given[1])
        self.assertEqual(guard.lost_reason, redlatch.LostReason.DELETED)
        self.assertEqual(self.free(), self.given)
        self.assertTrue(told.empty())

    def test_the_longest_hold_ends_all(self):
        guard = self.client.multi_lock(self.given, max_hold=0.3).acquire()
        self.assertTrue(guard.wait_lost(60))
        self.assertEqual(guard.lost_reason, redlatch.LostReason.MAX_HOLD)
        with self.assertRaises(redlatch.Lost):
            guard.release()

    def test_a_wait_ends_with_all_of_them_or_is_cancelled(self):
        locks, cancel = self.client.multi_lock(self.given), redlatch.CancelToken()
        outcomes = queue.Queue()

        def wait():
            try:
                with locks.acquire(cancel=cancel) as guard:
                    outcomes.put(guard.is_held)
            except redlatch.Cancelled as error:
                outcomes.put(error)

        for ends_by in ("release", "cancel"):
            taken = self.other.lock(self.given[2]).acquire()
            thread = threading.Thread(target=wait)
            thread.start()
            until(lambda: self.other.lock(self.given[2]).inspect().waiters > 0, "it waits")
            if ends_by == "release":
                taken.release()
                self.assertIs(outcomes.get(timeout=60), True)
            else:
                cancel.cancel()
                self.assertIsInstance(outcomes.get(timeout=60), redlatch.Cancelled)
                taken.release()
            thread.join()
        until(lambda: self.free() == self.given, "all are given back")

    def test_a_function_may_hold_them(self):
        @self.client.multi_lock(self.given)
        def work():
            return self.free()

        self.assertEqual(work(), [])
        self.assertEqual(self.free(), self.given)


if __name__ == "__main__":
    unittest.main()
