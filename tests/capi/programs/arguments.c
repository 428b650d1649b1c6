/*
 * What cannot work is refused, by its code and a message, and changes nothing: arguments URL
 */
#include "check.h"

#define BEYOND_ANY_LENGTH (REDLATCH_MAX_LENGTH + 1)
#define TEN_YEARS_MS UINT64_C(315360000000)

static void on_lost(const redlatch_lost *lost, void *user_data)
{
    (void)lost;
    (void)user_data;
}

static void never(void *user_data)
{
    (void)user_data;
    CHECK(!"called");
}

static void null_is_refused_by_setters(redlatch_options *options, redlatch_lock *lock, redlatch_semaphore *semaphore)
{
    REFUSED(redlatch_options_set_url(NULL, "memory://"), REDLATCH_NULL_POINTER, "`options`");
    REFUSED(redlatch_options_set_url(options, NULL), REDLATCH_NULL_POINTER, "`url`");
    REFUSED(redlatch_options_set_prefix(NULL, "p", 1), REDLATCH_NULL_POINTER, "`options`");
    REFUSED(redlatch_options_set_prefix(options, NULL, 0), REDLATCH_NULL_POINTER, "`prefix`");
    REFUSED(redlatch_options_set_lock_prefix(NULL, "p", 1), REDLATCH_NULL_POINTER, "`options`");
    REFUSED(redlatch_options_set_lock_prefix(options, NULL, NUL), REDLATCH_NULL_POINTER, "`lock_prefix`");
    REFUSED(redlatch_options_set_pool_size(NULL, 1), REDLATCH_NULL_POINTER, "`options`");
    REFUSED(redlatch_options_set_connect_timeout_ms(NULL, 1), REDLATCH_NULL_POINTER, "`options`");
    REFUSED(redlatch_options_set_command_timeout_ms(NULL, 1), REDLATCH_NULL_POINTER, "`options`");
    REFUSED(redlatch_options_set_poll_interval_ms(NULL, 10), REDLATCH_NULL_POINTER, "`options`");
    REFUSED(redlatch_options_set_sentinel_login(NULL, "u", "p"), REDLATCH_NULL_POINTER, "`options`");
    REFUSED(redlatch_options_set_sentinel_login(options, NULL, "p"), REDLATCH_NULL_POINTER, "`user`");
    REFUSED(redlatch_options_set_sentinel_login(options, "u", NULL), REDLATCH_NULL_POINTER, "`password`");
    REFUSED(redlatch_options_set_tls(NULL, true), REDLATCH_NULL_POINTER, "`options`");
    REFUSED(redlatch_options_set_tls_ca_file(NULL, "/ca"), REDLATCH_NULL_POINTER, "`options`");
    REFUSED(redlatch_options_set_tls_ca_file(options, NULL), REDLATCH_NULL_POINTER, "`path`");
    REFUSED(redlatch_options_set_tls_client_certificate_files(NULL, "/c", "/k"), REDLATCH_NULL_POINTER, "`options`");
    REFUSED(redlatch_options_set_tls_client_certificate_files(options, NULL, "/k"), REDLATCH_NULL_POINTER,
            "`certificate_path`");
    REFUSED(redlatch_options_set_tls_client_certificate_files(options, "/c", NULL), REDLATCH_NULL_POINTER,
            "`key_path`");
    REFUSED(redlatch_options_set_max_lease_ms(NULL, 10), REDLATCH_NULL_POINTER, "`options`");
    REFUSED(redlatch_options_set_node_timeout_ms(NULL, 1), REDLATCH_NULL_POINTER, "`options`");

    REFUSED(redlatch_lock_set_lease_ms(NULL, 10000), REDLATCH_NULL_POINTER, "`lock`");
    REFUSED(redlatch_lock_set_max_hold_ms(NULL, 10000), REDLATCH_NULL_POINTER, "`lock`");
    REFUSED(redlatch_lock_set_fair(NULL, true), REDLATCH_NULL_POINTER, "`lock`");
    REFUSED(redlatch_lock_set_handoffs(NULL, 1), REDLATCH_NULL_POINTER, "`lock`");
    REFUSED(redlatch_lock_set_replicas(NULL, 1, 1000), REDLATCH_NULL_POINTER, "`lock`");
    REFUSED(redlatch_lock_set_on_lost(NULL, on_lost, NULL), REDLATCH_NULL_POINTER, "`lock`");
    REFUSED(redlatch_lock_set_on_lost(lock, NULL, NULL), REDLATCH_NULL_POINTER, "`callback`");
    REFUSED(redlatch_lock_set_on_lost_owned(NULL, on_lost, NULL, never), REDLATCH_NULL_POINTER, "`lock`");
    REFUSED(redlatch_lock_set_on_lost_owned(lock, NULL, NULL, never), REDLATCH_NULL_POINTER, "`callback`");

    REFUSED(redlatch_semaphore_set_permits(NULL, 1), REDLATCH_NULL_POINTER, "`semaphore`");
    REFUSED(redlatch_semaphore_set_timed_ms(NULL, 10000), REDLATCH_NULL_POINTER, "`semaphore`");
    REFUSED(redlatch_semaphore_set_lease_ms(NULL, 10000), REDLATCH_NULL_POINTER, "`semaphore`");
    REFUSED(redlatch_semaphore_set_max_hold_ms(NULL, 10000), REDLATCH_NULL_POINTER, "`semaphore`");
    REFUSED(redlatch_semaphore_set_fair(NULL, true), REDLATCH_NULL_POINTER, "`semaphore`");
    REFUSED(redlatch_semaphore_set_handoffs(NULL, 1), REDLATCH_NULL_POINTER, "`semaphore`");
    REFUSED(redlatch_semaphore_set_replicas(NULL, 1, 1000), REDLATCH_NULL_POINTER, "`semaphore`");
    REFUSED(redlatch_semaphore_set_on_lost(NULL, on_lost, NULL), REDLATCH_NULL_POINTER, "`semaphore`");
    REFUSED(redlatch_semaphore_set_on_lost(semaphore, NULL, NULL), REDLATCH_NULL_POINTER, "`callback`");
    REFUSED(redlatch_semaphore_set_on_lost_owned(NULL, on_lost, NULL, never), REDLATCH_NULL_POINTER, "`semaphore`");
    REFUSED(redlatch_semaphore_set_on_lost_owned(semaphore, NULL, NULL, never), REDLATCH_NULL_POINTER, "`callback`");
}

