//! Compiles shim.c and keeps libgcc_s out of the library's NEEDED list.
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src/shim.c");
    println!("cargo::rerun-if-changed=build.rs");
    cc::Build::new()
        .file("src/shim.c")
        .opt_level(2)
        .flag("-fvisibility=hidden")
        .flag_if_supported("-fno-stack-protector")
        .warnings_into_errors(true)
        .compile("vramscope_shim_c");
    // A preloaded library whose NEEDED library is missing stops every program from starting, `/bin/true` included. The
    // unwinder that Rust's panics need is linked in; named here it comes before std's own `-lgcc_s`, which
    // `--as-needed` then drops.
    link_unwinder();
    println!("cargo::rustc-cdylib-link-arg=-Wl,--as-needed");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libvramscope.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,relro,-z,now");
    // Leaked state points into this library from other libraries' destructors and from a running thread.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

/// libgcc's unwinder, with its own `__register_frame` out of the way: we export that name, and a hidden definition of it
/// would hide ours.
fn link_unwinder() {
    let compiler = cc::Build::new().get_compiler();
    let found = Command::new(compiler.path()).arg("-print-file-name=libgcc_eh.a").output();
    let Some(archive) = found.ok().and_then(|o| String::from_utf8(o.stdout).ok()) else { return };
    let archive = Path::new(archive.trim());
    // Where there is none (no static libgcc), the library needs libgcc_s.so.1; a test says so.
    if !archive.is_absolute() {
        return;
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let copy = out.join("libvramscope_gcc_eh.a");
    let mut objcopy = Command::new(std::env::var_os("OBJCOPY").unwrap_or_else(|| "objcopy".into()));
    for name in ["__register_frame", "__deregister_frame"] {
        objcopy.arg("--redefine-sym").arg(format!("{name}=vramscope_gcc{name}"));
    }
    let done = objcopy.arg(archive).arg(&copy).status();
    assert!(done.is_ok_and(|s| s.success()), "objcopy (binutils) is needed to link {}", archive.display());
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-link-lib=static:-bundle=vramscope_gcc_eh");
}
