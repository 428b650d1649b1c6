/*
 * redlatch: distributed locks and counting semaphores on Redis and Valkey.
 *
 * Made by cbindgen from src/ffi: do not edit. What a lock guarantees, and what it cannot, stands in README.md: read
 * that first. The same locks are held by programs in Rust, C, C++ (redlatch.hpp) and Python, and by whoever takes
 * "lock:<name>" with SET NX PX, such as redis-py.
 *
 *     redlatch_client *client = NULL;
 *     redlatch_lock *lock = NULL;
 *     redlatch_guard *guard = NULL;
 *     int32_t status = redlatch_client_open("redis://127.0.0.1/", &client);
 *     if (status == REDLATCH_OK) status = redlatch_lock_new(client, "item:42", REDLATCH_NUL_TERMINATED, &lock);
 *     if (status == REDLATCH_OK) status = redlatch_lock_acquire(lock, 10000, NULL, &guard);
 *     if (status == REDLATCH_OK) {
 *         // Held, and renewed in the background. Before each write: redlatch_guard_check(guard) == REDLATCH_OK
 *         status = redlatch_guard_release(guard);
 *     }
 *     if (status != REDLATCH_OK) {
 *         char message[256];
 *         redlatch_last_error_message(message, sizeof message);
 *         fprintf(stderr, "%s\n", message);
 *     }
 *     redlatch_guard_free(guard);
 *     redlatch_lock_free(lock);
 *     redlatch_client_free(client);
 *
 * STATUS. A call that can fail returns REDLATCH_OK (0) or a negative code, one for each thing that a caller does
 * differently; codes are never used again for anything else, and later versions may add some. Any call may return
 * REDLATCH_PANIC, which none lists. The message of the last failure is kept for each thread:
 * redlatch_last_error_message(). Functions that return something else say what they return when
 * they cannot answer; if a pointer is NULL, or there is no holder of an index, they keep a message as well.
 *
 * RESULTS are written through the last pointers ("out"), and only on success. Those pointers must not be NULL unless it
 * says so.
 *
 * OWNERSHIP. What a function gives through "redlatch_... **out" is a handle of yours: free it once, by the _free() of
 * its type, which does nothing for NULL. Handles may be freed in any order; what was made from another goes on without
 * it. Text that is passed in is copied. Text that a function returns belongs to the handle that was asked, and lives
 * as long as that, unless it says otherwise.
 *
 * UNITS. All times are in milliseconds. A time to wait of 0 never waits, REDLATCH_FOREVER has no end, and no wait is
 * too long. Names are bytes, not text: any but no bytes at all, up to REDLATCH_MAX_LENGTH.
 *
 * BLOCKING. What sends something to the server, or waits, says so, and for how long; nothing else blocks.
 *
 * THREADS. Handles belong to no thread: they may be used and freed on another one than they were made on. But no handle
 * may be freed while another thread uses it.
 *
 *     handle                                               used by several threads at once
 *     redlatch_client, _lock, _semaphore, _multi_lock      yes, all functions but _free
 *     redlatch_guard, _cancel                              yes, all functions but _free
 *     redlatch_options                                     yes, all functions but _free
 *     redlatch_inspection                                  yes, all functions but _free
 *     redlatch_audit                                       no
 *     text that was returned                               yes, for reading
 *
 * A thread that is in a call may be cancelled by pthread_cancel(): that takes effect after the call, of which it is not
 * told. (To end a wait there is redlatch_cancel.) A thread needs 32 KiB of stack.
 *
 * CALLBACKS must return: to leave one by longjmp, a C++ exception or pthread_exit is forbidden, and undefined. They may
 * call anything in here, but they may not free a handle that was given to a call which they are called from.
 *
 * SIGNALS. redlatch's own threads block all signals but those of their own faults (SIGSEGV, SIGBUS, SIGFPE, SIGILL,
 * SIGTRAP, SIGSYS), so the program's handlers run in the program's threads; a program that they start from a callback
 * inherits that. A signal neither ends a wait nor costs its place in the queue: end it by a redlatch_cancel, from
 * another thread. Nothing in here may be called in a signal handler. No signal handler is installed, and none is needed
 * (SIGPIPE is not raised).
 *
 * FORK. In a forked child the parent's handles are inert: guards are not held, calls return REDLATCH_FORKED, and
 * freeing does no I/O, waits for nothing and leaves the parent's locks alone. The child opens a new client, as soon as
 * it likes. (A child is known by its process id.)
 *
 * UNLOADING. From the first client on the library is never unmapped, so that its threads can end at their leisure:
 * dlclose() leaves it where it is.
 */

#ifndef REDLATCH_H
#define REDLATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The version of this header. That of the library which is loaded: redlatch_version_string(). */
#define REDLATCH_VERSION "0.1.0"
#define REDLATCH_VERSION_MAJOR 0
#define REDLATCH_VERSION_MINOR 1
#define REDLATCH_VERSION_PATCH 0
/** The version of this header as one number to compare, as redlatch_version_number() gives it. */
#define REDLATCH_VERSION_NUMBER \
  (REDLATCH_VERSION_MAJOR * 1000000 + REDLATCH_VERSION_MINOR * 1000 + REDLATCH_VERSION_PATCH)

/** In place of the length of a name or pattern: it ends before its first NUL. */
#define REDLATCH_NUL_TERMINATED SIZE_MAX



/**
 * In place of a time to wait: as long as it takes. As a remaining time: without end.
 */
#define REDLATCH_FOREVER UINT64_MAX

/**
 * The most bytes that a name, a prefix or a pattern may have.
 */
#define REDLATCH_MAX_LENGTH 1048576

/**
 * It worked.
 */
#define REDLATCH_OK 0

/**
 * Somebody else has it, or too few permits are free, and the call was not to wait. Do something else, or try later.
 */
#define REDLATCH_BUSY -1

/**
 * The wait ended before it could be had. Try later, or wait longer. The message says if attempts failed meanwhile.
 */
#define REDLATCH_TIMEOUT -2

/**
 * The wait was ended by its redlatch_cancel.
 */
#define REDLATCH_CANCELLED -3

/**
 * The lease ended before its holder released it. Work done since was not protected: undo it, or let the resource
 * refuse it by its fencing token. redlatch_guard_lost_reason() tells why it ended.
 */
#define REDLATCH_LOST -4

/**
 * The server did not confirm the request in time, so its outcome is unknown. What it may have left behind is cleaned
 * up in the background, and ends with the lease in any case.
 */
#define REDLATCH_UNCONFIRMED -5

/**
 * Too few servers of a Redlock granted it, or could be asked. Nothing is held. Try later; a wait goes on trying.
 */
#define REDLATCH_NO_QUORUM -6

/**
 * Too few replicas confirmed the grant, or the renewal, in the time that was set for them. A grant was given back.
 */
#define REDLATCH_NOT_REPLICATED -7

/**
 * Others declare another limit for the semaphore of this name: the message has both. Nothing was granted or changed.
 */
#define REDLATCH_LIMIT_MISMATCH -8

/**
 * The key holds something that no lock or semaphore can be; it was left as it is. Use another name or prefix.
 */
#define REDLATCH_KEY_CONFLICT -9

/**
 * This version cannot do what was asked. Nothing was sent.
 */
#define REDLATCH_UNSUPPORTED -10

/**
 * The server could not be reached, or no connection to it was free in time. The request was not sent.
 */
#define REDLATCH_CONNECTION -11

/**
 * The server answered with an error: it is not ready, or it does not permit the request.
 */
#define REDLATCH_SERVER -12

/**
 * An argument or setting cannot work. Nothing was sent or changed.
 */
#define REDLATCH_INVALID_ARGUMENT -13

/**
 * The handle cannot do this any more: a lock or semaphore is to be set that was used already, or a guard is to be used
 * that was released. Nothing was sent or changed.
 */
