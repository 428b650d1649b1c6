"""Processes of a pool count up a number in a file, one at a time: each opens a client of its own.

Run: python3 examples/multiprocessing_pool.py [URL]   (or REDIS_URL, or else redis://127.0.0.1/)
"""

import multiprocessing
import os
import sys
import tempfile

import redlatch

counter: str
lock: redlatch.Lock


def open_client(url: str, file: str) -> None:
    """Runs in each worker when it starts. What the parent opened is of no use there, forked or not."""
    global lock, counter
    lock = redlatch.Client(url).lock("example:counter")
    counter = file


def count(_: int) -> None:
    with lock:
        with open(counter) as file:
            number = int(file.read())
        with open(counter, "w") as file:
            file.write(str(number + 1))


def main(url: str) -> None:
    for method in ("fork", "spawn"):
        with tempfile.TemporaryDirectory() as directory:
            file = os.path.join(directory, "counter")
            with open(file, "w") as new:
                new.write("0")
            context = multiprocessing.get_context(method)
            with context.Pool(4, open_client, (url, file)) as pool:
                pool.map(count, range(100), chunksize=5)
            with open(file) as result:
                print(f"{method}: 100 counted by 4 processes: {result.read()}")


# "spawn" imports this file in each worker.
if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("REDIS_URL", "redis://127.0.0.1/"))
