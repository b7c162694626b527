// Memory of the virtual memory API, exported as a file descriptor and mapped in a second process.
#include "ipc.h"

static const size_t BYTES = 4 << 20;

static void map(CUdeviceptr *p, CUmemGenericAllocationHandle h) {
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CK(cuMemAddressReserve(p, BYTES, 0, 0, 0));
    CK(cuMemMap(*p, BYTES, 0, h, 0));
    CK(cuMemSetAccess(*p, BYTES, &access, 1));
}
static void unmap(CUdeviceptr p) {
    CK(cuMemUnmap(p, BYTES));
    CK(cuMemAddressFree(p, BYTES));
}
static void send_fd(int to, int fd) {
    char byte = 0, room[CMSG_SPACE(sizeof fd)] = {};
    iovec io = {&byte, 1};
    msghdr m = {};
    m.msg_iov = &io;
    m.msg_iovlen = 1;
    m.msg_control = room;
    m.msg_controllen = sizeof room;
    cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    if (sendmsg(to, &m, 0) != 1) _Exit(5);
}
static int receive_fd(int from) {
    int fd = -1;
    char byte, room[CMSG_SPACE(sizeof fd)];
    iovec io = {&byte, 1};
    msghdr m = {};
    m.msg_iov = &io;
    m.msg_iovlen = 1;
    m.msg_control = room;
    m.msg_controllen = sizeof room;
    if (recvmsg(from, &m, 0) != 1) _Exit(6);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd;
}

static int child(int socket) {
    CK(cudaFree(0));
    CUmemGenericAllocationHandle h;
    CUdeviceptr p;
    int fd = receive_fd(socket), value = 0;
    CK(cuMemImportFromShareableHandle(&h, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    map(&p, h);
    CK(cuMemRelease(h));
    CK(cudaMemcpy(&value, (int *)p + 1000, 4, cudaMemcpyDeviceToHost));
    fill<<<4, 256>>>((int *)p, BYTES / 4, 8);
    CK(cudaDeviceSynchronize());
    unmap(p);
    put(socket, &value, sizeof value);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "child")) return child(atoi(argv[2]));
    pid_t pid;
    int socket = start_child(argv, false, &pid), fd, seen = 0, value = 0;
    CK(cudaFree(0));
    void *plain;
    CK(cudaMalloc(&plain, BYTES));
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle h;
    CUdeviceptr p;
    CK(cuMemCreate(&h, BYTES, &prop, 0));
    map(&p, h);
    fill<<<4, 256>>>((int *)p, BYTES / 4, 7);
    CK(cudaDeviceSynchronize());
    CK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CK(cudaFree(plain));
    send_fd(socket, fd);
    close(fd);
    get(socket, &seen, sizeof seen);
    CK(cudaMemcpy(&value, (int *)p + BYTES / 4 - 1, 4, cudaMemcpyDeviceToHost));
    printf("the other process read %d, this one reads %d\n", seen, value);
    unmap(p);
    printf("release: %s\n", name(cuMemRelease(h)));
    end_child(pid);
}
