/*
 * Several locks that are held as one: several URL
 */
#include "check.h"

enum { NAMES = 3 };

static const char *const names[NAMES] = {"several:a", "several:b", "several:c"};

static redlatch_multi_lock *locks_of(const redlatch_client *client)
{
    redlatch_multi_lock *locks = NULL;
    IS(redlatch_multi_lock_new(client, names, NULL, NAMES, &locks), REDLATCH_OK);
    CHECK(locks != NULL);
    return locks;
}

static redlatch_guard *all_held(const redlatch_multi_lock *locks)
{
    redlatch_guard *guard = NULL;
    IS(redlatch_multi_lock_acquire(locks, PATIENCE_MS, NULL, &guard), REDLATCH_OK);
    CHECK(guard != NULL);
    return guard;
}

static bool is_free(const redlatch_client *client, const char *name)
{
    redlatch_lock *lock = lock_of(client, name);
    redlatch_guard *guard = NULL;
    int32_t status = redlatch_lock_acquire(lock, 0, NULL, &guard);
    if (status != REDLATCH_OK) IS(status, REDLATCH_BUSY);
    redlatch_guard_free(guard);
    redlatch_lock_free(lock);
    return status == REDLATCH_OK;
}

static void all_are_held_or_none(const redlatch_client *client, const redlatch_client *other)
{
    redlatch_multi_lock *locks = locks_of(client);
    IS(redlatch_multi_lock_set_lease_ms(locks, 60000), REDLATCH_OK);
    IS(redlatch_multi_lock_set_max_hold_ms(locks, 3600000), REDLATCH_OK);
    redlatch_guard *guard = all_held(locks), *none = UNTOUCHED;
    for (int i = 0; i < NAMES; i++) CHECK(!is_free(other, names[i]));
    CHECK(redlatch_guard_is_held(guard) && redlatch_guard_remaining_ms(guard) > 30000);
    CHECK(redlatch_guard_remaining_ms(guard) <= 60000);
    IS(redlatch_guard_extend_ms(guard, 120000), REDLATCH_OK);
    CHECK(redlatch_guard_remaining_ms(guard) > 60000);
    IS(redlatch_guard_check(guard), REDLATCH_OK);
    IS(redlatch_guard_wait_lost_ms(guard, 1), REDLATCH_OK);
    CHECK(redlatch_guard_lost_reason(guard) == REDLATCH_LOST_NOT && redlatch_guard_lost_name(guard, NULL) == NULL);
    REFUSED(redlatch_multi_lock_acquire(locks, 0, NULL, &none), REDLATCH_BUSY, "several:");
    REFUSED(redlatch_multi_lock_acquire(locks, 20, NULL, &none), REDLATCH_TIMEOUT, "several:");
    CHECK(none == UNTOUCHED);
    IS(redlatch_guard_release(guard), REDLATCH_OK);
    CHECK(redlatch_guard_lost_name(guard, NULL) == NULL);
    redlatch_guard_free(guard);

    redlatch_lock *taken = lock_of(other, names[1]);
    guard = held(taken);
    REFUSED(redlatch_multi_lock_acquire(locks, 0, NULL, &none), REDLATCH_BUSY, names[1]);
    CHECK(is_free(other, names[0]) && is_free(other, names[2]) && none == UNTOUCHED);
    redlatch_guard_free(guard);
    redlatch_lock_free(taken);
    redlatch_multi_lock_free(locks);
}

