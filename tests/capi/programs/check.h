/*
 * What the test programs share: assertions that say where, what and why, time, and a look at the process's threads.
 * To be included first, because it says which functions of POSIX there are to be.
 */
#ifndef CHECK_H
#define CHECK_H

#define _POSIX_C_SOURCE 200809L

#include <redlatch.h>

#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NUL REDLATCH_NUL_TERMINATED

/* For conditions that come true by themselves. Far more than any of them takes. */
#define PATIENCE_MS 30000

/* What stands in a place that is not to be written to. */
#define UNTOUCHED untouched()
static inline void *untouched(void)
{
    static char place;
    return &place;
}

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) fail_at(__FILE__, __LINE__, #condition, "is not so");                                        \
    } while (0)

/* The status that a call returns. */
#define IS(call, expected) is_at(__FILE__, __LINE__, #call, (call), (expected))

/* A call fails with this status, and a message of its own that has these words. */
#define REFUSED(call, expected, words)                                                                                 \
    do {                                                                                                               \
        leave_a_mark();                                                                                                \
        is_at(__FILE__, __LINE__, #call, (call), (expected));                                                          \
        says_at(__FILE__, __LINE__, #call, (words));                                                                   \
    } while (0)

/* A condition on what a function without a status returns, which leaves a message with these words. */
#define SAYS(condition, words)                                                                                         \
    do {                                                                                                               \
        leave_a_mark();                                                                                                \
        CHECK(condition);                                                                                              \
        says_at(__FILE__, __LINE__, #condition, (words));                                                              \
    } while (0)

/* Waits for a condition that only a look can tell. */
#define UNTIL(condition)                                                                                               \
    do {                                                                                                               \
        uint64_t until_ = now_ms() + PATIENCE_MS;                                                                      \
        while (!(condition)) {                                                                                         \
            if (now_ms() > until_) fail_at(__FILE__, __LINE__, #condition, "did not come true");                       \
            pause_ms(2);                                                                                               \
        }                                                                                                              \
    } while (0)

static inline void fail_at(const char *file, int line, const char *what, const char *how)
{
    char message[1024];
    redlatch_last_error_message(message, sizeof message);
    fprintf(stderr, "%s:%d: %s: %s\n  the last error on this thread: %s\n", file, line, what, how, message);
    /* Not exit(): other threads may be in the middle of anything. */
    _exit(1);
}

static inline void is_at(const char *file, int line, const char *call, int32_t status, int32_t expected)
{
    if (status != expected) {
        char how[256];
        snprintf(how, sizeof how, "returned %" PRId32 " (%s), not %" PRId32 " (%s)", status,
                 redlatch_status_str(status), expected, redlatch_status_str(expected));
        fail_at(file, line, call, how);
    }
}

static inline void says_at(const char *file, int line, const char *call, const char *words)
{
    char message[1024];
    redlatch_last_error_message(message, sizeof message);
    bool marked = strstr(message, "`cancel`") != NULL && strcmp(words, "`cancel`") != 0;
    if (message[0] == '\0' || marked || strstr(message, words) == NULL) {
        char how[256];
        snprintf(how, sizeof how, "its message does not say \"%s\"", words);
        fail_at(file, line, call, how);
    }
}

/* A message that no other failure has, so that an old one is not taken for a new one. */
static inline void leave_a_mark(void)
{
    CHECK(redlatch_cancel_is_cancelled(NULL) == false);
}

/* The program's own clock, to see how long something took. */
static inline uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static inline void pause_ms(long ms)
{
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    /* Cut short by a signal it is as good: whoever pauses looks again. */
    nanosleep(&pause, NULL);
}

static inline pthread_t start(void *(*run)(void *), void *with)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run, with) == 0);
    return thread;
}

static inline void join(pthread_t thread)
{
    CHECK(pthread_join(thread, NULL) == 0);
}

/* How many threads of redlatch's this process has. */
static inline int background_threads(void)
{
    int found = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *task = readdir(tasks); task != NULL; task = readdir(tasks)) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
        FILE *file = fopen(path, "r");
        if (file == NULL) continue; /* It has ended meanwhile, or is "..". */
        if (fgets(name, sizeof name, file) != NULL && strncmp(name, "redlatch", 8) == 0) found++;
        fclose(file);
    }
    closedir(tasks);
    return found;
}

static inline redlatch_client *client_of(const char *url)
{
    redlatch_client *client = NULL;
    IS(redlatch_client_open(url, &client), REDLATCH_OK);
    CHECK(client != NULL);
    return client;
}

static inline redlatch_lock *lock_of(const redlatch_client *client, const char *name)
{
    redlatch_lock *lock = NULL;
    IS(redlatch_lock_new(client, name, NUL, &lock), REDLATCH_OK);
    CHECK(lock != NULL);
    return lock;
}

static inline redlatch_lock *timed_lock_of(const redlatch_client *client, const char *name, uint64_t lease_ms)
{
    redlatch_lock *lock = NULL;
    IS(redlatch_timed_lock_new(client, name, NUL, lease_ms, &lock), REDLATCH_OK);
    CHECK(lock != NULL);
    return lock;
}

static inline redlatch_semaphore *semaphore_of(const redlatch_client *client, const char *name, uint32_t limit)
{
    redlatch_semaphore *semaphore = NULL;
    IS(redlatch_semaphore_new(client, name, NUL, limit, &semaphore), REDLATCH_OK);
    CHECK(semaphore != NULL);
    return semaphore;
}

static inline redlatch_guard *held(const redlatch_lock *lock)
{
    redlatch_guard *guard = NULL;
    IS(redlatch_lock_acquire(lock, PATIENCE_MS, NULL, &guard), REDLATCH_OK);
    CHECK(guard != NULL);
    return guard;
}

static inline redlatch_guard *permitted(const redlatch_semaphore *semaphore)
{
    redlatch_guard *guard = NULL;
    IS(redlatch_semaphore_acquire(semaphore, PATIENCE_MS, NULL, &guard), REDLATCH_OK);
    CHECK(guard != NULL);
    return guard;
}

static inline size_t waiters(const redlatch_lock *lock)
{
    redlatch_inspection *seen = NULL;
    IS(redlatch_lock_inspect(lock, &seen), REDLATCH_OK);
    size_t waiting = redlatch_inspection_waiters(seen);
    redlatch_inspection_free(seen);
    return waiting;
}

#endif
