/*
 * Signals are the program's: they run its handlers in its threads, and change nothing else: signals URL
 */
#include "check.h"

#include <errno.h>
#include <signal.h>
#include <sys/time.h>

static pthread_key_t of_this_program;
static volatile sig_atomic_t handled, handled_elsewhere;

/* Threads of the program's own say so, before a handler can run in them; the background threads cannot. */
static void is_ours(void)
{
    sigset_t none;
    sigemptyset(&none);
    CHECK(pthread_setspecific(of_this_program, &of_this_program) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &none, NULL) == 0);
}

/* Starts a thread with all signals blocked. */
static pthread_t start_blocked(void *(*run)(void *), void *with)
{
    sigset_t all, before;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_BLOCK, &all, &before) == 0);
    pthread_t thread = start(run, with);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    return thread;
}

static void handler(int signal)
{
    int before = errno;
    (void)signal;
    handled = 1;
    if (pthread_getspecific(of_this_program) == NULL) handled_elsewhere = 1;
    errno = before;
}

static void handle(int signal)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler; /* Without SA_RESTART. */
    CHECK(sigaction(signal, &action, NULL) == 0);
}

/* Signals to one thread, and alarms to whoever takes them, as fast as they go. */
struct storm {
    pthread_t at, thread;
    pthread_mutex_t mutex;
    bool over;
};

static void *rage(void *with)
{
    struct storm *storm = with;
    for (;;) {
        CHECK(pthread_mutex_lock(&storm->mutex) == 0);
        bool over = storm->over;
        CHECK(pthread_mutex_unlock(&storm->mutex) == 0);
        if (over) return NULL;
        CHECK(pthread_kill(storm->at, SIGUSR1) == 0);
        CHECK(pthread_kill(storm->at, SIGALRM) == 0);
        struct timespec moment = {0, 200000};
        nanosleep(&moment, NULL);
    }
}

static void begin_storm(struct storm *storm, pthread_t at)
{
    struct itimerval every_ms = {{0, 1000}, {0, 1000}};
    *storm = (struct storm){.at = at, .over = false};
    CHECK(pthread_mutex_init(&storm->mutex, NULL) == 0);
    handled = 0;
    storm->thread = start_blocked(rage, storm);
    CHECK(setitimer(ITIMER_REAL, &every_ms, NULL) == 0);
}

static void end_storm(struct storm *storm)
{
    static const struct itimerval never;
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(pthread_mutex_lock(&storm->mutex) == 0);
    storm->over = true;
    CHECK(pthread_mutex_unlock(&storm->mutex) == 0);
    join(storm->thread);
    CHECK(handled && !handled_elsewhere);
}

static bool is_fault(int signal)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        if (faults[i] == signal) return true;
    }
    return false;
}

/* Those that a mask can have: two cannot be blocked, and the C library keeps what is before SIGRTMIN for itself. */
static bool can_be_blocked(int signal)
{
    return signal != SIGKILL && signal != SIGSTOP && (signal <= 31 || signal >= SIGRTMIN);
}

/* Returns how many there are. */
static int background_threads_block_all_but_faults(void)
{
    int seen = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *task = readdir(tasks); task != NULL; task = readdir(tasks)) {
        char path[300], line[256], name[64] = "";
        uint64_t blocked = 0;
        bool found = false;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *file = fopen(path, "r");
        if (file == NULL) continue; /* It has ended meanwhile, or is "..". */
        while (fgets(line, sizeof line, file) != NULL) {
            if (sscanf(line, "Name: %63s", name) == 1) continue;
            if (sscanf(line, "SigBlk: %" SCNx64, &blocked) == 1) found = true;
        }
        fclose(file);
        if (strncmp(name, "redlatch", 8) != 0) continue;
        CHECK(found);
        for (int signal = 1; signal <= 64; signal++) {
            bool is_blocked = (blocked >> (signal - 1) & 1) != 0;
            if (can_be_blocked(signal) && is_blocked == is_fault(signal)) {
                fprintf(stderr, "signal %d is %s in %s:\n", signal, is_blocked ? "blocked" : "not blocked", name);
                CHECK(!"all but faults are blocked");
            }
        }
        seen++;
    }
    closedir(tasks);
    return seen;
}

