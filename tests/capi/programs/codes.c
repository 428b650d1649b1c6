/*
 * What ends a call, by its code: codes URL [REFUSING_URL SILENT_URL]
 * REFUSING_URL names a user who may do nothing; at SILENT_URL no request to acquire is answered.
 */
#include "check.h"

#include <sys/resource.h>

static void busy_without_a_wait_and_timeout_with_one(const redlatch_client *client)
{
    redlatch_lock *lock = lock_of(client, "codes:busy");
    redlatch_semaphore *semaphore = semaphore_of(client, "codes:busy", 1);
    redlatch_guard *guard = held(lock), *permit = permitted(semaphore), *none = UNTOUCHED;
    REFUSED(redlatch_lock_acquire(lock, 0, NULL, &none), REDLATCH_BUSY, "`codes:busy` is taken");
    REFUSED(redlatch_semaphore_acquire(semaphore, 0, NULL, &none), REDLATCH_BUSY, "`codes:busy` is taken");
    uint64_t before = now_ms();
    REFUSED(redlatch_lock_acquire(lock, 150, NULL, &none), REDLATCH_TIMEOUT, "`codes:busy`");
    REFUSED(redlatch_semaphore_acquire(semaphore, 150, NULL, &none), REDLATCH_TIMEOUT, "`codes:busy`");
    CHECK(now_ms() - before >= 299 && now_ms() - before < PATIENCE_MS);
    CHECK(none == UNTOUCHED && redlatch_last_lost_reason() == REDLATCH_LOST_NOT);
    redlatch_guard_free(guard);
    redlatch_guard_free(permit);
    redlatch_lock_free(lock);
    redlatch_semaphore_free(semaphore);
}

struct waiter {
    const redlatch_lock *lock;
    const redlatch_semaphore *semaphore;
    const redlatch_cancel *cancel;
};

static void *wait_until_cancelled(void *with)
{
    const struct waiter *waiter = with;
    redlatch_guard *none = UNTOUCHED;
    if (waiter->lock != NULL) {
        REFUSED(redlatch_lock_acquire(waiter->lock, REDLATCH_FOREVER, waiter->cancel, &none), REDLATCH_CANCELLED, "");
    } else {
        REFUSED(redlatch_semaphore_acquire(waiter->semaphore, REDLATCH_FOREVER, waiter->cancel, &none),
                REDLATCH_CANCELLED, "");
    }
    CHECK(none == UNTOUCHED);
    return NULL;
}

static size_t waiting_for(const redlatch_semaphore *semaphore)
{
    redlatch_inspection *seen = NULL;
    IS(redlatch_semaphore_inspect(semaphore, &seen), REDLATCH_OK);
    size_t waiting = redlatch_inspection_waiters(seen);
    redlatch_inspection_free(seen);
    return waiting;
}

static void one_switch_ends_waits_before_and_while_they_last(const char *url, const redlatch_client *holder)
{
    redlatch_lock *taken = lock_of(holder, "codes:cancelled");
    redlatch_semaphore *used_up = semaphore_of(holder, "codes:cancelled", 1);
    redlatch_guard *guard = held(taken), *permit = permitted(used_up), *none = UNTOUCHED;
    /* The server does not see those who wait for a lock that their own client holds. */
    redlatch_client *client = client_of(url);
    redlatch_lock *lock = lock_of(client, "codes:cancelled"), *free_lock = lock_of(client, "codes:free");
    redlatch_semaphore *semaphore = semaphore_of(client, "codes:cancelled", 1);
    redlatch_cancel *cancel = NULL;
    IS(redlatch_cancel_new(&cancel), REDLATCH_OK);
    struct waiter for_lock = {lock, NULL, cancel}, for_permit = {NULL, semaphore, cancel};
    pthread_t first = start(wait_until_cancelled, &for_lock), second = start(wait_until_cancelled, &for_permit);
    UNTIL(waiters(lock) == 1 && waiting_for(semaphore) == 1);
    IS(redlatch_cancel_cancel(cancel), REDLATCH_OK);
    join(first);
    join(second);
    /* Nobody is left in the queue. */
    UNTIL(waiters(lock) == 0 && waiting_for(semaphore) == 0);

    /* From the first, even if it could be had. */
    REFUSED(redlatch_lock_acquire(free_lock, REDLATCH_FOREVER, cancel, &none), REDLATCH_CANCELLED, "");
    REFUSED(redlatch_lock_acquire(lock, REDLATCH_FOREVER, cancel, &none), REDLATCH_CANCELLED, "");
    CHECK(none == UNTOUCHED);
    redlatch_guard_free(held(free_lock));
    redlatch_guard_free(guard);
    redlatch_guard_free(permit);
    redlatch_lock_free(lock);
    redlatch_lock_free(free_lock);
    redlatch_lock_free(taken);
    redlatch_semaphore_free(semaphore);
    redlatch_semaphore_free(used_up);
    redlatch_client_free(client);
    redlatch_cancel_free(cancel);
}