#define REDLATCH_INVALID_STATE -14

/**
 * A pointer was NULL that must not be. Nothing was sent or changed.
 */
#define REDLATCH_NULL_POINTER -15

/**
 * The handle was made before a fork(), by the parent. Open a new client in this process.
 */
#define REDLATCH_FORKED -16

/**
 * Something went wrong inside redlatch, which is a bug in it: please report it with the message. The outcome is
 * unknown.
 */
#define REDLATCH_PANIC -17

/**
 * The operating system gave no thread for the background work. Nothing was sent.
 */
#define REDLATCH_THREAD -18

/**
 * The lease was not lost, as far as is known here.
 */
#define REDLATCH_LOST_NOT 0

/**
 * It ran out before it was renewed: the server was away, the process was paused, or the lease is a timed one.
 */
#define REDLATCH_LOST_EXPIRED 1

/**
 * The key, or the permit in it, is gone from the server: deleted, flushed, evicted, forced out, or lost in a restart.
 */
#define REDLATCH_LOST_DELETED 2

/**
 * Another holder's token stands at the key.
 */
#define REDLATCH_LOST_TAKEN 3

/**
 * The grant reached its longest hold.
 */
#define REDLATCH_LOST_MAX_HOLD 4

/**
 * The value is a string: what SET NX leaves, and most libraries use.
 */
#define REDLATCH_TYPE_STRING 1

/**
 * The value is a hash: what reentrant locks use, such as Redisson's.
 */
#define REDLATCH_TYPE_HASH 2

/**
 * A search for locks that nobody will ever free. For one thread at a time.
 */
typedef struct redlatch_audit redlatch_audit;

/**
 * A switch that ends waits, from any thread: pass it to redlatch_lock_acquire() or redlatch_semaphore_acquire().
 *
 * One may end many waits, those that begin later included; there is no way back. Free it when the acquires that it was
 * passed to have returned.
 */
typedef struct redlatch_cancel redlatch_cancel;

/**
 * A way to the server or servers of one URL, shared by the locks and semaphores made from it. Open one for each
 * program.
 *
 * It keeps a pool of connections, opened when needed, and a few background threads. What was made from it keeps it
 * alive: with the last of them, in whatever order they are freed, its threads end, within one command timeout. Each
 * look-up of a host name and each connect to a Unix socket has a short-lived thread, which may stay for as long as the
 * system takes.
 */
typedef struct redlatch_client redlatch_client;

/**
 * A hold of a lock, of permits of a semaphore, or of several locks. It is released by redlatch_guard_release() or, at
 * the latest, by redlatch_guard_free(), from any thread.
 *
 * One of several locks is held as long as all of them are: what is said of the lock is true of the first that is lost,
 * and the name and tokens are those of the first in the order of redlatch_multi_lock_name(). Extending and releasing
 * it is one round trip if they are on one server.
 */
typedef struct redlatch_guard redlatch_guard;

/**
 * What stood on the server for a name when it was looked at. For operators and tests: it may be outdated by the time
 * it is read. It belongs to no client, and is usable in a forked child.
 */
typedef struct redlatch_inspection redlatch_inspection;

/**
 * A named lock that at most one guard holds at a time, whoever asks for it: threads, processes, machines.
 *
 * It is a description, not a hold: many threads may acquire through one. It is not reentrant: a thread that already
 * holds the lock and acquires it again waits for itself. Its settings stand from the first acquire on.
 */
typedef struct redlatch_lock redlatch_lock;

/**
 * Several named locks that are held as one, by one guard. They are the very locks of those names that
 * redlatch_lock_new() gives: who holds several keeps out who wants one of them, and the other way round.
 *
 * Whoever waits takes the locks one after the other, in one order that is the same everywhere, and keeps those that it
 * has meanwhile; so no two can wait for each other, and one that wants many does not starve. It is a description, not
 * a hold: many threads may acquire through one. Its settings stand from the first acquire on.
 */
typedef struct redlatch_multi_lock redlatch_multi_lock;

/**
 * Settings for redlatch_client_open_with(). They may serve for many clients, and be freed before these.
 */
typedef struct redlatch_options redlatch_options;

/**
 * A named number of permits, of which each guard holds one, or several: at most so many at a time, whoever asks:
 * threads, processes, machines.
 *
 * It is a description, not a hold: many threads may acquire through one, and each acquire takes permits of its own.
 * Its settings stand from the first acquire on.
 */
typedef struct redlatch_semaphore redlatch_semaphore;

/**
 * A lease that ended before its holder released it, as an on-lost callback gets it: valid until that returns. Later
 * versions may add fields at its end.
 */
typedef struct {
  /**
   * Why it ended: REDLATCH_LOST_EXPIRED, ...
   */
  int32_t reason;
  /**
   * The fencing token of the grant that was lost.
   */
  uint64_t fencing_token;
  /**
   * The name of the lock or semaphore: `name_len` bytes, followed by a NUL.
   */
  const char *name;
  /**
   * The length of the name.
   */
  size_t name_len;
  /**
   * The loss in words: one line of UTF-8, ended by a NUL.
   */
  const char *message;
} redlatch_lost;

/**
 * Is told that a lease was lost: see redlatch_lock_set_on_lost().
 */
typedef void (*redlatch_lost_fn)(const redlatch_lost *lost, void *user_data);

/**
 * Frees what a callback was to be passed, once it cannot be called any more.
 */
typedef void (*redlatch_destroy_fn)(void *user_data);

/**
 * Runs while a lock or permits are held: see redlatch_lock_with().
 */
typedef void (*redlatch_work_fn)(void *user_data);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

extern int pthread_setcancelstate(int state, int *before);

/**
 * Returns what a status code means, in a few words: "the wait ended before it could be had" for REDLATCH_TIMEOUT. For
 * a number that is no code, it says so. Never NULL; the text is never freed. No I/O.
 */
const char *redlatch_status_str(int32_t status);

/**
 * Returns the version of the library that is loaded, such as "0.1.0". REDLATCH_VERSION is that of the header. The
 * text is never freed.
 */
const char *redlatch_version_string(void);

/**
 * Returns the version of the library that is loaded as one number to compare, made as REDLATCH_VERSION_NUMBER is:
 * major * 1000000 + minor * 1000 + patch.
 *
 * Programs compiled with one version run with later ones of the same major version; while that is 0, with later
 * patches of the same minor version.
 */
uint32_t redlatch_version_number(void);

/**
 * Copies the message of the last call that failed on this thread into `buf`: one line of UTF-8 with the causes and
 * without any password, cut at `cap` - 1 bytes (never within a character) and ended by a NUL. Returns its full length
 * without the NUL, whatever was cut: 0 if no call has failed. A call that succeeds leaves it as it is. It may be gone
 * when the last destructors of a thread run.
 *
 * `buf` may be NULL if `cap` is 0, to learn the length. No I/O.
 */
size_t redlatch_last_error_message(char *buf, size_t cap);

/**
 * Returns why the lease was lost, if the last call that failed on this thread returned REDLATCH_LOST: one of the
 * REDLATCH_LOST_... reasons; else REDLATCH_LOST_NOT. For calls that have no guard to ask, such as
 * redlatch_lock_with(). No I/O.
 */
int32_t redlatch_last_lost_reason(void);

/**
 * Makes settings, all of them at their defaults. No I/O; the settings are checked by redlatch_client_open_with().
 *
 * Errors: REDLATCH_NULL_POINTER.
 */
int32_t redlatch_options_new(redlatch_options **out);

/**
 * Sets the server, as redlatch_client_open() takes it. Defaults to "redis://127.0.0.1/".
 *
 * Errors: REDLATCH_INVALID_ARGUMENT if it is not UTF-8, REDLATCH_NULL_POINTER, REDLATCH_FORKED.
 */
