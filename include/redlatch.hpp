/*
 * redlatch for C++17 and later: redlatch.h with owners, exceptions and std::chrono. It is no more than this header:
 * programs are linked with the C library. What a lock guarantees, and what it cannot, stands in README.md: read that
 * first.
 *
 *     using namespace std::chrono_literals;
 *
 *     auto client = redlatch::Client::open("redis://127.0.0.1/");
 *     auto lock = client.lock("item:42").lease(10s).fair(true);
 *
 *     redlatch::Guard guard = lock.acquire_timeout(5s);    // released by its destructor at the latest
 *     guard.check();                                       // before each write: throws Lost once it is lost
 *     guard.release();                                     // reports how it went; the destructor does not
 *
 *     int left = lock.with_lock([&] { return buy(item); });
 *     if (auto free = lock.try_acquire()) { ... }          // std::nullopt if somebody else has it
 *
 * CALLS have the names of the Rust API. What each of them does, how long it may block and how it fails is told at the
 * function of redlatch.h that it is made of: for Lock::acquire_with() that is redlatch_lock_acquire().
 *
 * ERRORS are exceptions: redlatch::Error, with the code that the C function returned and its message in full. Functions
 * that are noexcept never fail.
 *
 * OWNERSHIP. Guard, Lock, MultiLock, Semaphore, Options and Audit are moved, not copied, and free what they own. After
 * a move the source holds nothing, and its calls throw REDLATCH_NULL_POINTER. Client and CancelToken are copied
 * cheaply: the copies are the same one. All may be destroyed in any order; what was made from another goes on without
 * it. A std::string_view that is returned lives as long as what was asked.
 *
 * NAMES AND PREFIXES are bytes: "a\0b"sv is another name than "a".
 *
 * THREADS. Any object may be used by several at once (an Audit by one), and destroyed by another than made it; but to
 * move, assign or destroy an object is for one thread alone, as with std::unique_ptr.
 */
#ifndef REDLATCH_HPP
#define REDLATCH_HPP

#include <redlatch.h>

