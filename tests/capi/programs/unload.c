/*
 * The library is loaded, used and closed while a lock is held: unload LIBRARY URL
 * It says "closed" then, and after a line of input "returning". It is not linked with the library.
 */
#define _POSIX_C_SOURCE 200809L

#include <redlatch.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* What C99 has no conversion for, and POSIX asks for. */
#define LOAD(library, function) (*(void **)(&(function)) = dlsym((library), #function))

int main(int argc, char **argv)
{
    static int32_t (*redlatch_client_open)(const char *, redlatch_client **);
    static int32_t (*redlatch_lock_new)(const redlatch_client *, const char *, size_t, redlatch_lock **);
    static int32_t (*redlatch_lock_set_lease_ms)(redlatch_lock *, uint64_t);
    static int32_t (*redlatch_lock_acquire)(const redlatch_lock *, uint64_t, const redlatch_cancel *,
                                            redlatch_guard **);
    redlatch_client *client = NULL;
    redlatch_lock *lock = NULL;
    redlatch_guard *guard = NULL;
    void *library = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) return 2;
    if (LOAD(library, redlatch_client_open) == NULL || LOAD(library, redlatch_lock_new) == NULL) return 3;
    if (LOAD(library, redlatch_lock_set_lease_ms) == NULL || LOAD(library, redlatch_lock_acquire) == NULL) return 3;
    if (redlatch_client_open(argv[2], &client) != REDLATCH_OK) return 4;
    if (redlatch_lock_new(client, "unload", REDLATCH_NUL_TERMINATED, &lock) != REDLATCH_OK) return 4;
    if (redlatch_lock_set_lease_ms(lock, 3000) != REDLATCH_OK) return 4;
    if (redlatch_lock_acquire(lock, 0, NULL, &guard) != REDLATCH_OK) return 4;
    if (dlclose(library) != 0) return 5;
    puts("closed");
    fflush(stdout);
    if (getchar() != '\n') return 6;
    puts("returning");
    return 0;
}
