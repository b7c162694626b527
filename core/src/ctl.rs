//! Where a running process is asked, and in which version of the words: the preload library listens, `vramscope ctl` asks.
//!
//! One JSON object a line, one line each way. A question has `version` and `ask`; an answer has `version` and either `ok` or
//! `error`, a sentence.

/// Version of the protocol.
pub const VERSION: u64 = 1;
/// Most bytes of a line of either.
pub const LONGEST: usize = 1 << 16;
/// Where the sockets of processes without a launcher are.
pub const FOLDER: &str = "/dev/shm";

const IN_RUN_DIR: &str = "ctl.";
const OUTSIDE: &str = "vramscope-ctl.";

/// Name of a process's socket in its launcher's folder.
pub fn name_in_run_dir(pid: u32) -> String {
    format!("{IN_RUN_DIR}{pid}")
}

/// Name of a process's socket in [`FOLDER`].
pub fn name_outside(pid: u32) -> String {
    format!("{OUTSIDE}{pid}")
}

/// The process whose socket has this name.
pub fn pid_of(name: &str) -> Option<u32> {
    name.strip_prefix(OUTSIDE).or_else(|| name.strip_prefix(IN_RUN_DIR))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_its_process() {
        assert_eq!(pid_of(&name_in_run_dir(7)), Some(7));
        assert_eq!(pid_of(&name_outside(4711)), Some(4711));
        assert!(["ctl.", "ctl.x", "spool.7.1", "vramscope-spool.7.1"].iter().all(|n| pid_of(n).is_none()));
    }
}
