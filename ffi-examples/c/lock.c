/*
 * lock.c: one program at a time changes a record, and a late one can do it no harm.
 *
 * Usage: lock [URL]   The server; else $REDIS_URL, else memory://, which needs none.
 */
#include <redlatch.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* What the lock protects: a row in a database, say. It refuses whoever comes with an older token than it has seen. */
struct record {
    uint64_t newest_token;
    int value;
};

static bool write_record(struct record *record, uint64_t token, int value) {
    if (token < record->newest_token)
        return false;
    record->newest_token = token;
    record->value = value;
    return true;
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

/* The work: three writes, each of them only while the lock is held for certain. */
static int32_t work(redlatch_guard *guard, struct record *record) {
    uint64_t token = redlatch_guard_fencing_token(guard);
    for (int value = 1; value <= 3; value++) {
        int32_t status = redlatch_guard_check(guard); /* no I/O, so it can stand before every write */
        if (status != REDLATCH_OK) {
            print_error("stopping before the next write");
            return status;
        }
        if (!write_record(record, token, value)) {
            fprintf(stderr, "the record was written by a later holder: this one lost the lock\n");
            return REDLATCH_LOST;
        }
        printf("wrote %d\n", value);
    }
    return REDLATCH_OK;
}

int main(int argc, char **argv) {
    struct record record = {0, 0};
    redlatch_client *client = NULL;
    redlatch_lock *lock = NULL;
    redlatch_guard *guard = NULL, *second = NULL;
    bool done = false;

    int32_t status = redlatch_client_open(server_url(argc, argv), &client);
    if (status == REDLATCH_OK)
        status = redlatch_lock_new(client, "example:record:42", REDLATCH_NUL_TERMINATED, &lock);
    if (status == REDLATCH_OK)
        status = redlatch_lock_acquire(lock, 10000, NULL, &guard); /* waits for ten seconds at most */
    if (status != REDLATCH_OK) {
        /* REDLATCH_TIMEOUT: somebody else has it, so try later. Other codes: the server, or the settings. */
        print_error("cannot get the lock");
        goto cleanup;
    }
    printf("held, with fencing token %" PRIu64 "\n", redlatch_guard_fencing_token(guard));

    /* Whoever else asks is refused, here without waiting. In another process it is the same. */
    status = redlatch_lock_acquire(lock, 0, NULL, &second);
    if (status != REDLATCH_BUSY) {
        fprintf(stderr, "a second holder was not refused: %s\n", redlatch_status_str(status));
        goto cleanup;
    }
    printf("a second holder is refused: %s\n", redlatch_status_str(status));

    if (work(guard, &record) != REDLATCH_OK)
        goto cleanup; /* redlatch_guard_free() releases what is still held */

    status = redlatch_guard_release(guard);
    if (status == REDLATCH_OK) {
        printf("released\n");
        done = true;
    } else if (status == REDLATCH_UNCONFIRMED) {
        /* It was held until now, so the work stands; others may get the lock only when the lease ends. */
        print_error("released, but that was not confirmed");
        done = true;
    } else {
        print_error("the work was not protected to its end");
    }

cleanup:
    redlatch_guard_free(second);
    redlatch_guard_free(guard);
    redlatch_lock_free(lock);
    redlatch_client_free(client);
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
