"""Takes a lock with redis-py, which knows nothing of redlatch, and releases it as it is told to, line by line.

Usage: holder.py URL NAME. The orders are those of holder.c; a grant is answered by "0", since it has no fencing token.
"""

import sys

import redis

url, name = sys.argv[1:]
# Tries far more often than by default, so that it gets its turns among those that are woken.
lock = redis.Redis.from_url(url, socket_timeout=10).lock(f"lock:{name}", timeout=60, sleep=0.002)

for line in sys.stdin:
    order, *arguments = line.split()
    if order == "release":
        lock.release()
        answer = "released"
    elif arguments == ["0"]:
        answer = "0" if lock.acquire(blocking=False) else "busy"
    else:
        answer = "0" if lock.acquire(blocking_timeout=int(arguments[0]) / 1000) else "timeout"
    print(answer, flush=True)
