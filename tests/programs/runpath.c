/* A library whose RUNPATH is $ORIGIN/plugins. */
#define NO_KERNELS
#include "common.h"

int load_plugin(void) {
  void* plugin = dlopen("libplugin.so", RTLD_NOW);
  int (*answer)(void) = plugin ? (int (*)(void))dlsym(plugin, "plugin_answer") : NULL;
  return answer ? answer() : -1;
}
