/*
 * The lives of handles: used after a release, on other threads, and freed in every order: handles URL
 */
#include "check.h"

static void each_call_knows_that_it_was_released(redlatch_guard *guard)
{
    const char *token = redlatch_guard_token(guard), *name = redlatch_guard_name(guard, NULL);
    uint64_t fencing_token = redlatch_guard_fencing_token(guard);
    IS(redlatch_guard_release(guard), REDLATCH_OK);
    REFUSED(redlatch_guard_release(guard), REDLATCH_INVALID_STATE, "released before");
    REFUSED(redlatch_guard_check(guard), REDLATCH_INVALID_STATE, "released before");
    REFUSED(redlatch_guard_wait_lost_ms(guard, REDLATCH_FOREVER), REDLATCH_INVALID_STATE, "released before");
    REFUSED(redlatch_guard_extend_ms(guard, 60000), REDLATCH_INVALID_STATE, "released before");
    CHECK(!redlatch_guard_is_held(guard));
    CHECK(redlatch_guard_remaining_ms(guard) == 0);
    CHECK(redlatch_guard_lost_reason(guard) == REDLATCH_LOST_NOT);
    /* What it had stays, at the same place. */
    CHECK(redlatch_guard_fencing_token(guard) == fencing_token);
    CHECK(redlatch_guard_token(guard) == token && strlen(token) == 32);
    CHECK(redlatch_guard_name(guard, NULL) == name && strcmp(name, "handles:released") == 0);
}

static void a_released_guard_says_so(const redlatch_client *client)
{
    redlatch_lock *lock = lock_of(client, "handles:released");
    redlatch_semaphore *semaphore = semaphore_of(client, "handles:released", 1);
    redlatch_guard *guard = held(lock), *permit = permitted(semaphore);
    each_call_knows_that_it_was_released(guard);
    each_call_knows_that_it_was_released(permit);
    /* Others can have them, and a late free does not touch theirs. */
    redlatch_guard *next = held(lock), *next_permit = permitted(semaphore);
    redlatch_guard_free(guard);
    redlatch_guard_free(permit);
    IS(redlatch_guard_extend_ms(next, 60000), REDLATCH_OK);
    IS(redlatch_guard_extend_ms(next_permit, 60000), REDLATCH_OK);
    redlatch_guard_free(next);
    redlatch_guard_free(next_permit);
    redlatch_lock_free(lock);
    redlatch_semaphore_free(semaphore);
}

static void *release(void *with)
{
    IS(redlatch_guard_release(with), REDLATCH_OK);
    return NULL;
}

static void *free_guard(void *with)
{
    redlatch_guard_free(with);
    return NULL;
}

static void a_guard_is_released_and_freed_by_other_threads(const redlatch_client *client)
{
    redlatch_lock *lock = lock_of(client, "handles:threads");
    redlatch_guard *guard = held(lock);
    join(start(release, guard));
    REFUSED(redlatch_guard_check(guard), REDLATCH_INVALID_STATE, "released before");
    redlatch_guard *next = held(lock);
    join(start(free_guard, guard));
    join(start(free_guard, next));
    next = held(lock);
    redlatch_guard_free(next);
    redlatch_lock_free(lock);
}

struct watch {
    redlatch_guard *guard;
    pid_t thread;
    pthread_mutex_t mutex;
};

/* The kernel's number of this thread: what "thread-self" leads to is "<pid>/task/<number>". */
static pid_t own_number(void)
{
    char to[64] = "";
    CHECK(readlink("/proc/thread-self", to, sizeof to - 1) > 0);
    return atoi(strrchr(to, '/') + 1);
}

static void *watch(void *with)
{
    struct watch *watch = with;
    CHECK(pthread_mutex_lock(&watch->mutex) == 0);
    watch->thread = own_number();
    CHECK(pthread_mutex_unlock(&watch->mutex) == 0);
    REFUSED(redlatch_guard_wait_lost_ms(watch->guard, REDLATCH_FOREVER), REDLATCH_INVALID_STATE, "released before");
    return NULL;
}

