/*
 * Each setting does what it is for, and nothing else does it: settings URL PID
 * PID is the server's process, which is stopped at times. The server has one replica.
 *
 * What a setting is set to here lies far from its default and from what the others are set to: on the side on which a
 * busy machine is no excuse.
 */
#include "check.h"
#include "server.h"

static const char *url;
static pid_t server;

static redlatch_options *settings(void)
{
    redlatch_options *options = NULL;
    IS(redlatch_options_new(&options), REDLATCH_OK);
    IS(redlatch_options_set_url(options, url), REDLATCH_OK);
    return options;
}

static redlatch_client *set(redlatch_options *options)
{
    redlatch_client *client = NULL;
    IS(redlatch_client_open_with(options, &client), REDLATCH_OK);
    redlatch_options_free(options);
    return client;
}

static void stop_server(void)
{
    stop_process(server);
}

static void let_server_go_on(void)
{
    CHECK(kill(server, SIGCONT) == 0);
}

static void prefixes_stand_before_names(void)
{
    redlatch_options *options = settings();
    IS(redlatch_options_set_prefix(options, "settings:app:", NUL), REDLATCH_OK);
    IS(redlatch_options_set_lock_prefix(options, "mutex:", NUL), REDLATCH_OK);
    redlatch_client *client = set(options);
    redlatch_lock *lock = lock_of(client, "it");
    redlatch_semaphore *semaphore = semaphore_of(client, "it", 1);
    redlatch_guard *guard = held(lock), *permit = permitted(semaphore);
    CHECK(server_answers(url, "EXISTS settings:app:mutex:it") == 1);
    CHECK(server_answers(url, "EXISTS settings:app:semaphore:it") == 1);
    redlatch_guard_free(guard);
    redlatch_guard_free(permit);
    redlatch_lock_free(lock);
    redlatch_semaphore_free(semaphore);
    redlatch_client_free(client);
}

/* Longer than by default, as the next: what ends too early did not heed it. */
static void the_command_timeout_ends_a_request_without_an_answer(void)
{
    redlatch_options *options = settings();
    IS(redlatch_options_set_command_timeout_ms(options, 3500), REDLATCH_OK);
    redlatch_client *client = set(options);
    redlatch_lock *lock = lock_of(client, "settings:command");
    redlatch_guard *none = UNTOUCHED;
    stop_server();
    uint64_t before = now_ms();
    REFUSED(redlatch_lock_acquire(lock, 0, NULL, &none), REDLATCH_UNCONFIRMED, "no answer in time");
    uint64_t took = now_ms() - before;
    let_server_go_on();
    CHECK(took >= 3499 && took < PATIENCE_MS);
    redlatch_lock_free(lock);
    redlatch_client_free(client);
}

static void the_connect_timeout_ends_an_opening_without_an_answer(void)
{
    int silent;
    char nowhere[64];
    redlatch_options *options = settings();
    /* With a database, which is chosen when a connection is opened. */
    snprintf(nowhere, sizeof nowhere, "redis://127.0.0.1:%u/1", silent_port(&silent));
    IS(redlatch_options_set_url(options, nowhere), REDLATCH_OK);
    IS(redlatch_options_set_connect_timeout_ms(options, 1600), REDLATCH_OK);
    redlatch_client *client = set(options);
    redlatch_lock *lock = lock_of(client, "settings:connect");
    redlatch_guard *none = UNTOUCHED;
    uint64_t before = now_ms();
    REFUSED(redlatch_lock_acquire(lock, 0, NULL, &none), REDLATCH_CONNECTION, "");
    uint64_t took = now_ms() - before;
    CHECK(took >= 1599 && took < PATIENCE_MS);
    close(silent);
    redlatch_lock_free(lock);
    redlatch_client_free(client);
}

#define NODES 3