/* Each call says it, before and after the release, which says it once. */
static void is_lost(redlatch_guard *guard, int32_t reason)
{
    CHECK(!redlatch_guard_is_held(guard) && redlatch_guard_remaining_ms(guard) == 0);
    CHECK(redlatch_guard_fencing_token(guard) > 0 && redlatch_guard_token(guard)[0] != '\0');
    REFUSED(redlatch_guard_check(guard), REDLATCH_LOST, "");
    CHECK(redlatch_last_lost_reason() == reason && redlatch_guard_lost_reason(guard) == reason);
    REFUSED(redlatch_guard_extend_ms(guard, 10000), REDLATCH_LOST, "");
    REFUSED(redlatch_guard_wait_lost_ms(guard, REDLATCH_FOREVER), REDLATCH_LOST, "");
    REFUSED(redlatch_guard_release(guard), REDLATCH_LOST, "");
    CHECK(redlatch_last_lost_reason() == reason && redlatch_guard_lost_reason(guard) == reason);
    REFUSED(redlatch_guard_release(guard), REDLATCH_INVALID_STATE, "released before");
    CHECK(redlatch_last_lost_reason() == REDLATCH_LOST_NOT && redlatch_guard_lost_reason(guard) == reason);
    redlatch_guard_free(guard);
}

static void force_out(void *user_data)
{
    bool somebody = false;
    IS(redlatch_lock_force_release(user_data, &somebody), REDLATCH_OK);
    CHECK(somebody);
}

static void lost_says_why(const char *url, const redlatch_client *client)
{
    redlatch_lock *timed = timed_lock_of(client, "codes:expired", 100);
    redlatch_guard *guard = held(timed), *next;
    IS(redlatch_guard_wait_lost_ms(guard, REDLATCH_FOREVER), REDLATCH_LOST);
    is_lost(guard, REDLATCH_LOST_EXPIRED);
    redlatch_lock_free(timed);

    redlatch_lock *limited = lock_of(client, "codes:max-hold");
    IS(redlatch_lock_set_max_hold_ms(limited, 200), REDLATCH_OK);
    guard = held(limited);
    IS(redlatch_guard_wait_lost_ms(guard, REDLATCH_FOREVER), REDLATCH_LOST);
    is_lost(guard, REDLATCH_LOST_MAX_HOLD);
    redlatch_lock_free(limited);

    redlatch_lock *lock = lock_of(client, "codes:deleted");
    guard = held(lock);
    force_out(lock);
    REFUSED(redlatch_guard_extend_ms(guard, 60000), REDLATCH_LOST, "");
    is_lost(guard, REDLATCH_LOST_DELETED);
    /* The release finds it as well. */
    guard = held(lock);
    force_out(lock);
    REFUSED(redlatch_guard_release(guard), REDLATCH_LOST, "");
    CHECK(redlatch_last_lost_reason() == REDLATCH_LOST_DELETED);
    CHECK(redlatch_guard_lost_reason(guard) == REDLATCH_LOST_DELETED);
    redlatch_guard_free(guard);
    /* And so does the end of what runs under it. */
    REFUSED(redlatch_lock_with(lock, 0, force_out, lock), REDLATCH_LOST, "");
    CHECK(redlatch_last_lost_reason() == REDLATCH_LOST_DELETED);
    redlatch_lock_free(lock);

    lock = lock_of(client, "codes:taken");
    guard = held(lock);
    force_out(lock);
    redlatch_client *other = client_of(url);
    redlatch_lock *others = lock_of(other, "codes:taken");
    next = held(others);
    REFUSED(redlatch_guard_extend_ms(guard, 60000), REDLATCH_LOST, "");
    is_lost(guard, REDLATCH_LOST_TAKEN);
    IS(redlatch_guard_release(next), REDLATCH_OK);
    redlatch_guard_free(next);
    redlatch_lock_free(lock);
    redlatch_lock_free(others);
    redlatch_client_free(other);

    /* Permits are lost one by one. */
    redlatch_semaphore *semaphore = semaphore_of(client, "codes:permit", 2);
    guard = permitted(semaphore);
    IS(redlatch_semaphore_force_release(semaphore, NULL), REDLATCH_OK);
    next = permitted(semaphore);
    REFUSED(redlatch_guard_extend_ms(guard, 60000), REDLATCH_LOST, "");
    is_lost(guard, REDLATCH_LOST_DELETED);
    IS(redlatch_guard_release(next), REDLATCH_OK);
    redlatch_guard_free(next);
    redlatch_semaphore_free(semaphore);
}