static void null_is_refused_for_each_pointer(const char *url, const redlatch_client *client)
{
    redlatch_options *options = NULL;
    redlatch_client *no_client = UNTOUCHED;
    redlatch_lock *lock = lock_of(client, "arguments:null"), *no_lock = UNTOUCHED;
    redlatch_semaphore *semaphore = semaphore_of(client, "arguments:null", 2), *no_semaphore = UNTOUCHED;
    redlatch_guard *no_guard = UNTOUCHED;
    redlatch_inspection *no_inspection = UNTOUCHED;
    redlatch_audit *audit = NULL, *no_audit = UNTOUCHED;
    const char *key = UNTOUCHED;
    bool somebody = true;
    uint32_t number = 77;
    size_t count = 77;
    int32_t type = 77;

    REFUSED(redlatch_options_new(NULL), REDLATCH_NULL_POINTER, "`out`");
    REFUSED(redlatch_cancel_new(NULL), REDLATCH_NULL_POINTER, "`out`");
    IS(redlatch_options_new(&options), REDLATCH_OK);
    null_is_refused_by_setters(options, lock, semaphore);

    REFUSED(redlatch_client_open(NULL, &no_client), REDLATCH_NULL_POINTER, "`url`");
    REFUSED(redlatch_client_open(url, NULL), REDLATCH_NULL_POINTER, "`out`");
    REFUSED(redlatch_client_open_with(NULL, &no_client), REDLATCH_NULL_POINTER, "`options`");
    REFUSED(redlatch_client_open_with(options, NULL), REDLATCH_NULL_POINTER, "`out`");

    REFUSED(redlatch_lock_new(NULL, "n", 1, &no_lock), REDLATCH_NULL_POINTER, "`client`");
    REFUSED(redlatch_lock_new(client, NULL, 1, &no_lock), REDLATCH_NULL_POINTER, "`name`");
    REFUSED(redlatch_lock_new(client, NULL, NUL, &no_lock), REDLATCH_NULL_POINTER, "`name`");
    REFUSED(redlatch_lock_new(client, NULL, 0, &no_lock), REDLATCH_NULL_POINTER, "`name`");
    REFUSED(redlatch_lock_new(client, "n", 1, NULL), REDLATCH_NULL_POINTER, "`out`");
    REFUSED(redlatch_timed_lock_new(NULL, "n", 1, 1000, &no_lock), REDLATCH_NULL_POINTER, "`client`");
    REFUSED(redlatch_timed_lock_new(client, NULL, 1, 1000, &no_lock), REDLATCH_NULL_POINTER, "`name`");
    REFUSED(redlatch_timed_lock_new(client, "n", 1, 1000, NULL), REDLATCH_NULL_POINTER, "`out`");
    REFUSED(redlatch_semaphore_new(NULL, "n", 1, 2, &no_semaphore), REDLATCH_NULL_POINTER, "`client`");
    REFUSED(redlatch_semaphore_new(client, NULL, 1, 2, &no_semaphore), REDLATCH_NULL_POINTER, "`name`");
    REFUSED(redlatch_semaphore_new(client, "n", 1, 2, NULL), REDLATCH_NULL_POINTER, "`out`");

    REFUSED(redlatch_lock_acquire(NULL, 0, NULL, &no_guard), REDLATCH_NULL_POINTER, "`lock`");
    REFUSED(redlatch_lock_acquire(lock, 0, NULL, NULL), REDLATCH_NULL_POINTER, "`out`");
    REFUSED(redlatch_lock_with(NULL, 0, never, NULL), REDLATCH_NULL_POINTER, "`lock`");
    REFUSED(redlatch_lock_with(lock, 0, NULL, NULL), REDLATCH_NULL_POINTER, "`fn`");
    REFUSED(redlatch_lock_inspect(NULL, &no_inspection), REDLATCH_NULL_POINTER, "`lock`");
    REFUSED(redlatch_lock_inspect(lock, NULL), REDLATCH_NULL_POINTER, "`out`");
    REFUSED(redlatch_lock_force_release(NULL, &somebody), REDLATCH_NULL_POINTER, "`lock`");
    SAYS(redlatch_lock_name(NULL, &count) == NULL, "`lock`");

    REFUSED(redlatch_semaphore_acquire(NULL, 0, NULL, &no_guard), REDLATCH_NULL_POINTER, "`semaphore`");
    REFUSED(redlatch_semaphore_acquire(semaphore, 0, NULL, NULL), REDLATCH_NULL_POINTER, "`out`");
    REFUSED(redlatch_semaphore_with(NULL, 0, never, NULL), REDLATCH_NULL_POINTER, "`semaphore`");
    REFUSED(redlatch_semaphore_with(semaphore, 0, NULL, NULL), REDLATCH_NULL_POINTER, "`fn`");
    REFUSED(redlatch_semaphore_set_limit(NULL, 2), REDLATCH_NULL_POINTER, "`semaphore`");
    REFUSED(redlatch_semaphore_available(NULL, &number), REDLATCH_NULL_POINTER, "`semaphore`");
    REFUSED(redlatch_semaphore_available(semaphore, NULL), REDLATCH_NULL_POINTER, "`out`");
    REFUSED(redlatch_semaphore_holders(NULL, &count), REDLATCH_NULL_POINTER, "`semaphore`");
    REFUSED(redlatch_semaphore_holders(semaphore, NULL), REDLATCH_NULL_POINTER, "`out`");
    REFUSED(redlatch_semaphore_inspect(NULL, &no_inspection), REDLATCH_NULL_POINTER, "`semaphore`");
    REFUSED(redlatch_semaphore_inspect(semaphore, NULL), REDLATCH_NULL_POINTER, "`out`");
    REFUSED(redlatch_semaphore_force_release(NULL, &somebody), REDLATCH_NULL_POINTER, "`semaphore`");
    SAYS(redlatch_semaphore_name(NULL, &count) == NULL, "`semaphore`");

    /* Not even a call that was refused for its pointers has settled anything. */
    IS(redlatch_lock_set_handoffs(lock, 1), REDLATCH_OK);
    IS(redlatch_semaphore_set_handoffs(semaphore, 1), REDLATCH_OK);

    SAYS(!redlatch_guard_is_held(NULL), "`guard`");
    SAYS(redlatch_guard_remaining_ms(NULL) == 0, "`guard`");
    SAYS(redlatch_guard_fencing_token(NULL) == 0, "`guard`");
    SAYS(redlatch_guard_token(NULL) == NULL, "`guard`");
    SAYS(redlatch_guard_name(NULL, &count) == NULL, "`guard`");
    SAYS(redlatch_guard_lost_reason(NULL) == REDLATCH_LOST_NOT, "`guard`");
    REFUSED(redlatch_guard_check(NULL), REDLATCH_NULL_POINTER, "`guard`");
    REFUSED(redlatch_guard_wait_lost_ms(NULL, REDLATCH_FOREVER), REDLATCH_NULL_POINTER, "`guard`");
    REFUSED(redlatch_guard_extend_ms(NULL, 10000), REDLATCH_NULL_POINTER, "`guard`");
    REFUSED(redlatch_guard_release(NULL), REDLATCH_NULL_POINTER, "`guard`");

    REFUSED(redlatch_cancel_cancel(NULL), REDLATCH_NULL_POINTER, "`cancel`");
    SAYS(!redlatch_cancel_is_cancelled(NULL), "`cancel`");

    SAYS(redlatch_inspection_str(NULL) == NULL, "`inspection`");
    SAYS(redlatch_inspection_holders(NULL) == 0, "`inspection`");
    SAYS(redlatch_inspection_holder_token(NULL, 0, &count) == NULL, "`inspection`");
    SAYS(redlatch_inspection_holder_expiry_ms(NULL, 0) == 0, "`inspection`");
    SAYS(redlatch_inspection_holder_permits(NULL, 0) == 0, "`inspection`");
    SAYS(redlatch_inspection_fencing_token(NULL) == 0, "`inspection`");
    SAYS(redlatch_inspection_waiters(NULL) == 0, "`inspection`");
    SAYS(redlatch_inspection_reserved(NULL) == 0, "`inspection`");
    SAYS(redlatch_inspection_limit(NULL) == 0, "`inspection`");
    SAYS(redlatch_inspection_declared_limit(NULL) == 0, "`inspection`");
    SAYS(redlatch_inspection_available(NULL) == 0, "`inspection`");
    SAYS(!redlatch_inspection_is_free(NULL), "`inspection`");

    REFUSED(redlatch_client_audit(NULL, "*", NUL, &no_audit), REDLATCH_NULL_POINTER, "`client`");
    REFUSED(redlatch_client_audit(client, NULL, NUL, &no_audit), REDLATCH_NULL_POINTER, "`pattern`");
    REFUSED(redlatch_client_audit(client, "*", NUL, NULL), REDLATCH_NULL_POINTER, "`out`");
    IS(redlatch_client_audit(client, "*", NUL, &audit), REDLATCH_OK);
    REFUSED(redlatch_audit_next(NULL, &key, &count, &type), REDLATCH_NULL_POINTER, "`audit`");
    REFUSED(redlatch_audit_next(audit, NULL, &count, &type), REDLATCH_NULL_POINTER, "`key`");
    redlatch_audit_free(audit);

    CHECK(no_client == UNTOUCHED && no_lock == UNTOUCHED && no_semaphore == UNTOUCHED && no_guard == UNTOUCHED);
    CHECK(no_inspection == UNTOUCHED && no_audit == UNTOUCHED && key == UNTOUCHED);
    CHECK(somebody && number == 77 && count == 77 && type == 77);

    /* What may be NULL. */
    CHECK(redlatch_last_error_message(NULL, 0) > 0);
    IS(redlatch_lock_force_release(lock, NULL), REDLATCH_OK);
    IS(redlatch_semaphore_force_release(semaphore, NULL), REDLATCH_OK);

    redlatch_options_free(NULL);
    redlatch_client_free(NULL);
    redlatch_lock_free(NULL);
    redlatch_semaphore_free(NULL);
    redlatch_guard_free(NULL);
    redlatch_cancel_free(NULL);
    redlatch_inspection_free(NULL);
    redlatch_audit_free(NULL);

    redlatch_options_free(options);
    redlatch_lock_free(lock);
    redlatch_semaphore_free(semaphore);
}

