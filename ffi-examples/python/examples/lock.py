"""Holds a lock, prints its fencing token, and shows that a second holder is refused.

Run: python3 examples/lock.py [URL]   (or REDIS_URL; without either, locks that live in this process)
"""

import os
import sys

import redlatch

url = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("REDIS_URL", "memory://")
client = redlatch.Client(url)
lock = client.lock("example:item:42")

with lock.acquire(timeout=10) as guard:
    print(f"held, with fencing token {guard.fencing_token}")

    # Another client, as another machine would have it.
    other = redlatch.Client(url).lock("example:item:42")
    if other.try_acquire() is None:
        print("a second holder is refused")
    try:
        other.acquire(timeout=0.5)
    except redlatch.LockTimeout as timeout:
        print(f"and waits in vain: {timeout}")

    guard.check()  # before each write: raises Lost once the lock is lost; no I/O
    print(f"still held for {guard.remaining:.0f} s at least, and renewed in the background")

with other as guard:
    print(f"then it gets it, with a larger fencing token: {guard.fencing_token}")
