/*
 * Holds the lock of a name as it is told to: one order a line, and one line in answer to each.
 *
 * Usage: exclusion_worker URL NAME
 *   acquire  waits for a minute at most; the fencing token
 *   try      the fencing token, or "busy"
 *   release  "ok"
 * What fails is answered by its message.
 */
#include <redlatch.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void answer_failure(int32_t status) {
    char message[512];
    redlatch_last_error_message(message, sizeof message);
    printf("%s: %s\n", redlatch_status_str(status), message);
}

static void acquire(const redlatch_lock *lock, uint64_t wait_ms, redlatch_guard **guard) {
    int32_t status = redlatch_lock_acquire(lock, wait_ms, NULL, guard);
    if (status == REDLATCH_OK)
        printf("%" PRIu64 "\n", redlatch_guard_fencing_token(*guard));
    else if (status == REDLATCH_BUSY)
        puts("busy");
    else
        answer_failure(status);
}

static void release(redlatch_guard **guard) {
    int32_t status = redlatch_guard_release(*guard);
    if (status == REDLATCH_OK)
        puts("ok");
    else
        answer_failure(status);
    redlatch_guard_free(*guard);
    *guard = NULL;
}

int main(int argc, char **argv) {
    char order[64];
    redlatch_client *client = NULL;
    redlatch_lock *lock = NULL;
    redlatch_guard *guard = NULL;
    if (argc != 3) {
        fprintf(stderr, "usage: exclusion_worker URL NAME\n");
        return 2;
    }
    int32_t status = redlatch_client_open(argv[1], &client);
    if (status == REDLATCH_OK)
        status = redlatch_lock_new(client, argv[2], REDLATCH_NUL_TERMINATED, &lock);
    if (status != REDLATCH_OK)
        answer_failure(status);
    while (status == REDLATCH_OK && fgets(order, sizeof order, stdin) != NULL) {
        if (strcmp(order, "acquire\n") == 0 && guard == NULL)
            acquire(lock, 60000, &guard);
        else if (strcmp(order, "try\n") == 0 && guard == NULL)
            acquire(lock, 0, &guard);
        else if (strcmp(order, "release\n") == 0)
            release(&guard);
        else
            printf("not understood, or held already: %s", order);
        fflush(stdout);
    }
    redlatch_guard_free(guard);
    redlatch_lock_free(lock);
    redlatch_client_free(client);
    return status == REDLATCH_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