struct callback {
    pthread_mutex_t mutex;
    bool entered, leave;
};

static bool look(struct callback *callback, const bool *at)
{
    CHECK(pthread_mutex_lock(&callback->mutex) == 0);
    bool seen = *at;
    CHECK(pthread_mutex_unlock(&callback->mutex) == 0);
    return seen;
}

static void turn(struct callback *callback, bool *on)
{
    CHECK(pthread_mutex_lock(&callback->mutex) == 0);
    *on = true;
    CHECK(pthread_mutex_unlock(&callback->mutex) == 0);
}

static void stay(const redlatch_lost *lost, void *user_data)
{
    struct callback *callback = user_data;
    sigset_t blocked;
    (void)lost;
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0);
    CHECK(sigismember(&blocked, SIGUSR1) == 1 && sigismember(&blocked, SIGINT) == 1);
    CHECK(sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGSEGV) == 0);
    turn(callback, &callback->entered);
    UNTIL(look(callback, &callback->leave));
}

struct wait {
    redlatch_lock *lock;
    const redlatch_cancel *cancel;
};

static void *wait_for(void *with)
{
    struct wait *wait = with;
    redlatch_guard *none = NULL;
    is_ours();
    IS(redlatch_lock_acquire(wait->lock, REDLATCH_FOREVER, wait->cancel, &none), REDLATCH_CANCELLED);
    return NULL;
}

/* The thread that renews, the one that listens for a waiter, the one that calls back: all at work. */
static void background_threads_have_all_signals_blocked(const char *url, bool on_a_server)
{
    struct callback callback = {PTHREAD_MUTEX_INITIALIZER, false, false};
    redlatch_client *client = client_of(url), *holder = client_of(url);
    redlatch_lock *lost = timed_lock_of(client, "signals:lost", 50), *taken = lock_of(holder, "signals:taken");
    redlatch_lock *held_too = lock_of(client, "signals:held");
    redlatch_cancel *cancel = NULL;
    IS(redlatch_cancel_new(&cancel), REDLATCH_OK);
    IS(redlatch_lock_set_on_lost(lost, stay, &callback), REDLATCH_OK);
    redlatch_guard *guard = held(taken), *own = held(held_too), *expired = held(lost);
    struct wait wait = {lock_of(client, "signals:taken"), cancel};
    pthread_t waiter = start_blocked(wait_for, &wait);
    UNTIL(look(&callback, &callback.entered) && waiters(taken) == 1);
    /* Threads are named by themselves, so one that has just been started may not be yet. */
    UNTIL(background_threads() >= (on_a_server ? 4 : 2));
    CHECK(background_threads_block_all_but_faults() >= (on_a_server ? 4 : 2));
    turn(&callback, &callback.leave);
    IS(redlatch_cancel_cancel(cancel), REDLATCH_OK);
    join(waiter);
    redlatch_guard_free(guard);
    redlatch_guard_free(own);
    redlatch_guard_free(expired);
    redlatch_lock_free(lost);
    redlatch_lock_free(taken);
    redlatch_lock_free(held_too);
    redlatch_lock_free(wait.lock);
    redlatch_cancel_free(cancel);
    redlatch_client_free(client);
    redlatch_client_free(holder);
}

