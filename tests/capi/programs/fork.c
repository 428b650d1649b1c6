/*
 * What a forked child has of its parent's: nothing that does anything: fork URL
 * At the end it says "the children are gone, and TOKEN holds fork:held", and goes on after a line of input.
 */
#include "check.h"

#include <sys/wait.h>

static void on_lost(const redlatch_lost *lost, void *user_data)
{
    (void)lost;
    (void)user_data;
}

static void never(void *user_data)
{
    (void)user_data;
    CHECK(!"called");
}

/* Waits for a child, which has to end by itself, and well. */
static void is_well(pid_t child)
{
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status)) fprintf(stderr, "the child was killed by signal %d\n", WTERMSIG(status));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

struct handles {
    redlatch_client *client;
    redlatch_options *options;
    redlatch_lock *lock;
    redlatch_semaphore *semaphore;
    redlatch_multi_lock *several;
    redlatch_guard *guard, *permit, *of_several;
    redlatch_cancel *cancel;
    redlatch_inspection *seen;
    redlatch_audit *audit;
};

static struct handles make_all(const char *url)
{
    struct handles all = {0};
    IS(redlatch_options_new(&all.options), REDLATCH_OK);
    IS(redlatch_options_set_url(all.options, url), REDLATCH_OK);
    IS(redlatch_client_open_with(all.options, &all.client), REDLATCH_OK);
    all.lock = lock_of(all.client, "fork:held");
    IS(redlatch_lock_set_on_lost_owned(all.lock, on_lost, NULL, never), REDLATCH_OK);
    all.semaphore = semaphore_of(all.client, "fork:held", 2);
    all.guard = held(all.lock);
    all.permit = permitted(all.semaphore);
    static const char *const names[] = {"fork:a", "fork:b"};
    IS(redlatch_multi_lock_new(all.client, names, NULL, 2, &all.several), REDLATCH_OK);
    IS(redlatch_multi_lock_acquire(all.several, PATIENCE_MS, NULL, &all.of_several), REDLATCH_OK);
    IS(redlatch_cancel_new(&all.cancel), REDLATCH_OK);
    IS(redlatch_lock_inspect(all.lock, &all.seen), REDLATCH_OK);
    IS(redlatch_client_audit(all.client, "*", NUL, &all.audit), REDLATCH_OK);
    return all;
}

static void guard_is_inert(redlatch_guard *guard)
{
    CHECK(!redlatch_guard_is_held(guard));
    CHECK(redlatch_guard_remaining_ms(guard) == 0);
    CHECK(redlatch_guard_lost_reason(guard) == REDLATCH_LOST_NOT);
    REFUSED(redlatch_guard_check(guard), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_guard_wait_lost_ms(guard, REDLATCH_FOREVER), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_guard_extend_ms(guard, 60000), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_guard_release(guard), REDLATCH_FORKED, "fork");
    CHECK(redlatch_guard_fencing_token(guard) > 0);
    CHECK(strlen(redlatch_guard_token(guard)) == 32);
    CHECK(strncmp(redlatch_guard_name(guard, NULL), "fork:", 5) == 0);
}