/* Servers that let everybody in and say nothing. */
static void a_redlocks_node_timeout_and_max_lease_are_acted_on(void)
{
    int silent[NODES];
    char nowhere[128];
    redlatch_options *options = settings();
    snprintf(nowhere, sizeof nowhere, "redlock://127.0.0.1:%u,127.0.0.1:%u,127.0.0.1:%u", silent_port(&silent[0]),
             silent_port(&silent[1]), silent_port(&silent[2]));
    IS(redlatch_options_set_url(options, nowhere), REDLATCH_OK);
    IS(redlatch_options_set_max_lease_ms(options, 20000), REDLATCH_OK);
    IS(redlatch_options_set_node_timeout_ms(options, 700), REDLATCH_OK);
    IS(redlatch_options_set_command_timeout_ms(options, 10 * PATIENCE_MS), REDLATCH_OK);
    redlatch_client *client = set(options);
    redlatch_lock *lock = lock_of(client, "settings:redlock");
    redlatch_guard *none = UNTOUCHED;
    REFUSED(redlatch_lock_set_lease_ms(lock, 20001), REDLATCH_INVALID_ARGUMENT, "max_lease");
    IS(redlatch_lock_set_lease_ms(lock, 20000), REDLATCH_OK);
    uint64_t before = now_ms();
    REFUSED(redlatch_lock_acquire(lock, 0, NULL, &none), REDLATCH_NO_QUORUM, "3 servers");
    uint64_t took = now_ms() - before;
    CHECK(took >= 699 && took < PATIENCE_MS);
    for (int i = 0; i < NODES; i++) close(silent[i]);
    redlatch_lock_free(lock);
    redlatch_client_free(client);
}

#define REQUESTS 6
#define CONNECTIONS 3

static void *request(void *with)
{
    redlatch_guard *none = UNTOUCHED;
    redlatch_lock *lock = lock_of(with, "settings:pool");
    int32_t status = redlatch_lock_acquire(lock, 0, NULL, &none);
    CHECK((status == REDLATCH_UNCONFIRMED || status == REDLATCH_CONNECTION) && none == UNTOUCHED);
    redlatch_lock_free(lock);
    return NULL;
}

/* Requests of so many threads, of which none is answered: with more room, each would have a connection of its own. */
static void the_pool_size_is_how_many_connections_there_are(void)
{
    int listening, connections[CONNECTIONS];
    char nowhere[64];
    redlatch_options *options = settings();
    snprintf(nowhere, sizeof nowhere, "redis://127.0.0.1:%u/", silent_port(&listening));
    IS(redlatch_options_set_url(options, nowhere), REDLATCH_OK);
    IS(redlatch_options_set_pool_size(options, CONNECTIONS), REDLATCH_OK);
    IS(redlatch_options_set_command_timeout_ms(options, PATIENCE_MS), REDLATCH_OK);
    redlatch_client *client = set(options);
    pthread_t threads[REQUESTS];
    for (int i = 0; i < REQUESTS; i++) threads[i] = start(request, client);
    for (int i = 0; i < CONNECTIONS; i++) {
        connections[i] = next_connection(listening, PATIENCE_MS / 2);
        CHECK(connections[i] >= 0);
    }
    CHECK(next_connection(listening, 300) < 0);
    /* So that nobody waits any longer. */
    close(listening);
    for (int i = 0; i < CONNECTIONS; i++) close(connections[i]);
    for (int i = 0; i < REQUESTS; i++) join(threads[i]);
    redlatch_client_free(client);
}

/* And no other log-in, such as the master's in the URL. */
static void the_sentinel_login_is_what_a_sentinel_is_told(void)
{
    static const struct {
        const char *user, *password, *told;
    } logins[] = {{"watcher", "secret", "*3\r\n$4\r\nAUTH\r\n$7\r\nwatcher\r\n$6\r\nsecret\r\n"},
                  {"", "secret", "*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n"}};
    for (size_t i = 0; i < sizeof logins / sizeof *logins; i++) {
        int listening;
        char sentinel[64];
        redlatch_options *options = settings();
        snprintf(sentinel, sizeof sentinel, "redis-sentinel://u:p@127.0.0.1:%u/0#master", silent_port(&listening));
        IS(redlatch_options_set_url(options, sentinel), REDLATCH_OK);
        IS(redlatch_options_set_sentinel_login(options, logins[i].user, logins[i].password), REDLATCH_OK);
        redlatch_client *client = set(options);
        pthread_t waiter = start(request, client);
        CHECK(is_told_first(listening, logins[i].told, PATIENCE_MS));
        close(listening);
        join(waiter);
        redlatch_client_free(client);
    }
}

/* A wait that tells when it is over. */
struct wait {
    pthread_mutex_t mutex;
    const redlatch_lock *lock;
    const redlatch_semaphore *semaphore;
    const redlatch_cancel *cancel;
    bool over;
    int32_t status;
    char token[64];
};