int32_t redlatch_options_set_url(redlatch_options *options, const char *url);

/**
 * Sets what stands before every key, so that programs can share a server. Defaults to nothing.
 *
 * `len` bytes, or up to the first NUL with REDLATCH_NUL_TERMINATED.
 * Errors: REDLATCH_INVALID_ARGUMENT for one that is too long, REDLATCH_NULL_POINTER, REDLATCH_FORKED.
 */
int32_t redlatch_options_set_prefix(redlatch_options *options, const char *prefix, size_t len);

/**
 * Sets what stands between the prefix and a lock's name; may be empty. Defaults to "lock:".
 *
 * `len` bytes, or up to the first NUL with REDLATCH_NUL_TERMINATED.
 * Errors: REDLATCH_INVALID_ARGUMENT for one that is too long, REDLATCH_NULL_POINTER, REDLATCH_FORKED.
 */
int32_t redlatch_options_set_lock_prefix(redlatch_options *options, const char *lock_prefix, size_t len);

/**
 * Sets how many requests may be under way at once, each on a connection of its own; the background work has one more.
 * Connections are opened when needed. At least 1; defaults to 10.
 *
 * Errors: REDLATCH_NULL_POINTER, REDLATCH_FORKED.
 */
int32_t redlatch_options_set_pool_size(redlatch_options *options, uint32_t pool_size);

/**
 * Sets how long opening a connection may take, at most; it counts into the command timeout. In milliseconds, from 1
 * to 3600000 (1 hour); defaults to 1000.
 *
 * Errors: REDLATCH_NULL_POINTER, REDLATCH_FORKED.
 */
int32_t redlatch_options_set_connect_timeout_ms(redlatch_options *options, uint64_t connect_timeout_ms);

/**
 * Sets how long one request may take, at most: waiting for a free connection, opening one and the answer included. In
 * milliseconds, from 1 to 3600000 (1 hour); defaults to 2000.
 *
 * It does not limit how long an acquire waits; it is by how much an acquire can be late when the server does not
 * answer. A redlatch_guard_free() then takes one, a redlatch_guard_release() two.
 * Errors: REDLATCH_NULL_POINTER, REDLATCH_FORKED.
 */
int32_t redlatch_options_set_command_timeout_ms(redlatch_options *options, uint64_t command_timeout_ms);

/**
 * Sets the longest pause between two looks of a waiter that nobody wakes: by when a release of another library is
 * noticed. In milliseconds, from 10 to 3600000 (1 hour); defaults to 1000.
 *
 * It is also how a waiter shows that it is alive: one that was not heard of for two and a half times as long is passed
 * over.
 * Errors: REDLATCH_NULL_POINTER, REDLATCH_FORKED.
 */
int32_t redlatch_options_set_poll_interval_ms(redlatch_options *options, uint64_t poll_interval_ms);

/**
 * Sets how the sentinels of a "redis-sentinel://" URL are logged in to, if they want that; the URL's own log-in is for
 * the master. An empty `user` is the default one. Defaults to none.
 *
 * Errors: REDLATCH_INVALID_ARGUMENT if one of them is not UTF-8, REDLATCH_NULL_POINTER, REDLATCH_FORKED.
 */
int32_t redlatch_options_set_sentinel_login(redlatch_options *options, const char *user, const char *password);

/**
 * Sets whether there is TLS on the connections although the URL does not say so, as "rediss://" does: for
 * "redis-sentinel://" (the sentinels and the master both) and other URLs of several servers. Not for "unix://" and
 * "memory://". Defaults to false.
 *
 * TLS 1.2 and 1.3 are spoken. A server has to prove that it is the host in the URL, be that a name or an IP address,
 * before anything else is sent to it; nothing turns that off. redlatch_client_open_with() gives REDLATCH_UNSUPPORTED
 * where the library was built without TLS.
 * Errors: REDLATCH_NULL_POINTER, REDLATCH_FORKED.
 */
int32_t redlatch_options_set_tls(redlatch_options *options, bool tls);

/**
 * Sets the PEM file of those who may have signed the server's certificate: one or more certificates. It is read at
 * once. Nobody else is trusted then. Defaults to those whom the system trusts.
 *
 * Errors: REDLATCH_INVALID_ARGUMENT for a file that cannot be read (what is in it is checked by
 * redlatch_client_open_with()), REDLATCH_NULL_POINTER, REDLATCH_FORKED.
 */
int32_t redlatch_options_set_tls_ca_file(redlatch_options *options, const char *path);

/**
 * Sets the PEM files of what the server is shown when it wants a client certificate: that (followed by those between
 * it and the authority, if there are any) and its private key, not encrypted; it may be one file for both. They are
 * read at once. Defaults to none.
 *
 * Errors: REDLATCH_INVALID_ARGUMENT for a file that cannot be read (what is in it is checked by
 * redlatch_client_open_with()), REDLATCH_NULL_POINTER, REDLATCH_FORKED.
 */
int32_t redlatch_options_set_tls_client_certificate_files(redlatch_options *options,
                                                          const char *certificate_path,
                                                          const char *key_path);

/**
 * Sets the longest lease on a Redlock ("redlock://…"); other servers have no such limit. In milliseconds, from 10 to
 * 10 years; defaults to 60000.
 *
 * A server that may have lost its memory in a restart votes on no grant until it has been up for so long, or was seen
 * by this client so long ago. So all clients have to set the same, longer leases are refused, and a fresh deployment
 * grants nothing for so long. Locks that set no lease have this one if it is shorter than the default of 30 s.
 * Errors: REDLATCH_NULL_POINTER, REDLATCH_FORKED.
 */
int32_t redlatch_options_set_max_lease_ms(redlatch_options *options, uint64_t max_lease_ms);

/**
 * Sets how long the answer of one server of a Redlock ("redlock://…") may take, opening a connection to it included;
 * for other servers only the command timeout counts. In milliseconds, from 1 to 3600000 (1 hour); defaults to 100.
 *
 * It is what a server that is silent costs those who ask, until it is left out; and again, for one of them, once in a
 * second.
 * Errors: REDLATCH_NULL_POINTER, REDLATCH_FORKED.
 */
int32_t redlatch_options_set_node_timeout_ms(redlatch_options *options, uint64_t node_timeout_ms);

/**
 * Frees settings. Does nothing for NULL.
 */
void redlatch_options_free(redlatch_options *options);

/**
 * Makes a client for the server at `url`, with the default settings. Nothing is sent yet.
 *
 * | URL                                                         | server                                     |
 * |-------------------------------------------------------------|--------------------------------------------|
 * | redis://[user:password@]host[:port][/database]              | Redis or Valkey over TCP; also valkey://   |
 * | rediss://...                                                | the same over TLS; also valkeys://         |
 * | unix:///path/to/socket[?user=...&pass=...&db=...]           | the same on a Unix socket                  |
 * | redis-sentinel://[user:password@]host,...[/database]#master | the master, as Redis Sentinel knows it     |
 * | redis-cluster://[user:password@]host,...                    | Redis Cluster, by some of its nodes        |
 * | redlock://[user:password@]host,...[/database]               | masters, of which a majority grants a lock |
 * | memory://[name]                                             | none: the locks live in this process       |
 *
 * Each of several hosts may have a :port. In a password on a Unix socket, %2B stands for a +.
 *
 * Errors: REDLATCH_INVALID_ARGUMENT for a URL that cannot be used or has a part that would not be acted on,
 * REDLATCH_UNSUPPORTED for a kind of server that this version does not speak to, or for TLS where the library was
 * built without it, REDLATCH_NULL_POINTER.
 */
int32_t redlatch_client_open(const char *url, redlatch_client **out);

/**
 * Makes a client with settings of your own. Nothing is sent yet.
 *
 * Errors: as redlatch_client_open(), and REDLATCH_INVALID_ARGUMENT for a setting that cannot work; REDLATCH_FORKED for
 * settings that the parent made.
 */
