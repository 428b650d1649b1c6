/*
 * TLS by the C API: tls URL CA CERTIFICATE KEY
 * URL is redis://, of a server that speaks TLS there and wants a client certificate; the others are PEM files.
 */
#include "check.h"

static redlatch_options *settings(const char *url)
{
    redlatch_options *options = NULL;
    IS(redlatch_options_new(&options), REDLATCH_OK);
    IS(redlatch_options_set_url(options, url), REDLATCH_OK);
    return options;
}

static int32_t try_once(redlatch_options *options)
{
    redlatch_client *client = NULL;
    redlatch_guard *guard = NULL;
    IS(redlatch_client_open_with(options, &client), REDLATCH_OK);
    redlatch_lock *lock = lock_of(client, "tls.c");
    int32_t status = redlatch_lock_acquire(lock, 0, NULL, &guard);
    if (status == REDLATCH_OK) IS(redlatch_guard_release(guard), REDLATCH_OK);
    if (status == REDLATCH_OK) redlatch_guard_free(guard);
    redlatch_lock_free(lock);
    redlatch_client_free(client);
    return status;
}

int main(int argc, char **argv)
{
    CHECK(argc == 5);
    const char *url = argv[1], *ca = argv[2], *certificate = argv[3], *key = argv[4];
    redlatch_client *client = UNTOUCHED;
    redlatch_options *options = settings(url);

    /* In the clear the server is of no use, and certificates are of none. */
    CHECK(try_once(options) != REDLATCH_OK);
    IS(redlatch_options_set_tls_ca_file(options, ca), REDLATCH_OK);
    REFUSED(redlatch_client_open_with(options, &client), REDLATCH_INVALID_ARGUMENT, "rediss://");
    CHECK(client == UNTOUCHED);

    IS(redlatch_options_set_tls(options, true), REDLATCH_OK);
    REFUSED(try_once(options), REDLATCH_CONNECTION, "wants a client certificate");
    IS(redlatch_options_set_tls_client_certificate_files(options, certificate, key), REDLATCH_OK);
    IS(try_once(options), REDLATCH_OK);

    /* What cannot be read leaves what was set before. */
    REFUSED(redlatch_options_set_tls_ca_file(options, "/nowhere/ca.pem"), REDLATCH_INVALID_ARGUMENT, "/nowhere/ca.pem");
    REFUSED(redlatch_options_set_tls_client_certificate_files(options, certificate, "/nowhere/key.pem"),
            REDLATCH_INVALID_ARGUMENT, "/nowhere/key.pem");
    REFUSED(redlatch_options_set_tls_client_certificate_files(options, "", key), REDLATCH_INVALID_ARGUMENT, "read");
    IS(try_once(options), REDLATCH_OK);

    /* What is no certificate is found out when it is needed. */
    IS(redlatch_options_set_tls_ca_file(options, key), REDLATCH_OK);
    REFUSED(redlatch_client_open_with(options, &client), REDLATCH_INVALID_ARGUMENT, "no certificate");
    redlatch_options_free(options);
    return 0;
}
