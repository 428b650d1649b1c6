// What redlatch.hpp promises beyond the C functions it is made of.
//
// Usage: behaviours URL [PATTERN]; with a pattern it also prints what an audit finds, one key a line.

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <unistd.h>

#include <redlatch.hpp>

using namespace std::chrono_literals;
using namespace std::string_literals;
using namespace std::string_view_literals;
using redlatch::CancelToken;
using redlatch::Client;
using redlatch::Guard;
using redlatch::Lock;
using redlatch::LostReason;
using redlatch::Options;
using redlatch::Semaphore;
using redlatch::Wait;

namespace {

/** Longer than anything here takes on a machine that is busy, and shorter than the patience of whoever waits for us. */
constexpr auto patience = 60s;

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::cerr << __FILE__ << ":" << __LINE__ << ": expected " #condition << std::endl;                         \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (false)

/** The code of the error that a call throws, which has to be of that type. */
template <class Thrown = redlatch::Error, class Call> std::int32_t code_of(Call &&call) {
    try {
        static_cast<void>(call());
    } catch (const Thrown &error) {
        EXPECT(!std::string_view(error.what()).empty());
        return error.code();
    }
    return REDLATCH_OK;
}

/** Names of this process's own. */
Options options(const char *url) { return Options().url(url).prefix("behaviours:" + std::to_string(getpid()) + ":"); }

// Rounding.
static_assert(redlatch::Duration(1ms).ms() == 1);
static_assert(redlatch::Duration(1500us).ms() == 2);
static_assert(redlatch::Duration(1ns).ms() == 1);
static_assert(redlatch::Duration(0s).ms() == 0);
static_assert(redlatch::Duration(-1s).ms() == 0);
static_assert(redlatch::Duration(std::chrono::hours::min()).ms() == 0);
static_assert(redlatch::Duration(std::chrono::hours::max()).ms() == REDLATCH_FOREVER);
static_assert(redlatch::Duration(std::chrono::milliseconds::max()).ms() == REDLATCH_FOREVER);
static_assert(redlatch::Duration(std::chrono::nanoseconds::max()).ms() == 9223372036855);
static_assert(redlatch::Duration(std::chrono::duration<double>(0.0105)).ms() == 11);
static_assert(redlatch::Duration(std::chrono::duration<double>(1e-30)).ms() == 1);
static_assert(redlatch::Duration(std::chrono::duration<float>(std::numeric_limits<float>::infinity())).ms() ==
              REDLATCH_FOREVER);
static_assert(redlatch::Duration(std::chrono::duration<unsigned char, std::ratio<60>>(2)).ms() == 120'000);

// What owns something is moved only, without failing; what is shared is copied.
template <class Owner>
constexpr bool owns = !std::is_copy_constructible_v<Owner> && !std::is_copy_assignable_v<Owner> &&
                      std::is_nothrow_move_constructible_v<Owner> && std::is_nothrow_move_assignable_v<Owner>;
static_assert(owns<Guard> && owns<Lock> && owns<redlatch::MultiLock> && owns<Semaphore> && owns<Options> && owns<redlatch::Audit>);
static_assert(std::is_copy_constructible_v<Client> && std::is_copy_constructible_v<CancelToken>);

// What a chain on something new gives is no reference to it.
static_assert(std::is_same_v<decltype(std::declval<Lock>().lease(1s).fair(true)), Lock>);
static_assert(std::is_same_v<decltype(std::declval<Lock &>().lease(1s).fair(true)), Lock &>);
static_assert(std::is_same_v<decltype(std::declval<redlatch::MultiLock>().lease(1s).max_hold(1s)), redlatch::MultiLock>);
static_assert(std::is_same_v<decltype(std::declval<Semaphore>().lease(1s).permits(2)), Semaphore>);
static_assert(std::is_same_v<decltype(std::declval<Options>().pool_size(1)), Options>);

// What work returns is returned as it is.
const auto an_int = [] { return 1; };
const auto a_reference = []() -> int & { static int place; return place; };
const auto nothing = [] {};
const auto unmovable_by_copy = [] { return std::make_unique<int>(7); };
static_assert(std::is_same_v<decltype(std::declval<Lock>().with_lock(an_int)), int>);
static_assert(std::is_same_v<decltype(std::declval<Lock>().with_lock(a_reference)), int &>);
static_assert(std::is_same_v<decltype(std::declval<Lock>().with_lock(nothing)), void>);
static_assert(std::is_same_v<decltype(std::declval<Lock>().try_with_lock(an_int)), std::optional<int>>);
static_assert(std::is_same_v<decltype(std::declval<Lock>().try_with_lock(nothing)), bool>);

void a_guard_holds_until_the_end_of_its_scope(const Client &client) {
    const auto lock = client.lock("scope");
    std::uint64_t before = 0;
    {
        const Guard guard = lock.acquire();
        EXPECT(guard.is_held() && guard.remaining() > 1s && guard.remaining() <= 30s);
        EXPECT(guard.name() == "scope" && lock.name() == "scope" && !guard.token().empty());
        EXPECT(!guard.lost_reason());
        guard.check();
        guard.extend(40s);
        EXPECT(guard.remaining() > 30s);
        EXPECT(!guard.wait_lost(0ms));
        EXPECT(!lock.try_acquire());
        before = guard.fencing_token();
    }
    const auto next = lock.try_acquire();
    EXPECT(next && next->fencing_token() > before);
}

void a_guard_that_was_moved_holds_nothing_and_its_heir_all(const Client &client) {
    const auto lock = client.lock("moved");
    Guard first = lock.acquire();
    const auto token = first.fencing_token();

    Guard second(std::move(first));
    EXPECT(second.is_held() && second.fencing_token() == token);
    EXPECT(!first.is_held() && first.remaining() == 0ms && first.fencing_token() == 0);
    EXPECT(first.name().empty() && first.token().empty() && !first.lost_reason());
    EXPECT(code_of([&] { first.check(); }) == REDLATCH_NULL_POINTER);
    EXPECT(code_of([&] { first.release(); }) == REDLATCH_NULL_POINTER);
    EXPECT(code_of([&] { first.extend(1s); }) == REDLATCH_NULL_POINTER);
    EXPECT(code_of([&] { return first.wait_lost(1s); }) == REDLATCH_NULL_POINTER);

    // To itself, behind the compiler's back.
    Guard &same = second;
    second = std::move(same);
    EXPECT(second.is_held() && second.fencing_token() == token);

    // What is assigned to releases what it held.
    const auto other = client.lock("moved as well");
    Guard third = other.acquire();
    third = std::move(second);
    EXPECT(third.is_held() && third.name() == "moved" && other.try_acquire());

    std::vector<Guard> guards;
    guards.push_back(std::move(third));
    guards.push_back(other.acquire());
    guards.clear();
    EXPECT(lock.try_acquire() && other.try_acquire());
}

void a_lock_that_was_moved_names_nothing(const Client &client) {
    Lock lock = client.lock("a name");
    const Lock heir(std::move(lock));
    EXPECT(heir.name() == "a name" && lock.name().empty());
    EXPECT(code_of([&] { return lock.acquire(); }) == REDLATCH_NULL_POINTER);
    EXPECT(code_of([&] { lock.fair(true); }) == REDLATCH_NULL_POINTER);
    Client first = client;
    const Client second(std::move(first));
    EXPECT(code_of([&] { return first.lock("a name"); }) == REDLATCH_NULL_POINTER);
    EXPECT(second.lock("a name").try_acquire());
}

void a_second_release_says_so(const Client &client) {
    Guard guard = client.lock("released").acquire();
    const auto token = guard.fencing_token();
    guard.release();
    EXPECT(!guard.is_held() && guard.fencing_token() == token && guard.name() == "released");
    EXPECT(code_of([&] { guard.release(); }) == REDLATCH_INVALID_STATE);
    EXPECT(code_of([&] { guard.check(); }) == REDLATCH_INVALID_STATE);
    EXPECT(client.lock("released").try_acquire());
}

void a_guard_outlives_its_client_and_its_lock(const char *url) {
    std::optional<Guard> guard;
    {
        const auto client = Client::open(options(url));
        const auto lock = client.lock("outlived").lease(3s);
        guard = lock.acquire();
    }
    // Still renewed: longer than its lease.
    EXPECT(!guard->wait_lost(4s) && guard->is_held());
    guard->release();
    guard.reset();
    EXPECT(Client::open(options(url)).lock("outlived").try_acquire());
}

void each_error_has_its_code_and_what_is_caught_differently_its_type(const Client &client) {
    using redlatch::Cancelled;
    using redlatch::Timeout;
    const auto lock = client.lock("taken");
    const Guard guard = lock.acquire();
    EXPECT(code_of<Timeout>([&] { return lock.acquire_with(Wait::none()); }) == REDLATCH_BUSY);
    EXPECT(code_of<Timeout>([&] { return lock.acquire_timeout(-1s); }) == REDLATCH_BUSY);
    const std::chrono::duration<double> no_number(std::numeric_limits<double>::quiet_NaN());
    EXPECT(code_of<Timeout>([&] { return lock.acquire_timeout(no_number); }) == REDLATCH_BUSY);
    EXPECT(code_of<Timeout>([&] { return lock.acquire_timeout(1ns); }) == REDLATCH_TIMEOUT);
    EXPECT(code_of<Timeout>([&] { return lock.acquire_with(Wait::at_most(20ms)); }) == REDLATCH_TIMEOUT);
    const auto now = std::chrono::steady_clock::now();
    EXPECT(code_of<Timeout>([&] { return lock.acquire_with(Wait::until(now - 1s)); }) == REDLATCH_BUSY);
    const auto soon = Wait::until(std::chrono::steady_clock::now() + 2s);
    EXPECT(code_of<Timeout>([&] { return lock.acquire_with(soon); }) == REDLATCH_TIMEOUT);
    EXPECT(std::chrono::steady_clock::now() >= now + 2s);

    CancelToken stop;
    stop.cancel();
    EXPECT(stop.is_cancelled());
    EXPECT(code_of<Cancelled>([&] { return lock.acquire_with(Wait::forever().cancelled_by(stop)); }) ==
           REDLATCH_CANCELLED);

    EXPECT(code_of([&] { return client.lock(""); }) == REDLATCH_INVALID_ARGUMENT);
    EXPECT(code_of([&] { return client.lock({}); }) == REDLATCH_INVALID_ARGUMENT);
    EXPECT(code_of([&] { return client.lock("short").lease(9ms); }) == REDLATCH_INVALID_ARGUMENT);
    EXPECT(code_of([&] { return client.lock("short").lease(-1s); }) == REDLATCH_INVALID_ARGUMENT);
    EXPECT(code_of([&] { return client.lock("long").lease(std::chrono::hours::max()); }) == REDLATCH_INVALID_ARGUMENT);
    EXPECT(code_of([&] { return client.timed_lock("short", 0s); }) == REDLATCH_INVALID_ARGUMENT);
    EXPECT(code_of([&] { return client.semaphore("none", 0); }) == REDLATCH_INVALID_ARGUMENT);
    EXPECT(code_of([&] { return client.audit(""); }) == REDLATCH_INVALID_ARGUMENT);
    EXPECT(code_of([&] { return Client::open("nonsense"); }) == REDLATCH_INVALID_ARGUMENT);
    EXPECT(code_of([&] { return Client::open("memory://\0x"s); }) == REDLATCH_INVALID_ARGUMENT);
    EXPECT(code_of([&] { Options().sentinel_login("\0u"s, "p"); }) == REDLATCH_INVALID_ARGUMENT);
    EXPECT(code_of([&] { Options().sentinel_login("u", "\0p"s); }) == REDLATCH_INVALID_ARGUMENT);
    EXPECT(code_of([&] { return client.lock("none").replicas(0, 1s); }) == REDLATCH_INVALID_ARGUMENT);
    EXPECT(code_of([&] { return client.lock("never").replicas(1, 0s); }) == REDLATCH_INVALID_ARGUMENT);
    EXPECT(code_of([&] { return Client::open(Options().command_timeout(0s)); }) == REDLATCH_INVALID_ARGUMENT);
    EXPECT(code_of([&] { return Client::open("memory://").lock("x").replicas(1, 1s); }) == REDLATCH_UNSUPPORTED);
    EXPECT(code_of([&] { return Client::open("unix:///nowhere/at/all").lock("x").acquire(); }) == REDLATCH_CONNECTION);

    auto used = client.lock("used");
    used.acquire().release();
    EXPECT(code_of([&] { used.lease(10s); }) == REDLATCH_INVALID_STATE);
    EXPECT(code_of([&] { client.lock("none").on_lost(nullptr); }) == REDLATCH_NULL_POINTER);
}

void a_message_is_told_in_full(const Client &client) {
    const std::string name(5'000, 'x');
    const auto lock = client.lock(name);
    const Guard guard = lock.acquire();
    try {
        lock.acquire_with(Wait::none()).release();
        EXPECT(false && "taken");
    } catch (const std::runtime_error &error) {
        EXPECT(std::string_view(error.what()).find(name) != std::string_view::npos);
    }
}

void a_loss_is_thrown_with_its_reason(const Client &client) {
    const auto timed = client.timed_lock("lost", 500ms);
    Guard guard = timed.acquire();
    EXPECT(guard.wait_lost(patience));
    EXPECT(!guard.is_held() && guard.lost_reason() == LostReason::Expired);
    try {
        guard.check();
        EXPECT(false && "lost");
    } catch (const redlatch::Lost &lost) {
        EXPECT(lost.lost_reason() == LostReason::Expired && lost.code() == REDLATCH_LOST);
    }
    EXPECT(code_of<redlatch::Lost>([&] { guard.release(); }) == REDLATCH_LOST);
    EXPECT(guard.lost_reason() == LostReason::Expired);
    // Found by the release itself.
    Guard forced_out = client.lock("lost by its release").acquire();
    EXPECT(client.lock("lost by its release").force_release() && !forced_out.lost_reason());
    EXPECT(code_of<redlatch::Lost>([&] { forced_out.release(); }) == REDLATCH_LOST);
    EXPECT(forced_out.lost_reason() == LostReason::Deleted);

    bool ran = false;
    const auto lock = client.lock("lost");
    try {
        lock.with_lock([&] {
            ran = true;
            EXPECT(client.lock("lost").force_release());
        });
        EXPECT(false && "lost");
    } catch (const redlatch::Lost &lost) {
        EXPECT(ran && lost.lost_reason() == LostReason::Deleted);
    }
    EXPECT(!lock.force_release());

    // What is caught as the base is still what it was.
    const auto held_shortly = client.lock("lost").max_hold(500ms);
    try {
        held_shortly.with_guard([](const Guard &hold) { return hold.wait_lost(patience); });
        EXPECT(false && "lost");
    } catch (const redlatch::Error &error) {
        const auto *const lost = dynamic_cast<const redlatch::Lost *>(&error);
        EXPECT(lost != nullptr && lost->lost_reason() == LostReason::MaxHold);
    }
}

void work_gives_its_value_and_is_passed_on_if_it_throws(const Client &client) {
    const auto lock = client.lock("work");
    EXPECT(lock.with_lock(an_int) == 1);
    EXPECT(&lock.with_lock(a_reference) == &a_reference());
    EXPECT(*lock.with_lock(unmovable_by_copy) == 7);
    EXPECT(lock.with_guard([](const Guard &guard) { return guard.is_held(); }));
    EXPECT(lock.with_lock_wait(Wait::at_most(patience), [&] { return !lock.try_acquire(); }));
    EXPECT(lock.try_with_lock(an_int) == std::optional(1));
    EXPECT(**lock.try_with_lock(unmovable_by_copy) == 7);
    EXPECT(lock.try_with_lock(nothing));

    const auto fails = []() -> int { throw std::logic_error("of the work's own"); };
    const std::function<void()> ways[] = {
        [&] { lock.with_lock(fails); },
        [&] { lock.try_with_lock(fails); },
        [&] { lock.with_lock_wait(Wait::none(), fails); },
        [&] { lock.with_guard([&](const Guard &) { return fails(); }); },
        [&] { lock.with_lock([&] { fails(); }); },
    };
    for (const auto &way : ways) {
        try {
            way();
            EXPECT(false && "thrown");
        } catch (const std::logic_error &error) {
            EXPECT(error.what() == "of the work's own"sv);
        }
        EXPECT(lock.try_acquire());
    }

    const Guard guard = lock.acquire();
    EXPECT(!lock.try_with_lock(an_int) && !lock.try_with_lock(nothing));
    bool ran = false;
    EXPECT(code_of<redlatch::Timeout>([&] {
               lock.with_lock_wait(Wait::none(), [&] { ran = true; });
           }) == REDLATCH_BUSY);
    EXPECT(!ran);
}

/** Counts its copies, to show that none is left. */
struct Counted {
    explicit Counted(std::atomic<int> &counter) : alive(&counter) { ++*alive; }
    Counted(const Counted &other) : alive(other.alive) { ++*alive; }
    Counted &operator=(const Counted &) = delete;
    ~Counted() { --*alive; }

    std::atomic<int> *alive;
};

void a_callback_is_told_of_each_loss_even_if_it_throws(const char *url) {
    std::atomic<int> alive{0};
    std::mutex mutex;
    std::condition_variable told;
    std::vector<redlatch::LostEvent> events;
    {
        const auto client = Client::open(options(url));
        const auto lock = client.timed_lock("a\0callback"sv, 500ms)
                              .on_lost([&, counted = Counted(alive)](const redlatch::LostEvent &event) {
                                  const std::lock_guard<std::mutex> locked(mutex);
                                  events.push_back(event);
                                  told.notify_all();
                                  throw std::runtime_error("from a callback");
                              });
        EXPECT(alive == 1);
        std::array<std::uint64_t, 2> tokens{};
        for (std::size_t loss = 0; loss < tokens.size(); ++loss) {
            const Guard guard = lock.acquire();
            tokens[loss] = guard.fencing_token();
            std::unique_lock<std::mutex> locked(mutex);
            EXPECT(told.wait_for(locked, patience, [&] { return events.size() > loss; }));
        }
        for (std::size_t loss = 0; loss < tokens.size(); ++loss) {
            EXPECT(events[loss].fencing_token == tokens[loss] && events[loss].reason == LostReason::Expired);
            EXPECT(events[loss].name == "a\0callback"sv && !events[loss].message.empty());
        }
    }
    // With the last that may call it, which may be a thread of the client's.
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (alive != 0 && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(1ms);
    }
    EXPECT(alive == 0);

    // One that is refused, and one that is replaced, are destroyed too.
    const auto client = Client::open(options(url));
    auto lock = client.lock("a callback");
    lock.on_lost([counted = Counted(alive)](const redlatch::LostEvent &) {});
    lock.on_lost([counted = Counted(alive)](const redlatch::LostEvent &) {});
    EXPECT(alive == 1);
    lock.on_lost([](const redlatch::LostEvent &) {});
    EXPECT(alive == 0);
    lock.acquire().release();
    EXPECT(code_of([&] { lock.on_lost([counted = Counted(alive)](const redlatch::LostEvent &) {}); }) ==
           REDLATCH_INVALID_STATE);
    EXPECT(alive == 0);
}

void threads_exclude_one_another_through_one_lock(const Client &client) {
    const auto lock = client.lock("threads");
    int unprotected = 0;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&] {
            for (int turn = 0; turn < 25; ++turn) {
                lock.with_lock([&] { ++unprotected; });
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    EXPECT(unprotected == 100);

    // A guard goes where it is needed.
    std::thread([guard = lock.acquire()]() mutable { guard.release(); }).join();
    EXPECT(lock.try_acquire());
}

void a_wait_is_ended_from_another_thread(const Client &client) {
    const auto lock = client.lock("waited for").fair(true);
    const Guard guard = lock.acquire();
    std::optional<CancelToken> stop(std::in_place);
    const CancelToken copy = std::move(*stop);
    std::optional<Wait> wait(Wait::forever().cancelled_by(*stop));
    // A wait keeps what ends it.
    stop.reset();
    std::thread waiter([&] {
        EXPECT(code_of<redlatch::Cancelled>([&] { return lock.acquire_with(*wait); }) == REDLATCH_CANCELLED);
    });
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (lock.inspect().waiters == 0 && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(1ms);
    }
    EXPECT(!copy.is_cancelled());
    copy.cancel();
    waiter.join();
    EXPECT(guard.is_held());
}

void names_are_bytes(const Client &client) {
    const auto with_nul = client.lock("a\0b"sv);
    const Guard guard = with_nul.acquire();
    EXPECT(guard.name() == "a\0b"sv && with_nul.name().size() == 3);
    EXPECT(client.lock("a").try_acquire() && client.lock("a\0c"sv).try_acquire());
    EXPECT(client.lock("\xff\xfe"sv).try_acquire());
    EXPECT(!client.lock("a\0b"s).try_acquire());
    // Part of a longer text, which no NUL ends.
    EXPECT(client.lock("a longer text"sv.substr(0, 8)).name() == "a longer");
}

void a_semaphore_lets_in_so_many(const Client &client) {
    const auto semaphore = client.semaphore("seats", 3).permits(2).lease(20s);
    EXPECT(semaphore.available() == 3 && semaphore.holders().empty());
    {
        const Guard two = semaphore.acquire();
        EXPECT(two.is_held() && semaphore.available() == 1 && !semaphore.try_acquire());
        const auto holders = semaphore.holders();
        EXPECT(holders.size() == 1 && holders[0].permits == 2 && holders[0].token == two.token());
        // The server's ends are whole milliseconds, rounded up.
        EXPECT(holders[0].expiry && *holders[0].expiry <= 20s + 1ms && *holders[0].expiry > 0s);
        EXPECT(!semaphore.try_with_permit(nothing) && !semaphore.try_with_permit(an_int));
        EXPECT(client.semaphore("seats", 3).with_permit([&] { return semaphore.available(); }) == 0);
    }
    EXPECT(semaphore.with_permit_wait(Wait::at_most(patience), an_int) == 1);
    EXPECT(semaphore.try_with_permit(nothing) && semaphore.try_with_permit(an_int) == std::optional(1));
    semaphore.set_limit(5);
    EXPECT(semaphore.available() == 5);
    const auto seen = semaphore.inspect();
    EXPECT(seen.limit == 5 && seen.declared_limit == 3 && seen.available == 5 && seen.is_free && seen.reserved == 0);
    EXPECT(code_of([&] { return client.semaphore("seats", 4).acquire(); }) == REDLATCH_LIMIT_MISMATCH);
    EXPECT(code_of([&] { return client.semaphore("seats", 3).permits(4); }) == REDLATCH_INVALID_ARGUMENT);

    const auto timed = client.semaphore("timed", 1).timed(500ms).handoffs(0).max_hold(1min).fair(false);
    EXPECT(timed.acquire().wait_lost(patience));
}

void several_locks_are_held_as_one(const Client &client, const char *url) {
    const auto other = Client::open(options(url));
    const std::vector<std::string> names{"several c", "several a", "several b", "several a"};
    auto locks = client.multi_lock(names).lease(60s).max_hold(1h);
    const auto in_order = locks.names();
    EXPECT(in_order.size() == 3 && client.multi_lock({"several b", "several c", "several a"}).names() == in_order);
    EXPECT(client.multi_lock({"one\0x"sv}).names() == std::vector{"one\0x"sv});
    EXPECT(code_of([&] { return client.multi_lock({}); }) == REDLATCH_INVALID_ARGUMENT);
    EXPECT(code_of([&] { return client.multi_lock({"a", ""}); }) == REDLATCH_INVALID_ARGUMENT);
    {
        const Guard guard = locks.acquire_timeout(patience);
        const auto tokens = guard.fencing_tokens();
        EXPECT(guard.is_held() && guard.remaining() > 30s && guard.name() == in_order[0]);
        EXPECT(tokens.size() == 3 && tokens[0] == guard.fencing_token() && !guard.lost_name());
        for (std::size_t index = 0; index < 3; ++index) {
            const auto seen = other.lock(in_order[index]).inspect();
            EXPECT(seen.fencing_token == tokens[index]);
        }
        EXPECT(!locks.try_acquire());
        EXPECT(code_of<redlatch::Timeout>([&] { return locks.acquire_with(Wait::none()); }) == REDLATCH_BUSY);
    }
    const Guard single = other.lock("several b").acquire();
    EXPECT(single.fencing_tokens() == std::vector{single.fencing_token()});
    EXPECT(!locks.try_acquire() && other.lock("several a").try_acquire() && other.lock("several c").try_acquire());
    EXPECT(!locks.try_with_lock([] {}));
}

void work_runs_under_several_locks_and_a_loss_is_named(const Client &client) {
    std::mutex mutex;
    std::condition_variable told;
    std::vector<redlatch::LostEvent> losses;
    auto locks = client.multi_lock({"named a", "named b"}).lease(3s).on_lost([&](const redlatch::LostEvent &lost) {
        const std::lock_guard lock(mutex);
        losses.push_back(lost);
        told.notify_one();
    });
    EXPECT(locks.with_lock([&] { return !client.lock("named a").try_acquire(); }));
    EXPECT(locks.with_lock_wait(Wait::at_most(patience), [&] { return !client.lock("named b").try_acquire(); }));
    EXPECT(locks.with_guard([](const Guard &guard) { return guard.fencing_tokens().size(); }) == 2);
    EXPECT(locks.try_with_lock([] { return 7; }) == 7);

    Guard guard = locks.acquire_timeout(patience);
    EXPECT(client.lock("named b").force_release());
    EXPECT(guard.wait_lost(patience) && guard.lost_name() == "named b");
    std::unique_lock lock(mutex);
    EXPECT(told.wait_for(lock, patience, [&] { return losses.size() == 1; }));
    EXPECT(losses[0].name == "named b" && losses[0].reason == LostReason::Deleted);
    EXPECT(code_of<redlatch::Lost>([&] { return guard.release(), 0; }) == REDLATCH_LOST);
    EXPECT(guard.lost_name() == "named b" && guard.lost_reason() == LostReason::Deleted);
}

void an_inspection_is_a_value(const Client &client) {
    const auto lock = client.lock("looked at");
    EXPECT(lock.inspect().is_free && lock.inspect().text == "free" && !lock.inspect().fencing_token);
    const Guard guard = lock.acquire();
    const auto seen = lock.inspect();
    auto copy = seen;
    EXPECT(copy.holders.size() == 1 && copy.holders[0].token == guard.token() && copy.holders[0].permits == 1);
    EXPECT(copy.fencing_token == guard.fencing_token() && !copy.is_free && copy.available == 0 && copy.limit == 1);
    EXPECT(copy.text.find(guard.token()) != std::string::npos);
}

void settings_are_chained(const char *url) {
    Options settings;
    settings.url(url)
        .prefix({})
        .lock_prefix("behaviours:" + std::to_string(getpid()) + ":settings:")
        .pool_size(2)
        .connect_timeout(5s)
        .command_timeout(10s)
        .poll_interval(500ms);
    const auto first = Client::open(settings), second = Client::open(settings);
    auto lock = first.lock("set");
    lock.lease(5s).max_hold(1h).fair(true).handoffs(3);
    const Guard guard = lock.acquire();
    EXPECT(guard.remaining() <= 5s && !second.lock("set").try_acquire());
}

void print_findings(const Client &client, std::string_view pattern) {
    auto audit = client.audit(pattern);
    while (const auto finding = audit.next()) {
        std::cout << (finding->data_type == redlatch::DataType::String ? "string " : "hash ") << finding->key << "\n";
    }
}

} // namespace

int main(int argc, char **argv) {
    EXPECT(argc >= 2);
    const char *const url = argv[1];
    try {
        const auto client = Client::open(options(url));
        a_guard_holds_until_the_end_of_its_scope(client);
        a_guard_that_was_moved_holds_nothing_and_its_heir_all(client);
        a_lock_that_was_moved_names_nothing(client);
        a_second_release_says_so(client);
        a_guard_outlives_its_client_and_its_lock(url);
        each_error_has_its_code_and_what_is_caught_differently_its_type(client);
        a_message_is_told_in_full(client);
        a_loss_is_thrown_with_its_reason(client);
        work_gives_its_value_and_is_passed_on_if_it_throws(client);
        a_callback_is_told_of_each_loss_even_if_it_throws(url);
        threads_exclude_one_another_through_one_lock(client);
        a_wait_is_ended_from_another_thread(client);
        names_are_bytes(client);
        a_semaphore_lets_in_so_many(client);
        several_locks_are_held_as_one(client, url);
        work_runs_under_several_locks_and_a_loss_is_named(client);
        an_inspection_is_a_value(client);
        settings_are_chained(url);
        if (argc > 2) {
            print_findings(client, argv[2]);
        }
    } catch (const redlatch::Error &error) {
        std::cerr << "unexpected: " << error.code() << ": " << error.what() << std::endl;
        return 1;
    }
}