static void *wait_for(void *with)
{
    struct wait *wait = with;
    redlatch_guard *guard = NULL;
    int32_t status = wait->lock != NULL ? redlatch_lock_acquire(wait->lock, REDLATCH_FOREVER, wait->cancel, &guard)
                                        : redlatch_semaphore_acquire(wait->semaphore, REDLATCH_FOREVER, wait->cancel,
                                                                     &guard);
    CHECK(pthread_mutex_lock(&wait->mutex) == 0);
    wait->over = true;
    wait->status = status;
    if (guard != NULL) snprintf(wait->token, sizeof wait->token, "%s", redlatch_guard_token(guard));
    CHECK(pthread_mutex_unlock(&wait->mutex) == 0);
    redlatch_guard_free(guard);
    return NULL;
}

static bool is_over(struct wait *wait)
{
    CHECK(pthread_mutex_lock(&wait->mutex) == 0);
    bool over = wait->over;
    CHECK(pthread_mutex_unlock(&wait->mutex) == 0);
    return over;
}

static redlatch_client *polling_every(uint64_t poll_interval_ms)
{
    redlatch_options *options = settings();
    IS(redlatch_options_set_poll_interval_ms(options, poll_interval_ms), REDLATCH_OK);
    return set(options);
}

/*
 * Whether another library's release, which wakes nobody, goes unnoticed for twice the default interval. A waiter looks
 * again just after the server knows of it, which may be after the release.
 */
static bool goes_unnoticed(const redlatch_lock *lock)
{
    redlatch_cancel *cancel = NULL;
    IS(redlatch_cancel_new(&cancel), REDLATCH_OK);
    server_answers(url, "SET lock:settings:poll anothers PX 600000");
    struct wait wait = {.mutex = PTHREAD_MUTEX_INITIALIZER, .lock = lock, .cancel = cancel};
    pthread_t waiter = start(wait_for, &wait);
    UNTIL(waiters(lock) == 1);
    CHECK(server_answers(url, "DEL lock:settings:poll") == 1);
    uint64_t enough = now_ms() + 2000;
    while (!is_over(&wait) && now_ms() < enough) pause_ms(5);
    IS(redlatch_cancel_cancel(cancel), REDLATCH_OK);
    join(waiter);
    redlatch_cancel_free(cancel);
    CHECK(wait.status == REDLATCH_OK || wait.status == REDLATCH_CANCELLED);
    return wait.status == REDLATCH_CANCELLED;
}

static void the_poll_interval_is_when_waiters_look(void)
{
    redlatch_client *rarely = polling_every(600000), *often = polling_every(20);
    redlatch_lock *lock = lock_of(rarely, "settings:poll"), *same = lock_of(often, "settings:poll");
    UNTIL(goes_unnoticed(lock));

    server_answers(url, "SET lock:settings:poll anothers PX 600000");
    struct wait wait = {.mutex = PTHREAD_MUTEX_INITIALIZER, .lock = same};
    pthread_t waiter = start(wait_for, &wait);
    UNTIL(waiters(lock) == 1);
    CHECK(server_answers(url, "DEL lock:settings:poll") == 1);
    UNTIL(is_over(&wait));
    join(waiter);
    CHECK(wait.status == REDLATCH_OK);
    redlatch_lock_free(lock);
    redlatch_lock_free(same);
    redlatch_client_free(rarely);
    redlatch_client_free(often);
}

static size_t waiters_of(const redlatch_semaphore *semaphore)
{
    redlatch_inspection *seen = NULL;
    IS(redlatch_semaphore_inspect(semaphore, &seen), REDLATCH_OK);
    size_t waiting = redlatch_inspection_waiters(seen);
    redlatch_inspection_free(seen);
    return waiting;
}

/* The server knows each thread that is fair, and of the others one for each client. */
static void fair_threads_have_places_of_their_own(const redlatch_client *client, const redlatch_client *holder)
{
    redlatch_lock *taken = lock_of(holder, "settings:fair"), *lock = lock_of(client, "settings:fair");
    redlatch_semaphore *used_up = semaphore_of(holder, "settings:fair", 1);
    redlatch_semaphore *semaphore = semaphore_of(client, "settings:fair", 1);
    IS(redlatch_lock_set_fair(lock, true), REDLATCH_OK);
    IS(redlatch_semaphore_set_fair(semaphore, true), REDLATCH_OK);
    redlatch_guard *guard = held(taken), *permit = permitted(used_up);
    struct wait waits[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        waits[i] = (struct wait){.lock = i < 2 ? lock : NULL, .semaphore = semaphore};
        CHECK(pthread_mutex_init(&waits[i].mutex, NULL) == 0);
        threads[i] = start(wait_for, &waits[i]);
    }
    UNTIL(waiters(taken) == 2 && waiters_of(used_up) == 2);
    redlatch_guard_free(guard);
    redlatch_guard_free(permit);
    for (int i = 0; i < 4; i++) {
        join(threads[i]);
        CHECK(waits[i].status == REDLATCH_OK);
    }
    redlatch_lock_free(taken);
    redlatch_lock_free(lock);
    redlatch_semaphore_free(used_up);
    redlatch_semaphore_free(semaphore);
}