static void lengths_that_cannot_be_are_refused_unread(const redlatch_client *client)
{
    static const size_t absurd[] = {BEYOND_ANY_LENGTH, SIZE_MAX / 2, SIZE_MAX / 2 + 1, SIZE_MAX - 1};
    redlatch_lock *lock = UNTOUCHED;
    redlatch_semaphore *semaphore = UNTOUCHED;
    redlatch_audit *audit = UNTOUCHED;
    redlatch_options *options = NULL;
    redlatch_client *of_options = NULL;
    IS(redlatch_options_new(&options), REDLATCH_OK);
    IS(redlatch_options_set_url(options, "memory://"), REDLATCH_OK);

    for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        size_t len = absurd[i];
        REFUSED(redlatch_lock_new(client, "n", len, &lock), REDLATCH_INVALID_ARGUMENT, "REDLATCH_MAX_LENGTH");
        REFUSED(redlatch_timed_lock_new(client, "n", len, 1000, &lock), REDLATCH_INVALID_ARGUMENT, "`name` is said");
        REFUSED(redlatch_semaphore_new(client, "n", len, 2, &semaphore), REDLATCH_INVALID_ARGUMENT, "`name` is said");
        REFUSED(redlatch_client_audit(client, "*", len, &audit), REDLATCH_INVALID_ARGUMENT, "`pattern` is said");
        REFUSED(redlatch_options_set_prefix(options, "p", len), REDLATCH_INVALID_ARGUMENT, "`prefix` is said");
        REFUSED(redlatch_options_set_lock_prefix(options, "p", len), REDLATCH_INVALID_ARGUMENT, "`lock_prefix` is");
    }
    REFUSED(redlatch_lock_new(client, "n", 0, &lock), REDLATCH_INVALID_ARGUMENT, "name");
    REFUSED(redlatch_lock_new(client, "", NUL, &lock), REDLATCH_INVALID_ARGUMENT, "name");
    REFUSED(redlatch_timed_lock_new(client, "n", 0, 1000, &lock), REDLATCH_INVALID_ARGUMENT, "name");
    REFUSED(redlatch_semaphore_new(client, "n", 0, 2, &semaphore), REDLATCH_INVALID_ARGUMENT, "name");
    REFUSED(redlatch_client_audit(client, "*", 0, &audit), REDLATCH_INVALID_ARGUMENT, "pattern");
    CHECK(lock == UNTOUCHED && semaphore == UNTOUCHED && audit == UNTOUCHED);

    /* Text that is too long is refused as well, and the longest that there may be is not. */
    char *text = malloc(BEYOND_ANY_LENGTH + 1);
    CHECK(text != NULL);
    memset(text, 'n', BEYOND_ANY_LENGTH);
    text[BEYOND_ANY_LENGTH] = '\0';
    REFUSED(redlatch_lock_new(client, text, NUL, &lock), REDLATCH_INVALID_ARGUMENT, "REDLATCH_MAX_LENGTH");
    CHECK(lock == UNTOUCHED);
    REFUSED(redlatch_options_set_url(options, text), REDLATCH_INVALID_ARGUMENT, "REDLATCH_MAX_LENGTH");
    size_t length = 0;
    IS(redlatch_lock_new(client, text, REDLATCH_MAX_LENGTH, &lock), REDLATCH_OK);
    CHECK(strlen(redlatch_lock_name(lock, &length)) == REDLATCH_MAX_LENGTH && length == REDLATCH_MAX_LENGTH);
    redlatch_guard_free(held(lock));
    redlatch_lock_free(lock);
    free(text);

    /* Those that were refused have left the ones before in place; both may be empty. */
    IS(redlatch_options_set_prefix(options, "", 0), REDLATCH_OK);
    IS(redlatch_options_set_lock_prefix(options, "p", 0), REDLATCH_OK);
    IS(redlatch_client_open_with(options, &of_options), REDLATCH_OK);
    redlatch_client_free(of_options);
    redlatch_options_free(options);
}

