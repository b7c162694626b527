// A child process that is this program again, with a socket between them. Made before CUDA is used in the parent.
#pragma once
#include "show.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

inline int start_child(char **argv, bool bare, pid_t *pid) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) exit(4);
    fflush(stdout);
    *pid = fork();
    if (*pid == 0) {
        char fd[16];
        snprintf(fd, sizeof fd, "%d", pair[1]);
        close(pair[0]);
        if (bare) unsetenv("LD_PRELOAD");
        char *args[] = {argv[0], (char *)"child", fd, nullptr};
        execv("/proc/self/exe", args);
        _exit(4);
    }
    close(pair[1]);
    return pair[0];
}
inline void put(int fd, const void *p, size_t n) {
    if (write(fd, p, n) != (ssize_t)n) _Exit(5);
}
inline void get(int fd, void *p, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t k = read(fd, (char *)p + at, n - at);
        if (k <= 0) _Exit(6);
        at += k;
    }
}
inline void end_child(pid_t pid) {
    int status = -1;
    waitpid(pid, &status, 0);
    printf("child ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}
