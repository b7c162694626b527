//! Whether processes live, as /proc of this machine (and pid namespace) tells.

/// When the process of this number started, in clock ticks since boot; `None` if it is gone or only waits to be reaped.
pub fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    started_by(&stat)
}

/// The same, of a `/proc/<pid>/stat`.
fn started_by(stat: &str) -> Option<u64> {
    // The name in brackets may hold anything.
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
    let threads: u64 = fields.get(17)?.parse().ok()?;
    // A process whose first thread has ended looks like a dead one, but for its other threads.
    if matches!(*fields.first()?, "Z" | "X") && threads <= 1 {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// Whether the process of this number lives that ran at this time, in seconds since 1970, on a machine of this name. (A
/// later one may have its number.)
pub fn ran_at(pid: u32, seconds: u64, host: &str) -> bool {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    if text("/proc/sys/kernel/hostname").trim_end() != host {
        return false;
    }
    let stat = text("/proc/stat");
    let boot: Option<u64> = stat.lines().find_map(|l| l.strip_prefix("btime ")?.trim().parse().ok());
    // Ticks are hundredths of a second on every Linux that has users; the boot time is rounded.
    started(pid).zip(boot).is_some_and(|(ticks, boot)| boot + ticks / 100 <= seconds + 2)
}

/// Whether a process of this number lives that is a `vramscope`.
pub fn is_vramscope(pid: u32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end() == "vramscope" && started(pid).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_live_or_not() {
        assert!(started(std::process::id()).is_some_and(|t| t > 0));
        assert_eq!(started(u32::MAX), None);
        assert!(!is_vramscope(std::process::id()) && !is_vramscope(u32::MAX));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert_eq!(started(child.id()), None, "one that waits to be reaped is dead");
        child.wait().unwrap();
    }

    #[test]
    fn a_later_process_of_the_number_is_another() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert!(ran_at(std::process::id(), now, host.trim()));
        assert!(!ran_at(std::process::id(), now - 100_000_000, host.trim()));
        assert!(!ran_at(std::process::id(), now, "another machine") && !ran_at(u32::MAX, now, host.trim()));
    }

    #[test]
    fn a_process_lives_while_any_of_its_threads_does() {
        let stat = |state: &str, threads: u32| {
            format!("7 (a) b) {state} 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 {threads} 0 4242 0 0 0")
        };
        assert_eq!(started_by(&stat("S", 1)), Some(4242));
        assert_eq!(started_by(&stat("Z", 3)), Some(4242), "its main thread has ended");
        assert_eq!(started_by(&stat("Z", 1)), None);
        assert_eq!(started_by("nonsense"), None);
    }
}
