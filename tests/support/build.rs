//! Builds what the tests run. Several test binaries may run at once, and threads of one: a lock on the file to be made.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rustix::fs::{FlockOperation, flock};

/// The repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Cargo's folder for the profile that this test was built in (`target/debug`).
pub fn profile_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let me = std::env::current_exe().expect("a test has a path");
        // …/debug/deps/name-hash
        me.parent().and_then(Path::parent).expect("cargo's layout").to_owned()
    })
}

fn done(what: &str, command: &mut Command) {
    let out = command.output().unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(
        out.status.success(),
        "{what} failed:\n{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
}

/// Holds the lock of a file to be made.
fn lock(path: &Path) -> File {
    fs::create_dir_all(path.parent().expect("a file in a folder")).expect("the build folder");
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = File::create(&name).expect("a lock file");
    flock(&file, FlockOperation::LockExclusive).expect("flock");
    file
}

/// `libvramscope.so`, built in the profile of the test.
pub fn vramscope_library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let release = profile_dir().file_name().is_some_and(|n| n == "release");
        build_library(release);
        profile_dir().join("libvramscope.so")
    })
}

/// `libvramscope.so` as it is shipped. (Its size is promised of this one.)
pub fn release_library() -> PathBuf {
    build_library(true);
    profile_dir().parent().expect("cargo's layout").join("release/libvramscope.so")
}

fn build_library(release: bool) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--package", "vramscope-shim", "--manifest-path"]).arg(root().join("Cargo.toml"));
    command.arg("--target-dir").arg(profile_dir().parent().expect("cargo's layout"));
    if release {
        command.arg("--release");
    }
    done("building libvramscope.so", &mut command);
}

/// The folder with the simulated `libcuda.so.1` and `libcudart.so.13`/`.12`.
pub fn simgpu() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let out = profile_dir().join("simgpu");
        let mut command = Command::new("make");
        command.arg("--no-print-directory").arg("-C").arg(root().join("tests/simgpu"));
        // A jobserver of an outer make is not ours.
        command.arg(format!("OUT={}", out.display())).env_remove("MAKEFLAGS");
        done("building tests/simgpu", &mut command);
        out
    })
}

/// A folder with a simulated driver in which a source file of `tests/programs` stands before the true functions.
pub fn simgpu_with(source: &str) -> PathBuf {
    let out = profile_dir().join(format!("simgpu-{source}/libcuda.so.1"));
    let objects = simgpu().join("obj");
    let _lock = lock(&out);
    let mut gcc = Command::new("g++");
    gcc.args(["-shared", "-fPIC", "-pthread", "-Wl,-Bsymbolic", "-Wl,-z,nodelete", "-Wl,-soname,libcuda.so.1"]);
    // The first definition counts.
    gcc.arg("-Wl,--allow-multiple-definition").arg("-I").arg(root().join("tests/simgpu"));
    gcc.arg(root().join("tests/programs").join(source));
    let temporary = out.with_extension("tmp");
    gcc.arg("-o").arg(&temporary);
    let mut all: Vec<PathBuf> = fs::read_dir(objects).expect("objects").flatten().map(|e| e.path()).collect();
    all.retain(|p| {
        p.extension().is_some_and(|e| e == "o")
            && !p.file_name().unwrap_or_default().to_string_lossy().starts_with("cudart")
    });
    all.sort();
    gcc.args(all);
    done(&format!("linking a driver with {source}"), &mut gcc);
    fs::rename(&temporary, &out).expect("the driver");
    out.parent().expect("a folder").to_owned()
}

/// What a program is linked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// libcudart.so.13 and libcuda.so.1.
    Runtime13,
    /// libcudart.so.12 and libcuda.so.1.
    Runtime12,
    /// The static runtime; the program's own kernels come through libcuda.so.1.
    Static,
    /// libcuda.so.1 only.
    Driver,
    /// Nothing of CUDA: everything comes through dlopen.
    None,
    /// A shared library linked with libcudart.so.13.
    Library,
    /// A shared library linked with libcudart.so.12.
    Library12,
    /// A shared library that finds others in `plugins` beside itself.
    WithPlugins,
    /// A shared library in that folder.
    Plugin,
    /// A shared library linked with nothing.
    PlainLibrary,
    /// A shared library linked with libcudart.so.13 and with `libc10.so` beside it.
    OnC10,
}

impl Link {
    /// Every way to link the runtime.
    pub const RUNTIME: [Link; 3] = [Link::Runtime13, Link::Runtime12, Link::Static];