static void all_is_inert(struct handles all)
{
    redlatch_client *no_client = UNTOUCHED;
    redlatch_lock *no_lock = UNTOUCHED;
    redlatch_semaphore *no_semaphore = UNTOUCHED;
    redlatch_guard *no_guard = UNTOUCHED;
    redlatch_multi_lock *no_several = UNTOUCHED;
    redlatch_inspection *unseen = UNTOUCHED;
    redlatch_audit *no_audit = UNTOUCHED;
    const char *key = UNTOUCHED;
    bool somebody = true;
    uint32_t number = 77;
    size_t count = 77;
    guard_is_inert(all.guard);
    guard_is_inert(all.permit);
    guard_is_inert(all.of_several);
    REFUSED(redlatch_lock_new(all.client, "n", 1, &no_lock), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_timed_lock_new(all.client, "n", 1, 1000, &no_lock), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_semaphore_new(all.client, "n", 1, 2, &no_semaphore), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_client_audit(all.client, "*", NUL, &no_audit), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_audit_next(all.audit, &key, &count, NULL), REDLATCH_FORKED, "fork");

    REFUSED(redlatch_options_set_url(all.options, "memory://"), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_options_set_prefix(all.options, "p", 1), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_options_set_lock_prefix(all.options, "p", 1), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_options_set_pool_size(all.options, 1), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_options_set_connect_timeout_ms(all.options, 1), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_options_set_command_timeout_ms(all.options, 1), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_options_set_poll_interval_ms(all.options, 10), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_options_set_max_lease_ms(all.options, 10), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_options_set_node_timeout_ms(all.options, 1), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_client_open_with(all.options, &no_client), REDLATCH_FORKED, "fork");

    REFUSED(redlatch_lock_set_lease_ms(all.lock, 10000), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_lock_set_max_hold_ms(all.lock, 10000), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_lock_set_fair(all.lock, true), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_lock_set_handoffs(all.lock, 1), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_lock_set_on_lost(all.lock, on_lost, NULL), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_lock_set_on_lost_owned(all.lock, on_lost, NULL, never), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_lock_acquire(all.lock, REDLATCH_FOREVER, NULL, &no_guard), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_lock_acquire(all.lock, 0, all.cancel, &no_guard), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_lock_with(all.lock, REDLATCH_FOREVER, never, NULL), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_lock_inspect(all.lock, &unseen), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_lock_force_release(all.lock, &somebody), REDLATCH_FORKED, "fork");
    CHECK(strcmp(redlatch_lock_name(all.lock, NULL), "fork:held") == 0);

    static const char *const names[] = {"n"};
    uint64_t tokens[2];
    size_t both = 0;
    REFUSED(redlatch_multi_lock_new(all.client, names, NULL, 1, &no_several), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_multi_lock_set_lease_ms(all.several, 10000), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_multi_lock_set_max_hold_ms(all.several, 10000), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_multi_lock_set_on_lost(all.several, on_lost, NULL), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_multi_lock_set_on_lost_owned(all.several, on_lost, NULL, never), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_multi_lock_acquire(all.several, REDLATCH_FOREVER, NULL, &no_guard), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_multi_lock_with(all.several, 0, never, NULL), REDLATCH_FORKED, "fork");
    CHECK(redlatch_multi_lock_count(all.several) == 2 && redlatch_multi_lock_name(all.several, 1, NULL) != NULL);
    IS(redlatch_guard_fencing_tokens(all.of_several, tokens, 2, &both), REDLATCH_OK);
    CHECK(both == 2 && tokens[0] == redlatch_guard_fencing_token(all.of_several));
    CHECK(redlatch_guard_lost_name(all.of_several, NULL) == NULL && no_several == UNTOUCHED);

    REFUSED(redlatch_semaphore_set_permits(all.semaphore, 1), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_semaphore_set_timed_ms(all.semaphore, 10000), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_semaphore_set_lease_ms(all.semaphore, 10000), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_semaphore_set_max_hold_ms(all.semaphore, 10000), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_semaphore_set_fair(all.semaphore, true), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_semaphore_set_handoffs(all.semaphore, 1), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_semaphore_set_on_lost(all.semaphore, on_lost, NULL), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_semaphore_set_on_lost_owned(all.semaphore, on_lost, NULL, never), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_semaphore_acquire(all.semaphore, REDLATCH_FOREVER, NULL, &no_guard), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_semaphore_with(all.semaphore, REDLATCH_FOREVER, never, NULL), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_semaphore_set_limit(all.semaphore, 1), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_semaphore_available(all.semaphore, &number), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_semaphore_holders(all.semaphore, &count), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_semaphore_inspect(all.semaphore, &unseen), REDLATCH_FORKED, "fork");
    REFUSED(redlatch_semaphore_force_release(all.semaphore, &somebody), REDLATCH_FORKED, "fork");
    CHECK(strcmp(redlatch_semaphore_name(all.semaphore, NULL), "fork:held") == 0);

    REFUSED(redlatch_cancel_cancel(all.cancel), REDLATCH_FORKED, "fork");
    CHECK(!redlatch_cancel_is_cancelled(all.cancel));
    /* It belongs to no process. */
    CHECK(redlatch_inspection_holders(all.seen) == 1);

    CHECK(no_client == UNTOUCHED && no_lock == UNTOUCHED && no_semaphore == UNTOUCHED && no_guard == UNTOUCHED);
    CHECK(unseen == UNTOUCHED && no_audit == UNTOUCHED && key == UNTOUCHED);
    CHECK(somebody && number == 77 && count == 77);
}