static void another_limit_is_a_mismatch(const redlatch_client *client)
{
    redlatch_semaphore *two = semaphore_of(client, "codes:limit", 2), *three = semaphore_of(client, "codes:limit", 3);
    redlatch_guard *guard = permitted(two), *none = UNTOUCHED;
    REFUSED(redlatch_semaphore_acquire(three, 0, NULL, &none), REDLATCH_LIMIT_MISMATCH, "3");
    REFUSED(redlatch_semaphore_acquire(three, REDLATCH_FOREVER, NULL, &none), REDLATCH_LIMIT_MISMATCH, "2");
    REFUSED(redlatch_semaphore_set_limit(three, 3), REDLATCH_LIMIT_MISMATCH, "2");
    CHECK(none == UNTOUCHED);
    uint32_t left = 77;
    IS(redlatch_semaphore_available(two, &left), REDLATCH_OK);
    CHECK(left == 1);
    redlatch_guard_free(guard);
    redlatch_semaphore_free(two);
    redlatch_semaphore_free(three);
}

/* A lock whose key would be that of a semaphore. */
static void another_kind_of_value_is_a_conflict(const char *url, const redlatch_client *client)
{
    redlatch_options *options = NULL;
    redlatch_client *confused = NULL;
    redlatch_guard *none = UNTOUCHED;
    redlatch_inspection *unseen = UNTOUCHED;
    bool somebody = true;
    redlatch_semaphore *semaphore = semaphore_of(client, "codes:conflict", 1);
    redlatch_guard *permit = permitted(semaphore);
    IS(redlatch_options_new(&options), REDLATCH_OK);
    IS(redlatch_options_set_url(options, url), REDLATCH_OK);
    IS(redlatch_options_set_lock_prefix(options, "semaphore:", NUL), REDLATCH_OK);
    IS(redlatch_client_open_with(options, &confused), REDLATCH_OK);
    redlatch_lock *lock = lock_of(confused, "codes:conflict");
    REFUSED(redlatch_lock_acquire(lock, 0, NULL, &none), REDLATCH_KEY_CONFLICT, "semaphore:codes:conflict");
    REFUSED(redlatch_lock_acquire(lock, REDLATCH_FOREVER, NULL, &none), REDLATCH_KEY_CONFLICT, "codes:conflict");
    REFUSED(redlatch_lock_inspect(lock, &unseen), REDLATCH_KEY_CONFLICT, "codes:conflict");
    REFUSED(redlatch_lock_force_release(lock, &somebody), REDLATCH_KEY_CONFLICT, "codes:conflict");
    CHECK(none == UNTOUCHED && unseen == UNTOUCHED && somebody);
    IS(redlatch_guard_release(permit), REDLATCH_OK);
    redlatch_guard_free(permit);
    redlatch_lock_free(lock);
    redlatch_semaphore_free(semaphore);
    redlatch_client_free(confused);
    redlatch_options_free(options);
}

static void ran(void *user_data)
{
    (void)user_data;
    CHECK(!"called");
}

