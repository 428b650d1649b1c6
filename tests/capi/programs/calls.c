/*
 * Every function of the header, called as it is meant to be: calls URL AUDITED
 * AUDITED is how many keys without a TTL there are at the server that begin with "calls:audited:".
 */
#include "check.h"

static void versions_agree(void)
{
    char composed[64];
    CHECK(strcmp(redlatch_version_string(), REDLATCH_VERSION) == 0);
    CHECK(redlatch_version_number() == REDLATCH_VERSION_NUMBER);
    snprintf(composed, sizeof composed, "%d.%d.%d", REDLATCH_VERSION_MAJOR, REDLATCH_VERSION_MINOR,
             REDLATCH_VERSION_PATCH);
    CHECK(strcmp(composed, REDLATCH_VERSION) == 0);
}

/* Before anything has failed on this thread. */
static void there_is_no_message_before_a_failure(void)
{
    char message[8] = "1234567";
    CHECK(redlatch_last_error_message(message, sizeof message) == 0);
    CHECK(message[0] == '\0' && message[1] == '2');
    CHECK(redlatch_last_lost_reason() == REDLATCH_LOST_NOT);
}

static void a_guard_answers(redlatch_guard *guard, const char *expected_name, uint64_t lease_ms)
{
    size_t length = 0;
    CHECK(redlatch_guard_is_held(guard));
    CHECK(redlatch_guard_remaining_ms(guard) > 0 && redlatch_guard_remaining_ms(guard) <= lease_ms);
    CHECK(redlatch_guard_fencing_token(guard) > 0);
    CHECK(strlen(redlatch_guard_token(guard)) == 32);
    CHECK(strcmp(redlatch_guard_name(guard, &length), expected_name) == 0 && length == strlen(expected_name));
    CHECK(redlatch_guard_name(guard, NULL) == redlatch_guard_name(guard, &length));
    IS(redlatch_guard_check(guard), REDLATCH_OK);
    IS(redlatch_guard_wait_lost_ms(guard, 0), REDLATCH_OK);
    uint64_t before = now_ms();
    IS(redlatch_guard_wait_lost_ms(guard, 30), REDLATCH_OK);
    CHECK(now_ms() - before >= 29);
    CHECK(redlatch_guard_lost_reason(guard) == REDLATCH_LOST_NOT);
    IS(redlatch_guard_extend_ms(guard, lease_ms * 2), REDLATCH_OK);
    CHECK(redlatch_guard_remaining_ms(guard) > lease_ms && redlatch_guard_remaining_ms(guard) <= lease_ms * 2);
}

