/*
 * Calls in random order with random arguments, by several threads that share their handles as far as the header
 * permits: fuzz URL SEED SECONDS THREADS
 *
 * It is a failure if a call returns what it cannot, writes what it must not, or grants more than there is; and whatever
 * the sanitizers find. With one thread the same seed makes the same calls, but for what depends on time.
 */
#include "check.h"

/* What a call may return, as bits. */
#define ONE_OF(status) (UINT32_C(1) << -(status))
#define WORKED ONE_OF(REDLATCH_OK)
#define NULLS ONE_OF(REDLATCH_NULL_POINTER)
#define INVALID ONE_OF(REDLATCH_INVALID_ARGUMENT)
#define RELEASED ONE_OF(REDLATCH_INVALID_STATE)
#define LOST ONE_OF(REDLATCH_LOST)
/* A lease can be over before its grant has arrived. */
#define NOT_GRANTED                                                                                                    \
    (ONE_OF(REDLATCH_BUSY) | ONE_OF(REDLATCH_TIMEOUT) | ONE_OF(REDLATCH_CANCELLED) | ONE_OF(REDLATCH_UNCONFIRMED) |    \
     ONE_OF(REDLATCH_NOT_REPLICATED))

enum { CLIENTS = 3, OPTIONS = 2, LOCKS = 8, SEMAPHORES = 6, GUARDS = 16, CANCELS = 3, INSPECTIONS = 3 };
enum { MAX_THREADS = 16 };
/* Names that are never forced out, so that what is held of them can be counted: the limit of each is its index + 1. */
enum { NAMES = 3, UNCOUNTED = -1 };

/* A handle that all threads use. It is locked for reading to be used, and for writing to be freed. */
struct slot {
    pthread_rwlock_t lock;
    void *handle;
    /* Of clients: opened by our URL alone. Of locks, semaphores and guards: which of the names that are counted. */
    int name;
    bool is_permit;
    uint32_t permits;
};

static struct slot clients[CLIENTS], options[OPTIONS], locks[LOCKS], semaphores[SEMAPHORES], guards[GUARDS],
    cancels[CANCELS], inspections[INSPECTIONS];

static const char *url;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* Under `mutex`: */
static bool over;
static long told_alive, calls, granted, lost_told;
static uint64_t newest[2][NAMES];

/* A thread, or a callback, that makes calls. */
struct fuzzer {
    uint64_t random;
    int depth;
    redlatch_audit *audit;
};

static void step(struct fuzzer *fuzzer);

static uint64_t next(struct fuzzer *fuzzer)
{
    /* xorshift64*, Vigna 2014. */
    fuzzer->random ^= fuzzer->random >> 12;
    fuzzer->random ^= fuzzer->random << 25;
    fuzzer->random ^= fuzzer->random >> 27;
    return fuzzer->random * UINT64_C(2685821657736338717);
}

static uint32_t below(struct fuzzer *fuzzer, uint32_t limit)
{
    return (uint32_t)((next(fuzzer) >> 33) % limit);
}

static bool one_in(struct fuzzer *fuzzer, uint32_t times)
{
    return below(fuzzer, times) == 0;
}

static uint64_t any_u64(struct fuzzer *fuzzer)
{
    static const uint64_t edges[] = {0, 1, 9, 10, 11, 1000, 30000, 3600000, 3600001, UINT64_C(315360000000),
                                     UINT64_C(315360000001), UINT64_C(1) << 62, UINT64_MAX - 1, UINT64_MAX};
    switch (below(fuzzer, 4)) {
    case 0: return edges[below(fuzzer, sizeof edges / sizeof *edges)];
    case 1: return next(fuzzer);
    default: return 10 + below(fuzzer, 3000);
    }
}

static uint32_t any_u32(struct fuzzer *fuzzer)
{
    static const uint32_t edges[] = {0, 1, 2, 1000, 1001, UINT32_MAX / 2, UINT32_MAX};
    return one_in(fuzzer, 2) ? edges[below(fuzzer, sizeof edges / sizeof *edges)] : below(fuzzer, 8);
}

/* For calls that wait, so that there are many of them. */
static uint64_t short_wait(struct fuzzer *fuzzer)
{
    return one_in(fuzzer, 2) ? 0 : below(fuzzer, 8);
}

/* How many replicas are to confirm each grant, and in what time. */
struct confirmation {
    uint32_t count;
    uint64_t timeout_ms;
};

static struct confirmation any_confirmation(struct fuzzer *fuzzer)
{
    /* There are none, and each acquire finds that out only after this time: few are to want it. */
    if (one_in(fuzzer, 8)) return (struct confirmation){1 + any_u32(fuzzer) / 2, 1 + below(fuzzer, 20)};
    if (one_in(fuzzer, 2)) return (struct confirmation){0, any_u64(fuzzer)};
    return (struct confirmation){any_u32(fuzzer), one_in(fuzzer, 2) ? 0 : 3600001 + next(fuzzer) / 2};
}

