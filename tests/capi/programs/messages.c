/*
 * The message of the last failure: of this thread, whole or cut where asked, and without a password.
 */
#include "check.h"

static size_t message(char *into, size_t cap)
{
    memset(into, 'x', 1024);
    return redlatch_last_error_message(into, cap);
}

static void its_full_length_is_told_whatever_fits(void)
{
    char whole[1024], part[1024];
    IS(redlatch_cancel_new(NULL), REDLATCH_NULL_POINTER);
    size_t length = message(whole, sizeof whole);
    CHECK(length == strlen(whole) && strstr(whole, "`out`") != NULL);
    CHECK(redlatch_last_error_message(NULL, 0) == length);
    for (size_t cap = 0; cap <= length + 2; cap++) {
        CHECK(message(part, cap) == length);
        size_t fits = cap == 0 ? 0 : cap - 1 < length ? cap - 1 : length;
        if (cap > 0) CHECK(memcmp(part, whole, fits) == 0 && part[fits] == '\0');
        /* Nothing is written beyond the room that there is said to be. */
        CHECK(part[cap] == 'x');
    }
    CHECK(message(part, SIZE_MAX) == length && strcmp(part, whole) == 0);
    /* A call that succeeds leaves it as it is, and so does one that fails on another thread. */
    redlatch_client_free(client_of("memory://"));
    CHECK(message(part, sizeof part) == length && strcmp(part, whole) == 0);
}

static void it_is_never_cut_within_a_character(void)
{
    char whole[1024], part[1024];
    redlatch_client *client = client_of("unix:///nowhere/gr\xc3\xb6\xc3\x9f\xe2\x82\xac\xf0\x9f\x94\x92");
    redlatch_lock *lock = lock_of(client, "messages");
    redlatch_guard *none = UNTOUCHED;
    IS(redlatch_lock_acquire(lock, 0, NULL, &none), REDLATCH_CONNECTION);
    redlatch_lock_free(lock);
    redlatch_client_free(client);
    size_t length = message(whole, sizeof whole), cut_earlier = 0;
    CHECK(strstr(whole, "gr\xc3\xb6\xc3\x9f\xe2\x82\xac\xf0\x9f\x94\x92") != NULL);
    for (size_t cap = 1; cap <= length + 1; cap++) {
        CHECK(message(part, cap) == length);
        size_t kept = strlen(part);
        CHECK(kept < cap && memcmp(part, whole, kept) == 0);
        /* What comes next in the whole is the beginning of a character, or its end. */
        CHECK(((unsigned char)whole[kept] & 0xc0) != 0x80);
        CHECK(cap - 1 - kept < 4);
        if (kept < cap - 1) cut_earlier++;
    }
    CHECK(cut_earlier == 1 + 1 + 2 + 3);
}

static void *on_another_thread(void *with)
{
    char mine[1024];
    (void)with;
    CHECK(message(mine, sizeof mine) == 0 && mine[0] == '\0');
    IS(redlatch_options_new(NULL), REDLATCH_NULL_POINTER);
    IS(redlatch_lock_acquire(NULL, 0, NULL, NULL), REDLATCH_NULL_POINTER);
    CHECK(message(mine, sizeof mine) > 0 && strstr(mine, "`lock`") != NULL);
    return NULL;
}

static void each_thread_has_its_own(void)
{
    char before[1024], after[1024];
    IS(redlatch_cancel_cancel(NULL), REDLATCH_NULL_POINTER);
    size_t length = message(before, sizeof before);
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) threads[i] = start(on_another_thread, NULL);
    for (int i = 0; i < 8; i++) join(threads[i]);
    CHECK(message(after, sizeof after) == length && strcmp(before, after) == 0);
}

static void no_password_is_in_it(void)
{
    static const char *const urls[] = {
        "redis://user:s3cret@127.0.0.1:1/",     "redis://:s3cret@127.0.0.1:1/",   "redis://user:s3cret@127.0.0.1:port/",
        "redis://user:s3cret@127.0.0.1:1/x",    "rediss://user:s3cret@127.0.0.1/", "http://user:s3cret@127.0.0.1/",
        "redis://user:s3cret@",                 "redis//user:s3cret@127.0.0.1",   "unix:///nowhere?pass=s3cret",
        "unix:///nowhere?pass=s3cret&unknown=1", "memory://user:s3cret@name",      "redis://user:s3cret@[::1/",
        "redis://h/?password=s3cret",            "redis://user:s3cret%zz@127.0.0.1:1/",
    };
    char said[1024];
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        redlatch_client *client = NULL;
        redlatch_lock *lock = NULL;
        redlatch_guard *guard = NULL;
        leave_a_mark();
        int32_t status = redlatch_client_open(urls[i], &client);
        if (status == REDLATCH_OK) {
            lock = lock_of(client, "messages");
            status = redlatch_lock_acquire(lock, 0, NULL, &guard);
        }
        message(said, sizeof said);
        if (strstr(said, "s3cret") != NULL) fprintf(stderr, "of %s:\n", urls[i]);
        CHECK(strstr(said, "s3cret") == NULL);
        CHECK(status == REDLATCH_OK || strstr(said, "`cancel`") == NULL);
        redlatch_guard_free(guard);
        redlatch_lock_free(lock);
        redlatch_client_free(client);
    }
}

static void it_is_one_line(const char *url)
{
    char said[1024];
    redlatch_client *client = client_of(url);
    redlatch_lock *lock = lock_of(client, "messages:\n\r\t\x1b[1m");
    redlatch_guard *guard = held(lock), *none = NULL;
    IS(redlatch_lock_acquire(lock, 0, NULL, &none), REDLATCH_BUSY);
    size_t length = message(said, sizeof said);
    for (size_t i = 0; i < length; i++) CHECK((unsigned char)said[i] >= ' ');
    redlatch_guard_free(guard);
    redlatch_lock_free(lock);
    redlatch_client_free(client);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    its_full_length_is_told_whatever_fits();
    it_is_never_cut_within_a_character();
    each_thread_has_its_own();
    no_password_is_in_it();
    it_is_one_line(argv[1]);
    return 0;
}
