"""A process that holds a lock when it is told to, line by line on its input; one line answers each order.

Usage: exclusion_worker.py URL NAME

  acquire  waits for at most 60 s; the fencing token
  try      the fencing token, or "busy"
  release  "ok"

What goes wrong is answered by the name of the error and its message. Ends when its input does.
"""

import sys

import redlatch

url, name = sys.argv[1:]
lock = redlatch.Client(url).lock(name)
guard = None


def acquire():
    global guard
    guard = lock.acquire(timeout=60)
    return guard.fencing_token


def attempt():
    global guard
    taken = lock.try_acquire()
    if taken is None:
        return "busy"
    guard = taken
    return guard.fencing_token


def release():
    guard.release()
    return "ok"


orders = {"acquire": acquire, "try": attempt, "release": release}
for line in sys.stdin:
    try:
        answer = orders[line.strip()]()
    except redlatch.RedlatchError as error:
        answer = f"{type(error).__name__}: {error}"
    print(answer, flush=True)