/* Bytes of which no more may be read than there are, however long they are said to be. */
struct bytes {
    char *at;
    size_t size, len;
    bool refused;
};

static struct bytes any_bytes(struct fuzzer *fuzzer)
{
    static const size_t absurd[] = {REDLATCH_MAX_LENGTH + 1, SIZE_MAX / 2, SIZE_MAX / 2 + 1, SIZE_MAX - 1};
    size_t size = one_in(fuzzer, 2000) ? REDLATCH_MAX_LENGTH : 1 + below(fuzzer, 40);
    struct bytes bytes = {malloc(size), size, size, false};
    CHECK(bytes.at != NULL);
    /* Few different ones, so that they meet again. */
    memset(bytes.at, size > 3 ? 'x' : (int)below(fuzzer, 256), size);
    switch (below(fuzzer, 8)) {
    case 0:
        bytes.len = absurd[below(fuzzer, sizeof absurd / sizeof *absurd)];
        bytes.refused = true;
        break;
    case 1:
        bytes.at[size - 1] = '\0';
        bytes.len = NUL;
        break;
    case 2: bytes.len = below(fuzzer, (uint32_t)size); break;
    case 3:
        free(bytes.at);
        bytes.at = NULL;
        break;
    }
    return bytes;
}

static const char *any_text(struct fuzzer *fuzzer)
{
    static const char *const texts[] = {NULL, "", "text", "\xff", "\xc3\xa9\r\n"};
    return texts[below(fuzzer, sizeof texts / sizeof *texts)];
}

static const char *any_path(struct fuzzer *fuzzer)
{
    static const char *const paths[] = {NULL, "", "/", "/nowhere", "/dev/null", "\xff"};
    return paths[below(fuzzer, sizeof paths / sizeof *paths)];
}

static void is_one_of(int line, const char *call, int32_t status, uint32_t expected)
{
    char how[128];
    CHECK(pthread_mutex_lock(&mutex) == 0);
    calls++;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    if (status > 0 || status < REDLATCH_THREAD || (expected & ONE_OF(status)) == 0) {
        snprintf(how, sizeof how, "returned %" PRId32 " (%s)", status, redlatch_status_str(status));
        fail_at(__FILE__, line, call, how);
    }
    if (status == REDLATCH_OK) return;
    if (redlatch_last_error_message(NULL, 0) == 0) fail_at(__FILE__, line, call, "says nothing");
    if ((status == REDLATCH_LOST) == (redlatch_last_lost_reason() == REDLATCH_LOST_NOT)) {
        fail_at(__FILE__, line, call, "has a wrong reason of a loss");
    }
}

#define CALL(call, expected) is_one_of(__LINE__, #call, status = (call), (expected))

/* A slot of these to use, its handle NULL now and then. NULL if others are about to change it. */
static struct slot *use(struct fuzzer *fuzzer, struct slot *slots, uint32_t count)
{
    struct slot *slot = &slots[below(fuzzer, count)];
    return pthread_rwlock_tryrdlock(&slot->lock) == 0 ? slot : NULL;
}

/* The same, to be used by nobody else meanwhile. */
static struct slot *take(struct fuzzer *fuzzer, struct slot *slots, uint32_t count)
{
    struct slot *slot = &slots[below(fuzzer, count)];
    return pthread_rwlock_trywrlock(&slot->lock) == 0 ? slot : NULL;
}

static void leave(struct slot *slot)
{
    if (slot != NULL) CHECK(pthread_rwlock_unlock(&slot->lock) == 0);
}

static void free_handle(struct slot *slots, void *handle)
{
    if (slots == clients) redlatch_client_free(handle);
    if (slots == options) redlatch_options_free(handle);
    if (slots == locks) redlatch_lock_free(handle);
    if (slots == semaphores) redlatch_semaphore_free(handle);
    if (slots == guards) redlatch_guard_free(handle);
    if (slots == cancels) redlatch_cancel_free(handle);
    if (slots == inspections) redlatch_inspection_free(handle);
}

/* Puts a new handle into a slot, and frees what was there, which may call back and so come to the slot again. */
static void put(struct fuzzer *fuzzer, struct slot *slots, uint32_t count, const struct slot *made)
{
    struct slot *slot = take(fuzzer, slots, count);
    void *before = made->handle;
    if (slot != NULL) {
        before = slot->handle;
        slot->handle = made->handle;
        slot->name = made->name;
        slot->is_permit = made->is_permit;
        slot->permits = made->permits;
        leave(slot);
    }
    free_handle(slots, before);
}

/* What a callback is passed. It belongs to redlatch, and is freed when that says so. */
struct told {
    uint64_t random;
};

static void on_lost(const redlatch_lost *lost, void *user_data)
{
    struct told *told = user_data;
    struct fuzzer fuzzer = {told->random, 1, NULL};
    CHECK(lost->reason >= REDLATCH_LOST_EXPIRED && lost->reason <= REDLATCH_LOST_MAX_HOLD);
    CHECK(lost->fencing_token > 0 && lost->name[lost->name_len] == '\0' && strlen(lost->message) > 0);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    bool is_over = over;
    lost_told++;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    if (!is_over) step(&fuzzer);
    redlatch_audit_free(fuzzer.audit);
}

