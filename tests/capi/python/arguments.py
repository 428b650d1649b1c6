import unittest
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import redlatch
from redlatch._arguments import milliseconds
from redlatch._library import FOREVER
from scenario import Scenario


class Times(unittest.TestCase):
    def test_times_are_rounded_up_to_milliseconds(self):
        for seconds, expected in [
            (0, 0),
            (0.0, 0),
            (-0.0, 0),
            (0.0004, 1),
            (1e-300, 1),
            (0.001, 1),
            (0.0015, 2),
            (0.07, 70),
            (0.29, 290),
            (1.1, 1100),
            (4.35, 4350),
            (30, 30000),
            (30.0, 30000),
            (123456789.123, 123456789123),
            (Decimal("0.0011"), 2),
            (Fraction(1, 3), 334),
            (timedelta(), 0),
            (timedelta(microseconds=1), 1),
            (timedelta(microseconds=1500), 2),
            (timedelta(days=1), 86400000),
        ]:
            self.assertEqual(milliseconds(seconds, "it"), expected, seconds)

    def test_huge_times_are_for_ever(self):
        for seconds in (1e300, float("inf"), 2**64, 10**400, timedelta.max * 1, 1.8e16):
            whole = milliseconds(seconds, "it")
            self.assertLessEqual(whole, FOREVER)
            self.assertGreaterEqual(whole, 86399999999999000)

    def test_negative_times_and_what_is_no_time_are_refused(self):
        for seconds in (-1, -0.0001, -1e-300, float("-inf"), float("nan"), timedelta(microseconds=-1), Decimal("nan")):
            with self.assertRaises(redlatch.InvalidArgument) as raised:
                milliseconds(seconds, "the lease")
            self.assertIsInstance(raised.exception, ValueError)
            self.assertIn("the lease", str(raised.exception))
        # What users of threading.Lock may pass.
        for wrong in (True, False, None, [], b""):
            with self.assertRaises((TypeError, ValueError)):
                milliseconds(wrong, "the lease")