static bool sleeps(struct watch *watch)
{
    char path[64], line[512] = "";
    CHECK(pthread_mutex_lock(&watch->mutex) == 0);
    pid_t thread = watch->thread;
    CHECK(pthread_mutex_unlock(&watch->mutex) == 0);
    if (thread == 0) return false;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL && fgets(line, sizeof line, file) != NULL);
    fclose(file);
    return strstr(line, ") S ") != NULL;
}

static void a_release_wakes_those_who_wait_for_a_loss(const redlatch_client *client)
{
    redlatch_lock *lock = lock_of(client, "handles:woken");
    for (int i = 0; i < 20; i++) {
        struct watch watched = {held(lock), 0, PTHREAD_MUTEX_INITIALIZER};
        pthread_t thread = start(watch, &watched);
        UNTIL(sleeps(&watched));
        IS(redlatch_guard_release(watched.guard), REDLATCH_OK);
        join(thread);
        redlatch_guard_free(watched.guard);
    }
    redlatch_lock_free(lock);
}

/* Of several releases at once one is it. */
struct race {
    redlatch_guard *guard;
    pthread_barrier_t *barrier;
    int32_t status;
};

static void *race(void *with)
{
    struct race *race = with;
    pthread_barrier_wait(race->barrier);
    race->status = redlatch_guard_release(race->guard);
    return NULL;
}

static void of_releases_at_once_one_is_it(const redlatch_client *client)
{
    enum { RACERS = 4 };
    redlatch_lock *lock = lock_of(client, "handles:race");
    for (int round = 0; round < 50; round++) {
        struct race racers[RACERS];
        pthread_t threads[RACERS];
        pthread_barrier_t barrier;
        int released = 0;
        CHECK(pthread_barrier_init(&barrier, NULL, RACERS) == 0);
        redlatch_guard *guard = held(lock);
        for (int i = 0; i < RACERS; i++) {
            racers[i] = (struct race){guard, &barrier, 77};
            threads[i] = start(race, &racers[i]);
        }
        for (int i = 0; i < RACERS; i++) {
            join(threads[i]);
            if (racers[i].status == REDLATCH_OK) released++;
            if (racers[i].status != REDLATCH_OK) IS(racers[i].status, REDLATCH_INVALID_STATE);
        }
        CHECK(released == 1);
        redlatch_guard_free(guard);
        pthread_barrier_destroy(&barrier);
    }
    redlatch_lock_free(lock);
}

/* What a thread leaves behind is often freed at its very end, when what languages keep for it is gone already. */
static pthread_key_t at_the_end;
static const redlatch_lock *waited_for_at_the_end;

static void end(void *left)
{
    redlatch_guard *guard = NULL, *none = UNTOUCHED;
    IS(redlatch_guard_check(left), REDLATCH_OK);
    IS(redlatch_lock_acquire(waited_for_at_the_end, 30, NULL, &none), REDLATCH_TIMEOUT);
    IS(redlatch_guard_release(left), REDLATCH_OK);
    IS(redlatch_guard_release(left), REDLATCH_INVALID_STATE);
    redlatch_guard_free(left);
    IS(redlatch_lock_acquire(waited_for_at_the_end, 0, NULL, &guard), REDLATCH_OK);
    redlatch_guard_free(guard);
    /* There is no place for a message any more. */
    char message[8] = "1234567";
    CHECK(redlatch_last_error_message(message, sizeof message) == 0 && message[0] == '\0');
    CHECK(redlatch_last_lost_reason() == REDLATCH_LOST_NOT);
}

static void *leave_it(void *with)
{
    /* So that there has been a place. */
    IS(redlatch_guard_check(NULL), REDLATCH_NULL_POINTER);
    CHECK(pthread_setspecific(at_the_end, with) == 0);
    return NULL;
}

static void a_thread_uses_what_it_has_until_its_very_end(const redlatch_client *client)
{
    redlatch_lock *lock = lock_of(client, "handles:end");
    CHECK(pthread_key_create(&at_the_end, end) == 0);
    waited_for_at_the_end = lock;
    for (int i = 0; i < 3; i++) join(start(leave_it, held(lock)));
    CHECK(pthread_key_delete(at_the_end) == 0);
    redlatch_lock_free(lock);
}

