/*
 * A real server as its own clients see it, and as somebody who stops it: for programs in C and C++.
 */
#ifndef SERVER_H
#define SERVER_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* Ends the program unless it is so. */
static inline void server_needs(int so, const char *what)
{
    if (so) return;
    perror(what);
    _exit(1);
}

/* A socket on this machine, which has to be closed. */
static inline int server_socket(struct sockaddr_in *address, unsigned port)
{
    int made = socket(AF_INET, SOCK_STREAM, 0);
    server_needs(made >= 0, "socket");
    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address->sin_port = htons((in_port_t)port);
    return made;
}

/*
 * What the server at redis://127.0.0.1:PORT/ answers to a command of another library's: the number of an integer reply,
 * 0 for any other; an error ends the program.
 */
static inline long long server_answers(const char *url, const char *command)
{
    unsigned port = 0;
    char line[512];
    struct sockaddr_in address;
    server_needs(sscanf(url, "redis://127.0.0.1:%u/", &port) == 1, url);
    int connection = server_socket(&address, port);
    server_needs(connect(connection, (const struct sockaddr *)&address, sizeof address) == 0, "connect");
    int length = snprintf(line, sizeof line, "%s\r\n", command);
    server_needs(length > 0 && (size_t)length < sizeof line, command);
    server_needs(send(connection, line, (size_t)length, MSG_NOSIGNAL) == length, "send");
    size_t got = 0;
    do {
        ssize_t more = recv(connection, line + got, sizeof line - 1 - got, 0);
        server_needs(more > 0, command);
        got += (size_t)more;
        line[got] = '\0';
    } while (strchr(line, '\n') == NULL);
    close(connection);
    server_needs(line[0] != '-', line);
    return line[0] == ':' ? atoll(line + 1) : 0;
}

/* A port at which connecting works and nothing is ever answered, as long as the socket is open. */
static inline unsigned silent_port(int *listening)
{
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    *listening = server_socket(&address, 0);
    server_needs(bind(*listening, (const struct sockaddr *)&address, sizeof address) == 0, "bind");
    server_needs(listen(*listening, 16) == 0, "listen");
    server_needs(getsockname(*listening, (struct sockaddr *)&address, &length) == 0, "getsockname");
    return ntohs(address.sin_port);
}

/* Stops a process, and waits until it has stopped: connecting to a server still works then. */
static inline void stop_process(pid_t process)
{
    char path[64], state = ' ';
    const struct timespec pause = {0, 1000000};
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)process);
    server_needs(kill(process, SIGSTOP) == 0, "SIGSTOP");
    for (int looks = 0; state != 'T'; looks++) {
        FILE *file = fopen(path, "r");
        server_needs(file != NULL && fscanf(file, "%*d (%*[^)]) %c", &state) == 1 && looks < 30000, path);
        fclose(file);
        if (state != 'T') nanosleep(&pause, NULL);
    }
}

/* The next connection at a port of this process; -1 if none comes in this time. */
static inline int next_connection(int listening, int wait_ms)
{
    struct pollfd comes = {listening, POLLIN, 0};
    if (poll(&comes, 1, wait_ms) != 1) return -1;
    int connection = accept(listening, NULL, NULL);
    server_needs(connection >= 0, "accept");
    return connection;
}

/* Whether this is what the next connection at a port of this process says first. It is closed then. */
static inline int is_told_first(int listening, const char *words, int wait_ms)
{
    char said[512];
    size_t expected = strlen(words), got = 0;
    int connection = next_connection(listening, wait_ms);
    server_needs(connection >= 0 && expected <= sizeof said, "a connection");
    while (got < expected) {
        struct pollfd says = {connection, POLLIN, 0};
        ssize_t more = poll(&says, 1, wait_ms) == 1 ? recv(connection, said + got, expected - got, 0) : 0;
        if (more <= 0) break;
        got += (size_t)more;
    }
    close(connection);
    return got == expected && memcmp(said, words, expected) == 0;
}

#endif