/*
 * Whether another thread that waits gets what this one has without the server: the token at the key stays then. That
 * it waits already can only be guessed.
 */
static bool is_handed_on(const redlatch_lock *lock, const redlatch_semaphore *semaphore)
{
    redlatch_guard *guard = lock != NULL ? held(lock) : permitted(semaphore);
    struct wait wait = {.mutex = PTHREAD_MUTEX_INITIALIZER, .lock = lock, .semaphore = semaphore};
    pthread_t waiter = start(wait_for, &wait);
    pause_ms(20);
    IS(redlatch_guard_release(guard), REDLATCH_OK);
    join(waiter);
    CHECK(wait.status == REDLATCH_OK);
    bool same = strcmp(redlatch_guard_token(guard), wait.token) == 0;
    redlatch_guard_free(guard);
    return same;
}

static void no_handoffs_are_none(const redlatch_client *client)
{
    redlatch_lock *lock = lock_of(client, "settings:handed"), *never = lock_of(client, "settings:never handed");
    redlatch_semaphore *semaphore = semaphore_of(client, "settings:handed", 1);
    redlatch_semaphore *never_permit = semaphore_of(client, "settings:never handed", 1);
    IS(redlatch_lock_set_handoffs(lock, 1), REDLATCH_OK);
    IS(redlatch_semaphore_set_handoffs(semaphore, 1), REDLATCH_OK);
    IS(redlatch_lock_set_handoffs(never, 0), REDLATCH_OK);
    IS(redlatch_semaphore_set_handoffs(never_permit, 0), REDLATCH_OK);
    UNTIL(is_handed_on(lock, NULL));
    UNTIL(is_handed_on(NULL, semaphore));
    for (int i = 0; i < 5; i++) {
        CHECK(!is_handed_on(never, NULL));
        CHECK(!is_handed_on(NULL, never_permit));
    }
    redlatch_lock_free(lock);
    redlatch_lock_free(never);
    redlatch_semaphore_free(semaphore);
    redlatch_semaphore_free(never_permit);
}

/* Longer than the 30 s that it is by default. */
static void the_lease_is_how_long_it_stays_taken(const redlatch_client *client)
{
    redlatch_lock *lock = lock_of(client, "settings:lease");
    redlatch_semaphore *semaphore = semaphore_of(client, "settings:lease", 1);
    IS(redlatch_lock_set_lease_ms(lock, 600000), REDLATCH_OK);
    IS(redlatch_semaphore_set_lease_ms(semaphore, 600000), REDLATCH_OK);
    redlatch_guard *guard = held(lock), *permit = permitted(semaphore);
    CHECK(redlatch_guard_remaining_ms(guard) > 500000 && redlatch_guard_remaining_ms(guard) <= 600000);
    CHECK(redlatch_guard_remaining_ms(permit) > 500000 && redlatch_guard_remaining_ms(permit) <= 600000);
    CHECK(server_answers(url, "PTTL lock:settings:lease") > 500000);
    redlatch_guard_free(guard);
    redlatch_guard_free(permit);
    redlatch_lock_free(lock);
    redlatch_semaphore_free(semaphore);
}

static void is_lost_after(redlatch_guard *guard, uint64_t ms, uint64_t held_since, int32_t reason)
{
    IS(redlatch_guard_wait_lost_ms(guard, PATIENCE_MS), REDLATCH_LOST);
    /* It ends earlier by what clocks may drift apart: 1 % and 2 ms. */
    CHECK(now_ms() - held_since >= ms - ms / 100 - 4);
    CHECK(redlatch_guard_lost_reason(guard) == reason);
    redlatch_guard_free(guard);
}

static void the_longest_hold_ends_what_is_renewed(const redlatch_client *client)
{
    redlatch_lock *lock = lock_of(client, "settings:max hold");
    redlatch_semaphore *semaphore = semaphore_of(client, "settings:max hold", 1);
    IS(redlatch_lock_set_max_hold_ms(lock, 800), REDLATCH_OK);
    IS(redlatch_semaphore_set_max_hold_ms(semaphore, 800), REDLATCH_OK);
    uint64_t before = now_ms();
    redlatch_guard *guard = held(lock), *permit = permitted(semaphore);
    is_lost_after(guard, 800, before, REDLATCH_LOST_MAX_HOLD);
    is_lost_after(permit, 800, before, REDLATCH_LOST_MAX_HOLD);
    redlatch_lock_free(lock);
    redlatch_semaphore_free(semaphore);
}

