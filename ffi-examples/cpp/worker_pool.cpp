// A pool of threads that works off orders: one at a time for each item, and calls to a supplier only two at a time,
// whatever other processes run the same program. At shutdown, waits end at once.
//
// Usage: worker_pool [URL]; without one that of REDIS_URL, or else no server: memory://

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <functional>
#include <iostream>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <redlatch.hpp>

using namespace std::chrono_literals;

namespace {

constexpr unsigned workers = 4;
constexpr unsigned calls_at_once = 2;
constexpr unsigned orders = 12;

/** Runs jobs on threads of its own, each under the lock of its item and with one of the supplier's permits. */
class WorkerPool {
  public:
    using Job = std::function<void()>;

    explicit WorkerPool(redlatch::Client client)
        : client_(std::move(client)), supplier_(client_.semaphore("worker_pool:supplier", calls_at_once)) {
        for (unsigned started = 0; started < workers; ++started) {
            threads_.emplace_back([this] { work(); });
        }
    }

    ~WorkerPool() { shut_down(); }

    void submit(std::string item, Job job) {
        const std::lock_guard<std::mutex> locked(mutex_);
        jobs_.emplace_back(std::move(item), std::move(job));
        changed_.notify_all();
    }

    void wait_until_done(unsigned jobs) {
        std::unique_lock<std::mutex> locked(mutex_);
        changed_.wait(locked, [&] { return done_ + failed_ >= jobs; });
    }

    /** Lets jobs that run end, and gives up those that wait: for a lock, for a permit, or to begin at all. */
    void shut_down() {
        {
            const std::lock_guard<std::mutex> locked(mutex_);
            given_up_ += static_cast<unsigned>(jobs_.size());
            jobs_.clear();
            stopping_ = true;
            changed_.notify_all();
        }
        stop_.cancel();
        for (std::thread &thread : threads_) {
            thread.join();
        }
        threads_.clear();
    }

    unsigned done() const { return done_; }
    unsigned given_up() const { return given_up_; }

  private:
    void work() {
        const auto wait = redlatch::Wait::forever().cancelled_by(stop_);
        while (auto next = take()) {
            const auto &[item, job] = *next;
            try {
                // The item first: who waits for that keeps no permit from the others.
                auto lock = client_.lock("worker_pool:item:" + item);
                const redlatch::Guard guard = lock.acquire_with(wait);
                const redlatch::Guard permit = supplier_.acquire_with(wait);
                job();
                guard.check();
                count(done_);
            } catch (const redlatch::Cancelled &) {
                count(given_up_);
            } catch (const redlatch::Error &error) {
                std::cerr << item + ": " + error.what() + "\n";
                count(failed_);
            }
        }
    }

    std::optional<std::pair<std::string, Job>> take() {
        std::unique_lock<std::mutex> locked(mutex_);
        changed_.wait(locked, [&] { return stopping_ || !jobs_.empty(); });
        if (jobs_.empty()) {
            return std::nullopt;
        }
        auto job = std::move(jobs_.front());
        jobs_.pop_front();
        return job;
    }

    void count(unsigned &counter) {
        const std::lock_guard<std::mutex> locked(mutex_);
        ++counter;
        changed_.notify_all();
    }

    redlatch::Client client_;
    redlatch::Semaphore supplier_;
    redlatch::CancelToken stop_;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::pair<std::string, Job>> jobs_;
    bool stopping_ = false;
    unsigned done_ = 0, failed_ = 0, given_up_ = 0;

    std::vector<std::thread> threads_;
};

/** Counts how many calls run at once. */
class Supplier {
  public:
    void call() {
        enter(1);
        std::this_thread::sleep_for(20ms);
        enter(-1);
    }

    int most_at_once() const { return most_; }

  private:
    void enter(int change) {
        const std::lock_guard<std::mutex> locked(mutex_);
        now_ += change;
        most_ = std::max(most_, now_);
    }

    std::mutex mutex_;
    int now_ = 0, most_ = 0;
};

void run(const redlatch::Client &client) {
    // Somebody is at work on the tea, and will be for long.
    const auto tea = client.lock("worker_pool:item:tea").acquire();

    Supplier supplier;
    WorkerPool pool(client);
    pool.submit("tea", [&] { supplier.call(); });
    for (unsigned order = 0; order < orders; ++order) {
        const char *const items[] = {"apples", "bread", "cheese"};
        pool.submit(items[order % 3], [&] { supplier.call(); });
    }
    pool.wait_until_done(orders);
    pool.shut_down();

    std::cout << pool.done() << " orders done, at most " << supplier.most_at_once() << " at once\n"
              << pool.given_up() << " given up at shutdown\n";
}

} // namespace

int main(int argc, char **argv) {
    const char *const environment = std::getenv("REDIS_URL");
    try {
        run(redlatch::Client::open(argc > 1 ? argv[1] : environment != nullptr ? environment : "memory://"));
    } catch (const redlatch::Error &error) {
        std::cerr << error.what() << "\n";
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
