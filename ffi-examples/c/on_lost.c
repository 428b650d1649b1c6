/*
 * on_lost.c: a program is told that it lost its lock, and stops its work.
 *
 * Usage: on_lost [URL]   The server; else $REDIS_URL, else memory://, which needs none.
 */
#define _POSIX_C_SOURCE 200809L
#include <redlatch.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* What the callback leaves for the program. */
struct loss {
    pthread_mutex_t mutex;
    pthread_cond_t told;
    bool lost;
    int32_t reason;
    uint64_t fencing_token;
    char message[256];
};

/*
 * Runs on a thread of redlatch's, so it takes notes and returns; later callbacks wait for it. What `lost` points to
 * ends with it. The program's handlers never run here: all signals are blocked.
 */
static void on_lost(const redlatch_lost *lost, void *user_data) {
    struct loss *loss = user_data;
    pthread_mutex_lock(&loss->mutex);
    loss->lost = true;
    loss->reason = lost->reason;
    loss->fencing_token = lost->fencing_token;
    snprintf(loss->message, sizeof loss->message, "%s", lost->message);
    pthread_cond_signal(&loss->told);
    pthread_mutex_unlock(&loss->mutex);
}

static void wait_until_told(struct loss *loss) {
    pthread_mutex_lock(&loss->mutex);
    while (!loss->lost)
        pthread_cond_wait(&loss->told, &loss->mutex);
    pthread_mutex_unlock(&loss->mutex);
}

static const char *reason_name(int32_t reason) {
    switch (reason) {
    case REDLATCH_LOST_NOT: return "not lost";
    case REDLATCH_LOST_EXPIRED: return "expired";
    case REDLATCH_LOST_DELETED: return "deleted";
    case REDLATCH_LOST_TAKEN: return "taken by another";
    case REDLATCH_LOST_MAX_HOLD: return "held for as long as it may be";
    default: return "a reason of a later version";
    }
}

static const char *server_url(int argc, char **argv) {
    const char *url = argc > 1 ? argv[1] : getenv("REDIS_URL");
    return url != NULL && *url != '\0' ? url : "memory://";
}

/* Prints why the last call on this thread failed. */
static void print_error(const char *what) {
    char message[512];
    redlatch_last_error_message(message, sizeof message);
    fprintf(stderr, "%s: %s\n", what, message);
}

/* What an operator does when a holder is known to be gone, and here has the holder lose its lock. */
static int32_t throw_out_the_holder(const redlatch_client *client, const char *name) {
    redlatch_lock *lock = NULL;
    bool held = false;
    int32_t status = redlatch_lock_new(client, name, REDLATCH_NUL_TERMINATED, &lock);
    if (status == REDLATCH_OK)
        status = redlatch_lock_force_release(lock, &held);
    if (status == REDLATCH_OK)
        printf("an operator throws out whoever holds it: %s\n", held ? "somebody did" : "nobody did");
    redlatch_lock_free(lock);
    return status;
}

int main(int argc, char **argv) {
    static const char NAME[] = "example:nightly-report";
    /* To be there until the lock and its guards are freed, and a callback that runs then has returned. */
    static struct loss loss = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, REDLATCH_LOST_NOT, 0, ""};
    redlatch_client *client = NULL;
    redlatch_lock *lock = NULL;
    redlatch_guard *guard = NULL;
    bool done = false;

    int32_t status = redlatch_client_open(server_url(argc, argv), &client);
    if (status == REDLATCH_OK)
        status = redlatch_lock_new(client, NAME, REDLATCH_NUL_TERMINATED, &lock);
    if (status == REDLATCH_OK)
        status = redlatch_lock_set_lease_ms(lock, 6000); /* renewed every two seconds, which find a loss */
    if (status == REDLATCH_OK)
        status = redlatch_lock_set_on_lost(lock, on_lost, &loss);
    if (status == REDLATCH_OK)
        status = redlatch_lock_acquire(lock, 10000, NULL, &guard);
    if (status != REDLATCH_OK) {
        print_error("cannot get the lock");
        goto cleanup;
    }
    printf("held, with fencing token %" PRIu64 "\n", redlatch_guard_fencing_token(guard));

    status = throw_out_the_holder(client, NAME);
    if (status != REDLATCH_OK) {
        print_error("the holder was not thrown out");
        goto cleanup;
    }

    /* A program without a callback asks the guard: by redlatch_guard_check() before each write, or as here. */
    status = redlatch_guard_wait_lost_ms(guard, 60000);
    if (status != REDLATCH_LOST) {
        fprintf(stderr, "the loss was not noticed: %s\n", redlatch_status_str(status));
        goto cleanup;
    }
    printf("told by the guard: %s\n", redlatch_status_str(status));
    wait_until_told(&loss);
    printf("told by the callback: fencing token %" PRIu64 ", %s: %s\n", loss.fencing_token, reason_name(loss.reason),
           loss.message);

    status = redlatch_guard_release(guard);
    if (status != REDLATCH_LOST) {
        fprintf(stderr, "the release does not tell of the loss: %s\n", redlatch_status_str(status));
        goto cleanup;
    }
    printf("told by the release: %s\n", redlatch_status_str(status));
    done = true;

cleanup:
    redlatch_guard_free(guard);
    redlatch_lock_free(lock);
    redlatch_client_free(client);
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
