//! The command `vramscope`: runs programs under the preload library and explains their histories.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    vramscope_cli::cli::main()
}