static void names_and_fencing_tokens_are_in_one_order(const redlatch_client *client)
{
    const char *const twice[] = {"several:b\0x", "several:a", "several:b", "several:a"};
    const size_t lens[] = {11, NUL, 9, 9};
    redlatch_multi_lock *locks = NULL;
    IS(redlatch_multi_lock_new(client, twice, lens, 4, &locks), REDLATCH_OK);
    CHECK(redlatch_multi_lock_count(locks) == 3);
    redlatch_guard *guard = all_held(locks);
    uint64_t tokens[4] = {7, 7, 7, 7};
    size_t count = 0, length = 0;
    IS(redlatch_guard_fencing_tokens(guard, tokens, 4, &count), REDLATCH_OK);
    CHECK(count == 3 && tokens[3] == 7 && redlatch_guard_fencing_token(guard) == tokens[0]);
    CHECK(strcmp(redlatch_guard_name(guard, NULL), redlatch_multi_lock_name(locks, 0, NULL)) == 0);
    CHECK(strlen(redlatch_guard_token(guard)) == 32);
    bool seen_long = false;
    for (size_t i = 0; i < 3; i++) {
        const char *name = redlatch_multi_lock_name(locks, i, &length);
        CHECK(strncmp(name, "several:", 8) == 0 && (length == 9 || length == 11));
        if (length == 11) {
            CHECK(memcmp(name, "several:b\0x", 12) == 0);
            seen_long = true;
            continue;
        }
        redlatch_lock *lock = lock_of(client, name);
        redlatch_inspection *seen = NULL;
        IS(redlatch_lock_inspect(lock, &seen), REDLATCH_OK);
        CHECK(redlatch_inspection_fencing_token(seen) == tokens[i]);
        redlatch_inspection_free(seen);
        redlatch_lock_free(lock);
    }
    CHECK(seen_long);
    SAYS(redlatch_multi_lock_name(locks, 3, &length) == NULL, "index");
    SAYS(redlatch_multi_lock_name(locks, SIZE_MAX, &length) == NULL, "index");

    /* As many as there is room for. */
    uint64_t first[2] = {0, 7};
    IS(redlatch_guard_fencing_tokens(guard, first, 1, &count), REDLATCH_OK);
    CHECK(count == 3 && first[0] == tokens[0] && first[1] == 7);
    IS(redlatch_guard_fencing_tokens(guard, NULL, 0, &count), REDLATCH_OK);
    CHECK(count == 3);
    redlatch_guard_free(guard);
    redlatch_multi_lock_free(locks);

    redlatch_lock *lock = lock_of(client, names[0]);
    guard = held(lock);
    IS(redlatch_guard_fencing_tokens(guard, tokens, 4, &count), REDLATCH_OK);
    CHECK(count == 1 && tokens[0] == redlatch_guard_fencing_token(guard));
    redlatch_guard_free(guard);
    redlatch_lock_free(lock);
}

static void never(void *user_data)
{
    (void)user_data;
    CHECK(!"called");
}

static void not_told(const redlatch_lost *lost, void *user_data)
{
    (void)lost;
    never(user_data);
}