static void destroy(void *user_data)
{
    free(user_data);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    told_alive--;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static struct told *new_told(struct fuzzer *fuzzer)
{
    struct told *told = malloc(sizeof *told);
    CHECK(told != NULL);
    told->random = next(fuzzer) | 1;
    CHECK(pthread_mutex_lock(&mutex) == 0);
    told_alive++;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return told;
}

static void work(void *user_data)
{
    struct fuzzer *fuzzer = user_data;
    fuzzer->depth++;
    step(fuzzer);
    fuzzer->depth--;
}

/* The newest grant of a name that is over, or held, by now. */
static uint64_t newest_of(const struct slot *slot, bool is_permit)
{
    if (slot->name == UNCOUNTED) return 0;
    CHECK(pthread_mutex_lock(&mutex) == 0);
    uint64_t token = newest[is_permit][slot->name];
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return token;
}

static void is_granted(struct fuzzer *fuzzer, const struct slot *from, bool is_permit, uint64_t before,
                       redlatch_guard *guard)
{
    struct slot made = {.handle = guard, .name = from->name, .is_permit = is_permit, .permits = from->permits};
    uint64_t token = redlatch_guard_fencing_token(guard);
    CHECK(token > before);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    granted++;
    if (from->name != UNCOUNTED && token > newest[is_permit][from->name]) newest[is_permit][from->name] = token;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    put(fuzzer, guards, GUARDS, &made);
}

/* What is granted before a moment, and held after it, was held at that moment. */
static void no_more_is_held_than_there_is(void)
{
    struct slot *seen[GUARDS];
    uint32_t permits[2][NAMES] = {{0}};
    for (int i = 0; i < GUARDS; i++) seen[i] = pthread_rwlock_tryrdlock(&guards[i].lock) == 0 ? &guards[i] : NULL;
    for (int i = 0; i < GUARDS; i++) {
        if (seen[i] == NULL || seen[i]->handle == NULL || seen[i]->name == UNCOUNTED) continue;
        if (redlatch_guard_is_held(seen[i]->handle)) permits[seen[i]->is_permit][seen[i]->name] += seen[i]->permits;
    }
    for (int i = 0; i < GUARDS; i++) leave(seen[i]);
    for (int name = 0; name < NAMES; name++) {
        CHECK(permits[false][name] <= 1);
        CHECK(permits[true][name] <= (uint32_t)name + 1);
    }
}

static void step_with_a_client(struct fuzzer *fuzzer)
{
    static const char *const urls[] = {"",          "x",           "memory://fuzz",   "redis://",
                                       "unix://",   "rediss://h/", "unix:///nowhere", "redis://h:99999/",
                                       "http://h/", "memory://",   "redis://h/?x=1",  "redis://\xff@h/",
                                       "redis-sentinel://h/#m"};
    int32_t status;
    redlatch_client *client = UNTOUCHED;
    redlatch_options *new_options = UNTOUCHED;
    struct slot made = {.name = UNCOUNTED};
    struct slot *slot = use(fuzzer, options, OPTIONS);
    struct bytes bytes = any_bytes(fuzzer);
    uint32_t at_bytes = NULLS | INVALID | (bytes.at != NULL && !bytes.refused ? WORKED : 0);
    redlatch_options *set = slot != NULL ? slot->handle : NULL;
    uint32_t to_set = set != NULL ? WORKED : NULLS;
    switch (below(fuzzer, 18)) {
    case 0:
        CALL(redlatch_client_open(one_in(fuzzer, 9) ? NULL : urls[below(fuzzer, sizeof urls / sizeof *urls)], &client),
             WORKED | INVALID | NULLS | ONE_OF(REDLATCH_UNSUPPORTED));
        /* It may lead nowhere. */
        if (status == REDLATCH_OK) redlatch_client_free(client);
        if (status != REDLATCH_OK) CHECK(client == UNTOUCHED);
        break;
    case 1:
    case 2: {
        /* With time enough for a busy machine, so that no call of the counted ones goes unanswered. */
        redlatch_options *patient = NULL;
        CALL(redlatch_options_new(&patient), WORKED);
        CALL(redlatch_options_set_url(patient, url), WORKED);
        CALL(redlatch_options_set_connect_timeout_ms(patient, 60000), WORKED);
        CALL(redlatch_options_set_command_timeout_ms(patient, 60000), WORKED);
        CALL(redlatch_options_set_poll_interval_ms(patient, 10 + below(fuzzer, 100)), WORKED);
        CALL(redlatch_client_open_with(patient, &client), WORKED);
        redlatch_options_free(patient);
        made = (struct slot){.handle = client, .name = 0};
        put(fuzzer, clients, CLIENTS, &made);
        break;
    }
    case 3:
        CALL(redlatch_client_open_with(set, &client),
             to_set | INVALID | ONE_OF(REDLATCH_UNSUPPORTED));
        if (status == REDLATCH_OK) redlatch_client_free(client);
        if (status != REDLATCH_OK) CHECK(client == UNTOUCHED);
        break;
    case 4:
        leave(slot);
        slot = NULL;
        CALL(redlatch_options_new(&new_options), WORKED);
        made.handle = new_options;
        put(fuzzer, options, OPTIONS, &made);
        break;
    case 5: CALL(redlatch_options_set_prefix(set, bytes.at, bytes.len), at_bytes); break;
    case 6: CALL(redlatch_options_set_lock_prefix(set, bytes.at, bytes.len), at_bytes); break;
    case 7: CALL(redlatch_options_set_pool_size(set, any_u32(fuzzer)), to_set); break;
    case 8: CALL(redlatch_options_set_connect_timeout_ms(set, any_u64(fuzzer)), to_set); break;
    case 9: CALL(redlatch_options_set_command_timeout_ms(set, any_u64(fuzzer)), to_set); break;
    case 10: CALL(redlatch_options_set_poll_interval_ms(set, any_u64(fuzzer)), to_set); break;
    case 11:
        CALL(redlatch_options_set_sentinel_login(set, any_text(fuzzer), any_text(fuzzer)), to_set | NULLS | INVALID);
        break;
    case 16: CALL(redlatch_options_set_max_lease_ms(set, any_u64(fuzzer)), to_set); break;
    case 17: CALL(redlatch_options_set_node_timeout_ms(set, any_u64(fuzzer)), to_set); break;
    case 12:
        CALL(redlatch_options_set_url(set, urls[below(fuzzer, sizeof urls / sizeof *urls)]), to_set | INVALID);
        break;
    case 13: CALL(redlatch_options_set_tls(set, one_in(fuzzer, 2)), to_set); break;
    case 14: CALL(redlatch_options_set_tls_ca_file(set, any_path(fuzzer)), to_set | NULLS | INVALID); break;
    case 15:
        CALL(redlatch_options_set_tls_client_certificate_files(set, any_path(fuzzer), any_path(fuzzer)),
             to_set | NULLS | INVALID);
        break;
    }
    free(bytes.at);
    leave(slot);
}

static void step_that_names(struct fuzzer *fuzzer)
{
    int32_t status;
    struct slot *client = use(fuzzer, clients, CLIENTS);
    struct slot made = {.name = UNCOUNTED, .permits = 1};
    struct bytes bytes = any_bytes(fuzzer);
    bool can = client != NULL && client->handle != NULL && bytes.at != NULL && !bytes.refused;
    uint32_t expected = NULLS | INVALID | (can ? WORKED : 0), limit = any_u32(fuzzer);
    redlatch_client *of = client != NULL ? client->handle : NULL;
    redlatch_lock *lock = UNTOUCHED;
    redlatch_semaphore *semaphore = UNTOUCHED;
    char counted[32];
    int kind = (int)below(fuzzer, 6);
    if (kind < 3 && of != NULL) {
        /* One of those that are counted. Both kinds have the same names. */
        made.name = (int)below(fuzzer, NAMES);
        snprintf(counted, sizeof counted, "fuzz:%ld:%d", (long)getpid(), made.name);
        if (kind == 0) CALL(redlatch_lock_new(of, counted, NUL, &lock), WORKED);
        if (kind == 1) CALL(redlatch_timed_lock_new(of, counted, NUL, 10 + below(fuzzer, 100), &lock), WORKED);
        if (kind == 2) CALL(redlatch_semaphore_new(of, counted, NUL, (uint32_t)made.name + 1, &semaphore), WORKED);
    } else {
        if (kind % 3 == 0) CALL(redlatch_lock_new(of, bytes.at, bytes.len, &lock), expected);
        if (kind % 3 == 1) CALL(redlatch_timed_lock_new(of, bytes.at, bytes.len, any_u64(fuzzer), &lock), expected);
        if (kind % 3 == 2) CALL(redlatch_semaphore_new(of, bytes.at, bytes.len, limit, &semaphore), expected);
    }
    if (status != REDLATCH_OK) CHECK(lock == UNTOUCHED && semaphore == UNTOUCHED);
    bool is_named_at_length = kind >= 3 && bytes.size > 1000;
    free(bytes.at);
    leave(client);
    if (status == REDLATCH_OK && is_named_at_length) {
        /* Every message about it would have all of that, and there would be little time for other calls. */
        if (lock != UNTOUCHED) redlatch_lock_free(lock);
        if (semaphore != UNTOUCHED) redlatch_semaphore_free(semaphore);
    } else if (status == REDLATCH_OK && lock != UNTOUCHED) {
        made.handle = lock;
        put(fuzzer, locks, LOCKS, &made);
    } else if (status == REDLATCH_OK) {
        made.handle = semaphore;
        put(fuzzer, semaphores, SEMAPHORES, &made);
    }
}

/* What cannot be told from outside: whether another thread has acquired it by now. */
#define SETS (handle == NULL ? NULLS : WORKED | INVALID | RELEASED)
#define SETS_REPLICAS (handle == NULL ? NULLS : SETS | ONE_OF(REDLATCH_UNSUPPORTED))
#define ASKS (handle == NULL ? NULLS : WORKED)

static void step_with_a_lock(struct fuzzer *fuzzer)
{
    int32_t status;
    size_t length = 77;
    bool somebody = false;
    struct slot *slot = use(fuzzer, locks, LOCKS), *cancel = use(fuzzer, cancels, CANCELS);
    redlatch_lock *handle = slot != NULL ? slot->handle : NULL;
    redlatch_cancel *switched = cancel != NULL && one_in(fuzzer, 3) ? cancel->handle : NULL;
    redlatch_guard *guard = UNTOUCHED;
    redlatch_inspection *seen = UNTOUCHED;
    struct slot made = {.name = UNCOUNTED};
    struct told *told;
    struct confirmation confirmation;
    switch (below(fuzzer, 17)) {
    case 0: CALL(redlatch_lock_set_lease_ms(handle, any_u64(fuzzer)), SETS); break;
    case 1: CALL(redlatch_lock_set_max_hold_ms(handle, any_u64(fuzzer)), SETS); break;
    case 2: CALL(redlatch_lock_set_fair(handle, one_in(fuzzer, 2)), SETS); break;
    case 3: CALL(redlatch_lock_set_handoffs(handle, any_u32(fuzzer)), SETS); break;
    case 4: CALL(redlatch_lock_set_on_lost_owned(handle, NULL, &length, destroy), NULLS); break;
    case 5:
    case 6:
        told = new_told(fuzzer);
        CALL(redlatch_lock_set_on_lost_owned(handle, on_lost, told, destroy), SETS);
        if (status != REDLATCH_OK) destroy(told);
        break;
    case 7:
        CALL(redlatch_lock_inspect(handle, &seen), ASKS);
        CHECK((seen == UNTOUCHED) == (status != REDLATCH_OK));
        made.handle = seen;
        if (status == REDLATCH_OK) put(fuzzer, inspections, INSPECTIONS, &made);
        break;
    case 8:
        if (slot != NULL && slot->name != UNCOUNTED) break;
        CALL(redlatch_lock_force_release(handle, one_in(fuzzer, 2) ? NULL : &somebody), ASKS);
        break;
    case 9:
        CHECK((redlatch_lock_name(handle, one_in(fuzzer, 2) ? NULL : &length) == NULL) == (handle == NULL));
        break;
    case 10:
        if (fuzzer->depth > 1) break;
        CALL(redlatch_lock_with(handle, short_wait(fuzzer), work, fuzzer), ASKS | LOST | NOT_GRANTED);
        break;
    case 11:
        if (!redlatch_cancel_is_cancelled(switched)) break;
        CALL(redlatch_lock_acquire(handle, any_u64(fuzzer), switched, &guard),
             handle == NULL ? NULLS : ONE_OF(REDLATCH_CANCELLED));
        CHECK(guard == UNTOUCHED);
        break;
    case 12:
        confirmation = any_confirmation(fuzzer);
        CALL(redlatch_lock_set_replicas(handle, confirmation.count, confirmation.timeout_ms), SETS_REPLICAS);
        break;
    default: {
        uint64_t before = slot != NULL ? newest_of(slot, false) : 0, wait = short_wait(fuzzer);
        uint32_t refused = wait == 0 ? ONE_OF(REDLATCH_TIMEOUT) : ONE_OF(REDLATCH_BUSY);
        if (switched == NULL) refused |= ONE_OF(REDLATCH_CANCELLED);
        CALL(redlatch_lock_acquire(handle, wait, switched, &guard),
             handle == NULL ? NULLS : (WORKED | NOT_GRANTED) & ~refused);
        CHECK((guard == UNTOUCHED) == (status != REDLATCH_OK));
        if (status == REDLATCH_OK) is_granted(fuzzer, slot, false, before, guard);
    }
    }
    leave(slot);
    leave(cancel);
}

static void step_with_a_semaphore(struct fuzzer *fuzzer)
{
    int32_t status;
    size_t length = 77;
    uint32_t number = 77;
    bool somebody = false;
    /* How many permits it takes is to be known at each acquire. */
    bool sets_permits = one_in(fuzzer, 16);
    struct slot *slot = sets_permits ? take(fuzzer, semaphores, SEMAPHORES) : use(fuzzer, semaphores, SEMAPHORES);
    struct slot *cancel = use(fuzzer, cancels, CANCELS);
    redlatch_semaphore *handle = slot != NULL ? slot->handle : NULL;
    redlatch_cancel *switched = cancel != NULL && one_in(fuzzer, 3) ? cancel->handle : NULL;
    redlatch_guard *guard = UNTOUCHED;
    redlatch_inspection *seen = UNTOUCHED;
    struct slot made = {.name = UNCOUNTED};
    struct told *told;
    struct confirmation confirmation;
    bool counted = slot != NULL && slot->name != UNCOUNTED;
    uint32_t mismatch = counted ? 0 : ONE_OF(REDLATCH_LIMIT_MISMATCH);
    switch (sets_permits ? 99 : below(fuzzer, 19)) {
    case 99:
        number = any_u32(fuzzer);
        CALL(redlatch_semaphore_set_permits(handle, number), SETS);
        if (status == REDLATCH_OK) slot->permits = number;
        break;
    case 0: CALL(redlatch_semaphore_set_lease_ms(handle, any_u64(fuzzer)), SETS); break;
    case 1: CALL(redlatch_semaphore_set_timed_ms(handle, any_u64(fuzzer)), SETS); break;
    case 2: CALL(redlatch_semaphore_set_max_hold_ms(handle, any_u64(fuzzer)), SETS); break;
    case 3: CALL(redlatch_semaphore_set_fair(handle, one_in(fuzzer, 2)), SETS); break;
    case 4: CALL(redlatch_semaphore_set_handoffs(handle, any_u32(fuzzer)), SETS); break;
    case 5:
    case 6:
        told = new_told(fuzzer);
        CALL(redlatch_semaphore_set_on_lost_owned(handle, on_lost, told, destroy), SETS);
        if (status != REDLATCH_OK) destroy(told);
        break;
    case 7:
        CALL(redlatch_semaphore_inspect(handle, &seen), ASKS | mismatch);
        CHECK((seen == UNTOUCHED) == (status != REDLATCH_OK));
        made.handle = seen;
        if (status == REDLATCH_OK) put(fuzzer, inspections, INSPECTIONS, &made);
        break;
    case 8:
        if (counted) break;
        CALL(redlatch_semaphore_force_release(handle, one_in(fuzzer, 2) ? NULL : &somebody), ASKS | mismatch);
        break;
    case 9:
        if (counted) break;
        CALL(redlatch_semaphore_set_limit(handle, any_u32(fuzzer)), ASKS | mismatch);
        break;
    case 10:
        CALL(redlatch_semaphore_available(handle, &number), ASKS | mismatch);
        if (counted && status == REDLATCH_OK) CHECK(number <= (uint32_t)slot->name + 1);
        break;
    case 11:
        CALL(redlatch_semaphore_holders(handle, &length), ASKS | mismatch);
        if (counted && status == REDLATCH_OK) CHECK(length <= (size_t)slot->name + 1);
        break;
    case 12:
        CHECK((redlatch_semaphore_name(handle, one_in(fuzzer, 2) ? NULL : &length) == NULL) == (handle == NULL));
        break;
    case 13:
        if (fuzzer->depth > 1) break;
        CALL(redlatch_semaphore_with(handle, short_wait(fuzzer), work, fuzzer), ASKS | LOST | NOT_GRANTED | mismatch);
        break;
    case 14:
        confirmation = any_confirmation(fuzzer);
        CALL(redlatch_semaphore_set_replicas(handle, confirmation.count, confirmation.timeout_ms), SETS_REPLICAS);
        break;
    default: {
        uint64_t before = slot != NULL ? newest_of(slot, true) : 0, wait = short_wait(fuzzer);
        uint32_t refused = wait == 0 ? ONE_OF(REDLATCH_TIMEOUT) : ONE_OF(REDLATCH_BUSY);
        if (switched == NULL) refused |= ONE_OF(REDLATCH_CANCELLED);
        CALL(redlatch_semaphore_acquire(handle, wait, switched, &guard),
             handle == NULL ? NULLS : ((WORKED | NOT_GRANTED) & ~refused) | mismatch);
        CHECK((guard == UNTOUCHED) == (status != REDLATCH_OK));
        if (status == REDLATCH_OK) is_granted(fuzzer, slot, true, before, guard);
    }
    }
    leave(slot);
    leave(cancel);
}

static void step_with_a_guard(struct fuzzer *fuzzer)
{
    int32_t status;
    size_t length = 77;
    struct slot *slot = use(fuzzer, guards, GUARDS);
    redlatch_guard *handle = slot != NULL ? slot->handle : NULL;
    uint32_t expected = handle == NULL ? NULLS : WORKED | LOST | RELEASED;
    /* A lease can be over before the answer has arrived. */
    uint32_t unanswered = handle == NULL ? 0 : ONE_OF(REDLATCH_UNCONFIRMED);
    uint64_t wait = below(fuzzer, 10);
    switch (below(fuzzer, 12)) {
    case 0:
        if (redlatch_guard_remaining_ms(handle) > 0) CHECK(handle != NULL);
        break;
    case 1: CHECK((redlatch_guard_fencing_token(handle) == 0) == (handle == NULL)); break;
    case 2:
        CHECK((redlatch_guard_token(handle) == NULL) == (handle == NULL));
        CHECK(handle == NULL || strlen(redlatch_guard_token(handle)) == 32);
        break;
    case 3: CHECK((redlatch_guard_name(handle, one_in(fuzzer, 2) ? NULL : &length) == NULL) == (handle == NULL)); break;
    case 4: CALL(redlatch_guard_check(handle), expected); break;
    case 5:
        CALL(redlatch_guard_check(handle), expected);
        /* At once, however long it might have waited. */
        if (status != REDLATCH_OK) wait = REDLATCH_FOREVER;
        CALL(redlatch_guard_wait_lost_ms(handle, wait), expected);
        break;
    case 6:
        status = redlatch_guard_lost_reason(handle);
        CHECK(status >= REDLATCH_LOST_NOT && status <= REDLATCH_LOST_MAX_HOLD);
        break;
    case 7:
        CALL(redlatch_guard_extend_ms(handle, any_u64(fuzzer)),
             expected | unanswered | (handle != NULL ? INVALID : 0));
        break;
    case 8:
    case 9:
    case 10:
        CALL(redlatch_guard_release(handle), expected | unanswered);
        CHECK(!redlatch_guard_is_held(handle) && redlatch_guard_remaining_ms(handle) == 0);
        if (handle != NULL) CALL(redlatch_guard_check(handle), RELEASED);
        break;
    default: no_more_is_held_than_there_is();
    }
    leave(slot);
}

static void step_with_an_inspection(struct fuzzer *fuzzer)
{
    struct slot *slot = use(fuzzer, inspections, INSPECTIONS);
    redlatch_inspection *handle = slot != NULL ? slot->handle : NULL;
    size_t holders = redlatch_inspection_holders(handle), length = 0;
    size_t index = one_in(fuzzer, 2) ? below(fuzzer, 4) : (size_t)next(fuzzer);
    const char *text = redlatch_inspection_str(handle);
    const char *token = redlatch_inspection_holder_token(handle, index, &length);
    CHECK((text == NULL) == (handle == NULL) && (text == NULL || strlen(text) > 0));
    CHECK((token == NULL) == (index >= holders) && (token == NULL || strlen(token) == length));
    CHECK((redlatch_inspection_holder_permits(handle, index) == 0) == (index >= holders));
    if (index >= holders) CHECK(redlatch_inspection_holder_expiry_ms(handle, index) == 0);
    CHECK(redlatch_inspection_available(handle) <= redlatch_inspection_limit(handle));
    CHECK((redlatch_inspection_declared_limit(handle) == 0) == (handle == NULL));
    if (redlatch_inspection_is_free(handle)) CHECK(holders == 0 && redlatch_inspection_reserved(handle) == 0);
    (void)redlatch_inspection_fencing_token(handle);
    (void)redlatch_inspection_waiters(handle);
    leave(slot);
}

static void step_with_an_audit(struct fuzzer *fuzzer)
{
    int32_t status, type = 77;
    const char *key = UNTOUCHED;
    size_t length = 77;
    redlatch_audit *audit = UNTOUCHED;
    if (one_in(fuzzer, 3)) {
        struct bytes bytes = any_bytes(fuzzer);
        struct slot *client = use(fuzzer, clients, CLIENTS);
        redlatch_client *of = client != NULL ? client->handle : NULL;
        bool can = of != NULL && bytes.at != NULL && !bytes.refused;
        if (one_in(fuzzer, 2)) {
            /* Where something is to be found, if it was put there. */
            CALL(redlatch_client_audit(of, "fuzz:abandoned*", NUL, &audit), of != NULL ? WORKED : NULLS);
        } else {
            CALL(redlatch_client_audit(of, bytes.at, bytes.len, &audit), NULLS | INVALID | (can ? WORKED : 0));
        }
        CHECK((audit == UNTOUCHED) == (status != REDLATCH_OK));
        free(bytes.at);
        leave(client);
        if (status == REDLATCH_OK) {
            redlatch_audit_free(fuzzer->audit);
            fuzzer->audit = audit;
        }
        return;
    }
    CALL(redlatch_audit_next(fuzzer->audit, &key, one_in(fuzzer, 2) ? &length : NULL, one_in(fuzzer, 2) ? &type : NULL),
         fuzzer->audit == NULL ? NULLS : WORKED);
    if (status == REDLATCH_OK && key != NULL) CHECK(length == 77 || strlen(key) <= length);
    if (status != REDLATCH_OK) CHECK(key == UNTOUCHED);
}

static void step_with_a_message(struct fuzzer *fuzzer)
{
    size_t cap = below(fuzzer, 200), full;
    char *buf = malloc(cap > 0 ? cap : 1);
    CHECK(buf != NULL);
    full = redlatch_last_error_message(cap > 0 ? buf : NULL, cap);
    if (cap > 0) CHECK(strlen(buf) <= full && (full >= cap || strlen(buf) == full));
    free(buf);
    CHECK(strlen(redlatch_status_str((int32_t)next(fuzzer))) > 0);
}

static void step_with_a_switch(struct fuzzer *fuzzer)
{
    int32_t status;
    redlatch_cancel *cancel = UNTOUCHED;
    struct slot made = {.name = UNCOUNTED};
    if (one_in(fuzzer, 2)) {
        CALL(redlatch_cancel_new(&cancel), WORKED);
        made.handle = cancel;
        put(fuzzer, cancels, CANCELS, &made);
        return;
    }
    struct slot *slot = use(fuzzer, cancels, CANCELS);
    cancel = slot != NULL ? slot->handle : NULL;
    if (one_in(fuzzer, 4)) CALL(redlatch_cancel_cancel(cancel), cancel == NULL ? NULLS : WORKED);
    if (cancel == NULL) CHECK(!redlatch_cancel_is_cancelled(cancel));
    leave(slot);
}

static void step_that_frees(struct fuzzer *fuzzer)
{
    static const struct slot nothing = {.name = UNCOUNTED};
    switch (below(fuzzer, 12)) {
    case 0: put(fuzzer, clients, CLIENTS, &nothing); break;
    case 1: put(fuzzer, options, OPTIONS, &nothing); break;
    case 2: put(fuzzer, locks, LOCKS, &nothing); break;
    case 3: put(fuzzer, semaphores, SEMAPHORES, &nothing); break;
    case 4: put(fuzzer, cancels, CANCELS, &nothing); break;
    case 5: put(fuzzer, inspections, INSPECTIONS, &nothing); break;
    default: put(fuzzer, guards, GUARDS, &nothing);
    }
}

static void step(struct fuzzer *fuzzer)
{
    switch (below(fuzzer, 32)) {
    case 0: step_with_a_client(fuzzer); break;
    case 1:
    case 2:
    case 3: step_that_names(fuzzer); break;
    case 4: step_with_a_switch(fuzzer); break;
    case 5: step_with_an_audit(fuzzer); break;
    case 6: step_with_a_message(fuzzer); break;
    case 7: step_with_an_inspection(fuzzer); break;
    case 8: step_that_frees(fuzzer); break;
    case 9:
    case 10:
    case 11:
    case 12:
    case 13:
    case 14:
    case 15: step_with_a_semaphore(fuzzer); break;
    case 16:
    case 17:
    case 18:
    case 19:
    case 20:
    case 21:
    case 22:
    case 23: step_with_a_lock(fuzzer); break;
    default: step_with_a_guard(fuzzer);
    }
}

static bool is_over(void)
{
    CHECK(pthread_mutex_lock(&mutex) == 0);
    bool seen = over;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return seen;
}

static void *run(void *with)
{
    struct fuzzer *fuzzer = with;
    while (!is_over()) step(fuzzer);
    redlatch_audit_free(fuzzer->audit);
    return NULL;
}

static void init(struct slot *slots, int count)
{
    for (int i = 0; i < count; i++) {
        CHECK(pthread_rwlock_init(&slots[i].lock, NULL) == 0);
        slots[i].name = UNCOUNTED;
    }
}

static void empty(struct slot *slots, int count)
{
    for (int i = 0; i < count; i++) {
        CHECK(pthread_rwlock_wrlock(&slots[i].lock) == 0);
        void *handle = slots[i].handle;
        slots[i].handle = NULL;
        leave(&slots[i]);
        free_handle(slots, handle);
    }
}

/* Callbacks that are under way may still put something there. */
static bool all_is_given_back(void)
{
    empty(clients, CLIENTS);
    empty(options, OPTIONS);
    empty(locks, LOCKS);
    empty(semaphores, SEMAPHORES);
    empty(guards, GUARDS);
    empty(cancels, CANCELS);
    empty(inspections, INSPECTIONS);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    long alive = told_alive;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return alive == 0 && background_threads() == 0;
}

int main(int argc, char **argv)
{
    CHECK(argc == 5);
    struct fuzzer fuzzers[MAX_THREADS];
    pthread_t threads[MAX_THREADS];
    url = argv[1];
    uint64_t seed = strtoull(argv[2], NULL, 10), end = now_ms() + strtoull(argv[3], NULL, 10) * 1000;
    int count = atoi(argv[4]);
    CHECK(count > 0 && count <= MAX_THREADS);
    init(clients, CLIENTS);
    init(options, OPTIONS);
    init(locks, LOCKS);
    init(semaphores, SEMAPHORES);
    init(guards, GUARDS);
    init(cancels, CANCELS);
    init(inspections, INSPECTIONS);
    for (int i = 0; i < count; i++) {
        /* Spread by an odd factor, and never 0, in which the generator would stay. */
        fuzzers[i] = (struct fuzzer){((seed + (uint64_t)i) * UINT64_C(0x9E3779B97F4A7C15)) | 1, 0, NULL};
        threads[i] = start(run, &fuzzers[i]);
    }
    while (now_ms() < end) pause_ms(20);
    CHECK(pthread_mutex_lock(&mutex) == 0);
    over = true;
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    for (int i = 0; i < count; i++) join(threads[i]);
    UNTIL(all_is_given_back());
    printf("%ld calls, %ld grants, %ld losses told\n", calls, granted, lost_told);
    return 0;
}
