/*
 * A thread that is cancelled in the middle of a call ends after it, and nothing else does: arguments URL
 */
#include "check.h"

static redlatch_lock *lock;

/* Takes the lock again and again, until it is cancelled: which cannot come between a grant and its release. */
static void *take(void *nothing)
{
    (void)nothing;
    for (;;) {
        redlatch_guard *guard = NULL;
        int32_t status = redlatch_lock_acquire(lock, 5, NULL, &guard);
        CHECK(status == REDLATCH_OK || status == REDLATCH_TIMEOUT);
        if (status == REDLATCH_OK) {
            CHECK(redlatch_guard_is_held(guard));
            IS(redlatch_guard_release(guard), REDLATCH_OK);
        }
        redlatch_guard_free(guard);
        pthread_testcancel();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    redlatch_client *client = NULL;
    redlatch_guard *guard = NULL;
    CHECK(argc == 2);
    IS(redlatch_client_open(argv[1], &client), REDLATCH_OK);
    IS(redlatch_lock_new(client, "cancelled-threads", NUL, &lock), REDLATCH_OK);
    for (int round = 0; round < 200; round++) {
        pthread_t threads[2];
        void *end;
        for (int i = 0; i < 2; i++) {
            CHECK(pthread_create(&threads[i], NULL, take, NULL) == 0);
        }
        struct timespec pause = {0, round * 10000L};
        nanosleep(&pause, NULL);
        for (int i = 0; i < 2; i++) {
            CHECK(pthread_cancel(threads[i]) == 0);
        }
        for (int i = 0; i < 2; i++) {
            CHECK(pthread_join(threads[i], &end) == 0);
            CHECK(end == PTHREAD_CANCELED);
        }
    }
    IS(redlatch_lock_acquire(lock, PATIENCE_MS, NULL, &guard), REDLATCH_OK);
    redlatch_guard_free(guard);
    redlatch_lock_free(lock);
    redlatch_client_free(client);
    return 0;
}
