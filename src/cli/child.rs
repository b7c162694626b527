//! The program as a child in our own process group: it has the terminal, and gets the signals that are sent to us.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Cause;

/// Signals that are passed on.
const PASSED: [i32; 6] = [SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2];

/// Catches the signals to be passed on, from before the program starts. Those that we were started to ignore (`nohup`)
/// stay ignored, also by the program.
pub struct Signals(SignalsInfo<WithOrigin>);

impl Signals {
    /// Begins to catch.
    pub fn catch() -> io::Result<Signals> {
        let ignored = ignored();
        let signals = PASSED.into_iter().filter(|s| ignored & (1 << (s - 1)) == 0);
        Ok(Signals(SignalsInfo::new(signals)?))
    }

    /// Waits for the program to end, and passes on signals meanwhile.
    pub fn wait(mut self, child: &mut Child) -> io::Result<ExitStatus> {
        let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return child.wait() };
        let handle = self.0.handle();
        let passing = std::thread::spawn(move || {
            for origin in self.0.forever() {
                // What the terminal sends (Ctrl-C) has reached the program already: it is in the same group.
                if matches!(origin.cause, Cause::Sent(_))
                    && let Some(signal) = Signal::from_named_raw(origin.signal)
                {
                    let _ = rustix::process::kill_process(pid, signal);
                }
            }
        });
        // Not reaped before the passing has ended: until then its number is not another's.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(rustix::io::Errno::INTR) = rustix::process::waitid(WaitId::Pid(pid), options) {}
        handle.close();
        let _ = passing.join();
        child.wait()
    }
}

/// Bit n − 1: signal n is ignored.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    line.and_then(|l| u64::from_str_radix(l.trim(), 16).ok()).unwrap_or(0)
}

/// Starts the program.
pub fn start(command: &mut Command) -> io::Result<Child> {
    command.spawn()
}

/// Ends this process as the program ended: with its exit code, or by the signal that killed it, as a shell wants it.
pub fn end_like(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        // One core dump is enough.
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
        if signal_hook::low_level::signal_name(signal).is_some() {
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    }
    ExitCode::from(code(status) as u8)
}

/// The exit code, or 128 + signal.
pub fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|s| 128 + s)).unwrap_or(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(script: &str, while_it_runs: impl FnOnce()) -> ExitStatus {
        let signals = Signals::catch().unwrap();
        let mut child = start(Command::new("sh").args(["-c", script])).unwrap();
        while_it_runs();
        signals.wait(&mut child).unwrap()
    }

    #[test]
    fn codes_and_signals() {
        assert_eq!(code(ran("exit 7", || ())), 7);
        assert_eq!(code(ran("kill -KILL $$", || ())), 137);
        let folder = tempfile::tempdir().unwrap();
        let ready = folder.path().join("ready");
        let script = format!("trap 'exit 9' USR1; touch {}; while :; do sleep 0.01; done", ready.display());
        let status = ran(&script, || {
            while !ready.exists() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            rustix::process::kill_process(rustix::process::getpid(), Signal::USR1).unwrap();
        });
        assert_eq!(code(status), 9, "a signal sent to us reaches the program");
    }
}
