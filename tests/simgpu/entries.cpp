// The table behind cuGetProcAddress. Only addresses are wanted here, so everything is declared without its type, and the
// header with the types stays out.
#include "entries.h"

#define ONE(base, version, symbol) extern "C" void symbol(void);
#define TWIN(base, version, symbol, suffix, since) ONE(base, version, symbol) ONE(base, version, symbol##suffix)
#include "entries.inc"
#undef ONE
#undef TWIN

#define ONE(base, version, symbol) {#base, version, (void*)symbol, nullptr, 0},
#define TWIN(base, version, symbol, suffix, since) {#base, version, (void*)symbol, (void*)symbol##suffix, since},
const Entry entries[] = {
#include "entries.inc"
    {nullptr, 0, nullptr, nullptr, 0},
};