int32_t redlatch_client_open_with(const redlatch_options *options, redlatch_client **out);

/**
 * Frees a client. What was made from it goes on working. Does nothing for NULL.
 *
 * Blocks for at most one command timeout if it was the last handle. In a forked child no I/O, and no waiting.
 */
void redlatch_client_free(redlatch_client *client);

/**
 * Names a lock whose lease (30 s unless set) is renewed in the background until it is released. No I/O.
 *
 * The name is `len` bytes, or what stands before the first NUL with REDLATCH_NUL_TERMINATED; any bytes, at least one.
 *
 * Errors: REDLATCH_INVALID_ARGUMENT for a name that cannot be used, REDLATCH_FORKED, REDLATCH_NULL_POINTER.
 */
int32_t redlatch_lock_new(const redlatch_client *client, const char *name, size_t len, redlatch_lock **out);

/**
 * Names a lock with a fixed lease of `lease_ms` milliseconds (10 to 10 years), which is never renewed: extend it by
 * redlatch_guard_extend_ms(). No I/O. For work that must not run on unnoticed. Size the lease to the slow tail of the
 * work, not the median.
 *
 * The name is `len` bytes, or what stands before the first NUL with REDLATCH_NUL_TERMINATED; any bytes, at least one.
 *
 * Errors: REDLATCH_INVALID_ARGUMENT for a name or a lease that cannot be used, REDLATCH_FORKED, REDLATCH_NULL_POINTER.
 */
int32_t redlatch_timed_lock_new(const redlatch_client *client,
                                const char *name,
                                size_t len,
                                uint64_t lease_ms,
                                redlatch_lock **out);

/**
 * Sets how long the lock stays taken after its holder was last heard of: what a crash costs the others. In
 * milliseconds, from 10 ms to 10 years; defaults to 30000, or what redlatch_timed_lock_new() was given.
 *
 * A lease that is renewed should be several times the command timeout, so that a renewal can fail and be made again in
 * time; any lease should be many round trips.
 * Errors: REDLATCH_INVALID_ARGUMENT, REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED,
 * REDLATCH_NULL_POINTER.
 */
int32_t redlatch_lock_set_lease_ms(redlatch_lock *lock, uint64_t lease_ms);

/**
 * Sets how long one grant may last in all: then it is lost, with REDLATCH_LOST_MAX_HOLD. Leases are asked for, and
 * renewed, so that it ends by then. In milliseconds, at least 10; defaults to no limit.
 *
 * Errors: REDLATCH_INVALID_ARGUMENT, REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED,
 * REDLATCH_NULL_POINTER.
 */
int32_t redlatch_lock_set_max_hold_ms(redlatch_lock *lock, uint64_t max_hold_ms);

/**
 * Sets whether those who wait are served strictly in the order in which they came: all threads of all processes, each
 * with a place of its own at the server. Defaults to false.
 *
 * The order holds among those who set it. Each grant costs round trips, where threads of one client otherwise hand the
 * lock on to each other. A waiter that was killed or stopped holds up those behind it for two and a half poll
 * intervals at most: 2.5 s unless set.
 * Errors: REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED, REDLATCH_NULL_POINTER.
 */
int32_t redlatch_lock_set_fair(redlatch_lock *lock, bool fair);

/**
 * Sets how often in a row the lock may be handed on to another thread of this client that waits for it without a round
 * trip; then another client gets it if one waits. 0 is never; defaults to 64.
 *
 * Each hand-over is a grant of its own, with a fencing token of its own. However many there may be, after 20 ms others
 * get their turn. Only renewed ones that are not fair are handed on, to those who wait with equal settings.
 * Errors: REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED, REDLATCH_NULL_POINTER.
 */
int32_t redlatch_lock_set_handoffs(redlatch_lock *lock, uint32_t handoffs);

/**
 * Sets how many replicas of the server have to confirm each grant, renewal and extension, and for how long that is
 * waited for: at least 1 replica, and `timeout_ms` milliseconds, from 1 to 3600000 (1 hour). Defaults to none.
 *
 * It makes it unlikely that a failover loses the lock, and not impossible: fencing tokens are what helps then. A grant
 * that too few confirm is given back, and the acquire ends with REDLATCH_NOT_REPLICATED, whatever it would still have
 * waited; a renewal is made again until the lease ends. One round trip more, which counts into the lease; the time
 * that replicas take comes on top of the command timeout. A lock with this set is not handed on.
 * Errors: REDLATCH_INVALID_ARGUMENT, REDLATCH_UNSUPPORTED where there are no replicas that could confirm it
 * ("memory://", Redlock), REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED, REDLATCH_NULL_POINTER.
 */
int32_t redlatch_lock_set_replicas(redlatch_lock *lock, uint32_t count, uint64_t timeout_ms);

/**
 * Sets a function that is told when a lease is lost: when it ends here, which is before the server frees the lock, or
 * as soon as a request finds the lock gone. Once for each lost lease.
 *
 * It is called on a thread of the client's own, with all signals blocked but those of the thread's own faults; the
 * client's callbacks run one after the other. So it may come late while an earlier one is running, or after the
 * process was paused; work that must stop in time asks redlatch_guard_check() before each write. It may call anything
 * of redlatch, and must return: no longjmp, no C++ exception and no pthread_exit may leave it.
 *
 * `user_data` is passed on to it, and must be fit for that until the lock and all its guards were freed, and a
 * callback that is under way then has returned: with redlatch_lock_set_on_lost_owned() you are told when.
 *
 * Errors: REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED, REDLATCH_NULL_POINTER for `callback`.
 */
int32_t redlatch_lock_set_on_lost(redlatch_lock *lock, redlatch_lost_fn callback, void *user_data);

/**
 * The same as redlatch_lock_set_on_lost() for a `user_data` that belongs to redlatch from now on: `destroy` is called
 * with it, on any thread, once the callback cannot be called any more. (Not in a forked child, and not if this call
 * fails.)
 *
 * Errors: those of redlatch_lock_set_on_lost(). `destroy` may be NULL.
 */
int32_t redlatch_lock_set_on_lost_owned(redlatch_lock *lock,
                                        redlatch_lost_fn callback,
                                        void *user_data,
                                        redlatch_destroy_fn destroy);

/**
 * Acquires the lock, waiting for at most `wait_ms` milliseconds: 0 tries once and never waits, REDLATCH_FOREVER waits
 * as long as it takes. `cancel` ends the wait; it may be NULL. The guard has to be freed by redlatch_guard_free().
 *
 * A wait ends at most one command timeout after `wait_ms`. The lease counts from before the request that was granted,
 * however long the wait was.
 *
 * Errors:
 * - REDLATCH_BUSY if somebody holds it, with a `wait_ms` of 0; REDLATCH_TIMEOUT with any other.
 * - REDLATCH_CANCELLED when `cancel` was.
 * - REDLATCH_CONNECTION at once if the server cannot be reached. Once it has answered, or taken a request and been
 *   silent, outages are ridden out until the wait is over.
 * - REDLATCH_UNCONFIRMED if the attempt of a `wait_ms` of 0 got no answer, if the server hung up on the first attempts
 *   of a wait, or if grants take longer to arrive than their lease holds.
 * - REDLATCH_SERVER if the server refuses the request for good, or with a `wait_ms` of 0 for now.
 * - REDLATCH_NO_QUORUM with a `wait_ms` of 0 if too few servers of a Redlock grant it, or can be asked.
 * - REDLATCH_NOT_REPLICATED if too few replicas confirm the grant: see redlatch_lock_set_replicas().
 * - REDLATCH_KEY_CONFLICT if the key, or one of its helper keys, holds something else.
 * - REDLATCH_THREAD, REDLATCH_FORKED, REDLATCH_NULL_POINTER: nothing was sent.
 */
