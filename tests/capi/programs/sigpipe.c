/*
 * A server that goes away raises no SIGPIPE: sigpipe URL
 * Says "at work" once requests, a wait and a renewal are under way, and ends well when the server was killed then.
 */
#include "check.h"
#include "server.h"

#include <sys/un.h>

#define REQUESTERS 3

/* Requests, one after the other, until one fails and for some time after. */
struct requester {
    pthread_mutex_t mutex;
    const redlatch_client *client;
    int number, answered;
};

static bool is_failure_of_the_server(int32_t status)
{
    return status == REDLATCH_CONNECTION || status == REDLATCH_UNCONFIRMED || status == REDLATCH_SERVER;
}

static void *make_requests(void *with)
{
    struct requester *requester = with;
    char name[32];
    snprintf(name, sizeof name, "sigpipe:%d", requester->number);
    redlatch_lock *lock = lock_of(requester->client, name);
    for (int failed = 0; failed < 20;) {
        redlatch_guard *guard = NULL;
        int32_t status = redlatch_lock_acquire(lock, 0, NULL, &guard);
        if (status == REDLATCH_OK) status = redlatch_guard_release(guard);
        redlatch_guard_free(guard);
        CHECK(pthread_mutex_lock(&requester->mutex) == 0);
        if (status == REDLATCH_OK) requester->answered++;
        CHECK(pthread_mutex_unlock(&requester->mutex) == 0);
        if (status != REDLATCH_OK) {
            CHECK(is_failure_of_the_server(status));
            failed++;
        }
    }
    redlatch_lock_free(lock);
    return NULL;
}

static bool has_answers(struct requester *requester)
{
    CHECK(pthread_mutex_lock(&requester->mutex) == 0);
    bool has = requester->answered >= 10;
    CHECK(pthread_mutex_unlock(&requester->mutex) == 0);
    return has;
}

struct wait {
    const redlatch_lock *lock;
    const redlatch_cancel *cancel;
};

static void *wait_until_cancelled(void *with)
{
    struct wait *wait = with;
    redlatch_guard *none = UNTOUCHED;
    IS(redlatch_lock_acquire(wait->lock, REDLATCH_FOREVER, wait->cancel, &none), REDLATCH_CANCELLED);
    CHECK(none == UNTOUCHED);
    return NULL;
}

/* Hangs up in the middle of each request, while more of it is to be written: what a write then does raises SIGPIPE. */
static void *hang_up(void *with)
{
    int listening = *(int *)with, connection;
    while ((connection = accept(listening, NULL, NULL)) >= 0) {
        char some[16];
        CHECK(recv(connection, some, sizeof some, 0) > 0);
        /* The end first: after that alone it is EPIPE for TCP as well. */
        shutdown(connection, SHUT_WR);
        close(connection);
    }
    return NULL;
}

static void a_peer_hangs_up_in_the_middle_of_requests(const char *url, int listening)
{
    /* More than a socket has room for. */
    static char name[REDLATCH_MAX_LENGTH];
    memset(name, 'x', sizeof name);
    pthread_t peer = start(hang_up, &listening);
    redlatch_client *client = client_of(url);
    redlatch_lock *lock = NULL;
    redlatch_guard *none = UNTOUCHED;
    IS(redlatch_lock_new(client, name, sizeof name, &lock), REDLATCH_OK);
    for (int i = 0; i < 3; i++) CHECK(is_failure_of_the_server(redlatch_lock_acquire(lock, 0, NULL, &none)));
    CHECK(none == UNTOUCHED);
    redlatch_lock_free(lock);
    redlatch_client_free(client);
    /* Ends the thread's wait for more. */
    shutdown(listening, SHUT_RDWR);
    join(peer);
    close(listening);
}

static void peers_hang_up(void)
{
    int listening;
    char url[160];
    snprintf(url, sizeof url, "redis://127.0.0.1:%u/", silent_port(&listening));
    a_peer_hangs_up_in_the_middle_of_requests(url, listening);

    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/tmp/redlatch-sigpipe-%ld", (long)getpid());
    listening = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(listening >= 0 && bind(listening, (const struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(listening, 16) == 0);
    snprintf(url, sizeof url, "unix://%s", address.sun_path);
    a_peer_hangs_up_in_the_middle_of_requests(url, listening);
    CHECK(unlink(address.sun_path) == 0);
}

int main(int argc, char **argv)
{
    struct sigaction by_default;
    sigset_t pipe_only;
    CHECK(argc == 2);
    memset(&by_default, 0, sizeof by_default);
    by_default.sa_handler = SIG_DFL;
    CHECK(sigaction(SIGPIPE, &by_default, NULL) == 0);
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &pipe_only, NULL) == 0);

    peers_hang_up();
    redlatch_client *client = client_of(argv[1]), *holder = client_of(argv[1]), *idle = client_of(argv[1]);
    redlatch_lock *taken = lock_of(holder, "sigpipe:taken"), *unused = lock_of(idle, "sigpipe:idle");
    IS(redlatch_lock_set_lease_ms(taken, 1000), REDLATCH_OK);
    redlatch_guard *guard = held(taken), *kept = held(unused);
    redlatch_cancel *cancel = NULL;
    IS(redlatch_cancel_new(&cancel), REDLATCH_OK);
    redlatch_lock *same = lock_of(client, "sigpipe:taken");
    struct wait wait = {same, cancel};
    pthread_t waiter = start(wait_until_cancelled, &wait);
    struct requester requesters[REQUESTERS];
    pthread_t threads[REQUESTERS];
    for (int i = 0; i < REQUESTERS; i++) {
        requesters[i] = (struct requester){.client = client, .number = i};
        CHECK(pthread_mutex_init(&requesters[i].mutex, NULL) == 0);
        threads[i] = start(make_requests, &requesters[i]);
    }
    for (int i = 0; i < REQUESTERS; i++) UNTIL(has_answers(&requesters[i]));
    UNTIL(waiters(taken) == 1);
    puts("at work");
    fflush(stdout);

    for (int i = 0; i < REQUESTERS; i++) join(threads[i]);
    /* A connection that nobody has used since. */
    CHECK(is_failure_of_the_server(redlatch_guard_extend_ms(kept, 60000)));
    /* Its renewals fail until it is over; the wait goes on. */
    IS(redlatch_guard_wait_lost_ms(guard, PATIENCE_MS), REDLATCH_LOST);
    CHECK(redlatch_guard_lost_reason(guard) == REDLATCH_LOST_EXPIRED);
    /* The wait's end takes its place in the queue back, or tries to. */
    IS(redlatch_cancel_cancel(cancel), REDLATCH_OK);
    join(waiter);
    IS(redlatch_guard_release(kept), REDLATCH_UNCONFIRMED);
    redlatch_guard_free(kept);
    redlatch_guard_free(guard);
    redlatch_cancel_free(cancel);
    redlatch_lock_free(same);
    redlatch_lock_free(taken);
    redlatch_lock_free(unused);
    redlatch_client_free(client);
    redlatch_client_free(holder);
    redlatch_client_free(idle);
    return 0;
}
