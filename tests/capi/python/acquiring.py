import os
import signal
import sys
import threading
import time
import unittest

import redlatch
from scenario import Scenario, until


class Acquiring(Scenario):
    def test_a_try_does_not_wait(self):
        lock = self.client.lock(self.a_name())
        with lock.try_acquire() as guard:
            guard.check()
            self.assertIsNone(lock.try_acquire())
            with self.assertRaises(redlatch.LockTimeout) as raised:
                lock.acquire(timeout=0)
            self.assertEqual(raised.exception.code, -1)
        self.assertEqual(lock.inspect().waiters, 0)

    def test_a_wait_ends_at_its_time(self):
        lock = self.client.lock(self.a_name())
        with lock:
            for in_a_thread in (False, True):
                started = time.monotonic()
                raised = self.raised(lambda: lock.acquire(timeout=0.3), in_a_thread)
                self.assertGreaterEqual(time.monotonic() - started, 0.3)
                self.assertIsInstance(raised, redlatch.LockTimeout)
                self.assertIsInstance(raised, TimeoutError)
                self.assertEqual(raised.code, -2)

    def test_a_release_ends_a_wait(self):
        lock = self.client.lock(self.a_name())
        guard = lock.acquire()
        timer = threading.Timer(0.1, guard.release)
        timer.start()
        with lock.acquire(timeout=60) as second:
            self.assertGreater(second.fencing_token, guard.fencing_token)
        timer.join()
        lock = self.client.lock(self.a_name(), fair=True)
        guard = lock.acquire()
        waiting = self.wait_in_thread(lock)
        guard.release()
        waiting.result(60).release()

    def test_the_main_thread_waits_with_others_in_the_order_of_their_coming(self):
        lock = self.client.lock(self.a_name(), fair=True)
        guard = lock.acquire()
        first = self.wait_in_thread(lock)
        threading.Timer(0.1, guard.release).start()
        # Released by the first, which is served before this one.
        threading.Thread(target=lambda: first.result(60).release()).start()
        with lock.acquire(timeout=60) as last:
            self.assertGreater(last.fencing_token, first.result(60).fencing_token)

    def test_a_token_cancels_waits_on_any_thread(self):
        lock = self.client.lock(self.a_name(), fair=True)
        with lock:
            token = redlatch.CancelToken()
            waiting = self.wait_in_thread(lock, cancel=token)
            self.assertFalse(token.is_cancelled)
            timer = threading.Timer(0.1, token.cancel)
            timer.start()
            with self.assertRaises(redlatch.Cancelled):
                lock.acquire(timeout=60, cancel=token)
            with self.assertRaises(redlatch.Cancelled):
                waiting.result(60)
            self.assertTrue(token.is_cancelled)
            for timeout in (0, 60, None):
                with self.assertRaises(redlatch.Cancelled):
                    lock.acquire(timeout, cancel=token)
            until(lambda: lock.inspect().waiters == 0, "nobody waits")

    def test_a_signal_handler_may_cancel(self):
        token = redlatch.CancelToken()
        before = signal.signal(signal.SIGALRM, lambda *_: token.cancel())
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        lock = self.client.lock(self.a_name())
        with lock:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with self.assertRaises(redlatch.Cancelled):
                lock.acquire(timeout=60, cancel=token)

    def test_a_server_that_is_not_there_is_told_at_once(self):
        # A port that nobody listens on, since this process has it.
        import socket

        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            lock = redlatch.Client(f"redis://127.0.0.1:{taken.getsockname()[1]}/").lock("x")
            started = time.monotonic()
            for attempt in (lock.acquire, lock.try_acquire, lock.inspect):
                with self.assertRaises(redlatch.ConnectionFailed) as raised:
                    attempt()
                self.assertIsInstance(raised.exception, ConnectionError)
            self.assertLess(time.monotonic() - started, 30)

            real, waits = lock._attempt, []
            lock._attempt = lambda guard, wait_ms, cancel: waits.append(wait_ms) or real(guard, wait_ms, cancel)
            with self.assertRaises(redlatch.ConnectionFailed):
                lock.acquire(timeout=600)
            self.assertEqual(len(waits), 2, "it is asked once without waiting, and once more")

    def test_an_opening_that_is_not_answered_is_waited_for(self):
        import socket

        with socket.create_server(("127.0.0.1", 0)) as silent:
            at = f"127.0.0.1:{silent.getsockname()[1]}"
            for url in (f"redis://{at}/1", f"redis-sentinel://{at}/0#master"):
                lock = redlatch.Client(url, command_timeout=0.1).lock("x")
                for in_a_thread in (False, True):
                    with self.subTest(url, in_a_thread=in_a_thread):
                        started = time.monotonic()
                        raised = self.raised(lambda: lock.acquire(timeout=1), in_a_thread)
                        self.assertIsInstance(raised, redlatch.LockTimeout)
                        self.assertGreaterEqual(time.monotonic() - started, 1)

    def test_a_server_that_says_nothing_is_waited_for(self):
        import socket

        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            client = redlatch.Client(f"redis://127.0.0.1:{silent.getsockname()[1]}/", command_timeout=0.1)
            lock = client.lock("x")
            with self.assertRaises((redlatch.Unconfirmed, redlatch.ConnectionFailed)):
                lock.try_acquire()

    def raised(self, call, in_a_thread):
        raised = []

        def run():
            try:
                call()
            except redlatch.RedlatchError as error:
                raised.append(error)

        if in_a_thread:
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
        else:
            run()
        return raised[0]


