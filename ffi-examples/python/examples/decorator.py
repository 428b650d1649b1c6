"""A function that runs in one place at a time: each of its calls holds the lock.

Run: python3 examples/decorator.py [URL]   (or REDIS_URL; without either, a lock that lives in this process)
"""

import os
import sys
import threading

import redlatch

url = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("REDIS_URL", "memory://")
client = redlatch.Client(url)
balance = 0


@client.lock("example:balance")
def deposit(amount: int) -> None:
    # Read, then write: without a lock, deposits would be lost.
    global balance
    read = balance
    threading.Event().wait(0.001)
    balance = read + amount


threads = [threading.Thread(target=lambda: [deposit(1) for _ in range(20)]) for _ in range(5)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(f"100 deposits of 1: {balance}")
