// A program with Python inside: linked with libpython (-DLINKED), or opening it for itself alone with dlopen (the first argument).
// Runs a script (the second argument) in an interpreter that begins and ends as often as the third says. The script calls the driver through
// two functions of ours, since ctypes can't be imported where libpython is not in the global scope. (That is also why Python.h
// is not needed here.)
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda_mini.h"

typedef void *object;
typedef struct {
    const char *name;
    object (*function)(object, object);
    int flags;
    const char *doc;
} method;

static object (*from_int)(unsigned long long);
static unsigned long long (*to_int)(object);

static void must(int ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "%s: %s\n", what, dlerror());
        exit(1);
    }
}

static object c_alloc(object self, object size) {
    CUdeviceptr p = 0;
    (void)self;
    if (cuMemAlloc(&p, to_int(size)) != CUDA_SUCCESS)
        p = 0;
    return from_int(p);
}

static object c_free(object self, object pointer) {
    (void)self;
    return from_int(cuMemFree(to_int(pointer)));
}

static void *find(void *library, const char *name) {
    void *f = dlsym(library, name);
    must(f != NULL, name);
    return f;
}

#ifdef LINKED
extern void Py_Initialize(void);
#endif

int main(int argc, char **argv) {
    void *python = RTLD_DEFAULT;
    must(argc == 4, "three arguments");
#ifdef LINKED
    must(Py_Initialize != NULL, "linked");
#else
    python = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    must(python != NULL, argv[1]);
#endif
    CUdevice device;
    CUcontext context;
    must(!cuInit(0) && !cuDeviceGet(&device, 0) && !cuDevicePrimaryCtxRetain(&context, device), "the driver");
    must(!cuCtxSetCurrent(context), "cuCtxSetCurrent");

    void (*begin)(void) = find(python, "Py_Initialize");
    int (*end)(void) = find(python, "Py_FinalizeEx");
    int (*run)(const char *) = find(python, "PyRun_SimpleString");
    object (*add_module)(const char *) = find(python, "PyImport_AddModule");
    object (*dict_of)(object) = find(python, "PyModule_GetDict");
    int (*set)(object, const char *, object) = find(python, "PyDict_SetItemString");
    object (*function)(method *, object, object) = find(python, "PyCFunction_NewEx");
    from_int = find(python, "PyLong_FromUnsignedLongLong");
    to_int = find(python, "PyLong_AsUnsignedLongLong");

    static method alloc_method = {"c_alloc", c_alloc, 8 /* METH_O */, NULL};
    static method free_method = {"c_free", c_free, 8, NULL};
    char code[5000];
    for (int i = 0; i < atoi(argv[3]); i++) {
        begin();
        object dict = dict_of(add_module("__main__"));
        must(set(dict, "c_alloc", function(&alloc_method, NULL, NULL)) == 0, "c_alloc");
        must(set(dict, "c_free", function(&free_method, NULL, NULL)) == 0, "c_free");
        snprintf(code, sizeof code, "import os; os.environ['FIRST_NUMBER'] = '%d'\nexec(compile(open(r'%s').read(), r'%s', 'exec'))\n",
                 1000 * i, argv[2], argv[2]);
        must(run(code) == 0, "the script");
        must(end() == 0, "Py_FinalizeEx");
        // Without an interpreter there are native frames only.
        CUdeviceptr p;
        must(!cuMemAlloc(&p, 7) && !cuMemFree(p), "between two interpreters");
        printf("ended %d\n", i);
        fflush(stdout);
    }
    return 0;
}
