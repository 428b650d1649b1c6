import threading
import unittest

import redlatch
from scenario import URL, Scenario, until


class Semaphores(Scenario):
    def test_no_more_than_the_limit_hold_permits(self):
        semaphore = self.client.semaphore(self.a_name(), 3)
        permits = [semaphore.try_acquire() for _ in range(4)]
        self.assertEqual([permit is not None for permit in permits], [True, True, True, False])
        self.assertEqual((semaphore.available(), semaphore.holders()), (0, 3))
        with self.assertRaises(redlatch.LockTimeout):
            semaphore.acquire(timeout=0.1)
        permits[0].release()
        self.assertEqual(semaphore.holders(), 2)
        # It may be left to the one whose wait has just ended, for a moment.
        until(lambda: semaphore.available() == 1, "one is free")

    def test_several_permits_are_taken_at_once(self):
        semaphore = self.client.semaphore(self.a_name(), 5, permits=3)
        with semaphore:
            self.assertIsNone(semaphore.try_acquire())
            self.assertEqual((semaphore.available(), semaphore.holders()), (2, 1))
            self.assertEqual(semaphore.inspect().holders[0].permits, 3)

    def test_the_limit_is_set_for_all(self):
        name = self.a_name()
        semaphore = self.client.semaphore(name, 1)
        other = redlatch.Client(URL).semaphore(name, 1)
        with semaphore:
            waiting = self.wait_in_thread(redlatch.Client(URL).semaphore(name, 1, fair=True))
            other.set_limit(2)
            waiting.result(60).release()
            seen = semaphore.inspect()
            self.assertEqual((seen.limit, seen.declared_limit), (2, 1))
            other.set_limit(0)
            self.assertIsNone(other.try_acquire())

    def test_another_limit_is_refused(self):
        name = self.a_name()
        with self.client.semaphore(name, 2):
            with self.assertRaises(redlatch.LimitMismatch) as raised:
                self.client.semaphore(name, 3).acquire()
            self.assertRegex(str(raised.exception), "2.*3|3.*2")

    def test_leases_may_be_timed(self):
        semaphore = self.client.semaphore(self.a_name(), 1, timed=0.05)
        guard = semaphore.acquire()
        self.assertTrue(guard.wait_lost(60))
        with self.assertRaises(redlatch.Lost):
            guard.release()

    def test_threads_share_the_permits(self):
        semaphore = self.client.semaphore(self.a_name(), 2)
        inside, most = [], []

        def work():
            for _ in range(10):
                with semaphore:
                    inside.append(1)
                    most.append(len(inside))
                    inside.pop()

        threads = [threading.Thread(target=work) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(most), 50)
        self.assertLessEqual(max(most), 2)


if __name__ == "__main__":
    unittest.main()
