// A function of a library that does nothing and answers 0: success, no error, none.
#pragma once
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)
void stub_called(const char* name);
#define SAY() do { static char said; if (!said) said = 1, stub_called(__func__); } while (0)
void stub_launch(const void* handle); // a kernel that does nothing, in the stream that the handle was given
#pragma GCC visibility pop
#define LAUNCH(name) int name(void* handle) { SAY(); stub_launch(handle); return 0; }
#define STUB(name) long name(void) { SAY(); return 0; }
