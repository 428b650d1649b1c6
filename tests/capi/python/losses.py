import gc
import threading
import unittest
import weakref

import redlatch
from scenario import Scenario, run_python, until


class Losses(Scenario):
    def test_on_lost_is_told_once_with_what_check_raises(self):
        lost = []
        lock = self.client.timed_lock(self.a_name(), 0.05, on_lost=lost.append)
        with self.assertRaises(redlatch.Lost) as raised, lock as guard:
            guard.wait_lost()
        until(lambda: lost, "it is told")
        told = lost[0]
        self.assertIsInstance(told, redlatch.Lost)
        self.assertEqual(told.reason, redlatch.LostReason.EXPIRED)
        self.assertEqual((told.name, told.fencing_token), (lock.name, guard.fencing_token))
        self.assertEqual(str(told), str(raised.exception))
        # Another loss, so that a second call for the first would have come before.
        with self.assertRaises(redlatch.Lost), lock as guard:
            guard.wait_lost()
        until(lambda: len(lost) > 1, "it is told of the second")
        self.assertEqual([one.fencing_token for one in lost], [told.fencing_token, guard.fencing_token])

    def test_on_lost_of_a_semaphore_is_told_that_the_permit_was_thrown_out(self):
        lost = []
        semaphore = self.client.semaphore(self.a_name(), 2, lease=0.6, on_lost=lost.append)
        guard = semaphore.acquire()
        self.assertTrue(semaphore.force_release())
        self.assertTrue(guard.wait_lost(60))
        self.assertEqual(guard.lost_reason, redlatch.LostReason.DELETED)
        until(lambda: lost, "it is told")
        self.assertEqual(lost[0].reason, redlatch.LostReason.DELETED)

    def test_on_lost_may_use_redlatch(self):
        seen = []

        def on_lost(lost):
            # The server may keep it a little longer than the holder believes.
            with lock.acquire(timeout=60) as guard:
                seen.append(guard.fencing_token > lost.fencing_token)

        other = self.client.timed_lock(self.a_name(), 0.05, on_lost=on_lost)
        lock = self.client.lock(other.name)
        guard = other.acquire()
        until(lambda: seen, "it has acquired it again")
        self.assertEqual(seen, [True])
        del guard

    def test_what_on_lost_raises_is_printed_and_ends_that_call_only(self):
        script = """
import sys, threading, redlatch
calls = threading.Semaphore(0)
def on_lost(lost):
    calls.release()
    raise [KeyError("first"), SystemExit(5), KeyboardInterrupt(), KeyError("last")][number]
lock = redlatch.Client(sys.argv[1]).timed_lock(sys.argv[2], 0.05, on_lost=on_lost)
for number in range(4):
    guard = lock.acquire(timeout=60)
    assert calls.acquire(timeout=60)
print("alive")
"""
        finished = run_python(script, self.a_name())
        self.assertEqual((finished.returncode, finished.stdout), (0, "alive\n"), finished.stderr)
        for printed in ("KeyError: 'first'", "SystemExit: 5", "KeyboardInterrupt", "KeyError: 'last'"):
            self.assertIn(printed, finished.stderr)

    def test_a_callback_lives_as_long_as_it_may_be_called_and_no_longer(self):
        class Callback:
            def __init__(self):
                self.called = threading.Event()

            def __call__(self, lost):
                self.called.set()

        callback = Callback()
        called, alive = callback.called, weakref.ref(callback)
        lock = self.client.timed_lock(self.a_name(), 0.3, on_lost=callback)
        guard = lock.acquire()
        del callback, lock
        gc.collect()
        self.assertIsNotNone(alive())
        self.assertTrue(called.wait(60))
        del guard
        until(lambda: gc.collect() >= 0 and alive() is None, "it is freed")
        # One that was never used.
        callback = Callback()
        alive = weakref.ref(callback)
        self.client.lock(self.a_name(), on_lost=callback)
        del callback
        gc.collect()
        self.assertIsNone(alive())


class Ending(Scenario):
    """The interpreter's end."""

    def test_what_is_held_at_the_end_is_released(self):
        name = self.a_name()
        script = """
import sys, redlatch
client = redlatch.Client(sys.argv[1])
guard = client.lock(sys.argv[2], on_lost=print).acquire()
class Cycle: pass
cycle = Cycle()
cycle.itself, cycle.guard = cycle, client.lock(sys.argv[2] + "2").acquire()
del cycle
"""
        self.succeed(run_python(script, name))
        self.assertTrue(self.client.lock(name).inspect().is_free)
        self.assertTrue(self.client.lock(name + "2").inspect().is_free)

    def test_losses_at_the_very_end_do_no_harm(self):
        script = """
import sys, threading, redlatch
client = redlatch.Client(sys.argv[1])
# The callback is under way, or about to be, when the interpreter ends.
begun = threading.Event()
def on_lost(lost):
    begun.set()
    for _ in range(20000):
        pass
guards = [client.timed_lock(f"{sys.argv[2]}:{n}", 0.03 + n / 1000, on_lost=on_lost).acquire() for n in range(20)]
begun.wait()
"""
        for _ in range(5):
            self.succeed(run_python(script, self.a_name()))

    def test_threads_that_wait_do_not_keep_the_interpreter(self):
        name = self.a_name()
        script = """
import sys, threading, time, redlatch
client = redlatch.Client(sys.argv[1])
lock = client.lock(sys.argv[2], fair=True, on_lost=print)
guard = lock.acquire()
for wait in (lock.acquire, guard.wait_lost):
    threading.Thread(target=wait, daemon=True).start()
while lock.inspect().waiters == 0:
    time.sleep(0.001)
"""
        self.assertEqual(run_python(script, name).returncode, 0)

    def test_a_daemon_thread_is_granted_nothing_when_the_interpreter_has_ended(self):
        name = self.a_name()
        script = """
import sys, threading, time, redlatch
client = redlatch.Client(sys.argv[1])
lock = client.lock(sys.argv[2], fair=True)
guard = lock.acquire()

def take():
    taken = lock.acquire()
    time.sleep(600)

threading.Thread(target=take, daemon=True).start()
while lock.inspect().waiters == 0:
    time.sleep(0.001)
"""
        for _ in range(3):
            self.assertEqual(run_python(script, name).returncode, 0)
            # Its lease, which nobody renews any more, would last for half a minute.
            with self.client.lock(name).acquire(timeout=10):
                pass


if __name__ == "__main__":
    unittest.main()
