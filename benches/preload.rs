//! What the preload library costs a call, in a whole process, over a driver that does nothing: bare, pooled, recorded.
//! `cargo build --release --workspace` first.

use std::path::Path;
use std::process::Command;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = root.join("target/bench-preload");
    std::fs::create_dir_all(&out).expect("a folder under target/");
    let library = root.join("target/release/libvramscope.so");
    if !library.exists() {
        println!("no {}: cargo build --release --workspace", library.display());
        return;
    }
    let driver = out.join("libcuda.so.1");
    let program = out.join("pairs");
    compile(&[
        "-shared",
        "-fPIC",
        "-Wl,-soname,libcuda.so.1",
        "-o",
        text(&driver),
        text(&root.join("benches/preload/driver.c")),
    ]);
    compile(&["-o", text(&program), text(&root.join("benches/preload/pairs.c")), text(&driver)]);
    for (name, settings) in [
        ("bare", None),
        ("pooled, no history", Some([("VRAMSCOPE_TRACE", "off"), ("VRAMSCOPE_STACKS", "off")])),
        ("pooled, recorded", Some([("VRAMSCOPE_TRACE", "/dev/null"), ("VRAMSCOPE_STACKS", "off")])),
        ("pooled, recorded, stacks", Some([("VRAMSCOPE_TRACE", "/dev/null"), ("VRAMSCOPE_STACKS", "native")])),
    ] {
        println!("{name}");
        let mut run = Command::new(&program);
        run.env("LD_LIBRARY_PATH", &out);
        if let Some(settings) = settings {
            run.env("LD_PRELOAD", &library).envs(settings);
        }
        run.status().expect("the program runs");
    }
}

fn text(p: &Path) -> &str {
    p.to_str().expect("a path in UTF-8")
}

fn compile(arguments: &[&str]) {
    let done = Command::new("gcc").args(["-O2", "-Wall"]).args(arguments).status();
    assert!(done.is_ok_and(|s| s.success()), "gcc is needed");
}
