"""What the tests of the Python package share. Each is run by itself, with the server's URL in REDLATCH_TEST_URL."""

import faulthandler
import itertools
import os
import subprocess
import sys
import time
import unittest

import redlatch

URL = os.environ["REDLATCH_TEST_URL"]

# How long something may take that takes no time on a machine that is not busy.
PATIENCE = 30.0

_names = itertools.count()

# A test that never ends says where it is, and fails.
faulthandler.dump_traceback_later(240, exit=True)


def until(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"gave up after {PATIENCE} s waiting until {what}")
        time.sleep(0.002)


def run_python(script, *arguments):
    """Runs a program to its end; returns what it wrote."""
    # Since 3.12 Python warns of any fork while there are threads.
    return subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, URL, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=120,
    )


class Scenario(unittest.TestCase):
    def setUp(self):
        self.client = redlatch.Client(URL)

    def a_name(self):
        return f"python:{os.getpid()}:{self.id()}:{next(_names)}"

    def succeed(self, finished):
        self.assertEqual((finished.returncode, finished.stderr), (0, ""))
        return finished.stdout

    def wait_in_thread(self, acquirable, *arguments, **keywords):
        """Has another thread wait for what is fair, and returns once the server knows of it."""
        import concurrent.futures

        waiters = acquirable.inspect().waiters
        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        future = pool.submit(acquirable.acquire, *arguments, **keywords)
        until(lambda: acquirable.inspect().waiters > waiters, "it waits")
        return future