static void names_are_bytes(const redlatch_client *client)
{
    static const struct {
        const char *bytes;
        size_t len;
    } names[] = {{"a\0b", 3},  {"a\0c", 3}, {"\0", 1}, {"\0\0", 2}, {"\xff\xfe not UTF-8 \x80", 14},
                 {"\r\n", 2}, {"{}", 2}};
    enum { NAMES = sizeof names / sizeof *names };
    redlatch_guard *guards[NAMES];
    /* All of them are names of their own, so all can be held at once. */
    for (size_t i = 0; i < NAMES; i++) {
        redlatch_lock *lock = NULL;
        size_t length = 0;
        IS(redlatch_lock_new(client, names[i].bytes, names[i].len, &lock), REDLATCH_OK);
        IS(redlatch_lock_acquire(lock, 0, NULL, &guards[i]), REDLATCH_OK);
        REFUSED(redlatch_lock_acquire(lock, 0, NULL, &guards[i]), REDLATCH_BUSY, "taken");
        CHECK(memcmp(redlatch_lock_name(lock, &length), names[i].bytes, names[i].len + 1) == 0);
        CHECK(length == names[i].len);
        CHECK(memcmp(redlatch_guard_name(guards[i], &length), names[i].bytes, names[i].len + 1) == 0);
        CHECK(length == names[i].len);
        redlatch_lock_free(lock);
    }
    for (size_t i = 0; i < NAMES; i++) redlatch_guard_free(guards[i]);

    /* Up to its first NUL if no length is given, and the length does count where there is no NUL. */
    redlatch_lock *lock = NULL;
    size_t length = 0;
    IS(redlatch_lock_new(client, "ab\0c", NUL, &lock), REDLATCH_OK);
    CHECK(strcmp(redlatch_lock_name(lock, &length), "ab") == 0 && length == 2);
    redlatch_lock_free(lock);
    static const char unterminated[3] = {'x', 'y', 'z'};
    IS(redlatch_lock_new(client, unterminated, 3, &lock), REDLATCH_OK);
    CHECK(strcmp(redlatch_lock_name(lock, &length), "xyz") == 0 && length == 3);
    redlatch_lock_free(lock);
    redlatch_semaphore *semaphore = NULL;
    IS(redlatch_semaphore_new(client, "s\0\xff", 3, 1, &semaphore), REDLATCH_OK);
    redlatch_guard *permit = permitted(semaphore);
    CHECK(memcmp(redlatch_semaphore_name(semaphore, &length), "s\0\xff", 4) == 0 && length == 3);
    redlatch_guard_free(permit);
    redlatch_semaphore_free(semaphore);
}

