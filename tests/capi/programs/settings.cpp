// Each setter of redlatch.hpp sets what it names: see settings.c, which says more.
//
// Usage: settings URL PID; the server's process is stopped at times. The server has one replica.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include <redlatch.hpp>

#include "server.h"

using namespace std::chrono_literals;
using redlatch::Client;
using redlatch::Guard;
using redlatch::Lock;
using redlatch::LostReason;
using redlatch::Options;
using redlatch::Semaphore;
using redlatch::Wait;
using Clock = std::chrono::steady_clock;

namespace {

/** Longer than anything here takes on a machine that is busy. */
constexpr auto patience = 30s;

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::cerr << __FILE__ << ":" << __LINE__ << ": expected " #condition << std::endl;                         \
            std::_Exit(1);                                                                                             \
        }                                                                                                              \
    } while (false)

template <class Condition> bool comes_true(Condition &&condition) {
    const auto end = Clock::now() + patience;
    while (!condition()) {
        if (Clock::now() > end) {
            return false;
        }
        std::this_thread::sleep_for(2ms);
    }
    return true;
}

/** The server is stopped as long as this lives. */
class Stopped {
  public:
    explicit Stopped(pid_t server) : server_(server) { stop_process(server_); }
    ~Stopped() { kill(server_, SIGCONT); }
    Stopped(const Stopped &) = delete;
    Stopped &operator=(const Stopped &) = delete;

  private:
    pid_t server_;
};

/** A call fails with this code, and not before so long. */
template <class Call> void fails_after(Clock::duration least, std::int32_t code, Call &&call) {
    const auto before = Clock::now();
    std::int32_t found = REDLATCH_OK;
    try {
        static_cast<void>(call());
    } catch (const redlatch::Error &error) {
        found = error.code();
    }
    const auto took = Clock::now() - before;
    if (found != code) {
        std::cerr << "expected " << redlatch_status_str(code) << ", not " << redlatch_status_str(found) << std::endl;
        std::_Exit(1);
    }
    EXPECT(took >= least && took < patience);
}

void prefixes_stand_before_names(const std::string &url) {
    const auto client = Client::open(Options().url(url).prefix("settings.cpp:app:").lock_prefix("mutex:"));
    const Guard guard = client.lock("it").acquire(), permit = client.semaphore("it", 1).acquire();
    EXPECT(server_answers(url.c_str(), "EXISTS settings.cpp:app:mutex:it") == 1);
    EXPECT(server_answers(url.c_str(), "EXISTS settings.cpp:app:semaphore:it") == 1);
}

void timeouts_end_what_has_no_answer(const std::string &url, pid_t server) {
    const auto slow = Client::open(Options().url(url).command_timeout(3500ms));
    {
        const Stopped stopped(server);
        fails_after(3499ms, REDLATCH_UNCONFIRMED, [&] { return slow.lock("settings.cpp:command").try_acquire(); });
    }
    int silent = 0;
    // With a database, which is chosen when a connection is opened.
    const auto nowhere = "redis://127.0.0.1:" + std::to_string(silent_port(&silent)) + "/1";
    const auto unconnected = Client::open(Options().url(nowhere).connect_timeout(1600ms));
    fails_after(1599ms, REDLATCH_CONNECTION, [&] { return unconnected.lock("x").try_acquire(); });
    close(silent);
}

/** Servers that let everybody in and say nothing. */
void a_redlocks_node_timeout_and_max_lease_are_acted_on() {
    int silent[3] = {};
    std::string nowhere = "redlock://";
    for (int &listening : silent) {
        nowhere += "127.0.0.1:" + std::to_string(silent_port(&listening)) + (&listening == &silent[2] ? "" : ",");
    }
    const auto settings = Options().url(nowhere).max_lease(20s).node_timeout(700ms).command_timeout(10 * patience);
    const auto client = Client::open(settings);
    auto lock = client.lock("settings.cpp:redlock");
    fails_after(0ms, REDLATCH_INVALID_ARGUMENT, [&] { return &lock.lease(21s); });
    lock.lease(20s);
    fails_after(699ms, REDLATCH_NO_QUORUM, [&] { return lock.try_acquire(); });
    for (const int listening : silent) {
        close(listening);
    }
}

