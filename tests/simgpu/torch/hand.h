// A function of a library that does nothing and answers 0: success, no error, none.
#pragma once
#include <stddef.h>
#include <stdint.h>

__attribute__((visibility("hidden"))) void stub_called(const char* name);
#define SAY() do { static char said; if (!said) said = 1, stub_called(__func__); } while (0)
#define STUB(name) long name(void) { SAY(); return 0; }