static void urls_that_cannot_be_used_are_refused(void)
{
    static const struct {
        const char *url;
        int32_t status;
        const char *words;
    } urls[] = {
        {"", REDLATCH_INVALID_ARGUMENT, ""},
        {"nonsense", REDLATCH_INVALID_ARGUMENT, ""},
        {"\xff://host", REDLATCH_INVALID_ARGUMENT, "UTF-8"},
        {"redis://h\xc3\x28", REDLATCH_INVALID_ARGUMENT, "UTF-8"},
        {"redis://127.0.0.1:99999/", REDLATCH_INVALID_ARGUMENT, ""},
        {"redis://127.0.0.1/notanumber", REDLATCH_INVALID_ARGUMENT, ""},
        {"redis://127.0.0.1/?protocol=none", REDLATCH_INVALID_ARGUMENT, ""},
        {"http://127.0.0.1/", REDLATCH_INVALID_ARGUMENT, "scheme"},
        {"rediss://127.0.0.1:99999/", REDLATCH_INVALID_ARGUMENT, ""},
    };
    redlatch_options *options = NULL;
    IS(redlatch_options_new(&options), REDLATCH_OK);
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        redlatch_client *client = UNTOUCHED;
        REFUSED(redlatch_client_open(urls[i].url, &client), urls[i].status, urls[i].words);
        CHECK(client == UNTOUCHED);
        if (strcmp(urls[i].words, "UTF-8") == 0) {
            REFUSED(redlatch_options_set_url(options, urls[i].url), REDLATCH_INVALID_ARGUMENT, "UTF-8");
            continue;
        }
        IS(redlatch_options_set_url(options, urls[i].url), REDLATCH_OK);
        REFUSED(redlatch_client_open_with(options, &client), urls[i].status, urls[i].words);
        CHECK(client == UNTOUCHED);
    }
    redlatch_options_free(options);
}

/* Files that cannot be read, and TLS where there can be none. */
static void tls_that_cannot_be_is_refused(void)
{
    redlatch_options *options = NULL;
    redlatch_client *client = UNTOUCHED;
    IS(redlatch_options_new(&options), REDLATCH_OK);
    IS(redlatch_options_set_url(options, "memory://"), REDLATCH_OK);
    REFUSED(redlatch_options_set_tls_ca_file(options, "/nowhere\xff"), REDLATCH_INVALID_ARGUMENT, "/nowhere");
    REFUSED(redlatch_options_set_tls_ca_file(options, "/"), REDLATCH_INVALID_ARGUMENT, "`/` cannot be read");
    REFUSED(redlatch_options_set_tls_client_certificate_files(options, "/dev/null", "/nowhere"),
            REDLATCH_INVALID_ARGUMENT, "/nowhere");
    IS(redlatch_options_set_tls(options, true), REDLATCH_OK);
    REFUSED(redlatch_client_open_with(options, &client), REDLATCH_INVALID_ARGUMENT, "memory://");
    CHECK(client == UNTOUCHED);
    IS(redlatch_options_set_tls(options, false), REDLATCH_OK);
    IS(redlatch_client_open_with(options, &client), REDLATCH_OK);
    redlatch_client_free(client);
    redlatch_options_free(options);
}

/* Text that is not UTF-8; what is no URL of sentinels takes no notice of the log-in. */
static void sentinel_logins_that_are_no_text_are_refused(void)
{
    redlatch_options *options = NULL;
    redlatch_client *client = NULL;
    IS(redlatch_options_new(&options), REDLATCH_OK);
    IS(redlatch_options_set_url(options, "memory://"), REDLATCH_OK);
    REFUSED(redlatch_options_set_sentinel_login(options, "\xff", "p"), REDLATCH_INVALID_ARGUMENT, "`user` is not");
    REFUSED(redlatch_options_set_sentinel_login(options, "u", "\xc3("), REDLATCH_INVALID_ARGUMENT, "`password` is not");
    IS(redlatch_options_set_sentinel_login(options, "", ""), REDLATCH_OK);
    IS(redlatch_client_open_with(options, &client), REDLATCH_OK);
    redlatch_client_free(client);
    redlatch_options_free(options);
}