/** Requests of so many threads, of which none is answered: with more room, each would have a connection of its own. */
void the_pool_size_is_how_many_connections_there_are() {
    int listening = 0;
    const auto nowhere = "redis://127.0.0.1:" + std::to_string(silent_port(&listening)) + "/";
    const auto client = Client::open(Options().url(nowhere).pool_size(3).command_timeout(patience));
    std::vector<std::thread> threads;
    for (int number = 0; number < 6; ++number) {
        threads.emplace_back([&client] {
            try {
                static_cast<void>(client.lock("settings.cpp:pool").try_acquire());
                EXPECT(false && "no answer came");
            } catch (const redlatch::Error &error) {
                EXPECT(error.code() == REDLATCH_UNCONFIRMED || error.code() == REDLATCH_CONNECTION);
            }
        });
    }
    std::vector<int> connections;
    for (int number = 0; number < 3; ++number) {
        connections.push_back(next_connection(listening, 15'000));
        EXPECT(connections.back() >= 0);
    }
    EXPECT(next_connection(listening, 300) < 0);
    // So that nobody waits any longer.
    close(listening);
    for (const int connection : connections) {
        close(connection);
    }
    for (auto &thread : threads) {
        thread.join();
    }
}

void the_sentinel_login_is_what_a_sentinel_is_told() {
    int listening = 0;
    const auto sentinel = "redis-sentinel://127.0.0.1:" + std::to_string(silent_port(&listening)) + "/0#master";
    const auto client = Client::open(Options().url(sentinel).sentinel_login("watcher", "secret"));
    std::thread request([&client] {
        fails_after(0s, REDLATCH_CONNECTION, [&client] { return client.lock("x").try_acquire(); });
    });
    EXPECT(is_told_first(listening, "*3\r\n$4\r\nAUTH\r\n$7\r\nwatcher\r\n$6\r\nsecret\r\n", 30'000));
    close(listening);
    request.join();
}

/**
 * Whether another library's release, which wakes nobody, goes unnoticed for twice the default interval. A waiter looks
 * again just after the server knows of it, which may be after the release.
 */
bool goes_unnoticed(const std::string &url, const Lock &lock) {
    server_answers(url.c_str(), "SET lock:settings.cpp:poll anothers PX 600000");
    const redlatch::CancelToken stop;
    std::atomic<bool> granted{false};
    std::thread waiter([&] {
        try {
            lock.acquire_with(Wait::forever().cancelled_by(stop)).release();
            granted = true;
        } catch (const redlatch::Cancelled &) {
            // As it is to be.
        }
    });
    EXPECT(comes_true([&] { return lock.inspect().waiters == 1; }));
    EXPECT(server_answers(url.c_str(), "DEL lock:settings.cpp:poll") == 1);
    for (const auto enough = Clock::now() + 2s; !granted && Clock::now() < enough;) {
        std::this_thread::sleep_for(5ms);
    }
    stop.cancel();
    waiter.join();
    return !granted;
}

void the_poll_interval_is_when_waiters_look(const std::string &url) {
    const auto lock = Client::open(Options().url(url).poll_interval(10min)).lock("settings.cpp:poll");
    EXPECT(comes_true([&] { return goes_unnoticed(url, lock); }));
}

/** The server knows each thread that is fair, and of the others one for each client. */
template <class Acquirable> void fair_threads_have_places_of_their_own(Acquirable taken, Acquirable waited_for) {
    waited_for.fair(true);
    Guard guard = taken.acquire();
    std::vector<std::thread> threads;
    for (int number = 0; number < 2; ++number) {
        threads.emplace_back([&] { waited_for.acquire().release(); });
    }
    EXPECT(comes_true([&] { return taken.inspect().waiters == 2; }));
    guard.release();
    for (auto &thread : threads) {
        thread.join();
    }
}

/** Whether another thread that waits gets what this one has without the server. That it waits can only be guessed. */
template <class Acquirable> bool is_handed_on(const Acquirable &acquirable) {
    Guard guard = acquirable.acquire();
    std::string token;
    std::thread waiter([&] { token = acquirable.acquire_timeout(patience).token(); });
    std::this_thread::sleep_for(20ms);
    guard.release();
    waiter.join();
    return token == guard.token();
}

void no_handoffs_are_none(const Client &client) {
    const auto lock = client.lock("settings.cpp:handed").handoffs(1);
    const auto semaphore = client.semaphore("settings.cpp:handed", 1).handoffs(1);
    EXPECT(comes_true([&] { return is_handed_on(lock); }) && comes_true([&] { return is_handed_on(semaphore); }));
    const auto never = client.lock("settings.cpp:never handed").handoffs(0);
    const auto never_permit = client.semaphore("settings.cpp:never handed", 1).handoffs(0);
    for (int turn = 0; turn < 5; ++turn) {
        EXPECT(!is_handed_on(never) && !is_handed_on(never_permit));
    }
}

/** Longer than the 30 s that it is by default. */
void the_lease_is_how_long_it_stays_taken(const Client &client) {
    const Guard guard = client.lock("settings.cpp:lease").lease(10min).acquire();
    const Guard permit = client.semaphore("settings.cpp:lease", 1).lease(10min).acquire();
    EXPECT(guard.remaining() > 8min && guard.remaining() <= 10min);
    EXPECT(permit.remaining() > 8min && permit.remaining() <= 10min);
}

void a_longest_hold_and_a_timed_lease_end(const Client &client) {
    const auto ends = [](const auto &acquirable, LostReason reason) {
        const auto before = Clock::now();
        const Guard guard = acquirable.acquire();
        // It ends earlier by what clocks may drift apart: 1 % and 2 ms.
        EXPECT(guard.wait_lost(patience) && Clock::now() - before >= 788ms);
        EXPECT(guard.lost_reason() == reason);
    };
    ends(client.lock("settings.cpp:max hold").max_hold(800ms), LostReason::MaxHold);
    ends(client.semaphore("settings.cpp:max hold", 1).max_hold(800ms), LostReason::MaxHold);
    ends(client.timed_lock("settings.cpp:timed", 800ms), LostReason::Expired);
    ends(client.semaphore("settings.cpp:timed", 1).timed(800ms), LostReason::Expired);
}

/** Those who want two wait longer than the command timeout, by default. */
template <class Acquirable> void so_many_replicas_confirm_it_in_time(Acquirable one, Acquirable two) {
    one.replicas(1, patience).acquire().release();
    two.replicas(2, 2500ms);
    fails_after(2499ms, REDLATCH_NOT_REPLICATED, [&] { return two.acquire(); });
    try {
        static_cast<void>(two.try_acquire());
        EXPECT(false && "two confirmed it");
    } catch (const redlatch::NotReplicated &error) {
        EXPECT(error.code() == REDLATCH_NOT_REPLICATED);
    }
}

void permits_are_what_one_acquire_takes(const Client &client) {
    const auto semaphore = client.semaphore("settings.cpp:permits", 5).permits(3);
    const Guard permit = semaphore.acquire();
    EXPECT(semaphore.available() == 2);
}

} // namespace

int main(int argc, char **argv) {
    EXPECT(argc == 3);
    const std::string url = argv[1];
    const auto server = static_cast<pid_t>(std::atol(argv[2]));
    try {
        const auto client = Client::open(url), other = Client::open(url);
        prefixes_stand_before_names(url);
        timeouts_end_what_has_no_answer(url, server);
        the_pool_size_is_how_many_connections_there_are();
        the_sentinel_login_is_what_a_sentinel_is_told();
        a_redlocks_node_timeout_and_max_lease_are_acted_on();
        the_poll_interval_is_when_waiters_look(url);
        const auto lock = [](const Client &by) { return by.lock("settings.cpp:fair"); };
        const auto semaphore = [](const Client &by) { return by.semaphore("settings.cpp:fair", 1); };
        fair_threads_have_places_of_their_own(lock(client), lock(other));
        fair_threads_have_places_of_their_own(semaphore(client), semaphore(other));
        no_handoffs_are_none(client);
        the_lease_is_how_long_it_stays_taken(client);
        a_longest_hold_and_a_timed_lease_end(client);
        so_many_replicas_confirm_it_in_time(client.lock("settings.cpp:one"), client.lock("settings.cpp:two"));
        so_many_replicas_confirm_it_in_time(client.semaphore("settings.cpp:one", 1),
                                            client.semaphore("settings.cpp:two", 1));
        permits_are_what_one_acquire_takes(client);
    } catch (const redlatch::Error &error) {
        std::cerr << "unexpected: " << error.code() << ": " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