int32_t redlatch_lock_acquire(const redlatch_lock *lock,
                              uint64_t wait_ms,
                              const redlatch_cancel *cancel,
                              redlatch_guard **out);

/**
 * Calls `fn` with `user_data` while the lock is held, on this thread, after waiting as redlatch_lock_acquire() does.
 *
 * `fn` must return: no longjmp, no C++ exception and no pthread_exit may leave it.
 *
 * Errors: REDLATCH_LOST if the lease was lost before `fn` ended: it did run, and redlatch_last_lost_reason() tells why
 * it was lost. Otherwise the errors of redlatch_lock_acquire(), and `fn` did not run. A release that the server does
 * not confirm is no error: it is completed in the background.
 */
int32_t redlatch_lock_with(const redlatch_lock *lock, uint64_t wait_ms, redlatch_work_fn fn, void *user_data);

/**
 * Looks at what stands on the server for this name. One round trip, at most one command timeout; waits for nobody and
 * changes nothing. What was seen has to be freed by redlatch_inspection_free().
 *
 * Errors: REDLATCH_CONNECTION, REDLATCH_UNCONFIRMED or REDLATCH_SERVER if the server cannot be reached, does not
 * answer, or refuses; REDLATCH_KEY_CONFLICT if the key holds something else; REDLATCH_FORKED, REDLATCH_NULL_POINTER.
 */
int32_t redlatch_lock_inspect(const redlatch_lock *lock, redlatch_inspection **out);

/**
 * Throws out whoever holds the lock, of redlatch or not. `held` gets whether somebody did; it may be NULL. Two round
 * trips, at most three command timeouts.
 *
 * For operators, when the holder is known to be gone. It breaks the first guarantee: a holder that lives is told at
 * its next renewal, extension or release, and believes until then that it holds the lock.
 *
 * Errors: those of redlatch_lock_inspect(). After REDLATCH_UNCONFIRMED a holder may have been thrown out: do it again.
 */
int32_t redlatch_lock_force_release(const redlatch_lock *lock, bool *held);

/**
 * Returns the name, which may have NULs inside, followed by a NUL. It belongs to the lock. Its length is written to
 * `len` unless that is NULL. NULL for NULL. No I/O.
 */
const char *redlatch_lock_name(const redlatch_lock *lock, size_t *len);

/**
 * Frees a lock. Guards acquired through it go on holding. Does nothing for NULL.
 *
 * Blocks for at most one command timeout if it was the last handle of its client. In a forked child no I/O, and no
 * waiting.
 */
void redlatch_lock_free(redlatch_lock *lock);

/**
 * Names a semaphore of `limit` permits, whose leases (30 s unless set) are renewed in the background until they are
 * released, unless they are timed. No I/O.
 *
 * All programs declare the same limit, at least 1: it is kept on the server from the first grant, or change, on, until
 * two days after the last lease has ended, and whoever comes with another gets REDLATCH_LIMIT_MISMATCH.
 * redlatch_semaphore_set_limit() changes the number of permits for all.
 *
 * The name is `len` bytes, or what stands before the first NUL with REDLATCH_NUL_TERMINATED; any bytes, at least one.
 *
 * Errors: REDLATCH_INVALID_ARGUMENT for a name or a limit that cannot be used, REDLATCH_FORKED, REDLATCH_NULL_POINTER.
 */
int32_t redlatch_semaphore_new(const redlatch_client *client,
                               const char *name,
                               size_t len,
                               uint32_t limit,
                               redlatch_semaphore **out);

/**
 * Sets how many permits one acquire takes: all of them at once, or none. From 1 to the declared limit, and at most
 * 1000; defaults to 1.
 *
 * Those who want several are passed over while fewer are free, and may starve among those who want one; not if all are
 * fair.
 * Errors: REDLATCH_INVALID_ARGUMENT, REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED,
 * REDLATCH_NULL_POINTER.
 */
int32_t redlatch_semaphore_set_permits(redlatch_semaphore *semaphore, uint32_t permits);

/**
 * Makes the lease a fixed one of `lease_ms` milliseconds (10 to 10 years), which is never renewed: extend it by
 * redlatch_guard_extend_ms(), to show that the holder is alive. For work that must not run on unnoticed. Without it
 * the lease is renewed in the background until the permit is released.
 *
 * Errors: REDLATCH_INVALID_ARGUMENT, REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED,
 * REDLATCH_NULL_POINTER.
 */
int32_t redlatch_semaphore_set_timed_ms(redlatch_semaphore *semaphore, uint64_t lease_ms);

/**
 * Sets how long a permit stays taken after its holder was last heard of: what a crash costs the others. After
 * redlatch_semaphore_set_timed_ms() it sets the fixed length. In milliseconds, from 10 ms to 10 years; defaults to
 * 30000. Each holder's is its own: a short one never shortens another's.
 *
 * A lease that is renewed should be several times the command timeout, so that a renewal can fail and be made again in
 * time; any lease should be many round trips.
 * Errors: REDLATCH_INVALID_ARGUMENT, REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED,
 * REDLATCH_NULL_POINTER.
 */
int32_t redlatch_semaphore_set_lease_ms(redlatch_semaphore *semaphore, uint64_t lease_ms);

/**
 * Sets how long one grant may last in all: then it is lost, with REDLATCH_LOST_MAX_HOLD. Leases are asked for, and
 * renewed, so that it ends by then. In milliseconds, at least 10; defaults to no limit.
 *
 * Errors: REDLATCH_INVALID_ARGUMENT, REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED,
 * REDLATCH_NULL_POINTER.
 */
int32_t redlatch_semaphore_set_max_hold_ms(redlatch_semaphore *semaphore, uint64_t max_hold_ms);

/**
 * Sets whether those who wait are served strictly in the order in which they came: all threads of all processes, each
 * with a place of its own at the server. Defaults to false.
 *
 * One that wants several permits is then waited for: until they are free, nobody that came later gets one. The order
 * holds among those who set it. A waiter that was killed or stopped holds up those behind it for two and a half poll
 * intervals at most: 2.5 s unless set.
 * Errors: REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED, REDLATCH_NULL_POINTER.
 */
int32_t redlatch_semaphore_set_fair(redlatch_semaphore *semaphore, bool fair);

/**
 * Sets how often in a row a permit may be handed on to another thread of this client that waits for it although other
 * clients wait as well; then another client gets it if one waits. 0 is never; defaults to 64.
 *
 * Each hand-over is a grant of its own, with a fencing token of its own. However many there may be, after 20 ms others
 * get their turn. Only renewed ones that are not fair are handed on, to those who wait with equal settings.
 * Errors: REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED, REDLATCH_NULL_POINTER.
 */
int32_t redlatch_semaphore_set_handoffs(redlatch_semaphore *semaphore, uint32_t handoffs);

/**
 * Sets how many replicas of the server have to confirm each grant, renewal and extension, and for how long that is
 * waited for: at least 1 replica, and `timeout_ms` milliseconds, from 1 to 3600000 (1 hour). Defaults to none.
 *
 * It makes it unlikely that a failover loses the permits, and not impossible: fencing tokens are what helps then. A
 * grant that too few confirm is given back, and the acquire ends with REDLATCH_NOT_REPLICATED, whatever it would still
 * have waited; a renewal is made again until the lease ends. One round trip more, which counts into the lease; the
 * time that replicas take comes on top of the command timeout. A permit with this set is not handed on.
 * Errors: REDLATCH_INVALID_ARGUMENT, REDLATCH_UNSUPPORTED where there are no replicas that could confirm it
 * ("memory://", Redlock), REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED, REDLATCH_NULL_POINTER.
 */
