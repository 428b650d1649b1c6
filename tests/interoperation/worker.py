"""A process that takes locks with redis-py, told what to do line by line. See worker.rs.

Usage: worker.py URL. Names come as hex, since they are bytes. Each order is answered by one line: what the call
returned, or the name of the LockError that it raised. Anything else that goes wrong ends the process.
"""

import sys
import threading

import redis

client = redis.Redis.from_url(sys.argv[1], socket_timeout=10)
lock = None


def seconds(word):
    return None if word == "-" else float(word)


def new_lock(name, timeout):
    global lock
    lock = client.lock(bytes.fromhex(name), timeout=seconds(timeout))


def acquire(blocking_timeout):
    if blocking_timeout == "0":
        return lock.acquire(blocking=False)
    return lock.acquire(blocking_timeout=seconds(blocking_timeout))


def extend(additional, how):
    return lock.extend(float(additional), replace_ttl=how == "replace")


class Counters:
    """Threads that count as nobody should without a lock, until they are told to stop."""

    def start(self, name, counter, entries, threads, in_a_row):
        self.in_a_row = int(in_a_row)
        self.stopped = threading.Event()
        self.counts, self.failures = [], []
        arguments = (bytes.fromhex(name), bytes.fromhex(counter), bytes.fromhex(entries))
        self.threads = [threading.Thread(target=self.run, args=arguments) for _ in range(int(threads))]
        for thread in self.threads:
            thread.start()
        return "counting"

    def run(self, name, counter, entries):
        try:
            count = 0
            while not self.stopped.is_set():
                last = client.lrange(entries, -self.in_a_row, -1)
                if last == [b"redis-py"] * self.in_a_row:
                    self.stopped.wait(0.002)
                    continue
                # Tries far more often than it does by default, so that both kinds of client get their turns.
                with client.lock(name, timeout=30, sleep=0.002, blocking_timeout=30):
                    before = int(client.get(counter) or 0)
                    client.set(counter, before + 1)
                    client.rpush(entries, "redis-py")
                count += 1
            self.counts.append(count)
        except Exception as failure:
            self.failures.append(failure)

    def stop(self):
        """How often they have counted."""
        self.stopped.set()
        for thread in self.threads:
            thread.join()
        for failure in self.failures:
            raise failure
        return sum(self.counts)


counters = Counters()
orders = {
    "lock": new_lock,
    "acquire": acquire,
    "extend": extend,
    "reacquire": lambda: lock.reacquire(),
    "release": lambda: lock.release(),
    "locked": lambda: lock.locked(),
    "owned": lambda: lock.owned(),
    "count": counters.start,
    "stop": counters.stop,
}

for line in sys.stdin:
    order, *arguments = line.split()
    try:
        answer = orders[order](*arguments)
    except redis.exceptions.LockError as error:
        answer = type(error).__name__
    print(answer, flush=True)
