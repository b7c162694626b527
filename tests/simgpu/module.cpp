// Modules and libraries: PTX text, of which only the names of kernels and the global variables are read; launches.
#include "sim.h"
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace sim {

struct Variable {
  std::string name;
  size_t size = 0;
  bool managed = false;
  std::vector<char> initial;
};
struct Image {
  std::vector<std::string> kernels;
  std::vector<Variable> variables;
  bool opaque = false; // machine code, by SIMGPU_ANY_KERNEL: it has whatever it is asked for
};
constexpr size_t OPAQUE_VARIABLE = 64u << 10; // its variables have room for this much
struct Module;
struct Function {
  std::string name;
  const Kernel* kernel = nullptr;
  Context* ctx = nullptr; // null: a library's kernel, which runs in any context
  std::set<Context*> loaded; // where it was launched before
};
struct Module {
  Context* ctx = nullptr;
  bool opaque = false;
  std::map<std::string, Function*> functions;
  std::map<std::string, Allocation*> variables;
};
struct Library {
  Image image;
  std::map<std::string, Function*> kernels;
  std::map<Context*, Module*> modules; // loaded into a context at first use
};
static auto& modules = *new std::set<Module*>;
static auto& libraries = *new std::set<Library*>;
static auto& functions = *new std::set<Function*>; // never freed: a launch may be under way

// ".visible .global .attribute(.managed) .align 4 .u32 name[4] = {1, 2}" without its semicolon
static Variable parse_variable(const std::string& text) {
  Variable v;
  v.managed = text.find(".managed") != std::string::npos;
  size_t equals = text.find('='), element = 4, count = 1;
  std::string left = text.substr(0, equals);
  for (const char* type : {".b8", ".u8", ".s8", ".b16", ".u16", ".s16", ".b32", ".u32", ".s32", ".f32", ".b64", ".u64", ".s64", ".f64"})
    if (left.find(std::string(type) + " ") != std::string::npos) element = (size_t)atoi(type + 2) / 8;
  size_t bracket = left.find('[');
  if (bracket != std::string::npos) count = (size_t)atol(left.c_str() + bracket + 1);
  size_t last = left.find_last_not_of(" \t\n", bracket == std::string::npos ? std::string::npos : bracket - 1);
  size_t first = left.find_last_of(" \t\n", last);
  v.name = left.substr(first + 1, last - first);
  v.size = element * count;
  v.initial.resize(v.size);
  if (equals != std::string::npos) {
    const char* at = text.c_str() + equals + 1;
    for (size_t i = 0; i < count; ++i) {
      while (*at && !isdigit((unsigned char)*at) && *at != '-') ++at;
      char* end;
      long long value = strtoll(at, &end, 0);
      if (end == at) break;
      memcpy(v.initial.data() + i * element, &value, element);
      at = end;
    }
  }
  return v;
}

static CUresult parse(const void* data, Image& image) {
  const char* text = (const char*)data;
  if (!strncmp(text, "\177ELF", 4) || *(const uint32_t*)data == 0xba55ed50) { // machine code
    image.opaque = any_kernel();
    return image.opaque ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  if (!strstr(text, ".version")) return CUDA_ERROR_INVALID_IMAGE;
  int depth = 0;
  std::string statement;
  for (const char* p = text; *p; ++p) {
    if (p[0] == '/' && p[1] == '/') { // comment
      while (p[1] && p[1] != '\n') ++p;
      continue;
    }
    bool body = *p == '{' && statement.find(".global") == std::string::npos; // not the list of an initialiser
    if (body || (*p == '}' && depth)) {
      size_t entry = statement.find(".entry ");
      if (body && !depth && entry != std::string::npos) {
        size_t from = entry + 7, to = statement.find_first_of("( \n", from);
        image.kernels.push_back(statement.substr(from, to - from));
      }
      depth += body ? 1 : -1;
      statement.clear();
    } else if (*p == ';' && !depth) {
      if (statement.find(".global") != std::string::npos) image.variables.push_back(parse_variable(statement));
      statement.clear();
    } else if (!depth) {
      statement += *p;
    }
  }
  return depth ? CUDA_ERROR_INVALID_PTX : CUDA_SUCCESS;
}

static Function* new_function(const std::string& name, Context* ctx) {
  auto* f = new Function{name, kernel_named(name), ctx, {}};
  functions.insert(f);
  return f;
}
static void unload(Module* m) {
  wait_idle(m->ctx);
  for (auto& v : m->variables) {
    if (v.second->kind == Kind::Managed) release_host(v.second);
    else release_device(v.second);
  }
  for (auto& f : m->functions) functions.erase(f.second);
  modules.erase(m);
  delete m;
}
void forget_modules(Context* ctx) { // the context goes, and their memory with it
  std::vector<Module*> gone;
  for (Module* m : modules)
    if (m->ctx == ctx) gone.push_back(m);
  for (Module* m : gone) unload(m);
}
static CUresult load(const Image& image, Module** out) {
  auto* m = new Module;
  m->ctx = here();
  m->opaque = image.opaque;
  for (auto& name : image.kernels) m->functions[name] = new_function(name, m->ctx);
  for (auto& v : image.variables) {
    Allocation* a;
    CUresult result = v.managed ? allocate_host(m->ctx, v.size, Kind::Managed, 0, &a) : allocate_device(m->ctx, v.size, Kind::Module, &a);
    if (result) {
      unload(m);
      return result;
    }
    memcpy(reach(nullptr, a->base, v.size), v.initial.data(), v.size);
    m->variables[v.name] = a;
  }
  modules.insert(m);
  *out = m;
  return CUDA_SUCCESS;
}

static CUresult load_data(const char* name, CUmodule* out, const void* data) {
  return enter(name, CONTEXT, [&] {
    if (!out || !data) return CUDA_ERROR_INVALID_VALUE;
    Image image;
    CUresult result = parse(data, image);
    Module* m = nullptr;
    if (!result) result = load(image, &m);
    *out = (CUmodule)m;
    return result;
  });
}

static CUresult variable(Module* m, const char* name, CUdeviceptr* dptr, size_t* bytes, bool managed_only) {
  auto it = m->variables.find(name ? name : "");
  if (it == m->variables.end() && m->opaque && name && !managed_only) {
    Allocation* a;
    CUresult result = allocate_device(m->ctx, OPAQUE_VARIABLE, Kind::Module, &a);
    if (result) return result;
    it = m->variables.emplace(name, a).first;
  }
  if (it == m->variables.end() || (managed_only && it->second->kind != Kind::Managed)) return CUDA_ERROR_NOT_FOUND;
  put(dptr, it->second->base);
  put(bytes, it->second->size);
  return CUDA_SUCCESS;
}
static CUresult module_in(Library* lib, Module** out) {
  Module*& m = lib->modules[here()];
  if (!modules.count(m)) m = nullptr; // its context was destroyed or reset
  if (!m) {
    CUresult result = load(lib->image, &m);
    if (result) return result;
  }
  *out = m;
  return CUDA_SUCCESS;
}
static CUresult library_variable(const char* fn, CUdeviceptr* dptr, size_t* bytes, CUlibrary handle, const char* name, bool managed_only) {
  return enter(fn, CONTEXT, [&] {
    auto* lib = (Library*)handle;
    if (!libraries.count(lib)) return CUDA_ERROR_INVALID_HANDLE;
    Module* m;
    CUresult result = module_in(lib, &m);
    return result ? result : variable(m, name, dptr, bytes, managed_only);
  });
}

// A kernel that was not loaded with its module is when it is first launched. That may need all of the context's work to be done
// ("Lazy Loading" in NVIDIA's programming guide), so here it does: a program that waits, on the device, for a kernel that it has
// yet to launch hangs.
static CUresult load_late(Function* f) {
  static const char* mode = getenv("CUDA_MODULE_LOADING");
  static const bool eager = mode && !strcmp(mode, "EAGER");
  Context* ctx = here()->root;
  if (eager || !f->loaded.insert(ctx).second) return CUDA_SUCCESS;
  return wait_idle(ctx);
}

bool is_function(CUfunction handle) { return functions.count((Function*)handle); }

static CUresult launch(const char* name, CUfunction handle, unsigned grid, unsigned block, CUstream stream, void** params, void** extra, bool per_thread) {
  return enter(name, CONTEXT, [&] {
    auto* f = (Function*)handle; // a CUkernel is accepted too, as the real driver does
    Stream* s = stream_of(stream, per_thread);
    if (!functions.count(f)) return CUDA_ERROR_INVALID_HANDLE;
    if (s && !s->capture) {
      if (CUresult result = load_late(f)) return result;
      s = stream_of(stream, per_thread); // others went on meanwhile
      if (!functions.count(f)) return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!s || (f->ctx && f->ctx != s->ctx)) return CUDA_ERROR_INVALID_HANDLE;
    if (!grid || !block || block > 1024) return CUDA_ERROR_INVALID_VALUE;
    std::vector<uint64_t> args;
    const char* buffer = nullptr;
    for (void** e = extra; e && *e != CU_LAUNCH_PARAM_END; e += 2)
      if (*e == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = (const char*)e[1];
    size_t offset = 0;
    for (size_t i = 0; i < f->kernel->parameters.size(); ++i) {
      size_t size = f->kernel->parameters[i];
      uint64_t value = 0;
      offset = (offset + size - 1) / size * size;
      if (params) memcpy(&value, params[i], size);
      else if (buffer) memcpy(&value, buffer + offset, size);
      else return CUDA_ERROR_INVALID_VALUE;
      offset += size;
      args.push_back(value);
    }
    return enqueue(s, f->kernel->make(s->ctx, args), 0);
  });
}

} // namespace sim

using namespace sim;

API CUresult cuModuleLoadData(CUmodule* out, const void* image) { return load_data("cuModuleLoadData", out, image); }
API CUresult cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned, int*, void**) { return load_data("cuModuleLoadDataEx", out, image); }
API CUresult cuModuleLoad(CUmodule* out, const char* path) {
  FILE* file = path ? fopen(path, "rb") : nullptr;
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::vector<char> image;
  char chunk[4096];
  for (size_t n; (n = fread(chunk, 1, sizeof chunk, file)) > 0;) image.insert(image.end(), chunk, chunk + n);
  fclose(file);
  image.insert(image.end(), 8, 0); // PTX is text, and the head of machine code is looked at
  return load_data("cuModuleLoad", out, image.data());
}
API CUresult cuModuleUnload(CUmodule handle) {
  return enter("cuModuleUnload", CONTEXT | UNSAFE, [&] {
    auto* m = (Module*)handle;
    if (!modules.count(m)) return CUDA_ERROR_INVALID_HANDLE;
    unload(m);
    return CUDA_SUCCESS;
  });
}
API CUresult cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  return enter("cuModuleGetFunction", CONTEXT, [&] {
    auto* m = (Module*)handle;
    if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
    if (!modules.count(m)) return CUDA_ERROR_INVALID_HANDLE;
    auto it = m->functions.find(name);
    if (it == m->functions.end() && m->opaque) it = m->functions.emplace(name, new_function(name, m->ctx)).first;
    if (it == m->functions.end() || !it->second->kernel) return CUDA_ERROR_NOT_FOUND; // not in the image, or not in kernels.cpp
    *out = (CUfunction)it->second;
    return CUDA_SUCCESS;
  });
}
API CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule handle, const char* name) {
  return enter("cuModuleGetGlobal_v2", CONTEXT, [&] {
    auto* m = (Module*)handle;
    if (!modules.count(m)) return CUDA_ERROR_INVALID_HANDLE;
    return variable(m, name, dptr, bytes, false);
  });
}
API CUresult cuLibraryLoadData(CUlibrary* out, const void* code, int*, void**, unsigned, int*, void**, unsigned) {
  return enter("cuLibraryLoadData", INIT, [&] {
    if (!out || !code) return CUDA_ERROR_INVALID_VALUE;
    Image image;
    CUresult result = parse(code, image);
    if (result) return result;
    auto* lib = new Library{image, {}, {}};
    for (auto& name : image.kernels) lib->kernels[name] = new_function(name, nullptr);
    libraries.insert(lib);
    *out = (CUlibrary)lib;
    return CUDA_SUCCESS;
  });
}
API CUresult cuLibraryUnload(CUlibrary handle) {
  return enter("cuLibraryUnload", INIT | UNSAFE, [&] {
    auto* lib = (Library*)handle;
    if (!libraries.erase(lib)) return CUDA_ERROR_INVALID_HANDLE;
    for (auto& f : lib->kernels) functions.erase(f.second);
    for (auto& it : lib->modules)
      if (modules.count(it.second)) unload(it.second);
    delete lib;
    return CUDA_SUCCESS;
  });
}
API CUresult cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
  return enter("cuLibraryGetKernel", INIT, [&] {
    auto* lib = (Library*)handle;
    if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
    if (!libraries.count(lib)) return CUDA_ERROR_INVALID_HANDLE;
    auto it = lib->kernels.find(name);
    if (it == lib->kernels.end() && lib->image.opaque) it = lib->kernels.emplace(name, new_function(name, nullptr)).first;
    if (it == lib->kernels.end() || !it->second->kernel) return CUDA_ERROR_NOT_FOUND;
    *out = (CUkernel)it->second;
    return CUDA_SUCCESS;
  });
}
API CUresult cuLibraryGetModule(CUmodule* out, CUlibrary handle) {
  return enter("cuLibraryGetModule", CONTEXT, [&] {
    auto* lib = (Library*)handle;
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (!libraries.count(lib)) return CUDA_ERROR_INVALID_HANDLE;
    Module* m = nullptr;
    CUresult result = module_in(lib, &m);
    *out = (CUmodule)m;
    return result;
  });
}
API CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary lib, const char* name) { return library_variable("cuLibraryGetGlobal", dptr, bytes, lib, name, false); }
API CUresult cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary lib, const char* name) { return library_variable("cuLibraryGetManaged", dptr, bytes, lib, name, true); }
API CUresult cuKernelGetFunction(CUfunction* out, CUkernel kernel) {
  return enter("cuKernelGetFunction", CONTEXT, [&] {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (!functions.count((Function*)kernel)) return CUDA_ERROR_INVALID_HANDLE;
    *out = (CUfunction)kernel;
    return CUDA_SUCCESS;
  });
}