static void what_cannot_work_is_refused(const redlatch_client *client)
{
    redlatch_multi_lock *locks = locks_of(client), *none = UNTOUCHED;
    redlatch_guard *no_guard = UNTOUCHED;
    const char *const bad[] = {"a", ""}, *const null_inside[] = {"a", NULL};
    const size_t absurd[] = {1, REDLATCH_MAX_LENGTH + 1};
    size_t count = 77;
    uint64_t token = 77;
    REFUSED(redlatch_multi_lock_new(NULL, names, NULL, NAMES, &none), REDLATCH_NULL_POINTER, "`client`");
    REFUSED(redlatch_multi_lock_new(client, NULL, NULL, NAMES, &none), REDLATCH_NULL_POINTER, "`names`");
    REFUSED(redlatch_multi_lock_new(client, null_inside, NULL, 2, &none), REDLATCH_NULL_POINTER, "`names`");
    REFUSED(redlatch_multi_lock_new(client, names, NULL, NAMES, NULL), REDLATCH_NULL_POINTER, "`out`");
    REFUSED(redlatch_multi_lock_new(client, names, NULL, 0, &none), REDLATCH_INVALID_ARGUMENT, "0 names");
    REFUSED(redlatch_multi_lock_new(client, NULL, NULL, 0, &none), REDLATCH_INVALID_ARGUMENT, "0 names");
    REFUSED(redlatch_multi_lock_new(client, names, NULL, 1001, &none), REDLATCH_INVALID_ARGUMENT, "1001 names");
    REFUSED(redlatch_multi_lock_new(client, names, NULL, SIZE_MAX, &none), REDLATCH_INVALID_ARGUMENT, "names");
    REFUSED(redlatch_multi_lock_new(client, bad, NULL, 2, &none), REDLATCH_INVALID_ARGUMENT, "name");
    REFUSED(redlatch_multi_lock_new(client, bad, absurd, 2, &none), REDLATCH_INVALID_ARGUMENT, "REDLATCH_MAX_LENGTH");

    REFUSED(redlatch_multi_lock_set_lease_ms(NULL, 10000), REDLATCH_NULL_POINTER, "`locks`");
    REFUSED(redlatch_multi_lock_set_max_hold_ms(NULL, 10000), REDLATCH_NULL_POINTER, "`locks`");
    REFUSED(redlatch_multi_lock_set_on_lost(NULL, not_told, NULL), REDLATCH_NULL_POINTER, "`locks`");
    REFUSED(redlatch_multi_lock_set_on_lost(locks, NULL, NULL), REDLATCH_NULL_POINTER, "`callback`");
    REFUSED(redlatch_multi_lock_set_on_lost_owned(NULL, not_told, NULL, never), REDLATCH_NULL_POINTER, "`locks`");
    REFUSED(redlatch_multi_lock_set_on_lost_owned(locks, NULL, NULL, never), REDLATCH_NULL_POINTER, "`callback`");
    REFUSED(redlatch_multi_lock_set_lease_ms(locks, 9), REDLATCH_INVALID_ARGUMENT, "lease");
    REFUSED(redlatch_multi_lock_set_lease_ms(locks, UINT64_MAX), REDLATCH_INVALID_ARGUMENT, "lease");
    REFUSED(redlatch_multi_lock_set_max_hold_ms(locks, 9), REDLATCH_INVALID_ARGUMENT, "hold");
    IS(redlatch_multi_lock_set_on_lost(locks, not_told, NULL), REDLATCH_OK);

    REFUSED(redlatch_multi_lock_acquire(NULL, 0, NULL, &no_guard), REDLATCH_NULL_POINTER, "`locks`");
    REFUSED(redlatch_multi_lock_acquire(locks, 0, NULL, NULL), REDLATCH_NULL_POINTER, "`out`");
    REFUSED(redlatch_multi_lock_with(NULL, 0, never, NULL), REDLATCH_NULL_POINTER, "`locks`");
    REFUSED(redlatch_multi_lock_with(locks, 0, NULL, NULL), REDLATCH_NULL_POINTER, "`fn`");
    SAYS(redlatch_multi_lock_count(NULL) == 0, "`locks`");
    SAYS(redlatch_multi_lock_name(NULL, 0, &count) == NULL, "`locks`");
    SAYS(redlatch_guard_lost_name(NULL, &count) == NULL, "`guard`");
    REFUSED(redlatch_guard_fencing_tokens(NULL, &token, 1, &count), REDLATCH_NULL_POINTER, "`guard`");
    redlatch_guard *guard = all_held(locks);
    REFUSED(redlatch_guard_fencing_tokens(guard, NULL, 1, &count), REDLATCH_NULL_POINTER, "`tokens`");
    REFUSED(redlatch_guard_fencing_tokens(guard, &token, 1, NULL), REDLATCH_NULL_POINTER, "`count`");
    CHECK(none == UNTOUCHED && no_guard == UNTOUCHED && count == 77 && token == 77);

    REFUSED(redlatch_multi_lock_set_lease_ms(locks, 20000), REDLATCH_INVALID_STATE, "acquired before");
    REFUSED(redlatch_multi_lock_set_max_hold_ms(locks, 20000), REDLATCH_INVALID_STATE, "acquired before");
    REFUSED(redlatch_multi_lock_set_on_lost(locks, not_told, NULL), REDLATCH_INVALID_STATE, "acquired before");
    redlatch_guard_free(guard);
    redlatch_multi_lock_free(locks);
    redlatch_multi_lock_free(NULL);
}

struct told {
    pthread_mutex_t mutex;
    int losses, destroyed;
    char name[32];
    int32_t reason;
};

static void on_lost(const redlatch_lost *lost, void *user_data)
{
    struct told *told = user_data;
    pthread_mutex_lock(&told->mutex);
    told->losses++;
    told->reason = lost->reason;
    snprintf(told->name, sizeof told->name, "%s", lost->name);
    pthread_mutex_unlock(&told->mutex);
}

static void destroy(void *user_data)
{
    struct told *told = user_data;
    pthread_mutex_lock(&told->mutex);
    told->destroyed++;
    pthread_mutex_unlock(&told->mutex);
}

static int seen(struct told *told, const int *number)
{
    pthread_mutex_lock(&told->mutex);
    int value = *number;
    pthread_mutex_unlock(&told->mutex);
    return value;
}