static void a_storm_changes_no_call(const char *url)
{
    redlatch_client *holder = client_of(url), *client = client_of(url);
    redlatch_lock *taken = lock_of(holder, "signals:storm"), *lock = lock_of(client, "signals:storm");
    redlatch_lock *own = lock_of(client, "signals:own");
    redlatch_semaphore *semaphore = semaphore_of(client, "signals:own", 2);
    redlatch_guard *guard = held(taken), *none = UNTOUCHED;
    struct storm storm;
    begin_storm(&storm, pthread_self());
    uint64_t before = now_ms();
    IS(redlatch_lock_acquire(lock, 700, NULL, &none), REDLATCH_TIMEOUT);
    CHECK(now_ms() - before >= 699 && now_ms() - before < PATIENCE_MS);
    CHECK(none == UNTOUCHED);
    before = now_ms();
    IS(redlatch_guard_wait_lost_ms(guard, 500), REDLATCH_OK);
    CHECK(now_ms() - before >= 499 && now_ms() - before < PATIENCE_MS);
    for (int i = 0; i < 100; i++) {
        redlatch_guard *one = held(own), *permit = permitted(semaphore);
        CHECK(waiters(own) == 0);
        IS(redlatch_guard_extend_ms(one, 60000), REDLATCH_OK);
        IS(redlatch_guard_release(one), REDLATCH_OK);
        redlatch_guard_free(one);
        redlatch_guard_free(permit);
        /* Connections are opened under it as well. */
        redlatch_client *fresh = client_of(url);
        redlatch_lock *of_fresh = lock_of(fresh, "signals:fresh");
        redlatch_guard_free(held(of_fresh));
        redlatch_lock_free(of_fresh);
        redlatch_client_free(fresh);
    }
    end_storm(&storm);
    IS(redlatch_guard_release(guard), REDLATCH_OK);
    redlatch_guard_free(guard);
    redlatch_lock_free(taken);
    redlatch_lock_free(lock);
    redlatch_lock_free(own);
    redlatch_semaphore_free(semaphore);
    redlatch_client_free(client);
    redlatch_client_free(holder);
}

/* A place in the queue. */
struct place {
    redlatch_lock *lock;
    pthread_mutex_t *mutex;
    int *served, turn;
};

static void *queue_up(void *with)
{
    struct place *place = with;
    redlatch_guard *guard = NULL;
    is_ours();
    guard = held(place->lock);
    CHECK(pthread_mutex_lock(place->mutex) == 0);
    place->turn = ++*place->served;
    CHECK(pthread_mutex_unlock(place->mutex) == 0);
    IS(redlatch_guard_release(guard), REDLATCH_OK);
    redlatch_guard_free(guard);
    return NULL;
}

static redlatch_lock *fair(const redlatch_client *client)
{
    redlatch_lock *lock = lock_of(client, "signals:fair");
    IS(redlatch_lock_set_fair(lock, true), REDLATCH_OK);
    return lock;
}

static void a_fair_waiter_keeps_its_place_in_a_storm(const char *url)
{
    redlatch_client *clients[3] = {client_of(url), client_of(url), client_of(url)};
    redlatch_lock *locks[3] = {fair(clients[0]), fair(clients[1]), fair(clients[2])};
    redlatch_guard *guard = held(locks[0]);
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    int served = 0;
    struct place first = {locks[1], &mutex, &served, 0}, second = {locks[2], &mutex, &served, 0};
    struct storm storm;
    pthread_t stormed = start_blocked(queue_up, &first);
    UNTIL(waiters(locks[0]) == 1);
    begin_storm(&storm, stormed);
    pthread_t calm = start_blocked(queue_up, &second);
    UNTIL(waiters(locks[0]) == 2);
    /* For some polls of its, and more than it takes for a waiter that is not heard of to be passed over. */
    IS(redlatch_guard_wait_lost_ms(guard, 3500), REDLATCH_OK);
    CHECK(waiters(locks[0]) == 2);
    /* Before the first is served and its thread is gone. */
    end_storm(&storm);
    IS(redlatch_guard_release(guard), REDLATCH_OK);
    join(stormed);
    join(calm);
    CHECK(first.turn == 1 && second.turn == 2);
    redlatch_guard_free(guard);
    for (int i = 0; i < 3; i++) {
        redlatch_lock_free(locks[i]);
        redlatch_client_free(clients[i]);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    CHECK(pthread_key_create(&of_this_program, NULL) == 0);
    is_ours();
    handle(SIGUSR1);
    handle(SIGALRM);
    background_threads_have_all_signals_blocked(argv[1], strncmp(argv[1], "memory", 6) != 0);
    a_storm_changes_no_call(argv[1]);
    a_fair_waiter_keeps_its_place_in_a_storm(argv[1]);
    CHECK(!handled_elsewhere);
    return 0;
}