    fn name(self) -> &'static str {
        match self {
            Link::Runtime13 => "cudart13",
            Link::Runtime12 => "cudart12",
            Link::Static => "static",
            Link::Driver => "driver",
            Link::None => "plain",
            Link::Library | Link::Library12 | Link::PlainLibrary | Link::OnC10 | Link::WithPlugins | Link::Plugin => {
                "so"
            }
        }
    }
}

/// The built programs.
pub fn programs_dir() -> PathBuf {
    profile_dir().join("programs")
}

/// Compiles `tests/programs/<name>` if needed, and returns the result's path.
pub fn program(name: &str, link: Link) -> PathBuf {
    let folder = root().join("tests/programs");
    match folder.join(format!("{name}.cpp")) {
        path if path.exists() => program_at(&path, link),
        _ => program_at(&folder.join(format!("{name}.c")), link),
    }
}

/// Compiles a source file.
pub fn program_at(source: &Path, link: Link) -> PathBuf {
    let folder = root().join("tests/programs");
    let cpp = source.extension().is_some_and(|e| e == "cpp");
    let name = source.file_stem().unwrap_or_default().to_string_lossy();
    let library = link.name() == "so";
    let out = programs_dir().join(match link {
        Link::Library12 => format!("lib{name}12.so"),
        Link::Plugin => format!("plugins/lib{name}.so"),
        _ if library => format!("lib{name}.so"),
        _ => format!("{name}-{}", link.name()),
    });
    let simgpu = simgpu();
    let inputs = [
        source.to_owned(),
        folder.join("common.h"),
        folder.join("ordered.h"),
        root().join("include/vramscope.h"),
        root().join("tests/simgpu/cuda_mini.h"),
        root().join("tests/simgpu/kernels.ptx.h"),
        root().join("tests/simgpu/ordered_facts.h"),
        simgpu.join("libcudart_static.a"),
    ];
    let _lock = lock(&out);
    let time = |p: &Path| fs::metadata(p).and_then(|m| m.modified()).ok();
    let newest = inputs.iter().map(|p| time(p).unwrap_or_else(|| panic!("{} is missing", p.display()))).max();
    if time(&out).is_some_and(|t| Some(t) >= newest) {
        return out;
    }
    let mut gcc = Command::new(if cpp { "g++" } else { "gcc" });
    if !cpp {
        gcc.arg("-std=gnu11");
    }
    gcc.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-Wl,--build-id"]);
    // A program may stand in for the C library here (process.c).
    gcc.args(["posix_fallocate", "nanosleep", "write"].map(|name| format!("-Wl,--export-dynamic-symbol={name}")));
    gcc.arg("-I").arg(root().join("tests/simgpu")).arg("-I").arg(&folder).arg("-I").arg(root().join("include"));
    gcc.arg("-isystem").arg(root().join("tests/third_party"));
    if library {
        gcc.args(["-shared", "-fPIC"]);
    }
    // A new file and a rename: another process may be running the old one.
    let temporary = out.with_extension("tmp");
    gcc.arg("-o").arg(&temporary).arg(source).arg("-L").arg(simgpu).arg("-Wl,--no-as-needed");
    match link {
        Link::Runtime13 => gcc.args(["-l:libcudart.so.13", "-l:libcuda.so.1"]),
        Link::Runtime12 => gcc.args(["-l:libcudart.so.12", "-l:libcuda.so.1"]),
        Link::Static => gcc.arg(simgpu.join("libcudart_static.a")).arg("-l:libcuda.so.1"),
        Link::Driver => gcc.arg("-l:libcuda.so.1"),
        Link::Library => gcc.arg("-l:libcudart.so.13"),
        Link::Library12 => gcc.arg("-l:libcudart.so.12"),
        Link::OnC10 => {
            gcc.arg("-l:libcudart.so.13").arg("-L").arg(programs_dir()).args(["-l:libc10.so", "-Wl,-rpath,$ORIGIN"])
        }
        Link::WithPlugins => gcc.args(["-Wl,--enable-new-dtags", "-Wl,-rpath,$ORIGIN/plugins"]),
        Link::None | Link::PlainLibrary | Link::Plugin => gcc.arg("-Wl,--as-needed"),
    };
    // The simulated libraries have C++ in them that a C program does not link.
    gcc.args(["-ldl", "-Wl,--allow-shlib-undefined"]);
    done(&format!("compiling {}", source.display()), &mut gcc);
    fs::rename(&temporary, &out).expect("the compiled program");
    out
}