static void a_loss_is_told_by_its_name(const redlatch_client *client, const redlatch_client *other)
{
    struct told told = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    redlatch_multi_lock *locks = locks_of(client);
    IS(redlatch_multi_lock_set_lease_ms(locks, 3000), REDLATCH_OK);
    IS(redlatch_multi_lock_set_on_lost_owned(locks, on_lost, &told, destroy), REDLATCH_OK);
    redlatch_guard *guard = all_held(locks);
    redlatch_lock *victim = lock_of(other, names[1]);
    bool somebody = false;
    size_t length = 0;
    IS(redlatch_lock_force_release(victim, &somebody), REDLATCH_OK);
    CHECK(somebody);
    IS(redlatch_guard_wait_lost_ms(guard, PATIENCE_MS), REDLATCH_LOST);
    UNTIL(seen(&told, &told.losses) == 1);
    CHECK(strcmp(told.name, names[1]) == 0 && told.reason == REDLATCH_LOST_DELETED);
    CHECK(!redlatch_guard_is_held(guard) && redlatch_guard_remaining_ms(guard) == 0);
    REFUSED(redlatch_guard_check(guard), REDLATCH_LOST, names[1]);
    CHECK(strcmp(redlatch_guard_lost_name(guard, &length), names[1]) == 0 && length == strlen(names[1]));
    REFUSED(redlatch_guard_release(guard), REDLATCH_LOST, names[1]);
    CHECK(redlatch_guard_lost_reason(guard) == REDLATCH_LOST_DELETED);
    CHECK(strcmp(redlatch_guard_lost_name(guard, NULL), names[1]) == 0);
    for (int i = 0; i < NAMES; i++) CHECK(is_free(other, names[i]));
    redlatch_guard_free(guard);
    redlatch_multi_lock_free(locks);
    UNTIL(seen(&told, &told.destroyed) == 1);
    CHECK(told.losses == 1);
    redlatch_lock_free(victim);
}

struct under_them {
    const redlatch_client *other;
    int ran;
};

static void work(void *user_data)
{
    struct under_them *under_them = user_data;
    for (int i = 0; i < NAMES; i++) CHECK(!is_free(under_them->other, names[i]));
    under_them->ran++;
}

static void work_runs_while_all_are_held(const redlatch_client *client, const redlatch_client *other)
{
    redlatch_multi_lock *locks = locks_of(client);
    struct under_them under_them = {other, 0};
    IS(redlatch_multi_lock_with(locks, 0, work, &under_them), REDLATCH_OK);
    IS(redlatch_multi_lock_with(locks, REDLATCH_FOREVER, work, &under_them), REDLATCH_OK);
    CHECK(under_them.ran == 2);
    for (int i = 0; i < NAMES; i++) CHECK(is_free(other, names[i]));
    redlatch_multi_lock_free(locks);
}

struct wait {
    const redlatch_multi_lock *locks;
    const redlatch_cancel *cancel;
};

static void *wait_for(void *with)
{
    struct wait *wait = with;
    redlatch_guard *guard = UNTOUCHED;
    IS(redlatch_multi_lock_acquire(wait->locks, REDLATCH_FOREVER, wait->cancel, &guard), REDLATCH_CANCELLED);
    CHECK(guard == UNTOUCHED);
    return NULL;
}

static void a_cancelled_wait_leaves_nothing(const redlatch_client *client, const redlatch_client *other)
{
    redlatch_multi_lock *locks = locks_of(client);
    redlatch_lock *taken = lock_of(other, names[2]);
    redlatch_guard *guard = held(taken);
    redlatch_cancel *cancel = NULL;
    IS(redlatch_cancel_new(&cancel), REDLATCH_OK);
    struct wait wait = {locks, cancel};
    pthread_t waiter = start(wait_for, &wait);
    UNTIL(waiters(taken) == 1);
    IS(redlatch_cancel_cancel(cancel), REDLATCH_OK);
    join(waiter);
    UNTIL(is_free(other, names[0]) && is_free(other, names[1]) && waiters(taken) == 0);
    redlatch_guard_free(guard);
    redlatch_lock_free(taken);
    redlatch_cancel_free(cancel);
    redlatch_multi_lock_free(locks);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    redlatch_client *client = client_of(argv[1]), *other = client_of(argv[1]);
    all_are_held_or_none(client, other);
    names_and_fencing_tokens_are_in_one_order(client);
    what_cannot_work_is_refused(client);
    a_loss_is_told_by_its_name(client, other);
    work_runs_while_all_are_held(client, other);
    a_cancelled_wait_leaves_nothing(client, other);
    redlatch_client_free(client);
    redlatch_client_free(other);
    return 0;
}