typedef int32_t set_option(redlatch_options *options, uint64_t value);

static int32_t set_pool_size(redlatch_options *options, uint64_t value)
{
    return redlatch_options_set_pool_size(options, (uint32_t)value);
}

static void options_out_of_range_are_refused(void)
{
    static const struct {
        set_option *set;
        uint64_t value;
        int32_t status;
    } settings[] = {
        {redlatch_options_set_connect_timeout_ms, 0, REDLATCH_INVALID_ARGUMENT},
        {redlatch_options_set_connect_timeout_ms, 1, REDLATCH_OK},
        {redlatch_options_set_connect_timeout_ms, 3600000, REDLATCH_OK},
        {redlatch_options_set_connect_timeout_ms, 3600001, REDLATCH_INVALID_ARGUMENT},
        {redlatch_options_set_connect_timeout_ms, UINT64_MAX, REDLATCH_INVALID_ARGUMENT},
        {redlatch_options_set_command_timeout_ms, 0, REDLATCH_INVALID_ARGUMENT},
        {redlatch_options_set_command_timeout_ms, 1, REDLATCH_OK},
        {redlatch_options_set_command_timeout_ms, 3600000, REDLATCH_OK},
        {redlatch_options_set_command_timeout_ms, 3600001, REDLATCH_INVALID_ARGUMENT},
        {redlatch_options_set_command_timeout_ms, UINT64_MAX, REDLATCH_INVALID_ARGUMENT},
        {redlatch_options_set_poll_interval_ms, 0, REDLATCH_INVALID_ARGUMENT},
        {redlatch_options_set_poll_interval_ms, 9, REDLATCH_INVALID_ARGUMENT},
        {redlatch_options_set_poll_interval_ms, 10, REDLATCH_OK},
        {redlatch_options_set_poll_interval_ms, 3600000, REDLATCH_OK},
        {redlatch_options_set_poll_interval_ms, 3600001, REDLATCH_INVALID_ARGUMENT},
        {redlatch_options_set_poll_interval_ms, UINT64_MAX, REDLATCH_INVALID_ARGUMENT},
        {redlatch_options_set_max_lease_ms, 0, REDLATCH_INVALID_ARGUMENT},
        {redlatch_options_set_max_lease_ms, 9, REDLATCH_INVALID_ARGUMENT},
        {redlatch_options_set_max_lease_ms, 10, REDLATCH_OK},
        {redlatch_options_set_max_lease_ms, UINT64_MAX, REDLATCH_INVALID_ARGUMENT},
        {redlatch_options_set_node_timeout_ms, 0, REDLATCH_INVALID_ARGUMENT},
        {redlatch_options_set_node_timeout_ms, 1, REDLATCH_OK},
        {redlatch_options_set_node_timeout_ms, 3600000, REDLATCH_OK},
        {redlatch_options_set_node_timeout_ms, 3600001, REDLATCH_INVALID_ARGUMENT},
        {redlatch_options_set_node_timeout_ms, UINT64_MAX, REDLATCH_INVALID_ARGUMENT},
        {set_pool_size, 0, REDLATCH_INVALID_ARGUMENT},
        {set_pool_size, 1, REDLATCH_OK},
        {set_pool_size, UINT32_MAX, REDLATCH_OK},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        redlatch_options *options = NULL;
        redlatch_client *client = UNTOUCHED;
        IS(redlatch_options_new(&options), REDLATCH_OK);
        IS(redlatch_options_set_url(options, "memory://"), REDLATCH_OK);
        IS(settings[i].set(options, settings[i].value), REDLATCH_OK);
        leave_a_mark();
        int32_t status = redlatch_client_open_with(options, &client);
        if (status != settings[i].status) fprintf(stderr, "setting number %zu:\n", i);
        IS(status, settings[i].status);
        CHECK((client == UNTOUCHED) == (status != REDLATCH_OK));
        if (status == REDLATCH_OK) redlatch_client_free(client);
        redlatch_options_free(options);
    }
}

