// A server that falls silent before a release: that says so, and work under a lock goes by its own outcome.
//
// Usage: unconfirmed URL PID; the server's process is stopped, and goes on before the program ends.

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <stdexcept>

#include <signal.h>
#include <sys/types.h>

#include <redlatch.hpp>

using namespace std::chrono_literals;

namespace {

/** A server is stopped as long as this lives. */
class Stopped {
  public:
    explicit Stopped(pid_t server) : server_(server) { kill(server_, SIGSTOP); }
    ~Stopped() { kill(server_, SIGCONT); }

    Stopped(const Stopped &) = delete;
    Stopped &operator=(const Stopped &) = delete;

  private:
    pid_t server_;
};

void expect(bool as_it_should_be, const char *what) {
    if (!as_it_should_be) {
        throw std::logic_error(what);
    }
}

void run(const char *url, pid_t server) {
    const auto client = redlatch::Client::open(redlatch::Options().url(url).command_timeout(300ms));
    const auto lock = client.lock("unconfirmed");
    {
        redlatch::Guard guard = lock.acquire();
        const Stopped stopped(server);
        std::int32_t code = REDLATCH_OK;
        try {
            guard.release();
        } catch (const redlatch::Error &error) {
            code = error.code();
        }
        expect(code == REDLATCH_UNCONFIRMED, "a release says that it was not confirmed");
    }
    {
        std::optional<Stopped> stopped;
        const int value = lock.with_lock([&] {
            stopped.emplace(server);
            return 42;
        });
        expect(value == 42, "work that was done under the lock succeeds");
    }
    {
        // A destructor has nobody to tell, and is done in a bounded time.
        std::optional<redlatch::Guard> guard(lock.acquire());
        const Stopped stopped(server);
        guard.reset();
    }
    // What the server did not confirm is completed.
    expect(lock.acquire_timeout(20s).is_held(), "the lock is free again, before its lease of 30 s is over");
}

} // namespace

int main(int argc, char **argv) {
    try {
        expect(argc == 3, "usage: unconfirmed URL PID");
        run(argv[1], static_cast<pid_t>(std::atoi(argv[2])));
    } catch (const std::exception &error) {
        std::cerr << error.what() << "\n";
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
