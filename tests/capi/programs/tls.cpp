// TLS by redlatch.hpp: see tls.c, which says more.
//
// Usage: tls URL CA CERTIFICATE KEY

#include <cstdlib>
#include <iostream>

#include <redlatch.hpp>

using redlatch::Client;
using redlatch::Options;

int main(int argc, char **argv) {
    if (argc != 5) {
        return EXIT_FAILURE;
    }
    const auto options = Options().url(argv[1]).tls(true).tls_ca_file(argv[2]);
    try {
        Client::open(options).lock("tls.cpp").acquire().release();
        return EXIT_FAILURE;
    } catch (const redlatch::Error &error) {
        if (error.code() != REDLATCH_CONNECTION) {
            std::cerr << error.what() << std::endl;
            return EXIT_FAILURE;
        }
    }
    auto complete = Options().url(argv[1]).tls(true).tls_ca_file(argv[2]);
    complete.tls_client_certificate_files(argv[3], argv[4]);
    Client::open(complete).lock("tls.cpp").acquire().release();
    return EXIT_SUCCESS;
}