class Settings(Scenario):
    def test_names_are_text_or_any_bytes(self):
        name = self.a_name()
        for given, same in [
            (name + "é", (name + "é").encode()),
            (name.encode() + b"\0\xff", name.encode() + b"\0\xff"),
        ]:
            with self.client.lock(given) as guard:
                self.assertEqual(guard.name, given)
                self.assertIsNone(self.client.lock(same).try_acquire())
        # Bytes after a NUL are part of the name.
        with self.client.lock(name + "\0a"), self.client.lock(name + "\0b"):
            pass

    def test_names_that_cannot_be_used_are_refused(self):
        for wrong in ("", b"", "\ud800", "x" * 1048577):
            with self.assertRaises(redlatch.InvalidArgument):
                self.client.lock(wrong)
            with self.assertRaises(redlatch.InvalidArgument):
                self.client.semaphore(wrong, 1)
        for wrong in (None, 1, bytearray(b"x")):
            with self.assertRaises(TypeError):
                self.client.lock(wrong)

    def test_settings_that_cannot_work_are_refused(self):
        name = self.a_name()
        lock, semaphore = self.client.lock, self.client.semaphore
        for make in (
            lambda: lock(name, lease=0),
            lambda: lock(name, lease=0.009),
            lambda: lock(name, lease=-1),
            lambda: lock(name, lease=float("nan")),
            lambda: lock(name, lease=float("inf")),
            lambda: lock(name, max_hold=0),
            lambda: lock(name, handoffs=-1),
            lambda: lock(name, handoffs=2**32),
            lambda: self.client.timed_lock(name, 0.001),
            lambda: semaphore(name, 0),
            lambda: semaphore(name, -1),
            lambda: semaphore(name, 2**32 + 1),
            lambda: semaphore(name, 2, permits=3),
            lambda: semaphore(name, 2, permits=0),
            lambda: semaphore(name, 2, timed=1, lease=1),
            lambda: semaphore(name, 2, timed=0),
            lambda: lock(name, replicas=(0, 1)),
            lambda: lock(name, replicas=(-1, 1)),
            lambda: lock(name, replicas=(1, 0)),
            lambda: lock(name, replicas=(1, -1)),
            lambda: lock(name, replicas=(1, 3601)),
            lambda: semaphore(name, 2, replicas=(2**32, 1)),
            lambda: self.client.timed_lock(name, 30, replicas=(1, float("inf"))),
            lambda: lock(name).acquire(timeout=-1),
            lambda: lock(name).acquire(timeout=float("nan")),
        ):
            with self.assertRaises(redlatch.InvalidArgument) as raised:
                make()
            self.assertEqual(raised.exception.code, -13)
            self.assertNotEqual(str(raised.exception), "")
        for make in (
            lambda: lock(name, on_lost="no function"),
            lambda: lock(name, handoffs=True),
            lambda: semaphore(name, 1.5),
            lambda: semaphore(name, True),
            lambda: lock(name, lease="30"),
            lambda: lock(name, replicas=1),
            lambda: lock(name, replicas=(1, 2, 3)),
            lambda: lock(name, replicas="12"),
            lambda: lock(name, replicas=(1.5, 1)),
            lambda: lock(name, replicas=(1, True)),
            lambda: lock(name).acquire(timeout="5"),
            # As threading.Lock would have it: never silently a wait of a second.
            lambda: lock(name).acquire(True),
            lambda: lock(name).acquire(False),
        ):
            with self.assertRaises(TypeError):
                make()

    def test_settings_reach_the_library(self):
        name = self.a_name()
        with self.client.lock(name, lease=100, fair=True, handoffs=0, max_hold=40).acquire() as guard:
            self.assertLessEqual(guard.remaining, 40)
            with self.assertRaises(redlatch.InvalidArgument):
                guard.extend(100)
        with self.client.lock(self.a_name(), max_hold=0.05).acquire() as guard, self.assertRaises(redlatch.Lost):
            guard.wait_lost()
            self.assertEqual(guard.lost_reason, redlatch.LostReason.MAX_HOLD)
            guard.release()
        with self.client.semaphore(self.a_name(), 1, timed=timedelta(seconds=90)).acquire() as guard:
            self.assertGreater(guard.remaining, 60)

    def test_clients_are_set_and_checked(self):
        from scenario import URL

        name = self.a_name()
        client = redlatch.Client(
            URL,
            prefix="app:",
            lock_prefix=b"mutex:",
            pool_size=2,
            connect_timeout=5,
            command_timeout=timedelta(seconds=10),
            poll_interval=0.5,
        )
        whole = redlatch.Client(URL, lock_prefix="").lock("app:mutex:" + name)
        with client.lock(name) as guard:
            self.assertEqual(whole.inspect().holders[0].token, guard.token)
        for wrong in (
            {"url": "http://127.0.0.1/"},
            {"url": "redis://127.0.0.1/\0"},
            {"url": "redis://\ud800/"},
            {"prefix": "x" * 1048577},
            {"pool_size": 0},
            {"pool_size": 2**32 + 1},
            {"connect_timeout": 0},
            {"command_timeout": 3601},
            {"poll_interval": 0.009},
            {"sentinel_login": ("u\0", "p")},
            {"sentinel_login": ("u", "p\0")},
            {"sentinel_login": ("u", "\ud800")},
            {"max_lease": 0.009},
            {"node_timeout": 0},
        ):
            with self.assertRaises(redlatch.InvalidArgument, msg=wrong):
                redlatch.Client(**wrong)
        for wrong in ("up", ("u",), ("u", None), ["u", "p"]):
            with self.assertRaises(TypeError, msg=wrong):
                redlatch.Client(URL, sentinel_login=wrong)
        with self.assertRaises(redlatch.Unsupported):
            redlatch.Client("memory://").lock(name, replicas=(1, 1))

    def test_no_password_is_shown(self):
        client = redlatch.Client("redis://:hunter2@127.0.0.1:1/")
        lock = client.lock("x")
        with self.assertRaises(redlatch.ConnectionFailed) as raised:
            lock.inspect()
        for shown in (repr(client), repr(lock), str(raised.exception), repr(raised.exception)):
            self.assertNotIn("hunter2", shown)
        for wrong in (
            {"url": "redis://:hunter2\ud800@127.0.0.1/"},
            {"sentinel_login": ("u", "hunter2\ud800")},
            {"sentinel_login": ("u", "hunter2\0")},
            {"sentinel_login": ("u", b"hunter2", "another")},
        ):
            with self.assertRaises((redlatch.InvalidArgument, TypeError)) as refused:
                redlatch.Client(**wrong)
            self.assertNotIn("hunter2", str(refused.exception) + str(refused.exception.__cause__))


if __name__ == "__main__":
    unittest.main()