static void a_lock_does_all_that_a_lock_can(const redlatch_client *client)
{
    const char *name = "calls:lock";
    redlatch_lock *lock = lock_of(client, name), *other = lock_of(client, name);
    IS(redlatch_lock_set_lease_ms(lock, 60000), REDLATCH_OK);
    IS(redlatch_lock_set_max_hold_ms(lock, 3600000), REDLATCH_OK);
    IS(redlatch_lock_set_fair(lock, true), REDLATCH_OK);
    IS(redlatch_lock_set_fair(lock, false), REDLATCH_OK);
    IS(redlatch_lock_set_handoffs(lock, 0), REDLATCH_OK);
    IS(redlatch_lock_set_handoffs(lock, UINT32_MAX), REDLATCH_OK);

    size_t length = 0;
    CHECK(strcmp(redlatch_lock_name(lock, &length), name) == 0 && length == strlen(name));
    CHECK(redlatch_lock_name(lock, NULL) != NULL);
    bool somebody = true;
    IS(redlatch_lock_force_release(lock, &somebody), REDLATCH_OK);
    CHECK(!somebody);

    redlatch_guard *guard = held(lock), *second = UNTOUCHED;
    a_guard_answers(guard, name, 60000);
    REFUSED(redlatch_lock_acquire(other, 0, NULL, &second), REDLATCH_BUSY, name);
    REFUSED(redlatch_lock_acquire(other, 20, NULL, &second), REDLATCH_TIMEOUT, name);
    CHECK(second == UNTOUCHED);

    redlatch_inspection *seen = NULL;
    IS(redlatch_lock_inspect(other, &seen), REDLATCH_OK);
    CHECK(strstr(redlatch_inspection_str(seen), "held by") != NULL);
    CHECK(redlatch_inspection_holders(seen) == 1);
    CHECK(strcmp(redlatch_inspection_holder_token(seen, 0, &length), redlatch_guard_token(guard)) == 0);
    CHECK(length == 32 && redlatch_inspection_holder_token(seen, 0, NULL) != NULL);
    CHECK(redlatch_inspection_holder_expiry_ms(seen, 0) > 60000);
    CHECK(redlatch_inspection_holder_expiry_ms(seen, 0) <= 120000);
    CHECK(redlatch_inspection_holder_permits(seen, 0) == 1);
    CHECK(redlatch_inspection_fencing_token(seen) >= redlatch_guard_fencing_token(guard));
    CHECK(redlatch_inspection_waiters(seen) == 0);
    CHECK(redlatch_inspection_reserved(seen) == 0);
    CHECK(redlatch_inspection_limit(seen) == 1 && redlatch_inspection_declared_limit(seen) == 1);
    CHECK(redlatch_inspection_available(seen) == 0 && !redlatch_inspection_is_free(seen));
    redlatch_inspection_free(seen);

    IS(redlatch_guard_release(guard), REDLATCH_OK);
    IS(redlatch_lock_inspect(other, &seen), REDLATCH_OK);
    CHECK(redlatch_inspection_holders(seen) == 0 && redlatch_inspection_is_free(seen));
    CHECK(redlatch_inspection_available(seen) == 1);
    redlatch_inspection_free(seen);

    second = held(other);
    CHECK(redlatch_guard_fencing_token(second) > redlatch_guard_fencing_token(guard));
    IS(redlatch_lock_force_release(lock, &somebody), REDLATCH_OK);
    CHECK(somebody);
    redlatch_guard_free(guard);
    redlatch_guard_free(second);
    redlatch_lock_free(lock);
    redlatch_lock_free(other);
}

struct under_it {
    const redlatch_lock *lock;
    const redlatch_semaphore *semaphore;
    pthread_t thread;
    int ran;
};

static void work(void *user_data)
{
    struct under_it *under_it = user_data;
    redlatch_guard *guard = UNTOUCHED;
    CHECK(pthread_equal(pthread_self(), under_it->thread));
    if (under_it->lock != NULL) IS(redlatch_lock_acquire(under_it->lock, 0, NULL, &guard), REDLATCH_BUSY);
    if (under_it->semaphore != NULL) {
        IS(redlatch_semaphore_acquire(under_it->semaphore, 0, NULL, &guard), REDLATCH_BUSY);
    }
    CHECK(guard == UNTOUCHED);
    under_it->ran++;
}

static void work_runs_while_it_is_held(const redlatch_client *client)
{
    redlatch_lock *lock = lock_of(client, "calls:with");
    redlatch_semaphore *semaphore = semaphore_of(client, "calls:with", 1);
    struct under_it under_lock = {lock, NULL, pthread_self(), 0}, under_permit = {NULL, semaphore, pthread_self(), 0};
    IS(redlatch_lock_with(lock, 0, work, &under_lock), REDLATCH_OK);
    IS(redlatch_lock_with(lock, REDLATCH_FOREVER, work, &under_lock), REDLATCH_OK);
    IS(redlatch_semaphore_with(semaphore, 0, work, &under_permit), REDLATCH_OK);
    IS(redlatch_semaphore_with(semaphore, PATIENCE_MS, work, &under_permit), REDLATCH_OK);
    CHECK(under_lock.ran == 2 && under_permit.ran == 2);
    /* It was given back each time. */
    redlatch_guard_free(held(lock));
    redlatch_guard_free(permitted(semaphore));
    redlatch_lock_free(lock);
    redlatch_semaphore_free(semaphore);
}

