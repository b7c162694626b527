//! The file that a process leaves in its launcher's folder when its history could not be written: the reason is in it. The
//! launcher could not know otherwise that there was something to record.

const PREFIX: &str = "unwritten.";

/// Name of a process's file.
pub fn name(pid: u32) -> String {
    format!("{PREFIX}{pid}")
}

/// The process whose file has this name.
pub fn pid_of(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.parse().ok()
}
