import concurrent.futures
import copy
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import unittest

import redlatch
from scenario import URL, Scenario, run_python, until


def in_child(work):
    """Forks; the child exits with 0 if `work` does not raise. Returns its exit code."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Forks(Scenario):
    def test_what_the_parent_made_is_inert_in_a_child(self):
        lock = self.client.lock(self.a_name(), lease=0.6, on_lost=print)
        semaphore = self.client.semaphore(self.a_name(), 2)
        token = redlatch.CancelToken()
        guard = lock.acquire()

        def work():
            for use in (
                guard.check,
                guard.release,
                guard.wait_lost,
                lambda: guard.extend(10),
                lock.acquire,
                lock.try_acquire,
                lock.inspect,
                lock.force_release,
                semaphore.acquire,
                semaphore.available,
                lambda: semaphore.set_limit(1),
                lambda: self.client.lock("x"),
                lambda: self.client.semaphore("x", 1),
                self.client.audit,
                token.cancel,
            ):
                with self.assertRaises(redlatch.Forked) as raised:
                    use()
                self.assertEqual(raised.exception.code, -16)
            with self.assertRaises(redlatch.Forked):
                with guard:
                    pass
            self.assertFalse(guard.is_held)
            self.assertEqual(guard.remaining, 0)
            self.assertIsNone(guard.lost_reason)
            # The child's end does not wait for callbacks of the parent's.
            self.assertTrue(redlatch._losses.callbacks_ended(0))

        self.assertEqual(in_child(work), 0)
        guard.check()

    def test_a_child_opens_a_client_of_its_own(self):
        lock = self.client.lock(self.a_name())
        other = self.a_name()
        with lock:

            def work():
                client = redlatch.Client(URL)
                self.assertIsNone(client.lock(lock.name).try_acquire())
                guard = client.lock(other, lease=0.6).acquire()
                # It is renewed, by a thread of the child's.
                self.assertFalse(guard.wait_lost(2))
                guard.release()

            self.assertEqual(in_child(work), 0)

    def test_a_child_that_exits_leaves_the_lock_of_its_parent_alone(self):
        script = """
import os, sys, threading, redlatch
url, name, how = sys.argv[1:]
client = redlatch.Client(url)
lock = client.lock(name, lease=0.6, fair=True, on_lost=print)
waiter = threading.Thread(target=lambda: lock.acquire().release())
with lock as guard:
    # A thread that the child does not have, in the midst of a wait.
    waiter.start()
    while lock.inspect().waiters == 0:
        pass
    child = os.fork()
    if child == 0:
        if how == "_exit":
            os._exit(7)
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert lock.inspect().holders[0].token == guard.token
    # Much longer than the lease: it goes on being renewed.
    assert not guard.wait_lost(2)
    assert lock.inspect().holders[0].token == guard.token
waiter.join()
print("released")
"""
        for how in ("exit", "_exit"):
            self.assertEqual(self.succeed(run_python(script, self.a_name(), how)), "released\n")

    def test_a_fork_in_a_signal_handler_ends_the_wait_in_the_child_only(self):
        lock = self.client.lock(self.a_name())
        guard = lock.acquire()
        children = []
        self.addCleanup(signal.signal, signal.SIGALRM, signal.getsignal(signal.SIGALRM))
        signal.signal(signal.SIGALRM, lambda *_: children.append(os.fork()))
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        timer = threading.Timer(0.5, lambda: (until(lambda: children, "it was forked"), guard.release()))
        timer.start()
        try:
            lock.acquire(timeout=60).release()
        except redlatch.Forked:
            os._exit(9 if children == [0] else 1)
        finally:
            if children == [0]:
                os._exit(1)
        timer.join()
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]), 9)


lock = counter = None


def open_client(name, file):
    global lock, counter
    lock, counter = redlatch.Client(URL).lock(name), file


def count(_):
    with lock:
        with open(counter) as file:
            number = int(file.read())
        with open(counter, "w") as file:
            file.write(str(number + 1))


def fail_in_worker(name):
    redlatch.Client(URL).lock(name).acquire(timeout=0.01)


def lose_in_worker(name):
    with redlatch.Client(URL).timed_lock(name, 0.02) as guard:
        guard.wait_lost()


class Multiprocessing(Scenario):
    def test_workers_exclude_one_another(self):
        # What the parent has open is in the way of nobody.
        with self.client.lock(self.a_name()):
            for method in ("fork", "spawn"):
                with tempfile.TemporaryDirectory() as directory:
                    file = os.path.join(directory, "counter")
                    with open(file, "w") as new:
                        new.write("0")
                    context = multiprocessing.get_context(method)
                    with context.Pool(3, open_client, (self.a_name(), file)) as pool:
                        pool.map(count, range(60), chunksize=3)
                    with open(file) as result:
                        self.assertEqual(result.read(), "60", method)

    def test_errors_come_back_from_workers(self):
        name = self.a_name()
        context = multiprocessing.get_context("spawn")
        with self.client.lock(name), concurrent.futures.ProcessPoolExecutor(1, context) as pool:
            with self.assertRaises(redlatch.LockTimeout) as raised:
                pool.submit(fail_in_worker, name).result()
            self.assertEqual(raised.exception.code, -2)
            with self.assertRaises(redlatch.Lost) as raised:
                pool.submit(lose_in_worker, self.a_name()).result()
            self.assertEqual(raised.exception.reason, redlatch.LostReason.EXPIRED)
            self.assertGreater(raised.exception.fencing_token, 0)

    def test_what_cannot_be_passed_to_a_worker_says_what_to_do(self):
        lock = self.client.lock(self.a_name())
        semaphore = self.client.semaphore(self.a_name(), 1)
        for unfit in (self.client, lock, semaphore, lock.acquire(), redlatch.CancelToken()):
            for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
                with self.assertRaisesRegex(TypeError, "open a redlatch.Client in the worker"):
                    attempt(unfit)


if __name__ == "__main__":
    unittest.main()