/* Everything that belongs to one client. */
enum { CLIENT, LOCK, GUARD, SEMAPHORE, PERMIT, HANDLES };

static void free_in_order(const char *url, const int *order)
{
    redlatch_client *client = client_of(url);
    redlatch_lock *lock = lock_of(client, "handles:order");
    redlatch_semaphore *semaphore = semaphore_of(client, "handles:order", 1);
    redlatch_guard *guard = held(lock), *permit = permitted(semaphore);
    bool freed[HANDLES] = {false};
    for (int i = 0; i < HANDLES; i++) {
        switch (order[i]) {
        case CLIENT: redlatch_client_free(client); break;
        case LOCK: redlatch_lock_free(lock); break;
        case GUARD: redlatch_guard_free(guard); break;
        case SEMAPHORE: redlatch_semaphore_free(semaphore); break;
        case PERMIT: redlatch_guard_free(permit); break;
        }
        freed[order[i]] = true;
        /* What is left works on. */
        if (!freed[GUARD]) IS(redlatch_guard_extend_ms(guard, 30000), REDLATCH_OK);
        if (!freed[PERMIT]) IS(redlatch_guard_check(permit), REDLATCH_OK);
        if (!freed[LOCK]) redlatch_guard_free(freed[GUARD] ? held(lock) : NULL);
        if (!freed[SEMAPHORE]) CHECK(strcmp(redlatch_semaphore_name(semaphore, NULL), "handles:order") == 0);
    }
}

static void handles_are_freed_in_every_order(const char *url)
{
    int order[HANDLES] = {0}, orders = 0;
    for (int n = 0; n < 5 * 5 * 5 * 5 * 5; n++) {
        unsigned seen = 0;
        for (int i = 0, rest = n; i < HANDLES; i++, rest /= 5) {
            order[i] = rest % 5;
            seen |= 1u << order[i];
        }
        if (seen != (1u << HANDLES) - 1) continue;
        free_in_order(url, order);
        orders++;
    }
    CHECK(orders == 120);
}

static void options_and_switches_outlive_nothing(const char *url)
{
    redlatch_options *options = NULL;
    redlatch_client *first = NULL, *second = NULL;
    redlatch_inspection *seen = NULL;
    IS(redlatch_options_new(&options), REDLATCH_OK);
    IS(redlatch_options_set_url(options, url), REDLATCH_OK);
    IS(redlatch_client_open_with(options, &first), REDLATCH_OK);
    IS(redlatch_client_open_with(options, &second), REDLATCH_OK);
    redlatch_options_free(options);
    redlatch_lock *lock = lock_of(first, "handles:options"), *other = lock_of(second, "handles:options");
    redlatch_client_free(first);
    redlatch_client_free(second);
    redlatch_guard *guard = held(lock), *none = UNTOUCHED;
    IS(redlatch_lock_acquire(other, 0, NULL, &none), REDLATCH_BUSY);
    IS(redlatch_lock_inspect(other, &seen), REDLATCH_OK);
    redlatch_guard_free(guard);
    redlatch_lock_free(lock);
    redlatch_lock_free(other);
    /* It belongs to no client. */
    CHECK(redlatch_inspection_holders(seen) == 1 && redlatch_inspection_str(seen)[0] != '\0');
    redlatch_inspection_free(seen);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    redlatch_client *client = client_of(argv[1]);
    a_released_guard_says_so(client);
    a_guard_is_released_and_freed_by_other_threads(client);
    a_release_wakes_those_who_wait_for_a_loss(client);
    of_releases_at_once_one_is_it(client);
    a_thread_uses_what_it_has_until_its_very_end(client);
    CHECK(background_threads() > 0);
    redlatch_client_free(client);
    handles_are_freed_in_every_order(argv[1]);
    options_and_switches_outlive_nothing(argv[1]);
    UNTIL(background_threads() == 0);
    return 0;
}