class Decorators(Scenario):
    def test_each_call_holds_it(self):
        lock = self.client.lock(self.a_name())

        @lock
        def work(first, *, second):
            """What it does."""
            self.assertIsNone(self.client.lock(lock.name).try_acquire())
            return first + second

        self.assertEqual(work(1, second=2), 3)
        self.assertEqual(work(3, second=4), 7)
        self.assertEqual((work.__name__, work.__doc__), ("work", "What it does."))
        self.assertTrue(lock.inspect().is_free)

    def test_threads_call_one_after_the_other(self):
        inside = []

        @self.client.lock(self.a_name())
        def work():
            inside.append(1)
            self.assertEqual(len(inside), 1)
            time.sleep(0.001)
            inside.pop()
            return True

        results = []
        threads = [threading.Thread(target=lambda: results.append(all(work() for _ in range(10)))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [True] * 4)

    def test_recursion_takes_permits_of_a_semaphore(self):
        semaphore = self.client.semaphore(self.a_name(), 3)

        @semaphore
        def descend(depth):
            return [semaphore.available()] + (descend(depth - 1) if depth else [])

        self.assertEqual(descend(2), [2, 1, 0])

    def test_an_exception_releases_and_goes_on(self):
        lock = self.client.lock(self.a_name())

        @lock
        def fail():
            raise KeyError("of the function")

        with self.assertRaisesRegex(KeyError, "of the function"):
            fail()
        self.assertTrue(lock.inspect().is_free)

    def test_what_runs_later_is_refused(self):
        lock = self.client.lock(self.a_name())

        async def coroutine():
            pass

        async def asynchronous_generator():
            yield

        def generator():
            yield

        for later in (coroutine, asynchronous_generator, generator):
            with self.assertRaisesRegex(TypeError, "before its body has run"):
                lock(later)


class Interrupted(BaseException):
    pass


class Signals(Scenario):
    """What can be seen from inside; Ctrl-C and storms come from outside (python.rs)."""

    def setUp(self):
        super().setUp()

        def interrupt(*_):
            raise Interrupted

        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, interrupt))
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)

    def test_a_handler_that_raises_ends_any_wait(self):
        lock = self.client.lock(self.a_name(), fair=True)
        with lock as guard:
            for wait in (lock.acquire, guard.wait_lost):
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                with self.assertRaises(Interrupted):
                    wait(timeout=600)
            # Its place is given up in the background.
            until(lambda: lock.inspect().waiters == 0, "nobody waits")

    def test_what_was_granted_when_a_handler_raised_is_given_back(self):
        lock = self.client.lock(self.a_name())
        holder = lock.acquire()
        real = lock._attempt

        def attempt(guard, wait_ms, cancel):
            if wait_ms == 0:
                return real(guard, wait_ms, cancel)
            os.kill(os.getpid(), signal.SIGALRM)
            until(lambda: redlatch._library.cancel.is_cancelled(cancel), "the wait is cancelled")
            # As if the grant had been on its way.
            holder.release()
            return real(guard, 0, None)

        lock._attempt = attempt
        try:
            lock.acquire(timeout=60)
        except Interrupted as interrupted:
            # Although the exception still refers to everything.
            self.assertIsNotNone(interrupted.__traceback__)
            self.assertTrue(lock.inspect().is_free)
        else:
            self.fail("not interrupted")

    def test_a_handler_that_raises_just_when_the_wait_ends_is_heard(self):
        lock = self.client.lock(self.a_name())
        holder = lock.acquire()

        def once_it_has_ended(frame, event, result):
            if event == "return" and frame.f_code.co_name == "ended" and result:
                sys.setprofile(None)
                os.kill(os.getpid(), signal.SIGALRM)

        release = threading.Timer(0.2, holder.release)
        release.start()
        self.addCleanup(release.join)
        self.addCleanup(sys.setprofile, None)
        sys.setprofile(once_it_has_ended)
        with self.assertRaises(Interrupted):
            lock.acquire(timeout=60)
        sys.setprofile(None)
        until(lambda: lock.inspect().is_free, "it is free")

    def test_a_time_limit_beside_an_equal_timeout_ends_the_wait(self):
        lock = self.client.lock(self.a_name())
        with lock:
            granted = 0
            for round in range(100):
                # The handler may as well run anywhere in here, once.
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.0100 + round * 0.00002)
                    try:
                        lock.acquire(timeout=0.01)
                        granted += 1
                    except redlatch.LockTimeout:
                        pass
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                except Interrupted:
                    pass
            self.assertEqual(granted, 0)
        until(lambda: lock.inspect().is_free, "it is free")

    def test_a_handler_that_raises_while_signals_are_blocked_leaves_none_blocked(self):
        lock = self.client.lock(self.a_name())
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        real, blocked = signal.pthread_sigmask, []

        def block(how, signals):
            mask = real(how, signals)
            if signals and not blocked:
                blocked.append(True)
                # As a handler does that runs before the former mask is handed back.
                raise Interrupted
            return mask

        signal.pthread_sigmask = block
        self.addCleanup(setattr, signal, "pthread_sigmask", real)
        with lock:
            with self.assertRaises(Interrupted):
                lock.acquire(timeout=60)
        self.assertEqual(real(signal.SIG_BLOCK, []), before)

    def test_a_handler_that_raises_at_any_instant_leaves_nothing_held(self):
        # In a destructor Python prints the exception and goes on, whoever's destructor it is.
        self.addCleanup(setattr, sys, "unraisablehook", sys.unraisablehook)
        sys.unraisablehook = lambda unraisable: None
        lock = self.client.lock(self.a_name())
        interrupted = 0
        delay = 0.0
        while interrupted < 300:
            delay = (delay + 0.000013) % 0.002
            try:
                signal.setitimer(signal.ITIMER_REAL, delay + 0.00001)
                try:
                    # Short enough that the whole is over before the signal comes, sometimes.
                    for _ in range(50):
                        lock.acquire(timeout=30).release()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupted:
                interrupted += 1
        # A grant that was lost sight of would be renewed for ever.
        until(lambda: lock.inspect().is_free, "it is free")


if __name__ == "__main__":
    unittest.main()