int32_t redlatch_semaphore_set_replicas(redlatch_semaphore *semaphore, uint32_t count, uint64_t timeout_ms);

/**
 * Sets a function that is told when a lease is lost: when it ends here, which is before the server frees the permit,
 * or as soon as a request finds it gone. Once for each lost lease, and in all as redlatch_lock_set_on_lost().
 *
 * Errors: REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED, REDLATCH_NULL_POINTER for `callback`.
 */
int32_t redlatch_semaphore_set_on_lost(redlatch_semaphore *semaphore, redlatch_lost_fn callback, void *user_data);

/**
 * The same as redlatch_semaphore_set_on_lost() for a `user_data` that belongs to redlatch from now on: `destroy` is
 * called with it, on any thread, once the callback cannot be called any more. (Not in a forked child, and not if this
 * call fails.)
 *
 * Errors: those of redlatch_semaphore_set_on_lost(). `destroy` may be NULL.
 */
int32_t redlatch_semaphore_set_on_lost_owned(redlatch_semaphore *semaphore,
                                             redlatch_lost_fn callback,
                                             void *user_data,
                                             redlatch_destroy_fn destroy);

/**
 * Acquires its permits, waiting for at most `wait_ms` milliseconds: 0 tries once and never waits, REDLATCH_FOREVER
 * waits as long as it takes. `cancel` ends the wait; it may be NULL. The guard has to be freed by
 * redlatch_guard_free().
 *
 * A wait ends at most one command timeout after `wait_ms`. The lease counts from before the request that was granted,
 * however long the wait was.
 *
 * Errors:
 * - REDLATCH_BUSY if too few are free, with a `wait_ms` of 0; REDLATCH_TIMEOUT with any other.
 * - REDLATCH_CANCELLED when `cancel` was.
 * - REDLATCH_CONNECTION at once if the server cannot be reached. Once it has answered, or taken a request and been
 *   silent, outages are ridden out until the wait is over.
 * - REDLATCH_UNCONFIRMED if the attempt of a `wait_ms` of 0 got no answer, if the server hung up on the first attempts
 *   of a wait, or if grants take longer to arrive than their lease holds.
 * - REDLATCH_SERVER if the server refuses the request for good, or with a `wait_ms` of 0 for now.
 * - REDLATCH_NOT_REPLICATED if too few replicas confirm the grant: see redlatch_semaphore_set_replicas().
 * - REDLATCH_KEY_CONFLICT if the key, or one of its helper keys, holds something else.
 * - REDLATCH_LIMIT_MISMATCH if others declare another limit for this name.
 * - REDLATCH_THREAD, REDLATCH_FORKED, REDLATCH_NULL_POINTER: nothing was sent.
 */
int32_t redlatch_semaphore_acquire(const redlatch_semaphore *semaphore,
                                   uint64_t wait_ms,
                                   const redlatch_cancel *cancel,
                                   redlatch_guard **out);

/**
 * Calls `fn` with `user_data` while its permits are held, on this thread, after waiting as
 * redlatch_semaphore_acquire() does.
 *
 * `fn` must return: no longjmp, no C++ exception and no pthread_exit may leave it.
 *
 * Errors: REDLATCH_LOST if the lease was lost before `fn` ended: it did run, and redlatch_last_lost_reason() tells why
 * it was lost. Otherwise the errors of redlatch_semaphore_acquire(), and `fn` did not run. A release that the server
 * does not confirm is no error: it is completed in the background.
 */
int32_t redlatch_semaphore_with(const redlatch_semaphore *semaphore,
                                uint64_t wait_ms,
                                redlatch_work_fn fn,
                                void *user_data);

/**
 * Makes `limit` the number of permits for all clients, from the next grant on. One round trip, at most two command
 * timeouts.
 *
 * More permits go to those who wait, at once. With fewer nobody is thrown out; who comes later waits until enough have
 * been released. 0 lets nobody in. What programs declare stays, and this one governs. It is kept for two days after
 * the last lease has ended.
 *
 * Errors: REDLATCH_LIMIT_MISMATCH if others declare another limit for this name, otherwise those of
 * redlatch_semaphore_inspect(). After REDLATCH_UNCONFIRMED set it again.
 */
int32_t redlatch_semaphore_set_limit(const redlatch_semaphore *semaphore, uint32_t limit);

/**
 * Looks how many permits are free: neither held nor left to a waiter that was woken. For monitoring: it may be
 * outdated by the time it is read. One round trip, at most one command timeout.
 *
 * Errors: those of redlatch_semaphore_inspect().
 */
int32_t redlatch_semaphore_available(const redlatch_semaphore *semaphore, uint32_t *out);

/**
 * Looks how many hold permits now, each of them one or several. Who they are, and until when, tells
 * redlatch_semaphore_inspect(). One round trip, at most one command timeout.
 *
 * Errors: those of redlatch_semaphore_inspect().
 */
int32_t redlatch_semaphore_holders(const redlatch_semaphore *semaphore, size_t *out);

/**
 * Looks at what stands on the server for this name. One round trip, at most one command timeout; waits for nobody and
 * changes nothing. What was seen has to be freed by redlatch_inspection_free().
 *
 * Errors: REDLATCH_CONNECTION, REDLATCH_UNCONFIRMED or REDLATCH_SERVER if the server cannot be reached, does not
 * answer, or refuses; REDLATCH_KEY_CONFLICT if the key holds something else; REDLATCH_FORKED, REDLATCH_NULL_POINTER.
 */
int32_t redlatch_semaphore_inspect(const redlatch_semaphore *semaphore, redlatch_inspection **out);

/**
 * Throws out all who hold permits, of redlatch or not. `held` gets whether somebody did; it may be NULL. Two round
 * trips and one more for each further holder; at most one command timeout, and two more for each holder.
 *
 * For operators, when the holder is known to be gone. It breaks the first guarantee: a holder that lives is told at
 * its next renewal, extension or release, and believes until then that it holds its permits.
 *
 * Errors: those of redlatch_semaphore_inspect(). After REDLATCH_UNCONFIRMED a holder may have been thrown out: do it
 * again.
 */
int32_t redlatch_semaphore_force_release(const redlatch_semaphore *semaphore, bool *held);

/**
 * Returns the name, which may have NULs inside, followed by a NUL. It belongs to the semaphore. Its length is written
 * to `len` unless that is NULL. NULL for NULL. No I/O.
 */
const char *redlatch_semaphore_name(const redlatch_semaphore *semaphore, size_t *len);

/**
 * Frees a semaphore. Guards acquired through it go on holding. Does nothing for NULL.
 *
 * Blocks for at most one command timeout if it was the last handle of its client. In a forked child no I/O, and no
 * waiting.
 */
void redlatch_semaphore_free(redlatch_semaphore *semaphore);

/**
 * Names `count` locks, from 1 to 1000, that are held as one. Their leases (30 s unless set) are renewed in the
 * background until they are released. No I/O.
 *
 * Each name is as many bytes as `lens` says, or what stands before the first NUL with REDLATCH_NUL_TERMINATED, or for
 * all of them if `lens` is NULL; any bytes, at least one. They may come in any order; one that comes twice counts
 * once.
 *
 * Errors: REDLATCH_INVALID_ARGUMENT for a name or a `count` that cannot be used, REDLATCH_FORKED,
 * REDLATCH_NULL_POINTER.
 */
int32_t redlatch_multi_lock_new(const redlatch_client *client,
                                const char *const *names,
                                const size_t *lens,
                                size_t count,
                                redlatch_multi_lock **out);

/**
 * Sets how long the locks stay taken after their holder was last heard of: what a crash costs the others. In
 * milliseconds, from 10 ms to 10 years; defaults to 30000.
 *
 * It should be several times the command timeout, so that a renewal can fail and be made again in time.
 * Errors: REDLATCH_INVALID_ARGUMENT, REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED,
 * REDLATCH_NULL_POINTER.
 */
