"""Holds the lock of a name with redis-py, which knows nothing of redlatch, as it is told to.

Usage: exclusion_worker.py URL NAME. The orders are those of exclusion_worker.c. A grant is answered by "0", since it
has no fencing token.
"""

import sys

import redis

url, name = sys.argv[1:]
# Tries far more often than by default, so that it gets its turns among those that are woken.
lock = redis.Redis.from_url(url, socket_timeout=10).lock(f"lock:{name}", timeout=60, sleep=0.002)

for line in sys.stdin:
    order = line.strip()
    if order == "acquire":
        answer = "0" if lock.acquire(blocking_timeout=60) else "it was not free for a minute"
    elif order == "try":
        answer = "0" if lock.acquire(blocking=False) else "busy"
    elif order == "release":
        lock.release()
        answer = "ok"
    else:
        answer = f"not understood: {order}"
    print(answer, flush=True)
