/* Holds a lock for a moment, and tells with which library. */
#include <redlatch.h>

#include <stdio.h>

int main(int argc, char **argv) {
    redlatch_client *client = NULL;
    redlatch_lock *lock = NULL;
    redlatch_guard *guard = NULL;
    int32_t status = argc == 3 ? redlatch_client_open(argv[1], &client) : REDLATCH_INVALID_ARGUMENT;
    if (status == REDLATCH_OK) status = redlatch_lock_new(client, argv[2], REDLATCH_NUL_TERMINATED, &lock);
    if (status == REDLATCH_OK) status = redlatch_lock_acquire(lock, 0, NULL, &guard);
    if (status == REDLATCH_OK) status = redlatch_guard_release(guard);
    redlatch_guard_free(guard);
    redlatch_lock_free(lock);
    redlatch_client_free(client);
    printf("%s, header %s %lu, library %s %lu\n", redlatch_status_str(status), REDLATCH_VERSION,
           (unsigned long)REDLATCH_VERSION_NUMBER, redlatch_version_string(), (unsigned long)redlatch_version_number());
    return status == REDLATCH_OK ? 0 : 1;
}