int32_t redlatch_multi_lock_set_lease_ms(redlatch_multi_lock *locks, uint64_t lease_ms);

/**
 * Sets how long the locks may be held in all, counted from when all of them are: then they are lost, with
 * REDLATCH_LOST_MAX_HOLD. In milliseconds, at least 10; defaults to no limit.
 *
 * Errors: REDLATCH_INVALID_ARGUMENT, REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED,
 * REDLATCH_NULL_POINTER.
 */
int32_t redlatch_multi_lock_set_max_hold_ms(redlatch_multi_lock *locks, uint64_t max_hold_ms);

/**
 * Sets a function that is told of each lock that is lost while the guard exists, by its name: in all as with
 * redlatch_lock_set_on_lost(). The locks that are not lost are still renewed, until the guard is released.
 *
 * Errors: REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED, REDLATCH_NULL_POINTER for `callback`.
 */
int32_t redlatch_multi_lock_set_on_lost(redlatch_multi_lock *locks, redlatch_lost_fn callback, void *user_data);

/**
 * The same as redlatch_multi_lock_set_on_lost() for a `user_data` that belongs to redlatch from now on: `destroy` is
 * called with it, on any thread, once the callback cannot be called any more. (Not in a forked child, and not if this
 * call fails.)
 *
 * Errors: those of redlatch_multi_lock_set_on_lost(). `destroy` may be NULL.
 */
int32_t redlatch_multi_lock_set_on_lost_owned(redlatch_multi_lock *locks,
                                              redlatch_lost_fn callback,
                                              void *user_data,
                                              redlatch_destroy_fn destroy);

/**
 * Acquires all of the locks, waiting for at most `wait_ms` milliseconds in all: 0 tries once and never waits,
 * REDLATCH_FOREVER waits as long as it takes. One round trip if they are free and on one server. `cancel` ends the
 * wait; it may be NULL. The guard has to be freed by redlatch_guard_free(). If it fails, nothing is held.
 *
 * A wait ends at most two command timeouts after `wait_ms`.
 *
 * Errors: those of redlatch_lock_acquire(): REDLATCH_BUSY or REDLATCH_TIMEOUT if one of them cannot be had, which the
 * message names, REDLATCH_KEY_CONFLICT if the key of one of them, or one of its helper keys, holds something else.
 */
int32_t redlatch_multi_lock_acquire(const redlatch_multi_lock *locks,
                                    uint64_t wait_ms,
                                    const redlatch_cancel *cancel,
                                    redlatch_guard **out);

/**
 * Calls `fn` with `user_data` while all of the locks are held, on this thread, after waiting as
 * redlatch_multi_lock_acquire() does.
 *
 * `fn` must return: no longjmp, no C++ exception and no pthread_exit may leave it.
 *
 * Errors: REDLATCH_LOST if one of them was lost before `fn` ended: it did run, and redlatch_last_lost_reason() tells
 * why it was lost. Otherwise the errors of redlatch_multi_lock_acquire(), and `fn` did not run. A release that the
 * server does not confirm is no error: it is completed in the background.
 */
int32_t redlatch_multi_lock_with(const redlatch_multi_lock *locks,
                                 uint64_t wait_ms,
                                 redlatch_work_fn fn,
                                 void *user_data);

/**
 * Returns how many locks they are, each of them counted once. 0 for NULL. No I/O.
 */
size_t redlatch_multi_lock_count(const redlatch_multi_lock *locks);

/**
 * Returns the name of one of them, from 0 on in the order in which they are taken; it may have NULs inside and is
 * followed by a NUL. It belongs to the multi-lock. Its length is written to `len` unless that is NULL. NULL for NULL,
 * and if there is none of that index. No I/O.
 */
const char *redlatch_multi_lock_name(const redlatch_multi_lock *locks, size_t index, size_t *len);

/**
 * Frees it. Guards acquired through it go on holding. Does nothing for NULL.
 *
 * Blocks for at most one command timeout if it was the last handle of its client. In a forked child no I/O, and no
 * waiting.
 */
void redlatch_multi_lock_free(redlatch_multi_lock *locks);

/**
 * Tells whether the lock or permit is certainly still held. False once it was lost or released, for NULL, and in a
 * forked child. No I/O.
 */
bool redlatch_guard_is_held(const redlatch_guard *guard);

/**
 * Returns how long it is certainly held from now on if nothing renews it, in milliseconds, rounded down; 0 once it was
 * lost or released, for NULL, and in a forked child. No I/O.
 *
 * Counted on the machine's boot-time clock from before the granted request was sent, less 1 % of the lease and 2 ms
 * for clocks that run apart. The server frees the lock only after that.
 */
uint64_t redlatch_guard_remaining_ms(const redlatch_guard *guard);

/**
 * Returns the grant's fencing token: larger than that of every earlier grant of this name, and never 0. It stays when
 * the guard was lost or released, and in a forked child. 0 for NULL. No I/O.
 *
 * Send it along with each write, and let the resource refuse a token smaller than the largest that it has seen; then a
 * holder that does not know yet that it lost the lock can do no harm. Those of a semaphore tell its holders apart, but
 * keep none of them off: several hold permits at once by rights.
 */
uint64_t redlatch_guard_fencing_token(const redlatch_guard *guard);

/**
 * Writes the fencing tokens of a guard of several locks to `tokens`, in the order of redlatch_multi_lock_name(), but
 * no more than `capacity`; `count` gets how many there are. One for any other guard. `tokens` may be NULL if
 * `capacity` is 0. They stay when the guard was lost or released, and in a forked child. No I/O.
 *
 * Errors: REDLATCH_NULL_POINTER.
 */
int32_t redlatch_guard_fencing_tokens(const redlatch_guard *guard, uint64_t *tokens, size_t capacity, size_t *count);

/**
 * Returns the random token that stands for the grant at the key on the server, ended by a NUL. It belongs to the
 * guard. A guard to which the lock was handed on within its client has that of the one before. NULL for NULL. No I/O.
 */
const char *redlatch_guard_token(const redlatch_guard *guard);

/**
 * Returns the name of the lock or semaphore, which may have NULs inside, followed by a NUL. It belongs to the guard.
 * Its length is written to `len` unless that is NULL. NULL for NULL. No I/O.
 */
const char *redlatch_guard_name(const redlatch_guard *guard, size_t *len);

/**
 * Returns REDLATCH_OK if it is still held: the line to put before each write. No I/O.
 *
 * Errors: REDLATCH_LOST once it was lost, REDLATCH_INVALID_STATE after redlatch_guard_release(), REDLATCH_FORKED,
 * REDLATCH_NULL_POINTER.
 */
int32_t redlatch_guard_check(const redlatch_guard *guard);

/**
 * Blocks until it is lost, for at most `limit_ms` milliseconds (REDLATCH_FOREVER: as long as it takes). REDLATCH_OK if
 * it is still held then. No I/O.
 *
 * Errors: those of redlatch_guard_check(). REDLATCH_INVALID_STATE at once when another thread releases it meanwhile.
 */
int32_t redlatch_guard_wait_lost_ms(const redlatch_guard *guard, uint64_t limit_ms);

/**
 * Returns why the lease was lost, one of the REDLATCH_LOST_... reasons; REDLATCH_LOST_NOT if it was not, and for NULL.
 * After redlatch_guard_release() it is what that found; in a forked child, what a release before the fork found. No
 * I/O.
 */
int32_t redlatch_guard_lost_reason(const redlatch_guard *guard);

/**
 * Returns the name of the lock or semaphore that was lost, of which redlatch_guard_lost_reason() tells why: of several
 * locks, the first that was. It may have NULs inside, is followed by a NUL, and belongs to the guard. Its length is
 * written to `len` unless that is NULL. NULL if nothing was lost, and for NULL. No I/O.
 */
