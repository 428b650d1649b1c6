// A lock held by a guard, a second holder that is refused, work under a lock, and a loss that is told by an exception.
//
// Usage: raii [URL]; without one that of REDIS_URL, or else no server: memory://

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>

#include <redlatch.hpp>

using namespace std::chrono_literals;

namespace {

std::string server(int argc, char **argv) {
    const char *const environment = std::getenv("REDIS_URL");
    return argc > 1 ? argv[1] : environment != nullptr ? environment : "memory://";
}

void run(const redlatch::Client &client) {
    const auto lock = client.lock("raii:item").lease(10s);
    {
        const redlatch::Guard guard = lock.acquire_timeout(20s);
        std::cout << "held, with fencing token " << guard.fencing_token() << "\n";
        guard.check(); // before each write: throws redlatch::Lost once it is lost; no I/O

        if (!lock.try_acquire()) {
            std::cout << "a second holder is refused\n";
        }
    } // released here

    int stock = 3;
    const int left = lock.with_lock([&] { return --stock; });
    std::cout << "sold one under the lock: " << left << " left\n";

    // Work that takes longer than its lease, which nobody renews. Whoever comes next may have begun already.
    const auto report = client.timed_lock("raii:report", 500ms);
    try {
        report.with_guard([](const redlatch::Guard &guard) { guard.wait_lost(1min); });
    } catch (const redlatch::Lost &lost) {
        std::cout << "lost: " << lost.what() << "\n";
    }
}

} // namespace

int main(int argc, char **argv) {
    try {
        run(redlatch::Client::open(server(argc, argv)));
    } catch (const redlatch::Error &error) {
        std::cerr << error.what() << "\n";
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
