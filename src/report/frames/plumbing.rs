//! Which frames say nothing: the way from the program into our hook, what called `main`, and how a standard library does
//! what it was called for.

use super::Entry;

/// The way from the program into our hook.
pub(super) fn plumbing(e: &Entry) -> bool {
    if e.is_python() {
        return false;
    }
    const MODULES: [&str; 3] = ["libvramscope.so", "libcudart.so", "libcuda.so"];
    // The runtime linked into a program has these names, if any.
    const FUNCTIONS: [&str; 6] = ["__cudart", "cudart::", "libcudart_static_", "cudaMalloc", "cudaFree", "cudaHost"];
    // Templates of cuda_runtime.h: `cudaError cudaMalloc<float>(float**, unsigned long)`.
    let function = e.function.strip_prefix("cudaError ").or(e.function.strip_prefix("static ")).unwrap_or(&e.function);
    MODULES.iter().any(|m| e.module.starts_with(m)) || FUNCTIONS.iter().any(|f| function.starts_with(f))
}

/// What called `main`, or a thread's function: from there on, nothing is the program's.
pub(super) fn start(e: &Entry) -> bool {
    if e.is_python() {
        return false;
    }
    const C: [&str; 6] = ["_start", "__libc_start_main", "__libc_start_call_main", "clone", "clone3", "start_thread"];
    const ANY: [&str; 4] =
        ["__libc_start_main_", "__clone", "std::rt::lang_start", "std::sys::backtrace::__rust_begin"];
    let function = e.function.split('@').next().unwrap_or_default();
    const BELOW: [&str; 3] = ["libc.so", "libpthread.so", "libstdc++.so"];
    let loader = e.function.is_empty() && BELOW.iter().any(|m| e.module.starts_with(m));
    C.contains(&function) || loader || ANY.iter().any(|s| function.starts_with(s))
}

/// Whether a source file is one of a standard library: of C++, of Rust, or of CUDA.
pub(super) fn standard(file: &str) -> bool {
    const CXX: [&str; 6] =
        ["/include/c++/", "/include/cub/", "/include/thrust/", "/include/cuda/std/", "/include/cccl/", "/rustlib/"];
    const RUST: [&str; 3] = ["library/core/src/", "library/alloc/src/", "library/std/src/"];
    let gcc = file.find("/lib/gcc/").is_some_and(|at| file[at..].contains("/include/"));
    // `/rustc/COMMIT/library/core/src/option.rs`
    let rust = file.strip_prefix("/rustc/").and_then(|f| f.split_once('/')).map_or(file, |(_, inside)| inside);
    gcc || CXX.iter().any(|c| file.contains(c)) || RUST.iter().any(|r| rust.starts_with(r))
}

#[cfg(test)]
mod tests {
    use super::standard;

    #[test]
    fn files_of_standard_libraries() {
        for file in [
            "/usr/include/c++/12/vector",
            "/opt/conda/lib/gcc/x86_64-conda-linux-gnu/12.4.0/include/c++/bits/stl_map.h",
            "/usr/lib/gcc/x86_64-linux-gnu/12/include/avxintrin.h",
            "/home/ann/.rustup/toolchains/stable/lib/rustlib/src/rust/library/core/src/ops/function.rs",
            "/rustc/5980/library/alloc/src/vec/mod.rs",
            "library/std/src/rt.rs",
            "/usr/local/cuda-13.0/targets/x86_64-linux/include/cub/device/device_scan.cuh",
            "/usr/local/cuda/include/thrust/device_vector.h",
            "/usr/local/cuda/include/cccl/cuda/std/span",
        ] {
            assert!(standard(file), "{file}");
        }
        for file in
            ["/job/thrust/main.cu", "/job/library/core/src/a.rs", "/usr/include/stdio.h", "/job/include/cuda.h", ""]
        {
            assert!(!standard(file), "{file}");
        }
    }
}