static void a_semaphore_does_all_that_a_semaphore_can(const redlatch_client *client)
{
    const char *name = "calls:semaphore";
    redlatch_semaphore *semaphore = semaphore_of(client, name, 5), *other = semaphore_of(client, name, 5);
    IS(redlatch_semaphore_set_permits(semaphore, 3), REDLATCH_OK);
    IS(redlatch_semaphore_set_timed_ms(semaphore, 30000), REDLATCH_OK);
    IS(redlatch_semaphore_set_lease_ms(semaphore, 60000), REDLATCH_OK);
    IS(redlatch_semaphore_set_max_hold_ms(semaphore, 3600000), REDLATCH_OK);
    IS(redlatch_semaphore_set_fair(semaphore, true), REDLATCH_OK);
    IS(redlatch_semaphore_set_handoffs(semaphore, 1), REDLATCH_OK);

    size_t length = 0, count = 9;
    uint32_t free_permits = 9;
    CHECK(strcmp(redlatch_semaphore_name(semaphore, &length), name) == 0 && length == strlen(name));
    CHECK(redlatch_semaphore_name(semaphore, NULL) != NULL);

    redlatch_guard *guard = permitted(semaphore), *second = permitted(other), *third = UNTOUCHED;
    a_guard_answers(guard, name, 60000);
    IS(redlatch_semaphore_available(other, &free_permits), REDLATCH_OK);
    IS(redlatch_semaphore_holders(other, &count), REDLATCH_OK);
    CHECK(free_permits == 1 && count == 2);
    REFUSED(redlatch_semaphore_acquire(semaphore, 0, NULL, &third), REDLATCH_BUSY, name);
    REFUSED(redlatch_semaphore_acquire(semaphore, 20, NULL, &third), REDLATCH_TIMEOUT, name);
    CHECK(third == UNTOUCHED);

    redlatch_inspection *seen = NULL;
    IS(redlatch_semaphore_inspect(semaphore, &seen), REDLATCH_OK);
    CHECK(strstr(redlatch_inspection_str(seen), "held by") != NULL);
    CHECK(redlatch_inspection_holders(seen) == 2);
    CHECK(redlatch_inspection_holder_permits(seen, 0) + redlatch_inspection_holder_permits(seen, 1) == 4);
    CHECK(redlatch_inspection_holder_expiry_ms(seen, 1) > 0);
    CHECK(redlatch_inspection_limit(seen) == 5 && redlatch_inspection_declared_limit(seen) == 5);
    CHECK(redlatch_inspection_available(seen) == 1 && !redlatch_inspection_is_free(seen));
    redlatch_inspection_free(seen);

    IS(redlatch_semaphore_set_limit(other, 7), REDLATCH_OK);
    IS(redlatch_semaphore_inspect(semaphore, &seen), REDLATCH_OK);
    CHECK(redlatch_inspection_limit(seen) == 7 && redlatch_inspection_declared_limit(seen) == 5);
    redlatch_inspection_free(seen);
    third = permitted(semaphore);
    CHECK(redlatch_guard_fencing_token(third) > redlatch_guard_fencing_token(second));

    IS(redlatch_guard_release(second), REDLATCH_OK);
    bool somebody = false;
    IS(redlatch_semaphore_force_release(other, &somebody), REDLATCH_OK);
    CHECK(somebody);
    IS(redlatch_semaphore_force_release(other, &somebody), REDLATCH_OK);
    CHECK(!somebody);
    IS(redlatch_semaphore_set_limit(other, 0), REDLATCH_OK);
    second = (redlatch_guard_free(second), UNTOUCHED);
    IS(redlatch_semaphore_acquire(other, 0, NULL, &second), REDLATCH_BUSY);
    CHECK(second == UNTOUCHED);
    redlatch_guard_free(guard);
    redlatch_guard_free(third);
    redlatch_semaphore_free(semaphore);
    redlatch_semaphore_free(other);
}