#define LAUNCH(name, per_thread)                                                                                                       \
  API CUresult name(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned, CUstream s, \
                    void** params, void** extra) {                                                                                    \
    return launch(#name, f, gx * gy * gz, bx * by * bz, s, params, extra, per_thread);                                                 \
  }
LAUNCH(cuLaunchKernel, false)
LAUNCH(cuLaunchKernel_ptsz, true)
#define LAUNCH_COOPERATIVE(name, per_thread)                                                                                                        \
  API CUresult name(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned, CUstream s, void** params) { \
    return launch(#name, f, gx * gy * gz, bx * by * bz, s, params, nullptr, per_thread);                                                            \
  }
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, false)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, true)
#define LAUNCH_EX(name, per_thread)                                                                                           \
  API CUresult name(const CUlaunchConfig* c, CUfunction f, void** params, void** extra) {                                      \
    if (!c) return CUDA_ERROR_INVALID_VALUE;                                                                                  \
    return launch(#name, f, c->gridDimX * c->gridDimY * c->gridDimZ, c->blockDimX * c->blockDimY * c->blockDimZ, c->hStream,   \
                  params, extra, per_thread);                                                                                 \
  }
LAUNCH_EX(cuLaunchKernelEx, false)
LAUNCH_EX(cuLaunchKernelEx_ptsz, true)