/* All that asks the server. */
static void each_call_returns(const redlatch_client *client, int32_t status)
{
    redlatch_lock *lock = lock_of(client, "codes:each");
    redlatch_semaphore *semaphore = semaphore_of(client, "codes:each", 2);
    redlatch_guard *none = UNTOUCHED;
    redlatch_inspection *unseen = UNTOUCHED;
    redlatch_audit *audit = NULL;
    const char *key = UNTOUCHED;
    bool somebody = true;
    uint32_t number = 77;
    size_t count = 77;
    IS(redlatch_client_audit(client, "*", NUL, &audit), REDLATCH_OK);
    REFUSED(redlatch_lock_acquire(lock, 0, NULL, &none), status, "");
    REFUSED(redlatch_lock_acquire(lock, REDLATCH_FOREVER, NULL, &none), status, "");
    REFUSED(redlatch_lock_with(lock, 0, ran, NULL), status, "");
    REFUSED(redlatch_lock_inspect(lock, &unseen), status, "");
    REFUSED(redlatch_lock_force_release(lock, &somebody), status, "");
    REFUSED(redlatch_semaphore_acquire(semaphore, 0, NULL, &none), status, "");
    REFUSED(redlatch_semaphore_acquire(semaphore, REDLATCH_FOREVER, NULL, &none), status, "");
    REFUSED(redlatch_semaphore_with(semaphore, 0, ran, NULL), status, "");
    REFUSED(redlatch_semaphore_set_limit(semaphore, 2), status, "");
    REFUSED(redlatch_semaphore_available(semaphore, &number), status, "");
    REFUSED(redlatch_semaphore_holders(semaphore, &count), status, "");
    REFUSED(redlatch_semaphore_inspect(semaphore, &unseen), status, "");
    REFUSED(redlatch_semaphore_force_release(semaphore, &somebody), status, "");
    REFUSED(redlatch_audit_next(audit, &key, &count, NULL), status, "");
    CHECK(none == UNTOUCHED && unseen == UNTOUCHED && key == UNTOUCHED);
    CHECK(somebody && number == 77 && count == 77);
    redlatch_audit_free(audit);
    redlatch_lock_free(lock);
    redlatch_semaphore_free(semaphore);
}

static void a_server_that_is_not_there_is_no_connection(void)
{
    redlatch_client *client = client_of("redis://127.0.0.1:1/");
    each_call_returns(client, REDLATCH_CONNECTION);
    redlatch_client_free(client);
    client = client_of("unix:///nowhere/redlatch.sock");
    each_call_returns(client, REDLATCH_CONNECTION);
    redlatch_client_free(client);
}

/* A server without any. */
static void too_few_replicas_give_it_back(const redlatch_client *client)
{
    static const uint64_t waits[] = {0, 60000, REDLATCH_FOREVER};
    redlatch_lock *lock = lock_of(client, "codes:replicas"), *same = lock_of(client, "codes:replicas");
    redlatch_semaphore *semaphore = semaphore_of(client, "codes:replicas", 1);
    redlatch_semaphore *same_permit = semaphore_of(client, "codes:replicas", 1);
    redlatch_guard *guard = UNTOUCHED;
    IS(redlatch_lock_set_replicas(lock, 1, 50), REDLATCH_OK);
    IS(redlatch_semaphore_set_replicas(semaphore, 1, 50), REDLATCH_OK);
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        /* At once, however long it might have waited. */
        uint64_t before = now_ms();
        REFUSED(redlatch_lock_acquire(lock, waits[i], NULL, &guard), REDLATCH_NOT_REPLICATED, "by 0 of 1");
        REFUSED(redlatch_lock_with(lock, waits[i], ran, NULL), REDLATCH_NOT_REPLICATED, "by 0 of 1");
        REFUSED(redlatch_semaphore_acquire(semaphore, waits[i], NULL, &guard), REDLATCH_NOT_REPLICATED, "by 0 of 1");
        REFUSED(redlatch_semaphore_with(semaphore, waits[i], ran, NULL), REDLATCH_NOT_REPLICATED, "by 0 of 1");
        CHECK(guard == UNTOUCHED && now_ms() - before < PATIENCE_MS);
        IS(redlatch_lock_acquire(same, 0, NULL, &guard), REDLATCH_OK);
        redlatch_guard_free(guard);
        IS(redlatch_semaphore_acquire(same_permit, 0, NULL, &guard), REDLATCH_OK);
        redlatch_guard_free(guard);
        guard = UNTOUCHED;
    }
    redlatch_lock_free(lock);
    redlatch_lock_free(same);
    redlatch_semaphore_free(semaphore);
    redlatch_semaphore_free(same_permit);
}