const char *redlatch_guard_lost_name(const redlatch_guard *guard, size_t *len);

/**
 * Makes the lease end `lease_ms` milliseconds from now, unless it lasts longer already: set, not added, never
 * shortened. One round trip, at most one command timeout.
 *
 * A lock that is renewed goes on being renewed; that does not shorten what was extended.
 *
 * Errors: REDLATCH_LOST if it is no longer held; REDLATCH_INVALID_ARGUMENT outside 10 ms to 10 years, or beyond the
 * longest hold; REDLATCH_UNCONFIRMED, REDLATCH_CONNECTION or REDLATCH_SERVER if the server did not confirm it,
 * REDLATCH_NOT_REPLICATED if too few replicas did, and REDLATCH_NO_QUORUM if too few servers of a Redlock did: the
 * lease holds as long as it did before; REDLATCH_INVALID_STATE after redlatch_guard_release(), REDLATCH_FORKED,
 * REDLATCH_NULL_POINTER.
 */
int32_t redlatch_guard_extend_ms(redlatch_guard *guard, uint64_t lease_ms);

/**
 * Releases it and reports how that went. At most two command timeouts; what the server did not confirm by then is
 * completed in the background. The handle remains, to be asked and to be freed.
 *
 * Errors: REDLATCH_LOST if the lease had been lost before; REDLATCH_UNCONFIRMED if it was held until now, but the
 * server did not confirm the release; REDLATCH_INVALID_STATE if it was released before, REDLATCH_FORKED,
 * REDLATCH_NULL_POINTER.
 */
int32_t redlatch_guard_release(redlatch_guard *guard);

/**
 * Frees a guard, and releases it before if that was not done: for at most one command timeout, then in the background.
 * How that went is not told. If it is the last handle of its client, the client goes with it: up to one command
 * timeout more. Does nothing for NULL.
 *
 * In a forked child no I/O, and no waiting: the parent's hold is left alone.
 */
void redlatch_guard_free(redlatch_guard *guard);

/**
 * Makes a switch that is not cancelled. No I/O.
 *
 * Errors: REDLATCH_NULL_POINTER.
 */
int32_t redlatch_cancel_new(redlatch_cancel **out);

/**
 * Ends all waits that it was passed to, now and later, with REDLATCH_CANCELLED. Does not wait for them to return.
 *
 * From any thread, but not from a signal handler: it takes mutexes. A program that is to stop at a signal has a thread
 * that waits for it (sigwait), or that reads what the handler wrote into a pipe.
 *
 * Errors: REDLATCH_NULL_POINTER, REDLATCH_FORKED.
 */
int32_t redlatch_cancel_cancel(const redlatch_cancel *cancel);

/**
 * Tells whether redlatch_cancel_cancel() was called. False for NULL. No I/O.
 */
bool redlatch_cancel_is_cancelled(const redlatch_cancel *cancel);

/**
 * Frees a switch, without cancelling anything. Does nothing for NULL.
 */
void redlatch_cancel_free(redlatch_cancel *cancel);

/**
 * Returns the whole of it in words: one line, ended by a NUL, that belongs to the inspection. NULL for NULL.
 */
const char *redlatch_inspection_str(const redlatch_inspection *inspection);

/**
 * Returns how many held it: 0 or 1 for a lock. 0 for NULL.
 */
size_t redlatch_inspection_holders(const redlatch_inspection *inspection);

/**
 * Returns the token of holder number `index`, counted from 0: what redlatch_guard_token() is there, or what another
 * library put there. It is followed by a NUL, and belongs to the inspection. Its length is written to `len` unless
 * that is NULL. NULL if there is no such holder.
 */
const char *redlatch_inspection_holder_token(const redlatch_inspection *inspection, size_t index, size_t *len);

/**
 * Returns in how many milliseconds the hold of holder number `index` ended by itself, unless it was renewed.
 * REDLATCH_FOREVER: never, because another library put it there without a TTL; if its holder has crashed, it stays
 * until somebody deletes it (redlatch_lock_force_release()). 0 if there is no such holder.
 */
uint64_t redlatch_inspection_holder_expiry_ms(const redlatch_inspection *inspection, size_t index);

/**
 * Returns how many permits holder number `index` had: 1 for a lock. 0 if there is no such holder.
 */
uint32_t redlatch_inspection_holder_permits(const redlatch_inspection *inspection, size_t index);

/**
 * Returns the fencing token that was drawn last: a holder's, or one that was drawn with it for those to whom the lock
 * may be handed on. 0 when nobody held it, if redlatch had not granted it in the last two days, or for NULL.
 */
uint64_t redlatch_inspection_fencing_token(const redlatch_inspection *inspection);

/**
 * Returns how many waited for it, as far as the server knew: threads where they are fair, otherwise clients (without
 * one whose threads wait for a lock that the client itself has). 0 for NULL.
 */
size_t redlatch_inspection_waiters(const redlatch_inspection *inspection);

/**
 * Returns how many permits were left to waiters that were woken and had not come for them yet: 0 or 1 for a lock. 0
 * for NULL.
 */
uint32_t redlatch_inspection_reserved(const redlatch_inspection *inspection);

/**
 * Returns how many permits there were: 1 for a lock. What was set by redlatch_semaphore_set_limit(), or else what is
 * declared. 0 for NULL.
 */
uint32_t redlatch_inspection_limit(const redlatch_inspection *inspection);

/**
 * Returns how many permits its users declare: 1 for a lock. 0 for NULL.
 */
uint32_t redlatch_inspection_declared_limit(const redlatch_inspection *inspection);

/**
 * Returns how many permits were free: neither held nor reserved. 0 for NULL.
 */
uint32_t redlatch_inspection_available(const redlatch_inspection *inspection);

/**
 * Tells whether nobody held it and nothing was reserved. False for NULL.
 */
bool redlatch_inspection_is_free(const redlatch_inspection *inspection);

/**
 * Frees it. Does nothing for NULL.
 */
void redlatch_inspection_free(redlatch_inspection *inspection);

/**
 * Looks through the server's database for locks that nobody will ever free: keys that match `pattern`, look like a
 * lock (a string, or a hash as Redisson has) and have no TTL. Not redlatch's own: all of those have one. The search
 * has to be freed by redlatch_audit_free(). No I/O before the first redlatch_audit_next().
 *
 * The pattern is a glob over whole keys as SCAN takes it, such as "lock:*": `len` bytes, or what stands before the
 * first NUL with REDLATCH_NUL_TERMINATED. Prefixes are not put before it.
 *
 * Errors: REDLATCH_INVALID_ARGUMENT for an empty pattern, REDLATCH_FORKED, REDLATCH_NULL_POINTER.
 */
int32_t redlatch_client_audit(const redlatch_client *client, const char *pattern, size_t len, redlatch_audit **out);

/**
 * Goes on to the next key: `key` gets it, followed by a NUL, and NULL when there is none. It belongs to the search
 * until the next call. `key_len` gets its length and `data_type` the type of its value, REDLATCH_TYPE_STRING or
 * REDLATCH_TYPE_HASH; both may be NULL.
 *
 * A key that is there from beginning to end is found; while the server grows or shrinks its table a key can come
 * twice. Blocks for at most one command timeout for each page of some 1000 keys that it has to look through.
 *
 * Errors: REDLATCH_CONNECTION, REDLATCH_UNCONFIRMED or REDLATCH_SERVER if the server cannot be reached, does not
 * answer, or refuses: then the search is over; REDLATCH_FORKED, REDLATCH_NULL_POINTER.
 */
int32_t redlatch_audit_next(redlatch_audit *audit, const char **key, size_t *key_len, int32_t *data_type);

/**
 * Ends a search. Does nothing for NULL.
 */
void redlatch_audit_free(redlatch_audit *audit);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* REDLATCH_H */