/* A client of which the keys begin like this. */
static redlatch_client *with_prefixes(const char *url, const char *prefix, const char *lock_prefix)
{
    redlatch_options *options = NULL;
    redlatch_client *client = NULL;
    IS(redlatch_options_new(&options), REDLATCH_OK);
    IS(redlatch_options_set_url(options, url), REDLATCH_OK);
    IS(redlatch_options_set_prefix(options, prefix, strlen(prefix)), REDLATCH_OK);
    IS(redlatch_options_set_lock_prefix(options, lock_prefix, NUL), REDLATCH_OK);
    IS(redlatch_options_set_pool_size(options, 2), REDLATCH_OK);
    IS(redlatch_options_set_connect_timeout_ms(options, 5000), REDLATCH_OK);
    IS(redlatch_options_set_command_timeout_ms(options, 5000), REDLATCH_OK);
    IS(redlatch_options_set_poll_interval_ms(options, 200), REDLATCH_OK);
    IS(redlatch_options_set_sentinel_login(options, "user", "password"), REDLATCH_OK);
    IS(redlatch_client_open_with(options, &client), REDLATCH_OK);
    redlatch_options_free(options);
    return client;
}

static void options_are_acted_on(const char *url)
{
    redlatch_client *one = with_prefixes(url, "calls:", "of:"), *same = with_prefixes(url, "calls:o", "");
    redlatch_client *another = client_of(url);
    redlatch_lock *lock = lock_of(one, "it"), *same_key = lock_of(same, "f:it"), *other_key = lock_of(another, "it");
    redlatch_guard *guard = held(lock), *second = NULL;
    IS(redlatch_lock_acquire(same_key, 0, NULL, &second), REDLATCH_BUSY);
    IS(redlatch_lock_acquire(other_key, 0, NULL, &second), REDLATCH_OK);
    redlatch_guard_free(second);
    redlatch_guard_free(guard);
    redlatch_lock_free(lock);
    redlatch_lock_free(same_key);
    redlatch_lock_free(other_key);
    redlatch_client_free(one);
    redlatch_client_free(same);
    redlatch_client_free(another);
}

static void on_lost(const redlatch_lost *lost, void *user_data)
{
    (void)lost;
    (void)user_data;
}

static void callbacks_can_be_set(const redlatch_client *client)
{
    redlatch_lock *lock = lock_of(client, "calls:callbacks");
    redlatch_semaphore *semaphore = semaphore_of(client, "calls:callbacks", 1);
    IS(redlatch_lock_set_on_lost(lock, on_lost, NULL), REDLATCH_OK);
    IS(redlatch_lock_set_on_lost_owned(lock, on_lost, NULL, NULL), REDLATCH_OK);
    IS(redlatch_semaphore_set_on_lost(semaphore, on_lost, NULL), REDLATCH_OK);
    IS(redlatch_semaphore_set_on_lost_owned(semaphore, on_lost, NULL, NULL), REDLATCH_OK);
    redlatch_lock_free(lock);
    redlatch_semaphore_free(semaphore);
}

/* In memory there are none. */
static void replicas_can_be_asked_for(const char *url, const redlatch_client *client)
{
    static const uint64_t timeouts[] = {1, 500, 3600000};
    int32_t expected = strncmp(url, "memory:", 7) == 0 ? REDLATCH_UNSUPPORTED : REDLATCH_OK;
    redlatch_lock *lock = lock_of(client, "calls:replicas");
    redlatch_semaphore *semaphore = semaphore_of(client, "calls:replicas", 1);
    for (size_t i = 0; i < sizeof timeouts / sizeof *timeouts; i++) {
        IS(redlatch_lock_set_replicas(lock, 1, timeouts[i]), expected);
        IS(redlatch_semaphore_set_replicas(semaphore, UINT32_MAX, timeouts[i]), expected);
    }
    redlatch_lock_free(lock);
    redlatch_semaphore_free(semaphore);
}

