/*
 * Takes a lock and releases it as it is told to, line by line: see tests/capi/exclusion.rs.
 *
 * Usage: holder URL NAME
 *   acquire MS   waits for so long at most, 0: not at all; answers the fencing token, "busy" or "timeout"
 *   release      answers "released"
 */
#include <redlatch.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect(int32_t status) {
    char message[512];
    if (status == REDLATCH_OK)
        return;
    redlatch_last_error_message(message, sizeof message);
    fprintf(stderr, "holder: %s: %s\n", redlatch_status_str(status), message);
    exit(EXIT_FAILURE);
}

int main(int argc, char **argv) {
    char line[64];
    redlatch_client *client = NULL;
    redlatch_lock *lock = NULL;
    redlatch_guard *guard = NULL;
    if (argc != 3)
        return EXIT_FAILURE;
    expect(redlatch_client_open(argv[1], &client));
    expect(redlatch_lock_new(client, argv[2], REDLATCH_NUL_TERMINATED, &lock));
    while (fgets(line, sizeof line, stdin) != NULL) {
        uint64_t wait_ms = 0;
        if (sscanf(line, "acquire %" SCNu64, &wait_ms) == 1) {
            int32_t status = redlatch_lock_acquire(lock, wait_ms, NULL, &guard);
            if (status == REDLATCH_BUSY || status == REDLATCH_TIMEOUT) {
                puts(status == REDLATCH_BUSY ? "busy" : "timeout");
            } else {
                expect(status);
                printf("%" PRIu64 "\n", redlatch_guard_fencing_token(guard));
            }
        } else if (strcmp(line, "release\n") == 0) {
            expect(redlatch_guard_release(guard));
            redlatch_guard_free(guard);
            guard = NULL;
            puts("released");
        } else {
            fprintf(stderr, "holder: no such order: %s", line);
            return EXIT_FAILURE;
        }
        fflush(stdout);
    }
    redlatch_guard_free(guard);
    redlatch_lock_free(lock);
    redlatch_client_free(client);
    return EXIT_SUCCESS;
}