static void free_all(struct handles all)
{
    redlatch_guard_free(all.guard);
    redlatch_guard_free(all.permit);
    redlatch_guard_free(all.of_several);
    redlatch_multi_lock_free(all.several);
    redlatch_lock_free(all.lock);
    redlatch_semaphore_free(all.semaphore);
    redlatch_audit_free(all.audit);
    redlatch_inspection_free(all.seen);
    redlatch_cancel_free(all.cancel);
    redlatch_options_free(all.options);
    redlatch_client_free(all.client);
}

static void a_new_client_in_the_child_locks_and_renews(const char *url)
{
    redlatch_client *client = client_of(url);
    redlatch_lock *lock = lock_of(client, "fork:child");
    redlatch_semaphore *semaphore = semaphore_of(client, "fork:child", 1);
    IS(redlatch_lock_set_lease_ms(lock, 2000), REDLATCH_OK);
    redlatch_guard *guard = held(lock), *permit = permitted(semaphore);
    IS(redlatch_guard_wait_lost_ms(guard, 3000), REDLATCH_OK);
    IS(redlatch_guard_release(guard), REDLATCH_OK);
    IS(redlatch_guard_release(permit), REDLATCH_OK);
    redlatch_guard_free(guard);
    redlatch_guard_free(permit);
    redlatch_lock_free(lock);
    redlatch_semaphore_free(semaphore);
    redlatch_client_free(client);
}

static void a_child_has_nothing_of_its_parents(const char *url, struct handles all)
{
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        all_is_inert(all);
        free_all(all);
        a_new_client_in_the_child_locks_and_renews(url);
        UNTIL(background_threads() == 0);
        _exit(0);
    }
    is_well(child);
    IS(redlatch_guard_check(all.guard), REDLATCH_OK);
    IS(redlatch_guard_extend_ms(all.guard, 30000), REDLATCH_OK);
    IS(redlatch_guard_extend_ms(all.permit, 30000), REDLATCH_OK);
}

/* What the parent's threads are in the middle of when it forks. */
struct busy {
    redlatch_client *client;
    redlatch_lock *lock, *waited_for;
    redlatch_semaphore *semaphore;
    redlatch_options *options;
    pthread_mutex_t mutex;
    bool over;
};

static bool is_over(struct busy *busy)
{
    CHECK(pthread_mutex_lock(&busy->mutex) == 0);
    bool over = busy->over;
    CHECK(pthread_mutex_unlock(&busy->mutex) == 0);
    return over;
}

