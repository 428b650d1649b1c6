// Holds the lock of a name as it is told to: one order a line, and one line in answer to each.
//
// Usage: exclusion_worker URL NAME
//   acquire  waits for at most 60 s; the fencing token
//   try      the fencing token, or "busy"
//   release  "ok"
// What fails is answered by its message.

#include <chrono>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

#include <redlatch.hpp>

using namespace std::chrono_literals;

namespace {

std::string obey(const std::string &order, const redlatch::Lock &lock, std::optional<redlatch::Guard> &guard) {
    if (order == "acquire") {
        guard = lock.acquire_timeout(60s);
        return std::to_string(guard->fencing_token());
    }
    if (order == "try") {
        auto had = lock.try_acquire();
        if (!had) {
            return "busy";
        }
        guard = std::move(had);
        return std::to_string(guard->fencing_token());
    }
    if (order == "release" && guard) {
        // It is no more to be released, however this goes.
        redlatch::Guard released = *std::exchange(guard, std::nullopt);
        released.release();
        return "ok";
    }
    return "not understood, or not held: " + order;
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 3) {
        std::cerr << "usage: exclusion_worker URL NAME\n";
        return 2;
    }
    const auto lock = redlatch::Client::open(argv[1]).lock(argv[2]);
    std::optional<redlatch::Guard> guard;
    for (std::string order; std::getline(std::cin, order);) {
        std::string answer;
        try {
            answer = obey(order, lock, guard);
        } catch (const redlatch::Error &error) {
            answer = error.what();
        }
        std::cout << answer << std::endl;
    }
}