static void a_timed_lock_ends_by_itself(const redlatch_client *client)
{
    redlatch_lock *lock = timed_lock_of(client, "calls:timed", 100);
    redlatch_guard *guard = held(lock), *next;
    IS(redlatch_guard_wait_lost_ms(guard, REDLATCH_FOREVER), REDLATCH_LOST);
    CHECK(!redlatch_guard_is_held(guard) && redlatch_guard_remaining_ms(guard) == 0);
    next = held(lock);
    redlatch_guard_free(next);
    redlatch_guard_free(guard);
    redlatch_lock_free(lock);
}

static void a_switch_is_cancelled_once_and_for_all(const redlatch_client *client)
{
    redlatch_cancel *cancel = NULL;
    redlatch_lock *lock = lock_of(client, "calls:cancel");
    redlatch_guard *guard = NULL, *second = UNTOUCHED;
    IS(redlatch_cancel_new(&cancel), REDLATCH_OK);
    CHECK(!redlatch_cancel_is_cancelled(cancel));
    IS(redlatch_lock_acquire(lock, PATIENCE_MS, cancel, &guard), REDLATCH_OK);
    IS(redlatch_cancel_cancel(cancel), REDLATCH_OK);
    IS(redlatch_cancel_cancel(cancel), REDLATCH_OK);
    CHECK(redlatch_cancel_is_cancelled(cancel));
    IS(redlatch_lock_acquire(lock, PATIENCE_MS, cancel, &second), REDLATCH_CANCELLED);
    CHECK(second == UNTOUCHED);
    redlatch_guard_free(guard);
    redlatch_lock_free(lock);
    redlatch_cancel_free(cancel);
}

static void an_audit_finds_what_nobody_will_ever_free(const redlatch_client *client, int expected)
{
    redlatch_audit *audit = NULL;
    const char *key = NULL;
    size_t length = 0;
    int32_t type = 0;
    int found = 0;
    IS(redlatch_client_audit(client, "calls:audited:*", NUL, &audit), REDLATCH_OK);
    for (IS(redlatch_audit_next(audit, &key, &length, &type), REDLATCH_OK); key != NULL;
         IS(redlatch_audit_next(audit, &key, &length, &type), REDLATCH_OK)) {
        CHECK(strlen(key) == length && strncmp(key, "calls:audited:", 14) == 0);
        CHECK(type == (strcmp(key + 14, "hash") == 0 ? REDLATCH_TYPE_HASH : REDLATCH_TYPE_STRING));
        found++;
    }
    CHECK(found == expected);
    /* It stays at its end. */
    IS(redlatch_audit_next(audit, &key, NULL, NULL), REDLATCH_OK);
    CHECK(key == NULL);
    redlatch_audit_free(audit);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    there_is_no_message_before_a_failure();
    versions_agree();
    CHECK(strcmp(redlatch_status_str(REDLATCH_TIMEOUT), "the wait ended before it could be had") == 0);

    redlatch_client *client = client_of(argv[1]);
    a_lock_does_all_that_a_lock_can(client);
    work_runs_while_it_is_held(client);
    a_semaphore_does_all_that_a_semaphore_can(client);
    options_are_acted_on(argv[1]);
    callbacks_can_be_set(client);
    replicas_can_be_asked_for(argv[1], client);
    a_timed_lock_ends_by_itself(client);
    a_switch_is_cancelled_once_and_for_all(client);
    an_audit_finds_what_nobody_will_ever_free(client, atoi(argv[2]));
    redlatch_client_free(client);
    return 0;
}
