"""Waits for a fair lock, while signals are sent to it.

Usage: waiter.py URL NAME. Writes "waiting as PID" before the wait, "handled" when it has handled 100 times SIGUSR1 in
the course of it, and "granted FENCING_TOKEN" at its end. Ends when its input does.
"""

import os
import signal
import sys

import redlatch

handled = 0


def count(*_):
    global handled
    handled += 1
    if handled == 100:
        print("handled", flush=True)


url, name = sys.argv[1:]
lock = redlatch.Client(url, poll_interval=20).lock(name, fair=True)
signal.signal(signal.SIGUSR1, count)
# As Python does itself, unless it was started with Ctrl-C ignored, as what a shell runs in the background is.
signal.signal(signal.SIGINT, signal.default_int_handler)
print(f"waiting as {os.getpid()}", flush=True)
with lock.acquire(timeout=60) as guard:
    print(f"granted {guard.fencing_token}", flush=True)
sys.stdin.read()