static void settings_that_cannot_work_leave_the_ones_before(const redlatch_client *client)
{
    static const uint64_t no_leases[] = {0, 1, 9, TEN_YEARS_MS * 2, UINT64_MAX - 1, UINT64_MAX};
    static const struct {
        uint32_t count;
        uint64_t timeout_ms;
    } no_confirmations[] = {{0, 1000}, {1, 0}, {1, 3600001}, {1, UINT64_MAX}, {0, 0}};
    redlatch_lock *lock = lock_of(client, "arguments:settings"), *timed = UNTOUCHED;
    redlatch_semaphore *semaphore = semaphore_of(client, "arguments:settings", 3), *none = UNTOUCHED;
    IS(redlatch_lock_set_lease_ms(lock, 100000), REDLATCH_OK);
    IS(redlatch_semaphore_set_lease_ms(semaphore, 100000), REDLATCH_OK);
    IS(redlatch_semaphore_set_permits(semaphore, 2), REDLATCH_OK);
    for (size_t i = 0; i < sizeof no_leases / sizeof *no_leases; i++) {
        uint64_t lease = no_leases[i];
        REFUSED(redlatch_lock_set_lease_ms(lock, lease), REDLATCH_INVALID_ARGUMENT, "lease");
        REFUSED(redlatch_semaphore_set_lease_ms(semaphore, lease), REDLATCH_INVALID_ARGUMENT, "lease");
        REFUSED(redlatch_semaphore_set_timed_ms(semaphore, lease), REDLATCH_INVALID_ARGUMENT, "lease");
        REFUSED(redlatch_timed_lock_new(client, "n", 1, lease, &timed), REDLATCH_INVALID_ARGUMENT, "lease");
        if (lease < 10) {
            REFUSED(redlatch_lock_set_max_hold_ms(lock, lease), REDLATCH_INVALID_ARGUMENT, "hold");
            REFUSED(redlatch_semaphore_set_max_hold_ms(semaphore, lease), REDLATCH_INVALID_ARGUMENT, "hold");
        }
    }
    for (size_t i = 0; i < sizeof no_confirmations / sizeof *no_confirmations; i++) {
        uint32_t count = no_confirmations[i].count;
        uint64_t timeout_ms = no_confirmations[i].timeout_ms;
        REFUSED(redlatch_lock_set_replicas(lock, count, timeout_ms), REDLATCH_INVALID_ARGUMENT, "replicas");
        REFUSED(redlatch_semaphore_set_replicas(semaphore, count, timeout_ms), REDLATCH_INVALID_ARGUMENT, "replicas");
    }
    REFUSED(redlatch_semaphore_set_permits(semaphore, 0), REDLATCH_INVALID_ARGUMENT, "permits");
    REFUSED(redlatch_semaphore_set_permits(semaphore, 4), REDLATCH_INVALID_ARGUMENT, "permits");
    REFUSED(redlatch_semaphore_set_permits(semaphore, UINT32_MAX), REDLATCH_INVALID_ARGUMENT, "permits");
    REFUSED(redlatch_semaphore_new(client, "n", 1, 0, &none), REDLATCH_INVALID_ARGUMENT, "limit");
    CHECK(timed == UNTOUCHED && none == UNTOUCHED);

    redlatch_guard *guard = held(lock), *permits = permitted(semaphore);
    CHECK(redlatch_guard_remaining_ms(guard) > 60000 && redlatch_guard_remaining_ms(guard) <= 100000);
    CHECK(redlatch_guard_remaining_ms(permits) > 60000 && redlatch_guard_remaining_ms(permits) <= 100000);
    uint32_t left = 77;
    IS(redlatch_semaphore_available(semaphore, &left), REDLATCH_OK);
    CHECK(left == 1);

    for (size_t i = 0; i < sizeof no_leases / sizeof *no_leases; i++) {
        REFUSED(redlatch_guard_extend_ms(guard, no_leases[i]), REDLATCH_INVALID_ARGUMENT, "lease");
    }
    IS(redlatch_guard_check(guard), REDLATCH_OK);

    /* The first acquire has settled them: what comes now is refused, whether or not it could work. */
    REFUSED(redlatch_lock_set_lease_ms(lock, 20000), REDLATCH_INVALID_STATE, "acquired before");
    REFUSED(redlatch_lock_set_lease_ms(lock, 0), REDLATCH_INVALID_STATE, "acquired before");
    REFUSED(redlatch_lock_set_max_hold_ms(lock, 20000), REDLATCH_INVALID_STATE, "acquired before");
    REFUSED(redlatch_lock_set_fair(lock, true), REDLATCH_INVALID_STATE, "acquired before");
    REFUSED(redlatch_lock_set_handoffs(lock, 1), REDLATCH_INVALID_STATE, "acquired before");
    REFUSED(redlatch_lock_set_replicas(lock, 1, 1000), REDLATCH_INVALID_STATE, "acquired before");
    REFUSED(redlatch_lock_set_on_lost(lock, on_lost, NULL), REDLATCH_INVALID_STATE, "acquired before");
    REFUSED(redlatch_lock_set_on_lost_owned(lock, on_lost, NULL, never), REDLATCH_INVALID_STATE, "acquired before");
    REFUSED(redlatch_semaphore_set_permits(semaphore, 1), REDLATCH_INVALID_STATE, "acquired before");
    REFUSED(redlatch_semaphore_set_timed_ms(semaphore, 20000), REDLATCH_INVALID_STATE, "acquired before");
    REFUSED(redlatch_semaphore_set_lease_ms(semaphore, 20000), REDLATCH_INVALID_STATE, "acquired before");
    REFUSED(redlatch_semaphore_set_max_hold_ms(semaphore, 20000), REDLATCH_INVALID_STATE, "acquired before");
    REFUSED(redlatch_semaphore_set_fair(semaphore, true), REDLATCH_INVALID_STATE, "acquired before");
    REFUSED(redlatch_semaphore_set_handoffs(semaphore, 1), REDLATCH_INVALID_STATE, "acquired before");
    REFUSED(redlatch_semaphore_set_replicas(semaphore, 1, 1000), REDLATCH_INVALID_STATE, "acquired before");
    REFUSED(redlatch_semaphore_set_on_lost(semaphore, on_lost, NULL), REDLATCH_INVALID_STATE, "acquired before");
    REFUSED(redlatch_semaphore_set_on_lost_owned(semaphore, on_lost, NULL, never), REDLATCH_INVALID_STATE, "acquired");
    redlatch_guard_free(guard);
    redlatch_guard_free(permits);
    guard = held(lock);
    permits = permitted(semaphore);
    CHECK(redlatch_guard_remaining_ms(guard) > 60000 && redlatch_guard_remaining_ms(guard) <= 100000);
    CHECK(redlatch_guard_remaining_ms(permits) > 60000 && redlatch_guard_remaining_ms(permits) <= 100000);
    IS(redlatch_semaphore_available(semaphore, &left), REDLATCH_OK);
    CHECK(left == 1);
    redlatch_guard_free(guard);
    redlatch_guard_free(permits);
    redlatch_lock_free(lock);
    redlatch_semaphore_free(semaphore);
}

