//! One file a command; and what they share: [`settings`], where the library is ([`preload`]), spools ([`spool`]).
//!
//! Exit codes: 0 fine, 1 found something, 2 could not. `run` ends as the program that it ran. What judges (`check`, `verify`,
//! `recover`, `diff --fail-if-grew`, `doctor`) finds something where a history is not whole; what shows or converts one says so
//! on stderr, and did what was asked.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub mod check;
pub mod child;
pub mod ctl;
pub mod diff;
pub mod doctor;
pub mod elf;
pub mod ending;
pub mod export;
pub mod frameworks;
pub mod harvest;
pub mod import;
pub mod merge;
pub mod new_file;
pub mod preload;
pub mod probe;
pub mod process;
pub mod program;
pub mod raw_lines;
pub mod recover;
pub mod report;
pub mod run;
pub mod run_dir;
pub mod say;
pub mod settings;
pub mod spool;
pub mod stray;
pub mod symbolize;
pub mod verify;
mod whole;

/// Sees every byte of GPU memory a CUDA program asks for, pools it, and explains what it was for.
#[derive(Debug, Parser)]
#[command(name = "vramscope", version, about, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program under vramscope, and say in six lines what it did with GPU memory
    Run(run::Args),
    /// Explain a history: verdict, peak, holders, leaks, out of memory, fragmentation, churn
    Report(report::Args),
    /// Assert what a history must hold (peak, leaks, waste), for scripts and CI
    Check(check::Args),
    /// Write a history in the format of another tool
    Export(export::Args),
    /// Make a history of a memory snapshot of PyTorch, or of a log of RMM
    Import(import::Args),
    /// Compare two runs: what grew, what shrank, by call stack
    Diff(diff::Args),
    /// Show the ranks of a distributed job side by side: which one is odd, and why
    Merge(merge::Args),
    /// Check that a history is whole and consistent
    Verify(verify::Args),
    /// Finish the histories of programs that were killed
    Recover(recover::Args),
    /// Copy a history with its functions' names in it, to read it on another machine
    Symbolize(symbolize::Args),
    /// Ask a running process: what is in use, a snapshot, a trim, a limit
    Ctl(ctl::Args),
    /// Check that vramscope can work here; with a program, also which of its calls are seen
    Doctor(doctor::Args),
}

/// Runs the command of this process.
pub fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Merge(args) => merge::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Recover(args) => recover::run(&args),
        Command::Symbolize(args) => symbolize::run(&args),
        Command::Ctl(args) => ctl::run(&args),
        Command::Doctor(args) => doctor::run(&args),
    };
    done.unwrap_or_else(|e| {
        say::line(&say::plain(&format!("{e:#}")));
        ExitCode::from(2)
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_commands_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_programs_flags_are_its_own() {
        let cli = Cli::parse_from(["vramscope", "run", "--pool", "off", "--off", "python", "--pool", "x"]);
        let Command::Run(args) = cli.command else { panic!("run expected") };
        assert_eq!(args.program, ["python", "--pool", "x"]);
        assert_eq!(args.flags.get("VRAMSCOPE_POOL").unwrap(), "off");
        assert_eq!(args.flags.get("VRAMSCOPE").unwrap(), "off");
        assert_eq!(args.flags.get("VRAMSCOPE_SYNC"), None);
    }

    #[test]
    fn every_setting_is_a_flag() {
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        for s in settings::SETTINGS {
            let flag = run.get_arguments().find(|a| a.get_long() == Some(s.flag)).unwrap();
            let help = flag.get_help().unwrap().to_string();
            // A flag without a value is what the default is not.
            let default = matches!(s.values, settings::Values::Switch(_)) || help.contains(s.default);
            assert!(help.contains(s.variable) && default, "{help}");
        }
    }

    #[test]
    fn a_wrong_flag_ends_the_command_and_names_the_allowed() {
        let e = Cli::try_parse_from(["vramscope", "run", "--pool", "maybe", "true"]).unwrap_err();
        let text = e.to_string();
        assert!(text.contains("auto") && text.contains("on") && text.contains("off"), "{text}");
        assert_eq!(e.exit_code(), 2);
        let e = Cli::try_parse_from(["vramscope", "run", "--max-cached", "lots", "true"]).unwrap_err();
        assert!(e.to_string().contains("512MiB"), "{e}");
    }
}