#if __cplusplus < 201703L
#error "redlatch.hpp needs C++17 or later"
#endif

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace redlatch {

static_assert(REDLATCH_VERSION_MAJOR == 0 && REDLATCH_VERSION_MINOR == 1,
              "redlatch.hpp and redlatch.h are not of the same version: install both anew");

/** Why a lease ended before its holder released it. Later versions may add reasons. */
enum class LostReason : std::int32_t {
    Expired = REDLATCH_LOST_EXPIRED,
    Deleted = REDLATCH_LOST_DELETED,
    Taken = REDLATCH_LOST_TAKEN,
    MaxHold = REDLATCH_LOST_MAX_HOLD,
};

/** The type of the value at a key that looks like a lock. */
enum class DataType : std::int32_t {
    String = REDLATCH_TYPE_STRING,
    Hash = REDLATCH_TYPE_HASH,
};

/** A call that failed. what() is its message: one line with the causes, without any password. */
class Error : public std::runtime_error {
  public:
    Error(std::int32_t code, const std::string &message) : std::runtime_error(message), code_(code) {}

    /** The status, such as REDLATCH_CONNECTION: one for each thing that a caller does differently. */
    std::int32_t code() const noexcept { return code_; }

  private:
    std::int32_t code_;
};

/** The wait ended before it could be had: REDLATCH_TIMEOUT. Without a wait, somebody else has it: REDLATCH_BUSY. */
class Timeout : public Error {
    using Error::Error;
};

/** The wait was ended by its CancelToken. */
class Cancelled : public Error {
    using Error::Error;
};

/** Too few servers of a Redlock granted it, or could be asked. Nothing is held. */
class NoQuorum : public Error {
    using Error::Error;
};

/** Too few replicas confirmed the grant, which was given back, or the extension: see Lock::replicas(). */
class NotReplicated : public Error {
    using Error::Error;
};

/** The lease ended before its holder released it: work done since was not protected. */
class Lost : public Error {
  public:
    Lost(LostReason reason, const std::string &message) : Error(REDLATCH_LOST, message), reason_(reason) {}

    LostReason lost_reason() const noexcept { return reason_; }

  private:
    LostReason reason_;
};

namespace detail {

/** Throws what the last call on this thread, which returned `status`, had to say. */
[[noreturn]] inline void fail(std::int32_t status) {
    std::string message(redlatch_last_error_message(nullptr, 0), '\0');
    redlatch_last_error_message(message.data(), message.size() + 1);
    if (message.empty()) { // the last destructors of a thread are running
        message = redlatch_status_str(status);
    }
    switch (status) {
    case REDLATCH_BUSY:
    case REDLATCH_TIMEOUT:
        throw Timeout(status, message);
    case REDLATCH_CANCELLED:
        throw Cancelled(status, message);
    case REDLATCH_LOST:
        throw Lost(static_cast<LostReason>(redlatch_last_lost_reason()), message);
    case REDLATCH_NO_QUORUM:
        throw NoQuorum(status, message);
    case REDLATCH_NOT_REPLICATED:
        throw NotReplicated(status, message);
    default:
        throw Error(status, message);
    }
}

inline void check(std::int32_t status) {
    if (status != REDLATCH_OK) {
        fail(status);
    }
}

/** Refuses a library that this header was not written for. */
inline void check_version() {
    constexpr std::uint32_t header = REDLATCH_VERSION_NUMBER;
    constexpr std::uint32_t compatible = REDLATCH_VERSION_MAJOR == 0 ? 1'000 : 1'000'000;
    const std::uint32_t library = redlatch_version_number();
    if (library < header || library / compatible != header / compatible) {
        throw Error(REDLATCH_UNSUPPORTED, std::string("the program was compiled for redlatch " REDLATCH_VERSION
                                                      ", which redlatch ") +
                                              redlatch_version_string() + " cannot stand in for");
    }
}

/** The address of bytes: that of an empty view may be null, which in C stands for a mistake. */
inline const char *data(std::string_view bytes) noexcept { return bytes.empty() ? "" : bytes.data(); }

/** Text for C, in which a NUL ends it: what stands behind one must not be ignored. */
inline const char *text(const std::string &text, const char *what) {
    if (text.find('\0') != std::string::npos) {
        throw Error(REDLATCH_INVALID_ARGUMENT, std::string("the ") + what + " has a NUL inside");
    }
    return text.c_str();
}

/** Bytes of a handle's; none if there is no handle. */
template <class Handle> std::string_view view(const char *(*get)(const Handle *, std::size_t *), const Handle *handle) {
    std::size_t length = 0;
    const char *const bytes = handle != nullptr ? get(handle, &length) : nullptr;
    return bytes != nullptr ? std::string_view(bytes, length) : std::string_view();
}

template <auto free> struct Free {
    template <class Handle> void operator()(Handle *handle) const noexcept { free(handle); }
};

/** Owns a handle, which is freed by that function. */
template <class Handle, auto free> using Owned = std::unique_ptr<Handle, Free<free>>;

template <class Self, class Api> class Acquirable;

} // namespace detail

/**
 * A time to wait, a lease or a timeout: made from any std::chrono duration, rounded up to whole milliseconds, so that
 * 1.5 ms are 2 and nothing short becomes 0. A negative one counts as 0: that never waits, and is refused as a lease or
 * timeout. Beyond 10^15 ms (30000 years), as with std::chrono::hours::max(), it is without end.
 */
class Duration {
  public:
    template <class Rep, class Period>
    constexpr Duration(std::chrono::duration<Rep, Period> duration) noexcept : ms_(whole(duration)) {}

    constexpr std::uint64_t ms() const noexcept { return ms_; }

  private:
    template <class Rep, class Period>
    static constexpr std::uint64_t whole(std::chrono::duration<Rep, Period> duration) noexcept {
        // What is too long may not fit into whole milliseconds, and is told by this; so is what is no number.
        const std::chrono::duration<double, std::milli> about(duration);
        if (!(about.count() > 0)) {
            return 0;
        }
        if (about.count() > 1e15) {
            return REDLATCH_FOREVER;
        }
        using Whole = std::chrono::duration<std::int64_t, std::milli>;
        return static_cast<std::uint64_t>(std::chrono::ceil<Whole>(duration).count());
    }

    std::uint64_t ms_;
};

/** A switch that ends waits, later ones included, from any thread: see Wait::cancelled_by(). There is no way back. */
class CancelToken {
  public:
    CancelToken() {
        redlatch_cancel *made = nullptr;
        detail::check(redlatch_cancel_new(&made));
        shared_.reset(made, redlatch_cancel_free);
    }
    // Moving copies too: a wait must not lose its switch because the token that it is given was moved from.
    CancelToken(const CancelToken &) = default;
    CancelToken &operator=(const CancelToken &) = default;

    /** Ends all waits that it, or a copy, was passed to. Not for signal handlers. Throws in a forked child only. */
    void cancel() const { detail::check(redlatch_cancel_cancel(shared_.get())); }

    bool is_cancelled() const noexcept { return redlatch_cancel_is_cancelled(shared_.get()); }

  private:
    friend class Wait;

    std::shared_ptr<redlatch_cancel> shared_;
};

/** How long an acquire may wait. */
class Wait {
  public:
    /** As long as it takes. */
    static Wait forever() { return Wait(REDLATCH_FOREVER); }
    /** Not at all: it is tried once. */
    static Wait none() { return Wait(0); }
    /** At most so long, counted from the call that gets this. */
    static Wait at_most(Duration limit) { return Wait(limit.ms()); }
    /** Until then; if that has passed, it is tried once. */
    static Wait until(std::chrono::steady_clock::time_point deadline) {
        Wait wait(0);
        wait.deadline_ = deadline;
        return wait;
    }

    /** The same, ended by `token` too: then Cancelled is thrown. A second token takes the place of the first. */
    Wait cancelled_by(const CancelToken &token) const {
        Wait wait(*this);
        wait.cancel_ = token.shared_;
        return wait;
    }

  private:
    template <class Self, class Api> friend class detail::Acquirable;

    explicit Wait(std::uint64_t ms) : ms_(ms) {}

    std::uint64_t ms() const {
        if (!deadline_) {
            return ms_;
        }
        const auto now = std::chrono::steady_clock::now();
        // Not subtracted if it has passed: the earliest there is would overflow.
        return *deadline_ <= now ? 0 : Duration(*deadline_ - now).ms();
    }

    std::uint64_t ms_;
    std::optional<std::chrono::steady_clock::time_point> deadline_;
    std::shared_ptr<redlatch_cancel> cancel_;
};

/**
 * A hold of a lock, of permits of a semaphore, or of several locks, which is held as long as all of them are. Its
 * destructor releases it, best effort, unless release() did.
 */
class [[nodiscard]] Guard {
  public:
    /** Tells whether it is certainly still held; false once it was lost, released or moved from. No I/O. */
    bool is_held() const noexcept { return redlatch_guard_is_held(handle_.get()); }

    /** How long it is certainly held from now on if nothing renews it; 0 if it is not. No I/O. */
    std::chrono::milliseconds remaining() const noexcept {
        return std::chrono::milliseconds(redlatch_guard_remaining_ms(handle_.get()));
    }

    /** Larger than that of every earlier grant of this name. Stays when it was lost or released. No I/O. */
    std::uint64_t fencing_token() const noexcept { return redlatch_guard_fencing_token(handle_.get()); }

    /** Those of all locks of a MultiLock, in the order of its names(); one for any other guard. No I/O. */
    std::vector<std::uint64_t> fencing_tokens() const {
        std::size_t count = 0;
        detail::check(redlatch_guard_fencing_tokens(handle_.get(), nullptr, 0, &count));
        std::vector<std::uint64_t> tokens(count);
        detail::check(redlatch_guard_fencing_tokens(handle_.get(), tokens.data(), tokens.size(), &count));
        return tokens;
    }

    /** The random token that stands for the grant at the key on the server. No I/O. */
    std::string_view token() const noexcept {
        const char *const token = redlatch_guard_token(handle_.get());
        return token != nullptr ? token : std::string_view();
    }

    std::string_view name() const noexcept { return detail::view(redlatch_guard_name, handle_.get()); }

    /** Throws Lost unless it is still held: the line to put before each write. No I/O. */
    void check() const { detail::check(redlatch_guard_check(handle_.get())); }

    /** Blocks until it is lost, for at most so long; tells whether it was. No I/O. */
    bool wait_lost(Duration limit) const {
        const std::int32_t status = redlatch_guard_wait_lost_ms(handle_.get(), limit.ms());
        if (status != REDLATCH_LOST) {
            detail::check(status);
        }
        return status == REDLATCH_LOST;
    }

    /** Why it was lost, if it was; after release(), as that found. No I/O. */
    std::optional<LostReason> lost_reason() const noexcept {
        const std::int32_t reason = redlatch_guard_lost_reason(handle_.get());
        return reason != REDLATCH_LOST_NOT ? std::optional(static_cast<LostReason>(reason)) : std::nullopt;
    }

    /** The name of what was lost, if anything was: of several locks, the first that was. No I/O. */
    std::optional<std::string_view> lost_name() const noexcept {
        const std::string_view name = detail::view(redlatch_guard_lost_name, handle_.get());
        return name.data() != nullptr ? std::optional(name) : std::nullopt;
    }

    /** Makes the lease end so long from now, unless it lasts longer already: set, not added, never shortened. */
    void extend(Duration lease) const { detail::check(redlatch_guard_extend_ms(handle_.get(), lease.ms())); }

    /**
     * Releases it and reports how that went: throws Lost if it had been lost before, and REDLATCH_UNCONFIRMED if the
     * server did not confirm the release, which is then completed in the background. The guard can still be asked.
     */
    void release() { detail::check(redlatch_guard_release(handle_.get())); }

  private:
    template <class Self, class Api> friend class detail::Acquirable;

    explicit Guard(redlatch_guard *handle) noexcept : handle_(handle) {}

    /** Releases it after work that was done under it: how the release went is of no interest, a loss is. */
    void end_work() {
        const std::int32_t status = redlatch_guard_release(handle_.get());
        if (status != REDLATCH_UNCONFIRMED) {
            detail::check(status);
        }
    }

    detail::Owned<redlatch_guard, redlatch_guard_free> handle_;
};

/** A lease that ended before its holder released it, as an on_lost callback gets it. */
struct LostEvent {
    LostReason reason;
    std::uint64_t fencing_token;
    std::string name;
    /** The loss in words: one line. */
    std::string message;
};

/** One hold, as it stands on the server. */
struct Holder {
    /** Guard::token(), or what another library put there. */
    std::string token;
    /** When it ends by itself unless it is renewed. std::nullopt: never, since another library gave it no TTL. */
    std::optional<std::chrono::milliseconds> expiry;
    /** 1 for a lock. */
    std::uint32_t permits;
};

/** What stood on the server for a name when it was looked at; it may be outdated by now. */
struct Inspection {
    std::vector<Holder> holders;
    /** The one that was drawn last. */
    std::optional<std::uint64_t> fencing_token;
    std::size_t waiters;
    /** Permits left to waiters that were woken and have not come for them yet. */
    std::uint32_t reserved;
    /** How many permits there are: what was set, or else what is declared. 1 for a lock, as the next. */
    std::uint32_t limit;
    std::uint32_t declared_limit;
    /** Permits that are neither held nor reserved. */
    std::uint32_t available;
    /** Nobody holds it, and nothing is reserved. */
    bool is_free;
    /** All of it in words: one line. */
    std::string text;
};

namespace detail {

inline Inspection to_inspection(const redlatch_inspection *seen) {
    Inspection inspection{};
    for (std::size_t index = 0; index < redlatch_inspection_holders(seen); ++index) {
        std::size_t length = 0;
        const char *const token = redlatch_inspection_holder_token(seen, index, &length);
        const std::uint64_t expiry = redlatch_inspection_holder_expiry_ms(seen, index);
        inspection.holders.push_back(
            {std::string(token, length),
             expiry != REDLATCH_FOREVER ? std::optional(std::chrono::milliseconds(expiry)) : std::nullopt,
             redlatch_inspection_holder_permits(seen, index)});
    }
    if (const std::uint64_t fencing_token = redlatch_inspection_fencing_token(seen)) {
        inspection.fencing_token = fencing_token;
    }
    inspection.waiters = redlatch_inspection_waiters(seen);
    inspection.reserved = redlatch_inspection_reserved(seen);
    inspection.limit = redlatch_inspection_limit(seen);
    inspection.declared_limit = redlatch_inspection_declared_limit(seen);
    inspection.available = redlatch_inspection_available(seen);
    inspection.is_free = redlatch_inspection_is_free(seen);
    inspection.text = redlatch_inspection_str(seen);
    return inspection;
}

/** What can be acquired. Setters can be chained; after the first acquire they throw. */
template <class Self, class Api> class Acquirable {
    using Raw = typename Api::Handle;

  public:
    /** How long it stays taken after its holder was last heard of. Defaults to 30 s. */
    Self &lease(Duration length) & { return set(Api::set_lease_ms, length.ms()); }
    Self lease(Duration length) && { return std::move(lease(length)); }

    /** How long one grant may last in all; then it is lost. Defaults to no limit. */
    Self &max_hold(Duration length) & { return set(Api::set_max_hold_ms, length.ms()); }
    Self max_hold(Duration length) && { return std::move(max_hold(length)); }

    /**
     * How many replicas have to confirm each grant, renewal and extension, and how long they may take. An acquire that
     * too few confirm throws NotReplicated at once. Defaults to none.
     */
    Self &replicas(std::uint32_t count, Duration timeout) & { return set(Api::set_replicas, count, timeout.ms()); }
    Self replicas(std::uint32_t count, Duration timeout) && { return std::move(replicas(count, timeout)); }

    /**
     * A function that is told when a lease is lost, on a thread of the client's own. It is destroyed, on any thread,
     * once it cannot be called any more. An exception that it throws is caught and dropped: it ends that call only.
     */
    Self &on_lost(std::function<void(const LostEvent &)> callback) & {
        using Callback = std::function<void(const LostEvent &)>;
        const redlatch_lost_fn call = [](const redlatch_lost *lost, void *user_data) noexcept {
            try {
                (*static_cast<const Callback *>(user_data))({static_cast<LostReason>(lost->reason), lost->fencing_token,
                                                             std::string(lost->name, lost->name_len), lost->message});
            } catch (...) {
                // It must not cross into C, and here is nobody else who could be told.
            }
        };
        auto owned = std::make_unique<Callback>(std::move(callback));
        check(Api::set_on_lost_owned(handle_.get(), *owned ? call : nullptr, owned.get(),
                                     [](void *user_data) { delete static_cast<Callback *>(user_data); }));
        static_cast<void>(owned.release());
        return self();
    }
    Self on_lost(std::function<void(const LostEvent &)> callback) && { return std::move(on_lost(std::move(callback))); }

    /** Waits as long as it takes. */
    Guard acquire() const { return acquire_with(Wait::forever()); }

    /** Never waits: std::nullopt if it is taken. */
    [[nodiscard]] std::optional<Guard> try_acquire() const {
        redlatch_guard *guard = nullptr;
        const std::int32_t status = Api::acquire(handle_.get(), 0, nullptr, &guard);
        if (status == REDLATCH_BUSY) {
            return std::nullopt;
        }
        check(status);
        return Guard(guard);
    }

    /** Waits for at most so long, then throws Timeout. */
    Guard acquire_timeout(Duration limit) const { return acquire_with(Wait::at_most(limit)); }

    /** The general form. Throws Timeout, also after Wait::none(), Cancelled, NoQuorum or NotReplicated. */
    Guard acquire_with(const Wait &wait) const {
        redlatch_guard *guard = nullptr;
        check(Api::acquire(handle_.get(), wait.ms(), wait.cancel_.get(), &guard));
        return Guard(guard);
    }

  protected:
    explicit Acquirable(Raw *handle) noexcept : handle_(handle) {}

    template <class... Values, class... Given> Self &set(std::int32_t (*setter)(Raw *, Values...), Given... values) {
        check(setter(handle_.get(), values...));
        return self();
    }

    /** Runs work under a guard and releases that; if the work throws, whoever owns the guard does. */
    template <class Work> static std::invoke_result_t<Work> run(Guard &guard, Work &&work) {
        using Value = std::invoke_result_t<Work>;
        if constexpr (std::is_void_v<Value>) {
            std::invoke(std::forward<Work>(work));
            guard.end_work();
        } else {
            Value value = std::invoke(std::forward<Work>(work));
            guard.end_work();
            return std::forward<Value>(value);
        }
    }

    template <class Work> std::invoke_result_t<Work> run_after(const Wait &wait, Work &&work) const {
        Guard guard = acquire_with(wait);
        return run(guard, std::forward<Work>(work));
    }

    /** A bool for work that returns nothing, otherwise a std::optional. */
    template <class Work> auto try_run(Work &&work) const {
        using Value = std::invoke_result_t<Work>;
        static_assert(!std::is_reference_v<Value>, "there is no optional reference: let it return a pointer");
        std::optional<Guard> guard = try_acquire();
        if constexpr (std::is_void_v<Value>) {
            if (guard) {
                run(*guard, std::forward<Work>(work));
            }
            return guard.has_value();
        } else {
            return guard ? std::optional<Value>(run(*guard, std::forward<Work>(work))) : std::nullopt;
        }
    }

    Owned<Raw, Api::free> handle_;

  private:
    Self &self() noexcept { return static_cast<Self &>(*this); }
};

/** What a lock and a semaphore have in common. */
template <class Self, class Api> class Named : public Acquirable<Self, Api> {
    using Base = Acquirable<Self, Api>;

  public:
    std::string_view name() const noexcept { return view(Api::name, this->handle_.get()); }

    /** Whether those who wait are served strictly in the order in which they came. Defaults to false. */
    Self &fair(bool on) & { return this->set(Api::set_fair, on); }
    Self fair(bool on) && { return std::move(fair(on)); }

    /** How often in a row it may be handed on to another thread of this client without a round trip. Defaults to 64. */
    Self &handoffs(std::uint32_t most) & { return this->set(Api::set_handoffs, most); }
    Self handoffs(std::uint32_t most) && { return std::move(handoffs(most)); }

    /** Looks at what stands on the server. One round trip. */
    Inspection inspect() const {
        redlatch_inspection *seen = nullptr;
        check(Api::inspect(this->handle_.get(), &seen));
        return to_inspection(Owned<redlatch_inspection, redlatch_inspection_free>(seen).get());
    }

    /** Throws out whoever holds it; tells whether somebody did. For operators: it breaks the first guarantee. */
    bool force_release() const {
        bool held = false;
        check(Api::force_release(this->handle_.get(), &held));
        return held;
    }

  protected:
    using Base::Base;
};

/** Ways to run work under locks. */
template <class Base> class Locking : public Base {
  public:
    /**
     * Runs `work` while the lock is held, after waiting as long as it takes, and returns what that returns. If the work
     * throws, the lock is released and the exception goes on. Throws Lost if the lease was lost before the work ended:
     * it did run. A release that the server does not confirm is no error.
     */
    template <class Work> std::invoke_result_t<Work> with_lock(Work &&work) const {
        return this->run_after(Wait::forever(), std::forward<Work>(work));
    }

    /** The same, after waiting as `wait` says. */
    template <class Work> std::invoke_result_t<Work> with_lock_wait(const Wait &wait, Work &&work) const {
        return this->run_after(wait, std::forward<Work>(work));
    }

    /** The same, without waiting: std::nullopt if it is taken, or false if the work is one that returns nothing. */
    template <class Work> auto try_with_lock(Work &&work) const { return this->try_run(std::forward<Work>(work)); }

    /** As with_lock(), for work that wants to see the guard. */
    template <class Work> std::invoke_result_t<Work, const Guard &> with_guard(Work &&work) const {
        Guard guard = this->acquire();
        return this->run(guard, [&]() -> std::invoke_result_t<Work, const Guard &> {
            return std::invoke(std::forward<Work>(work), std::as_const(guard));
        });
    }

  protected:
    using Base::Base;
};

struct LockApi {
    using Handle = redlatch_lock;
    static constexpr auto acquire = redlatch_lock_acquire;
    static constexpr auto force_release = redlatch_lock_force_release;
    static constexpr auto free = redlatch_lock_free;
    static constexpr auto inspect = redlatch_lock_inspect;
    static constexpr auto name = redlatch_lock_name;
    static constexpr auto set_fair = redlatch_lock_set_fair;
    static constexpr auto set_handoffs = redlatch_lock_set_handoffs;
    static constexpr auto set_lease_ms = redlatch_lock_set_lease_ms;
    static constexpr auto set_max_hold_ms = redlatch_lock_set_max_hold_ms;
    static constexpr auto set_on_lost_owned = redlatch_lock_set_on_lost_owned;
    static constexpr auto set_replicas = redlatch_lock_set_replicas;
};

struct MultiLockApi {
    using Handle = redlatch_multi_lock;
    static constexpr auto acquire = redlatch_multi_lock_acquire;
    static constexpr auto free = redlatch_multi_lock_free;
    static constexpr auto set_lease_ms = redlatch_multi_lock_set_lease_ms;
    static constexpr auto set_max_hold_ms = redlatch_multi_lock_set_max_hold_ms;
    static constexpr auto set_on_lost_owned = redlatch_multi_lock_set_on_lost_owned;
};

struct SemaphoreApi {
    using Handle = redlatch_semaphore;
    static constexpr auto acquire = redlatch_semaphore_acquire;
    static constexpr auto force_release = redlatch_semaphore_force_release;
    static constexpr auto free = redlatch_semaphore_free;
    static constexpr auto inspect = redlatch_semaphore_inspect;
    static constexpr auto name = redlatch_semaphore_name;
    static constexpr auto set_fair = redlatch_semaphore_set_fair;
    static constexpr auto set_handoffs = redlatch_semaphore_set_handoffs;
    static constexpr auto set_lease_ms = redlatch_semaphore_set_lease_ms;
    static constexpr auto set_max_hold_ms = redlatch_semaphore_set_max_hold_ms;
    static constexpr auto set_on_lost_owned = redlatch_semaphore_set_on_lost_owned;
    static constexpr auto set_replicas = redlatch_semaphore_set_replicas;
};

} // namespace detail

/** A named lock that at most one guard holds at a time. It is no hold itself: many threads may acquire through it. */
class Lock : public detail::Locking<detail::Named<Lock, detail::LockApi>> {
  private:
    friend class Client;
    explicit Lock(redlatch_lock *handle) noexcept : Locking(handle) {}
};

/**
 * Several named locks that are held as one, by one guard: all of them are taken, or none is. Whoever waits takes them
 * in an order that is the same everywhere, so no two can wait for each other. It is no hold itself, as a Lock is none.
 */
class MultiLock : public detail::Locking<detail::Acquirable<MultiLock, detail::MultiLockApi>> {
  public:
    /** The names, each of them once, in the order in which they are taken, and of Guard::fencing_tokens(). */
    std::vector<std::string_view> names() const {
        std::vector<std::string_view> names;
        for (std::size_t index = 0; index < redlatch_multi_lock_count(handle_.get()); ++index) {
            std::size_t length = 0;
            const char *const name = redlatch_multi_lock_name(handle_.get(), index, &length);
            names.emplace_back(name, length);
        }
        return names;
    }

  private:
    friend class Client;
    explicit MultiLock(redlatch_multi_lock *handle) noexcept : Locking(handle) {}
};

/** A named number of permits, of which each guard holds one, or several. It is no hold itself, as a Lock is none. */
class Semaphore : public detail::Named<Semaphore, detail::SemaphoreApi> {
  public:
    /** How many permits one acquire takes: all of them at once, or none. Defaults to 1. */
    Semaphore &permits(std::uint32_t number) & { return set(redlatch_semaphore_set_permits, number); }
    Semaphore permits(std::uint32_t number) && { return std::move(permits(number)); }

    /** Makes the lease a fixed one, which is never renewed: Guard::extend() it. */
    Semaphore &timed(Duration lease) & { return set(redlatch_semaphore_set_timed_ms, lease.ms()); }
    Semaphore timed(Duration lease) && { return std::move(timed(lease)); }

    /** Runs `work` while its permits are held: in all as Lock::with_lock(). */
    template <class Work> std::invoke_result_t<Work> with_permit(Work &&work) const {
        return run_after(Wait::forever(), std::forward<Work>(work));
    }

    /** The same, after waiting as `wait` says. */
    template <class Work> std::invoke_result_t<Work> with_permit_wait(const Wait &wait, Work &&work) const {
        return run_after(wait, std::forward<Work>(work));
    }

    /** The same, without waiting, as Lock::try_with_lock(): the usual way with semaphores. */
    template <class Work> auto try_with_permit(Work &&work) const { return try_run(std::forward<Work>(work)); }

    /** Makes this the number of permits for all clients, from the next grant on. */
    void set_limit(std::uint32_t limit) const { detail::check(redlatch_semaphore_set_limit(handle_.get(), limit)); }

    /** How many permits are neither held nor left to a waiter that was woken. One round trip. */
    std::uint32_t available() const {
        std::uint32_t permits = 0;
        detail::check(redlatch_semaphore_available(handle_.get(), &permits));
        return permits;
    }

    /** Who holds permits now. One round trip. */
    std::vector<Holder> holders() const { return inspect().holders; }

  private:
    friend class Client;
    explicit Semaphore(redlatch_semaphore *handle) noexcept : Named(handle) {}
};

/** A lock that nobody will ever free: a key that looks like one and has no TTL. */
struct Finding {
    std::string key;
    DataType data_type;
};

/** A search for such locks: while (auto finding = audit.next()) { ... }. For one thread at a time. */
class Audit {
  public:
    /** The next one; std::nullopt when there is none. Looks through a page of some 1000 keys for each round trip. */
    std::optional<Finding> next() {
        const char *key = nullptr;
        std::size_t length = 0;
        std::int32_t data_type = 0;
        detail::check(redlatch_audit_next(handle_.get(), &key, &length, &data_type));
        if (key == nullptr) {
            return std::nullopt;
        }
        return Finding{std::string(key, length), static_cast<DataType>(data_type)};
    }

  private:
    friend class Client;
    explicit Audit(redlatch_audit *handle) noexcept : handle_(handle) {}

    detail::Owned<redlatch_audit, redlatch_audit_free> handle_;
};

/** Settings for Client::open(). They can be chained, and may serve for many clients. */
class Options {
  public:
    Options() {
        redlatch_options *made = nullptr;
        detail::check(redlatch_options_new(&made));
        handle_.reset(made);
    }

    /** The server, as Client::open() takes it. Defaults to "redis://127.0.0.1/". */
    Options &url(const std::string &text) & { return set(redlatch_options_set_url(get(), detail::text(text, "url"))); }
    Options url(const std::string &text) && { return std::move(url(text)); }

    /** What stands before every key. Defaults to nothing. */
    Options &prefix(std::string_view bytes) & {
        return set(redlatch_options_set_prefix(get(), detail::data(bytes), bytes.size()));
    }
    Options prefix(std::string_view bytes) && { return std::move(prefix(bytes)); }

    /** What stands between the prefix and a lock's name; may be empty. Defaults to "lock:". */
    Options &lock_prefix(std::string_view bytes) & {
        return set(redlatch_options_set_lock_prefix(get(), detail::data(bytes), bytes.size()));
    }
    Options lock_prefix(std::string_view bytes) && { return std::move(lock_prefix(bytes)); }

    /** How many requests may be under way at once, each on a connection of its own. Defaults to 10. */
    Options &pool_size(std::uint32_t most) & { return set(redlatch_options_set_pool_size(get(), most)); }
    Options pool_size(std::uint32_t most) && { return std::move(pool_size(most)); }

    /** How long opening a connection may take. Defaults to 1 s. */
    Options &connect_timeout(Duration limit) & {
        return set(redlatch_options_set_connect_timeout_ms(get(), limit.ms()));
    }
    Options connect_timeout(Duration limit) && { return std::move(connect_timeout(limit)); }

    /** How long one request may take: by how much an acquire can be late if nobody answers. Defaults to 2 s. */
    Options &command_timeout(Duration limit) & {
        return set(redlatch_options_set_command_timeout_ms(get(), limit.ms()));
    }
    Options command_timeout(Duration limit) && { return std::move(command_timeout(limit)); }

    /** The longest pause between two looks of a waiter that nobody wakes. Defaults to 1 s. */
    Options &poll_interval(Duration pause) & {
        return set(redlatch_options_set_poll_interval_ms(get(), pause.ms()));
    }
    Options poll_interval(Duration pause) && { return std::move(poll_interval(pause)); }

    /** How the sentinels of a "redis-sentinel://" URL are logged in to. An empty user is the default one. */
    Options &sentinel_login(const std::string &user, const std::string &password) & {
        return set(redlatch_options_set_sentinel_login(get(), detail::text(user, "user"),
                                                       detail::text(password, "password")));
    }
    Options sentinel_login(const std::string &user, const std::string &password) && {
        return std::move(sentinel_login(user, password));
    }

    /** Whether there is TLS although the URL does not say so, as "rediss://" does. Defaults to false. */
    Options &tls(bool on) & { return set(redlatch_options_set_tls(get(), on)); }
    Options tls(bool on) && { return std::move(tls(on)); }

    /** The PEM file of those who may have signed the server's certificate; read at once. Defaults to the system's. */
    Options &tls_ca_file(const std::string &path) & {
        return set(redlatch_options_set_tls_ca_file(get(), detail::text(path, "path")));
    }
    Options tls_ca_file(const std::string &path) && { return std::move(tls_ca_file(path)); }

    /** The PEM files of what a server is shown that wants a client certificate, and of its key; read at once. */
    Options &tls_client_certificate_files(const std::string &certificate_path, const std::string &key_path) & {
        return set(redlatch_options_set_tls_client_certificate_files(get(),
                                                                     detail::text(certificate_path, "certificate_path"),
                                                                     detail::text(key_path, "key_path")));
    }
    Options tls_client_certificate_files(const std::string &certificate_path, const std::string &key_path) && {
        return std::move(tls_client_certificate_files(certificate_path, key_path));
    }

    /** The longest lease on a Redlock: so long a server has no vote after a restart. Defaults to 60 s. */
    Options &max_lease(Duration lease) & { return set(redlatch_options_set_max_lease_ms(get(), lease.ms())); }
    Options max_lease(Duration lease) && { return std::move(max_lease(lease)); }

    /** How long the answer of one server of a Redlock may take. Defaults to 100 ms. */
    Options &node_timeout(Duration limit) & {
        return set(redlatch_options_set_node_timeout_ms(get(), limit.ms()));
    }
    Options node_timeout(Duration limit) && { return std::move(node_timeout(limit)); }

  private:
    friend class Client;

    redlatch_options *get() const noexcept { return handle_.get(); }

    Options &set(std::int32_t status) {
        detail::check(status);
        return *this;
    }

    detail::Owned<redlatch_options, redlatch_options_free> handle_;
};

/** A way to the server or servers of one URL, shared by its copies and what was made from it. One for each program. */
class Client {
  public:
    /** With the default settings. "redis://host/", "unix:///path", "memory://": see redlatch_client_open(). No I/O. */
    static Client open(const std::string &url) { return open(Options().url(url)); }

    static Client open(const Options &options) {
        detail::check_version();
        redlatch_client *opened = nullptr;
        detail::check(redlatch_client_open_with(options.get(), &opened));
        return Client(opened);
    }

    /** Names a lock that is renewed in the background until it is released. No I/O. */
    Lock lock(std::string_view name) const {
        redlatch_lock *made = nullptr;
        detail::check(redlatch_lock_new(shared_.get(), detail::data(name), name.size(), &made));
        return Lock(made);
    }

    /** Names a lock with a fixed lease, which is never renewed: Guard::extend() it. No I/O. */
    Lock timed_lock(std::string_view name, Duration lease) const {
        redlatch_lock *made = nullptr;
        detail::check(redlatch_timed_lock_new(shared_.get(), detail::data(name), name.size(), lease.ms(), &made));
        return Lock(made);
    }

    /** Names several locks, from 1 to 1000 in any order, that are held as one: multi_lock({"a", "b"}). No I/O. */
    MultiLock multi_lock(std::initializer_list<std::string_view> names) const {
        return multi_lock<std::initializer_list<std::string_view>>(names);
    }

    /** The same, for the names in a container. */
    template <class Names> MultiLock multi_lock(const Names &names) const {
        std::vector<const char *> bytes;
        std::vector<std::size_t> lengths;
        for (const auto &each : names) {
            const std::string_view name(each);
            bytes.push_back(detail::data(name));
            lengths.push_back(name.size());
        }
        redlatch_multi_lock *made = nullptr;
        detail::check(redlatch_multi_lock_new(shared_.get(), bytes.data(), lengths.data(), bytes.size(), &made));
        return MultiLock(made);
    }

    /** Names a semaphore of so many permits, the same number in all programs. No I/O. */
    Semaphore semaphore(std::string_view name, std::uint32_t limit) const {
        redlatch_semaphore *made = nullptr;
        detail::check(redlatch_semaphore_new(shared_.get(), detail::data(name), name.size(), limit, &made));
        return Semaphore(made);
    }

    /** Looks for locks that nobody will ever free among the keys that match, such as "lock:*". No I/O before next(). */
    Audit audit(std::string_view pattern) const {
        redlatch_audit *made = nullptr;
        detail::check(redlatch_client_audit(shared_.get(), detail::data(pattern), pattern.size(), &made));
        return Audit(made);
    }

  private:
    explicit Client(redlatch_client *opened) : shared_(opened, redlatch_client_free) {}

    std::shared_ptr<redlatch_client> shared_;
};

} // namespace redlatch

#endif // REDLATCH_HPP
