/*
 * semaphore.c: at most five calls at a time, by all programs together, go to an API.
 *
 * Usage: semaphore [URL]   The server; else $REDIS_URL, else memory://, which needs none.
 */
#include <redlatch.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { LIMIT = 5, CALLERS = 8 };

/* Nobody may declare another limit for this name: REDLATCH_LIMIT_MISMATCH. */
static const char NAME[] = "example:api";

struct caller {
    const redlatch_semaphore *semaphore; /* one for all threads */
    int32_t status;
    redlatch_guard *permit;
};

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

/* The usual way with semaphores: try once, and do something else when it is busy. */
static void *try_to_call(void *user_data) {
    struct caller *caller = user_data;
    caller->status = redlatch_semaphore_acquire(caller->semaphore, 0, NULL, &caller->permit);
    if (caller->status != REDLATCH_OK && caller->status != REDLATCH_BUSY)
        print_error("cannot get a permit"); /* the message is this thread's */
    return NULL;
}

/* Has every caller try in a thread of its own. The permits stay with the callers. */
static bool all_try(const redlatch_semaphore *semaphore, struct caller *callers) {
    pthread_t threads[CALLERS];
    int started = 0, permitted = 0, busy = 0;
    for (; started < CALLERS; started++) {
        callers[started].semaphore = semaphore;
        if (pthread_create(&threads[started], NULL, try_to_call, &callers[started]) != 0) {
            fprintf(stderr, "cannot start a thread\n");
            break;
        }
    }
    for (int i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
        permitted += callers[i].status == REDLATCH_OK;
        busy += callers[i].status == REDLATCH_BUSY;
    }
    printf("%d of %d callers got a permit, %d were told to come later\n", permitted, started, busy);
    return started == CALLERS && permitted + busy == CALLERS;
}

/* What an operator sees. It may be outdated by the time it is printed. */
static int32_t print_state(const redlatch_semaphore *semaphore) {
    uint32_t available = 0;
    size_t holders = 0;
    redlatch_inspection *inspection = NULL;
    int32_t status = redlatch_semaphore_available(semaphore, &available);
    if (status == REDLATCH_OK)
        status = redlatch_semaphore_holders(semaphore, &holders);
    if (status == REDLATCH_OK)
        status = redlatch_semaphore_inspect(semaphore, &inspection);
    if (status == REDLATCH_OK) {
        uint32_t limit = redlatch_inspection_limit(inspection);
        printf("available: %" PRIu32 " of %" PRIu32 ", holders: %zu\n", available, limit, holders);
        printf("inspected: %s\n", redlatch_inspection_str(inspection));
    }
    redlatch_inspection_free(inspection);
    return status;
}

/* A permit that ends by itself unless its holder shows that it is alive: nothing renews it in the background. */
static int32_t call_for_long(const redlatch_client *client) {
    redlatch_semaphore *timed = NULL;
    redlatch_guard *permit = NULL;
    int32_t status = redlatch_semaphore_new(client, NAME, REDLATCH_NUL_TERMINATED, LIMIT, &timed);
    if (status == REDLATCH_OK)
        status = redlatch_semaphore_set_timed_ms(timed, 20000);
    if (status == REDLATCH_OK)
        status = redlatch_semaphore_acquire(timed, 10000, NULL, &permit);
    if (status == REDLATCH_OK) {
        printf("a timed permit, for %" PRIu64 " more ms\n", redlatch_guard_remaining_ms(permit));
        status = redlatch_guard_extend_ms(permit, 60000); /* ends a minute from now: set, not added */
    }
    if (status == REDLATCH_OK) {
        printf("extended, for %" PRIu64 " more ms\n", redlatch_guard_remaining_ms(permit));
        status = redlatch_guard_release(permit);
    }
    redlatch_guard_free(permit);
    redlatch_semaphore_free(timed);
    return status;
}

int main(int argc, char **argv) {
    struct caller callers[CALLERS] = {{NULL, REDLATCH_OK, NULL}};
    redlatch_client *client = NULL;
    redlatch_semaphore *semaphore = NULL;
    bool done = false;

    int32_t status = redlatch_client_open(server_url(argc, argv), &client);
    if (status == REDLATCH_OK)
        status = redlatch_semaphore_new(client, NAME, REDLATCH_NUL_TERMINATED, LIMIT, &semaphore);
    if (status != REDLATCH_OK) {
        print_error("cannot open the semaphore");
        goto cleanup;
    }
    if (!all_try(semaphore, callers))
        goto cleanup;
    status = print_state(semaphore);
    if (status != REDLATCH_OK) {
        print_error("cannot look at the semaphore");
        goto cleanup;
    }

    /* A permit is released by whichever thread has it now, not only by the one that got it. */
    for (int i = 0; i < CALLERS; i++) {
        if (callers[i].permit == NULL)
            continue;
        status = redlatch_guard_release(callers[i].permit);
        if (status != REDLATCH_OK) {
            print_error("a permit was not held to its end");
            goto cleanup;
        }
    }
    status = call_for_long(client);
    if (status != REDLATCH_OK) {
        print_error("the long call failed");
        goto cleanup;
    }
    printf("all released\n");
    done = true;

cleanup:
    for (int i = 0; i < CALLERS; i++)
        redlatch_guard_free(callers[i].permit);
    redlatch_semaphore_free(semaphore);
    redlatch_client_free(client);
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
