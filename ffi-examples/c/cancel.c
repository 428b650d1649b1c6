/*
 * cancel.c: waits that somebody else ends: another thread, or whoever sends the program SIGINT (Ctrl-C) or SIGTERM.
 *
 * Usage: cancel [URL]   The server; else $REDIS_URL, else memory://, which needs none.
 */
#define _POSIX_C_SOURCE 200809L
#include <redlatch.h>

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* A thread that waits for a lock until it is told to stop. */
struct waiter {
    const redlatch_lock *lock;
    const redlatch_cancel *cancel;
    int32_t status;
};

/* The thread that gets the program's signals, and ends the waits. */
struct signals {
    sigset_t set;
    redlatch_cancel *cancel;
};

static const char *server_url(int argc, char **argv) {
    const char *url = argc > 1 ? argv[1] : getenv("REDIS_URL");
    return url != NULL && *url != '\0' ? url : "memory://";
}

/* Prints why the last call on this thread failed. */
static void print_error(const char *what) {
    char message[512];
    redlatch_last_error_message(message, sizeof message);
    fprintf(stderr, "%s: %s\n", what, message);
}

static void *wait_for_lock(void *user_data) {
    struct waiter *waiter = user_data;
    redlatch_guard *guard = NULL;
    waiter->status = redlatch_lock_acquire(waiter->lock, REDLATCH_FOREVER, waiter->cancel, &guard);
    if (waiter->status != REDLATCH_OK && waiter->status != REDLATCH_CANCELLED)
        print_error("the thread's wait failed");
    redlatch_guard_free(guard);
    return NULL;
}

/* How many stand in the queue for the lock, on the server. */
static int32_t count_waiters(const redlatch_lock *lock, size_t *out) {
    redlatch_inspection *inspection = NULL;
    int32_t status = redlatch_lock_inspect(lock, &inspection);
    if (status == REDLATCH_OK)
        *out = redlatch_inspection_waiters(inspection);
    redlatch_inspection_free(inspection);
    return status;
}

/* Part one: a thread waits, and this one ends that. */
static int32_t end_a_threads_wait(const redlatch_lock *lock) {
    struct waiter waiter = {lock, NULL, REDLATCH_OK};
    redlatch_cancel *cancel = NULL;
    pthread_t thread;
    int32_t status = redlatch_cancel_new(&cancel);
    if (status != REDLATCH_OK)
        return status;
    waiter.cancel = cancel;
    if (pthread_create(&thread, NULL, wait_for_lock, &waiter) != 0) {
        fprintf(stderr, "cannot start a thread\n");
        redlatch_cancel_free(cancel);
        return REDLATCH_THREAD;
    }
    /* A cancel that comes before the wait ends it as well; this is only to show one that is under way. */
    size_t waiters = 0;
    for (int looks = 0; status == REDLATCH_OK && waiters == 0 && looks < 1000; looks++) {
        struct timespec pause = {0, 10 * 1000 * 1000};
        nanosleep(&pause, NULL);
        status = count_waiters(lock, &waiters);
    }
    int32_t cancelled = redlatch_cancel_cancel(cancel);
    pthread_join(thread, NULL);
    redlatch_cancel_free(cancel);
    if (status == REDLATCH_OK)
        status = cancelled;
    if (status == REDLATCH_OK)
        printf("the thread's wait ended: %s\n", redlatch_status_str(waiter.status));
    return status;
}

/* Cancels at the first signal. Not in a handler: redlatch is not to be called there. */
static void *cancel_at_signal(void *user_data) {
    struct signals *signals = user_data;
    int number = 0;
    if (sigwait(&signals->set, &number) == 0)
        redlatch_cancel_cancel(signals->cancel);
    return NULL;
}

/* Part two: this thread waits in the queue until it gets the lock or the program is told to end. */
static int32_t wait_until_signalled(const redlatch_lock *lock, struct signals *signals) {
    redlatch_guard *guard = NULL;
    pthread_t thread;
    int32_t status = redlatch_cancel_new(&signals->cancel);
    if (status != REDLATCH_OK)
        return status;
    if (pthread_create(&thread, NULL, cancel_at_signal, signals) != 0) {
        fprintf(stderr, "cannot start a thread\n");
        redlatch_cancel_free(signals->cancel);
        return REDLATCH_THREAD;
    }
    printf("waiting for the lock; Ctrl-C or SIGTERM ends that\n");
    fflush(stdout);
    status = redlatch_lock_acquire(lock, REDLATCH_FOREVER, signals->cancel, &guard);
    if (status == REDLATCH_CANCELLED)
        printf("a signal ended the wait: %s\n", redlatch_status_str(status));
    else if (status == REDLATCH_OK)
        printf("got the lock\n");
    /* It may have ended without a signal: then this one ends the thread, which alone takes it. */
    if (!redlatch_cancel_is_cancelled(signals->cancel))
        pthread_kill(thread, SIGTERM);
    pthread_join(thread, NULL);
    redlatch_cancel_free(signals->cancel);
    redlatch_guard_free(guard);
    return status == REDLATCH_CANCELLED ? REDLATCH_OK : status;
}

int main(int argc, char **argv) {
    struct signals signals = {0};
    redlatch_client *client = NULL;
    redlatch_lock *lock = NULL;
    redlatch_guard *holder = NULL;
    size_t waiters = 0;

    /* Before any thread is there, so that all inherit it, and only sigwait() gets these signals. */
    sigemptyset(&signals.set);
    sigaddset(&signals.set, SIGINT);
    sigaddset(&signals.set, SIGTERM);
    if (pthread_sigmask(SIG_BLOCK, &signals.set, NULL) != 0) {
        fprintf(stderr, "cannot block signals\n");
        return EXIT_FAILURE;
    }

    int32_t status = redlatch_client_open(server_url(argc, argv), &client);
    if (status == REDLATCH_OK)
        status = redlatch_lock_new(client, "example:queue", REDLATCH_NUL_TERMINATED, &lock);
    if (status == REDLATCH_OK)
        status = redlatch_lock_set_fair(lock, true); /* those who wait get it in the order in which they came */
    if (status == REDLATCH_OK)
        status = redlatch_lock_acquire(lock, 10000, NULL, &holder); /* so that there is something to wait for */
    if (status == REDLATCH_OK)
        status = end_a_threads_wait(lock);
    if (status == REDLATCH_OK)
        status = wait_until_signalled(lock, &signals);
    if (status == REDLATCH_OK)
        status = count_waiters(lock, &waiters);
    if (status == REDLATCH_OK) {
        printf("left in the queue: %zu\n", waiters); /* a wait that ends gives its place back */
        status = redlatch_guard_release(holder);
    }
    if (status != REDLATCH_OK)
        print_error("failed");

    redlatch_guard_free(holder);
    redlatch_lock_free(lock);
    redlatch_client_free(client);
    return status == REDLATCH_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
