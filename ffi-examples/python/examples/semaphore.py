"""Twelve threads call an API that allows three calls at a time, whoever makes them.

Run: python3 examples/semaphore.py [URL]   (or REDIS_URL; without either, permits that live in this process)
"""

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import redlatch

url = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("REDIS_URL", "memory://")
client = redlatch.Client(url)
calls = client.semaphore("example:api:account-7", 3)

under_way = 0
most = 0
counting = threading.Lock()


def call_api(number: int) -> None:
    global under_way, most
    with calls:  # waits for a permit
        with counting:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.05)
        with counting:
            under_way -= 1


with ThreadPoolExecutor(12) as pool:
    list(pool.map(call_api, range(12)))
print(f"12 calls, {most} at a time at most")

# The usual way where there is something else to do: None at once when all are taken.
permits = [calls.try_acquire() for _ in range(4)]
print("at once:", ", ".join("busy" if permit is None else "a permit" for permit in permits))
print(calls.inspect())
for permit in permits:
    if permit is not None:
        permit.release()