/* What is tiny or huge, and can work, is neither refused nor wrapped. */
static void durations_at_the_edges_work(const redlatch_client *client)
{
    static const uint64_t long_waits[] = {1, (uint64_t)1 << 62, UINT64_MAX - 1, UINT64_MAX};
    redlatch_lock *lock = lock_of(client, "arguments:edges");
    redlatch_guard *guard = NULL;
    IS(redlatch_lock_set_lease_ms(lock, TEN_YEARS_MS), REDLATCH_OK);
    IS(redlatch_lock_set_max_hold_ms(lock, UINT64_MAX), REDLATCH_OK);
    for (size_t i = 0; i < sizeof long_waits / sizeof *long_waits; i++) {
        IS(redlatch_lock_acquire(lock, long_waits[i], NULL, &guard), REDLATCH_OK);
        CHECK(redlatch_guard_remaining_ms(guard) > TEN_YEARS_MS / 100 * 98);
        IS(redlatch_guard_extend_ms(guard, TEN_YEARS_MS), REDLATCH_OK);
        redlatch_guard_free(guard);
    }
    guard = held(lock);
    uint64_t before = now_ms();
    redlatch_guard *second = UNTOUCHED;
    IS(redlatch_lock_acquire(lock, 1, NULL, &second), REDLATCH_TIMEOUT);
    CHECK(now_ms() - before < PATIENCE_MS && second == UNTOUCHED);
    redlatch_guard_free(guard);
    redlatch_lock_free(lock);

    redlatch_lock *timed = timed_lock_of(client, "arguments:shortest", 10);
    guard = NULL;
    /* Ten milliseconds can be over before the answer has arrived: then the grant was given back. */
    int32_t status = redlatch_lock_acquire(timed, 0, NULL, &guard);
    if (status == REDLATCH_OK) IS(redlatch_guard_wait_lost_ms(guard, (uint64_t)1 << 62), REDLATCH_LOST);
    if (status != REDLATCH_OK) IS(status, REDLATCH_UNCONFIRMED);
    redlatch_guard_free(guard);
    redlatch_lock_free(timed);

    redlatch_semaphore *semaphore = semaphore_of(client, "arguments:most", UINT32_MAX);
    guard = permitted(semaphore);
    uint32_t left = 0;
    IS(redlatch_semaphore_available(semaphore, &left), REDLATCH_OK);
    CHECK(left == UINT32_MAX - 1);
    IS(redlatch_semaphore_set_limit(semaphore, UINT32_MAX), REDLATCH_OK);
    redlatch_guard_free(guard);
    redlatch_semaphore_free(semaphore);
    semaphore = semaphore_of(client, "arguments:several", UINT32_MAX);
    IS(redlatch_semaphore_set_permits(semaphore, 1000), REDLATCH_OK);
    REFUSED(redlatch_semaphore_set_permits(semaphore, 1001), REDLATCH_INVALID_ARGUMENT, "permits");
    redlatch_guard_free(permitted(semaphore));
    redlatch_semaphore_free(semaphore);
}

static void numbers_that_are_no_codes_are_called_so(void)
{
    static const int32_t none[] = {1, -19, 1000, -1000, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        CHECK(strcmp(redlatch_status_str(none[i]), "not a status code of this version") == 0);
    }
}

static void there_is_no_holder_beyond_the_last(const redlatch_client *client)
{
    static const size_t beyond[] = {1, 2, SIZE_MAX / 2, SIZE_MAX};
    redlatch_lock *lock = lock_of(client, "arguments:beyond");
    redlatch_guard *guard = held(lock);
    redlatch_inspection *seen = NULL;
    size_t length = 77;
    IS(redlatch_lock_inspect(lock, &seen), REDLATCH_OK);
    CHECK(redlatch_inspection_holders(seen) == 1);
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        SAYS(redlatch_inspection_holder_token(seen, beyond[i], &length) == NULL, "no holder");
        SAYS(redlatch_inspection_holder_expiry_ms(seen, beyond[i]) == 0, "no holder");
        SAYS(redlatch_inspection_holder_permits(seen, beyond[i]) == 0, "no holder");
    }
    CHECK(length == 77);
    redlatch_inspection_free(seen);
    redlatch_guard_free(guard);
    redlatch_lock_free(lock);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    redlatch_client *client = client_of(argv[1]);
    null_is_refused_for_each_pointer(argv[1], client);
    lengths_that_cannot_be_are_refused_unread(client);
    names_are_bytes(client);
    urls_that_cannot_be_used_are_refused();
    sentinel_logins_that_are_no_text_are_refused();
    tls_that_cannot_be_is_refused();
    options_out_of_range_are_refused();
    settings_that_cannot_work_leave_the_ones_before(client);
    durations_at_the_edges_work(client);
    numbers_that_are_no_codes_are_called_so();
    there_is_no_holder_beyond_the_last(client);
    redlatch_client_free(client);
    return 0;
}