/* It is told before anything is acquired, and changes nothing. */
static void in_memory_there_are_no_replicas(const redlatch_client *client)
{
    redlatch_lock *lock = lock_of(client, "codes:replicas");
    redlatch_semaphore *semaphore = semaphore_of(client, "codes:replicas", 1);
    REFUSED(redlatch_lock_set_replicas(lock, 1, 50), REDLATCH_UNSUPPORTED, "replica");
    REFUSED(redlatch_semaphore_set_replicas(semaphore, 1, 50), REDLATCH_UNSUPPORTED, "replica");
    redlatch_guard_free(held(lock));
    redlatch_guard_free(permitted(semaphore));
    redlatch_lock_free(lock);
    redlatch_semaphore_free(semaphore);
}

static void an_answer_that_never_comes_is_unconfirmed(const char *url)
{
    redlatch_options *options = NULL;
    redlatch_client *client = NULL;
    redlatch_guard *none = UNTOUCHED;
    IS(redlatch_options_new(&options), REDLATCH_OK);
    IS(redlatch_options_set_url(options, url), REDLATCH_OK);
    IS(redlatch_options_set_command_timeout_ms(options, 300), REDLATCH_OK);
    IS(redlatch_client_open_with(options, &client), REDLATCH_OK);
    redlatch_lock *lock = lock_of(client, "codes:unconfirmed");
    uint64_t before = now_ms();
    REFUSED(redlatch_lock_acquire(lock, 0, NULL, &none), REDLATCH_UNCONFIRMED, "");
    CHECK(now_ms() - before >= 299 && now_ms() - before < PATIENCE_MS);
    CHECK(none == UNTOUCHED);
    /* It was granted, unseen, and is taken back in the background. */
    UNTIL(redlatch_lock_acquire(lock, 0, NULL, &none) == REDLATCH_OK);
    redlatch_guard_free(none);
    redlatch_lock_free(lock);
    redlatch_client_free(client);
    redlatch_options_free(options);
}

static void *nothing(void *with)
{
    return with;
}

/* The last: the address space is as large as it is now, so that there is no room for another thread's stack. */
static void no_room_for_a_thread_is_said(void)
{
    struct rlimit room;
    redlatch_client *client = client_of("memory://codes");
    redlatch_lock *lock = lock_of(client, "codes:thread");
    redlatch_guard *none = UNTOUCHED;
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%ld", &pages) == 1);
    fclose(file);
    CHECK(getrlimit(RLIMIT_AS, &room) == 0);
    struct rlimit tight = {(rlim_t)(pages * sysconf(_SC_PAGESIZE)) + 500000, room.rlim_max};
    CHECK(setrlimit(RLIMIT_AS, &tight) == 0);
    /* Stacks of threads that have ended are kept for the next ones: they are used up first. */
    pthread_t thread;
    pthread_attr_t small;
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 1 << 20) == 0);
    while (pthread_create(&thread, NULL, nothing, NULL) == 0) continue;
    while (pthread_create(&thread, &small, nothing, NULL) == 0) continue;
    pthread_attr_destroy(&small);
    REFUSED(redlatch_lock_acquire(lock, 0, NULL, &none), REDLATCH_THREAD, "thread");
    CHECK(none == UNTOUCHED);
    CHECK(setrlimit(RLIMIT_AS, &room) == 0);
    redlatch_guard_free(held(lock));
    redlatch_lock_free(lock);
    redlatch_client_free(client);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2 || argc == 4);
    redlatch_client *client = client_of(argv[1]);
    busy_without_a_wait_and_timeout_with_one(client);
    one_switch_ends_waits_before_and_while_they_last(argv[1], client);
    lost_says_why(argv[1], client);
    another_limit_is_a_mismatch(client);
    another_kind_of_value_is_a_conflict(argv[1], client);
    if (argc == 4) {
        too_few_replicas_give_it_back(client);
    } else {
        in_memory_there_are_no_replicas(client);
    }
    redlatch_client_free(client);
    if (argc == 4) {
        a_server_that_is_not_there_is_no_connection();
        client = client_of(argv[2]);
        each_call_returns(client, REDLATCH_SERVER);
        redlatch_client_free(client);
        an_answer_that_never_comes_is_unconfirmed(argv[3]);
    } else {
        no_room_for_a_thread_is_said();
    }
    return 0;
}