static void *keep_busy(void *with)
{
    struct busy *busy = with;
    while (!is_over(busy)) {
        redlatch_guard *guard = NULL, *none = NULL;
        redlatch_lock *lock = lock_of(busy->client, "fork:short");
        redlatch_inspection *seen = NULL;
        redlatch_client *client = NULL;
        IS(redlatch_lock_set_on_lost(lock, on_lost, NULL), REDLATCH_OK);
        redlatch_guard_free(held(busy->lock));
        guard = permitted(busy->semaphore);
        IS(redlatch_guard_extend_ms(guard, 40000), REDLATCH_OK);
        IS(redlatch_lock_acquire(busy->waited_for, 3, NULL, &none), REDLATCH_TIMEOUT);
        IS(redlatch_lock_inspect(busy->lock, &seen), REDLATCH_OK);
        IS(redlatch_options_set_prefix(busy->options, "fork:", NUL), REDLATCH_OK);
        IS(redlatch_client_open_with(busy->options, &client), REDLATCH_OK);
        redlatch_client_free(client);
        redlatch_inspection_free(seen);
        redlatch_guard_free(guard);
        redlatch_lock_free(lock);
    }
    return NULL;
}

static void a_child_of_a_busy_parent_never_hangs(const char *url, struct handles all)
{
    enum { THREADS = 4, CHILDREN = 60 };
    pthread_t threads[THREADS];
    struct busy busy = {all.client, lock_of(all.client, "fork:busy"), all.lock,
                        semaphore_of(all.client, "fork:busy", 2), NULL, PTHREAD_MUTEX_INITIALIZER, false};
    IS(redlatch_options_new(&busy.options), REDLATCH_OK);
    IS(redlatch_options_set_url(busy.options, url), REDLATCH_OK);
    for (int i = 0; i < THREADS; i++) threads[i] = start(keep_busy, &busy);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        if (child == 0) {
            redlatch_guard *none = UNTOUCHED;
            alarm(60);
            REFUSED(redlatch_lock_acquire(busy.lock, REDLATCH_FOREVER, NULL, &none), REDLATCH_FORKED, "fork");
            REFUSED(redlatch_semaphore_with(busy.semaphore, REDLATCH_FOREVER, never, NULL), REDLATCH_FORKED, "fork");
            REFUSED(redlatch_options_set_prefix(busy.options, "", 0), REDLATCH_FORKED, "fork");
            all_is_inert(all);
            redlatch_lock_free(busy.lock);
            redlatch_semaphore_free(busy.semaphore);
            redlatch_options_free(busy.options);
            free_all(all);
            redlatch_client *client = client_of(url);
            redlatch_lock *lock = lock_of(client, "fork:own");
            redlatch_guard_free(held(lock));
            redlatch_lock_free(lock);
            redlatch_client_free(client);
            _exit(0);
        }
        is_well(child);
    }
    CHECK(pthread_mutex_lock(&busy.mutex) == 0);
    busy.over = true;
    CHECK(pthread_mutex_unlock(&busy.mutex) == 0);
    for (int i = 0; i < THREADS; i++) join(threads[i]);
    IS(redlatch_guard_check(all.guard), REDLATCH_OK);
    IS(redlatch_guard_extend_ms(all.guard, 30000), REDLATCH_OK);
    redlatch_lock_free(busy.lock);
    redlatch_semaphore_free(busy.semaphore);
    redlatch_options_free(busy.options);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    struct handles all = make_all(argv[1]);
    a_child_has_nothing_of_its_parents(argv[1], all);
    a_child_of_a_busy_parent_never_hangs(argv[1], all);
    printf("the children are gone, and %s holds fork:held\n", redlatch_guard_token(all.guard));
    fflush(stdout);
    CHECK(getchar() == '\n');
    IS(redlatch_guard_release(all.guard), REDLATCH_OK);
    IS(redlatch_guard_release(all.permit), REDLATCH_OK);
    IS(redlatch_guard_release(all.of_several), REDLATCH_OK);
    redlatch_guard_free(all.guard);
    redlatch_guard_free(all.permit);
    redlatch_guard_free(all.of_several);
    redlatch_multi_lock_free(all.several);
    /* `never` was given to be destroyed in neither child; the lock is left, as a program may leave it. */
    printf("released\n");
    return 0;
}
