/*
 * Calls from redlatch into the program: what they get, and when nothing is called any more: callbacks URL
 */
#include "check.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* What a callback is passed, and what it has seen. Under `mutex`. */
struct told {
    int times, destroyed, running;
    int32_t reason;
    uint64_t fencing_token;
    char name[64], message[256];
};

static void on_lost(const redlatch_lost *lost, void *user_data)
{
    struct told *told = user_data;
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(told->destroyed == 0);
    told->times++;
    told->reason = lost->reason;
    told->fencing_token = lost->fencing_token;
    CHECK(lost->name_len < sizeof told->name && lost->name[lost->name_len] == '\0');
    memcpy(told->name, lost->name, lost->name_len + 1);
    snprintf(told->message, sizeof told->message, "%s", lost->message);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static void destroy(void *user_data)
{
    struct told *told = user_data;
    CHECK(pthread_mutex_lock(&mutex) == 0);
    told->destroyed++;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static int of(const int *count)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    int seen = *count;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return seen;
}

static void a_loss_is_told_once_with_all_that_is_known(const redlatch_client *client)
{
    struct told told = {0}, of_permit = {0};
    redlatch_lock *lock = timed_lock_of(client, "callbacks:loss", 100);
    redlatch_semaphore *semaphore = semaphore_of(client, "callbacks:loss", 2);
    IS(redlatch_lock_set_on_lost(lock, on_lost, &told), REDLATCH_OK);
    IS(redlatch_semaphore_set_max_hold_ms(semaphore, 100), REDLATCH_OK);
    IS(redlatch_semaphore_set_on_lost(semaphore, on_lost, &of_permit), REDLATCH_OK);
    redlatch_guard *guard = held(lock), *permit = permitted(semaphore);
    UNTIL(of(&told.times) > 0 && of(&of_permit.times) > 0);
    CHECK(told.reason == REDLATCH_LOST_EXPIRED && of_permit.reason == REDLATCH_LOST_MAX_HOLD);
    CHECK(told.fencing_token == redlatch_guard_fencing_token(guard));
    CHECK(of_permit.fencing_token == redlatch_guard_fencing_token(permit));
    CHECK(strcmp(told.name, "callbacks:loss") == 0 && strcmp(of_permit.name, "callbacks:loss") == 0);
    CHECK(strstr(told.message, "callbacks:loss") != NULL);
    IS(redlatch_guard_check(guard), REDLATCH_LOST);
    IS(redlatch_guard_release(guard), REDLATCH_LOST);
    redlatch_guard_free(guard);
    redlatch_guard_free(permit);
    redlatch_lock_free(lock);
    redlatch_semaphore_free(semaphore);
    CHECK(of(&told.times) == 1 && of(&of_permit.times) == 1);
}

static void user_data_is_destroyed_once_and_not_before_the_last_call(const redlatch_client *client)
{
    struct told first = {0}, second = {0}, refused = {0};
    redlatch_lock *lock = lock_of(client, "callbacks:destroy");
    IS(redlatch_lock_set_on_lost_owned(lock, on_lost, &first, destroy), REDLATCH_OK);
    CHECK(of(&first.destroyed) == 0);
    /* Set again, the former one cannot be called any more. */
    IS(redlatch_lock_set_on_lost_owned(lock, on_lost, &second, destroy), REDLATCH_OK);
    CHECK(of(&first.destroyed) == 1 && of(&second.destroyed) == 0);

    redlatch_guard *guard = held(lock);
    IS(redlatch_lock_set_on_lost_owned(lock, on_lost, &refused, destroy), REDLATCH_INVALID_STATE);
    IS(redlatch_lock_set_on_lost_owned(lock, NULL, &refused, destroy), REDLATCH_NULL_POINTER);
    IS(redlatch_lock_set_on_lost_owned(NULL, on_lost, &refused, destroy), REDLATCH_NULL_POINTER);
    redlatch_lock_free(lock);
    /* The guard can still be lost, and is. */
    CHECK(of(&second.destroyed) == 0);
    lock = lock_of(client, "callbacks:destroy");
    IS(redlatch_lock_force_release(lock, NULL), REDLATCH_OK);
    IS(redlatch_guard_extend_ms(guard, 60000), REDLATCH_LOST);
    UNTIL(of(&second.times) == 1);
    redlatch_guard_free(guard);
    redlatch_lock_free(lock);
    UNTIL(of(&second.destroyed) == 1);
    CHECK(of(&first.destroyed) == 1 && of(&first.times) == 0);
    CHECK(of(&refused.destroyed) == 0 && of(&refused.times) == 0);

    /* In the other order, for a semaphore, without any loss. */
    struct told third = {0};
    redlatch_semaphore *semaphore = semaphore_of(client, "callbacks:destroy", 2);
    IS(redlatch_semaphore_set_on_lost_owned(semaphore, on_lost, &third, destroy), REDLATCH_OK);
    guard = permitted(semaphore);
    redlatch_guard *other = permitted(semaphore);
    IS(redlatch_guard_release(guard), REDLATCH_OK);
    redlatch_guard_free(guard);
    redlatch_guard_free(other);
    CHECK(of(&third.destroyed) == 0);
    redlatch_semaphore_free(semaphore);
    UNTIL(of(&third.destroyed) == 1);
    /* Nothing was ever acquired. */
    struct told fourth = {0};
    lock = lock_of(client, "callbacks:unused");
    IS(redlatch_lock_set_on_lost_owned(lock, on_lost, &fourth, destroy), REDLATCH_OK);
    redlatch_lock_free(lock);
    CHECK(of(&fourth.destroyed) == 1);
}

static void destroy_uses_the_lock(void *user_data)
{
    redlatch_lock *lock = user_data;
    IS(redlatch_lock_set_handoffs(lock, 2), REDLATCH_OK);
    IS(redlatch_lock_set_on_lost(lock, on_lost, NULL), REDLATCH_OK);
}

static void no_mutex_is_held_when_user_data_is_destroyed(const redlatch_client *client)
{
    redlatch_lock *lock = lock_of(client, "callbacks:mutex");
    IS(redlatch_lock_set_on_lost_owned(lock, on_lost, lock, destroy_uses_the_lock), REDLATCH_OK);
    IS(redlatch_lock_set_on_lost(lock, on_lost, NULL), REDLATCH_OK);
    redlatch_lock_free(lock);
}

/* What a callback frees, as the last one that has anything of its client. */
struct last {
    redlatch_client *client;
    redlatch_lock *lock;
    redlatch_guard *guard;
    int ready, freed, destroyed;
};

static void free_all(const redlatch_lost *lost, void *user_data)
{
    struct last *last = user_data;
    char name[64];
    UNTIL(of(&last->ready));
    redlatch_client_free(last->client);
    redlatch_lock_free(last->lock);
    redlatch_guard_free(last->guard);
    /* What it is told stays until it returns. */
    snprintf(name, sizeof name, "%s", lost->name);
    CHECK(strcmp(name, "callbacks:last") == 0 && lost->message[0] != '\0');
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(last->destroyed == 0);
    last->freed = 1;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static void destroy_last(void *user_data)
{
    struct last *last = user_data;
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(last->freed == 1);
    last->destroyed++;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static void a_callback_may_free_the_last_handle_of_its_client(const char *url)
{
    struct last last = {0};
    last.client = client_of(url);
    last.lock = timed_lock_of(last.client, "callbacks:last", 100);
    IS(redlatch_lock_set_on_lost_owned(last.lock, free_all, &last, destroy_last), REDLATCH_OK);
    last.guard = held(last.lock);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    last.ready = 1;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    UNTIL(of(&last.destroyed) == 1);
}

/* A callback that takes what was lost again, at its leisure. */
struct again {
    redlatch_lock *lock;
    int running, times;
};

static void take_again(const redlatch_lost *lost, void *user_data)
{
    struct again *again = user_data;
    redlatch_inspection *seen = NULL;
    CHECK(lost->reason == REDLATCH_LOST_DELETED || lost->reason == REDLATCH_LOST_TAKEN);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    CHECK(again->running++ == 0); /* One after the other. */
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    redlatch_guard *guard = held(again->lock);
    IS(redlatch_lock_inspect(again->lock, &seen), REDLATCH_OK);
    CHECK(redlatch_inspection_holders(seen) == 1);
    redlatch_inspection_free(seen);
    IS(redlatch_guard_release(guard), REDLATCH_OK);
    redlatch_guard_free(guard);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    again->running--;
    again->times++;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static void a_callback_may_call_anything(const redlatch_client *client)
{
    redlatch_lock *spare = lock_of(client, "callbacks:spare"), *locks[4];
    redlatch_guard *guards[4];
    struct again again = {spare, 0, 0};
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "callbacks:again:%d", i);
        locks[i] = lock_of(client, name);
        IS(redlatch_lock_set_on_lost(locks[i], take_again, &again), REDLATCH_OK);
        guards[i] = held(locks[i]);
        IS(redlatch_lock_force_release(locks[i], NULL), REDLATCH_OK);
    }
    for (int i = 0; i < 4; i++) IS(redlatch_guard_extend_ms(guards[i], 60000), REDLATCH_LOST);
    UNTIL(of(&again.times) == 4);
    for (int i = 0; i < 4; i++) {
        redlatch_guard_free(guards[i]);
        redlatch_lock_free(locks[i]);
    }
    redlatch_lock_free(spare);
}

static void never(void *user_data)
{
    (void)user_data;
    CHECK(!"called");
}

static void what_is_taken_runs_nothing(const redlatch_client *client)
{
    redlatch_lock *lock = lock_of(client, "callbacks:with");
    redlatch_semaphore *semaphore = semaphore_of(client, "callbacks:with", 1);
    redlatch_guard *guard = held(lock), *permit = permitted(semaphore);
    REFUSED(redlatch_lock_with(lock, 0, never, NULL), REDLATCH_BUSY, "`callbacks:with`");
    REFUSED(redlatch_lock_with(lock, 30, never, NULL), REDLATCH_TIMEOUT, "`callbacks:with`");
    REFUSED(redlatch_semaphore_with(semaphore, 0, never, NULL), REDLATCH_BUSY, "`callbacks:with`");
    REFUSED(redlatch_semaphore_with(semaphore, 30, never, NULL), REDLATCH_TIMEOUT, "`callbacks:with`");
    redlatch_guard_free(guard);
    redlatch_guard_free(permit);
    redlatch_lock_free(lock);
    redlatch_semaphore_free(semaphore);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    redlatch_client *client = client_of(argv[1]);
    a_loss_is_told_once_with_all_that_is_known(client);
    user_data_is_destroyed_once_and_not_before_the_last_call(client);
    no_mutex_is_held_when_user_data_is_destroyed(client);
    a_callback_may_call_anything(client);
    what_is_taken_runs_nothing(client);
    redlatch_client_free(client);
    a_callback_may_free_the_last_handle_of_its_client(argv[1]);
    UNTIL(background_threads() == 0);
    return 0;
}