static void a_timed_lease_is_not_renewed(const redlatch_client *client)
{
    redlatch_lock *lock = timed_lock_of(client, "settings:timed", 800);
    redlatch_semaphore *semaphore = semaphore_of(client, "settings:timed", 1);
    IS(redlatch_semaphore_set_timed_ms(semaphore, 800), REDLATCH_OK);
    uint64_t before = now_ms();
    redlatch_guard *guard = held(lock), *permit = permitted(semaphore);
    is_lost_after(guard, 800, before, REDLATCH_LOST_EXPIRED);
    is_lost_after(permit, 800, before, REDLATCH_LOST_EXPIRED);
    redlatch_lock_free(lock);
    redlatch_semaphore_free(semaphore);
}

static void so_many_replicas_confirm_it_in_time(const redlatch_client *client)
{
    redlatch_lock *lock = lock_of(client, "settings:replicas"), *two = lock_of(client, "settings:two replicas");
    redlatch_semaphore *semaphore = semaphore_of(client, "settings:replicas", 1);
    redlatch_semaphore *two_for_permit = semaphore_of(client, "settings:two replicas", 1);
    redlatch_guard *none = UNTOUCHED;
    IS(redlatch_lock_set_replicas(lock, 1, PATIENCE_MS), REDLATCH_OK);
    IS(redlatch_semaphore_set_replicas(semaphore, 1, PATIENCE_MS), REDLATCH_OK);
    redlatch_guard_free(held(lock));
    redlatch_guard_free(permitted(semaphore));
    /* Longer than the command timeout by default. */
    IS(redlatch_lock_set_replicas(two, 2, 2500), REDLATCH_OK);
    IS(redlatch_semaphore_set_replicas(two_for_permit, 2, 2500), REDLATCH_OK);
    uint64_t before = now_ms();
    REFUSED(redlatch_lock_acquire(two, 0, NULL, &none), REDLATCH_NOT_REPLICATED, "by 1 of 2");
    CHECK(now_ms() - before >= 2499 && now_ms() - before < PATIENCE_MS);
    before = now_ms();
    REFUSED(redlatch_semaphore_acquire(two_for_permit, 0, NULL, &none), REDLATCH_NOT_REPLICATED, "by 1 of 2");
    CHECK(now_ms() - before >= 2499 && now_ms() - before < PATIENCE_MS);
    CHECK(none == UNTOUCHED);
    redlatch_lock_free(lock);
    redlatch_lock_free(two);
    redlatch_semaphore_free(semaphore);
    redlatch_semaphore_free(two_for_permit);
}

static void permits_are_what_one_acquire_takes(const redlatch_client *client)
{
    redlatch_semaphore *semaphore = semaphore_of(client, "settings:permits", 5);
    uint32_t left = 0;
    IS(redlatch_semaphore_set_permits(semaphore, 3), REDLATCH_OK);
    redlatch_guard *permit = permitted(semaphore);
    IS(redlatch_semaphore_available(semaphore, &left), REDLATCH_OK);
    CHECK(left == 2);
    redlatch_guard_free(permit);
    redlatch_semaphore_free(semaphore);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    url = argv[1];
    server = (pid_t)atol(argv[2]);
    redlatch_client *client = client_of(url), *other = client_of(url);
    prefixes_stand_before_names();
    the_command_timeout_ends_a_request_without_an_answer();
    the_connect_timeout_ends_an_opening_without_an_answer();
    the_pool_size_is_how_many_connections_there_are();
    the_sentinel_login_is_what_a_sentinel_is_told();
    a_redlocks_node_timeout_and_max_lease_are_acted_on();
    the_poll_interval_is_when_waiters_look();
    fair_threads_have_places_of_their_own(client, other);
    no_handoffs_are_none(client);
    the_lease_is_how_long_it_stays_taken(client);
    the_longest_hold_ends_what_is_renewed(client);
    a_timed_lease_is_not_renewed(client);
    so_many_replicas_confirm_it_in_time(client);
    permits_are_what_one_acquire_takes(client);
    redlatch_client_free(client);
    redlatch_client_free(other);
    return 0;
}
