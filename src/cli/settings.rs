//! Every setting of the preload library, once: its variable, its flag, what it allows, its default.
//!
//! `vramscope run` makes its flags of this list and hands the values on as variables. A wrong flag ends the command
//! (exit 2); a wrong variable is the library's to refuse, which says so and lets the program run.

use std::ffi::OsString;

use clap::builder::{OsStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command};

use vramscope_core::arena::LEAST_SPLIT;
use vramscope_core::limit;
use vramscope_core::size::{self, Size};

use crate::report::text::{bytes, plural};

/// What a setting allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// One of these words, each with what it means.
    OneOf(&'static [(&'static str, &'static str)]),
    /// A size, `512MiB`; with `percent` also a part of the device, `10%`.
    Size {
        /// Whether a percentage is allowed.
        percent: bool,
        /// The smallest.
        least: u64,
    },
    /// As [`limit::parse`] reads them: one for all devices, or one a device.
    Limits,
    /// A part between 0 and 1; 0 for none.
    Part,
    /// A whole number from 1 on.
    Number {
        /// The largest.
        most: u32,
    },
    /// A path with `%p`, `%h`, `%r`, `%n`.
    Path,
    /// Program names, with commas between.
    Names,
    /// A flag without a value, which sets the variable to this word.
    Switch(&'static str),
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The environment variable.
    pub variable: &'static str,
    /// The flag of `vramscope run`, without its dashes.
    pub flag: &'static str,
    /// What it allows.
    pub values: Values,
    /// What holds when it is not given, in words.
    pub default: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
}

/// The file a history is written to when nothing else is said.
pub const DEFAULT_TRACE: &str = "vramscope-%n-%p.jsonl";

/// All settings.
pub const SETTINGS: &[Setting] = &[
    Setting {
        variable: "VRAMSCOPE_TRACE",
        flag: "trace",
        values: Values::Path,
        default: DEFAULT_TRACE,
        help: "Where the history goes: %p pid, %h host, %r rank, %n program; .zst compresses; `off` for none",
    },
    Setting {
        variable: "VRAMSCOPE_POOL",
        flag: "pool",
        values: Values::OneOf(&[
            ("auto", "plain allocations come from the pool, stream-ordered ones are recorded"),
            ("on", "both; PyTorch, JAX and CuPy are asked to take their memory there"),
            ("off", "record only"),
        ]),
        default: "auto",
        help: "Which allocations the caching pool serves",
    },
    Setting {
        variable: "VRAMSCOPE_STACKS",
        flag: "stacks",
        values: Values::OneOf(&[
            ("off", "none"),
            ("native", "C, C++ and Rust frames"),
            ("python", "Python frames"),
            ("all", "both, in the order of the calls"),
        ]),
        default: "all",
        help: "Which call stacks are recorded",
    },
    Setting {
        variable: "VRAMSCOPE_STACK_DEPTH",
        flag: "stack-depth",
        values: Values::Number { most: 1024 },
        default: "128",
        help: "Most frames of a stack, native and Python ones each, the innermost: 1 to 1024",
    },
    Setting {
        variable: "VRAMSCOPE_STACKS_ON_FREE",
        flag: "stacks-on-free",
        values: Values::OneOf(&[("on", "frees carry their stack, too"), ("off", "allocations only")]),
        default: "on",
        help: "Whether frees are recorded with their call stacks",
    },
    Setting {
        variable: "VRAMSCOPE_SYNC",
        flag: "sync",
        values: Values::OneOf(&[
            ("auto", "the host waits too while it could see the difference"),
            ("device", "only the GPU waits"),
            ("host", "the host waits in every free, as in cudaFree"),
        ]),
        default: "auto",
        help: "Who waits when the pool keeps a freed block",
    },
    Setting {
        variable: "VRAMSCOPE_LIMIT",
        flag: "limit",
        values: Values::Limits,
        default: "no limit",
        help: "Out of memory at so many bytes of a device: 24GiB, 80%, 0.8, none, or one a device, 0:24GiB,1:50%",
    },
    Setting {
        variable: "VRAMSCOPE_MAX_CACHED",
        flag: "max-cached",
        values: Values::Size { percent: true, least: 0 },
        default: "25%",
        help: "Most bytes the pool keeps for reuse: 512MiB, or 10% of the device",
    },
    Setting {
        variable: "VRAMSCOPE_MAX_SPLIT_SIZE",
        flag: "max-split-size",
        values: Values::Size { percent: false, least: LEAST_SPLIT },
        default: "no limit",
        help: "Blocks of --pool on from this size (20MiB at least) up are not split, as PyTorch's max_split_size_mb: 512MiB",
    },
    Setting {
        variable: "VRAMSCOPE_STITCH",
        flag: "stitch",
        values: Values::OneOf(&[
            ("on", "from 4 MiB up, before more is mapped (default)"),
            ("off", "each block lies in one place"),
        ]),
        default: "on",
        help: "Large blocks of --pool on are made of free memory in many places",
    },
    Setting {
        variable: "VRAMSCOPE_GC_THRESHOLD",
        flag: "gc-threshold",
        values: Values::Part,
        default: "off",
        help: "Of --pool on: from this part of the device or its limit up, unused blocks go back, as PyTorch's garbage_collection_threshold",
    },
    Setting {
        variable: "VRAMSCOPE_MAX_TRACE",
        flag: "max-trace",
        values: Values::Size { percent: false, least: 0 },
        default: "no limit",
        help: "Most bytes of history kept: 2GiB",
    },
    Setting {
        variable: "VRAMSCOPE_POISON",
        flag: "poison",
        values: Values::OneOf(&[
            ("on", "0xcd in fresh blocks, 0xff in freed ones; every free waits"),
            ("off", "they are left as they are"),
        ]),
        default: "off",
        help: "Fill freed and fresh blocks with a pattern, to find use of stale memory",
    },
    Setting {
        variable: "VRAMSCOPE_SNAPSHOT_SIGNAL",
        flag: "snapshot-signal",
        values: Values::OneOf(&[("off", "none"), ("USR1", "SIGUSR1"), ("USR2", "SIGUSR2")]),
        default: "off",
        help: "A signal at which what is live is written beside the history, as NAME.snapshot-N.jsonl",
    },
    Setting {
        variable: "VRAMSCOPE_NVTX",
        flag: "nvtx",
        values: Values::OneOf(&[("on", "they become regions and marks of the history"), ("off", "they are ignored")]),
        default: "on",
        help: "What becomes of the program's NVTX ranges",
    },
    Setting {
        variable: "VRAMSCOPE_ONLY",
        flag: "only",
        values: Values::Names,
        default: "every program",
        help: "Trace only programs of these names, comma separated; others run untouched",
    },
    Setting {
        variable: "VRAMSCOPE_LOG",
        flag: "log",
        values: Values::OneOf(&[
            ("off", "nothing"),
            ("error", "what went wrong"),
            ("info", "also notices"),
            ("debug", "also every hook found"),
        ]),
        default: "error",
        help: "What the library says on stderr",
    },
    Setting {
        variable: "VRAMSCOPE",
        flag: "off",
        values: Values::Switch("off"),
        default: "on",
        help: "The kill switch: load the library but let it do nothing",
    },
];

impl Setting {
    /// The value as the library gets it, or what is allowed instead.
    pub fn check(&self, text: &str) -> Result<String, String> {
        match self.values {
            Values::OneOf(words) if words.iter().any(|(w, _)| *w == text) => Ok(text.to_string()),
            Values::OneOf(words) => {
                let words: Vec<_> = words.iter().map(|(w, _)| *w).collect();
                Err(format!("'{text}' is not one of {}", words.join(", ")))
            }
            Values::Size { percent, least } => match size::parse(text, percent)? {
                Size::Bytes(n) if n < least => Err(format!("'{text}' is too small; allowed: {} or more", bytes(least))),
                Size::Bytes(n) if size::lacks_unit(text, n) => {
                    let bytes = plural(n, "byte");
                    Err(match percent {
                        true if n <= 100 => format!("'{text}' is {bytes}; write {n}% or {n}MiB (0 keeps nothing)"),
                        true => format!("'{text}' is {bytes}; write {n}MiB or {n}KiB (0 keeps nothing)"),
                        false => format!("'{text}' is {bytes}; write {n}MiB or {n}KiB (0: no limit)"),
                    })
                }
                Size::Bytes(n) => Ok(n.to_string()),
                Size::Percent(n) => Ok(format!("{n}%")),
            },
            Values::Limits => limit::parse(text).map(|_| text.to_string()),
            Values::Part => match text.trim().parse::<f64>() {
                Ok(part) if (0.0..1.0).contains(&part) => Ok(text.trim().to_string()),
                _ => Err(format!("'{text}' is no part; allowed: a number between 0 and 1, like 0.8 (0: off)")),
            },
            Values::Number { most } => match text.trim().parse() {
                Ok(n) if (1..=most).contains(&n) => Ok(n.to_string()),
                _ => Err(format!("'{text}' is not a number from 1 to {most}")),
            },
            Values::Switch(word) if text == word => Ok(text.to_string()),
            Values::Switch(word) => Err(format!("'{text}' is not {word}")),
            Values::Names if text.split(',').all(|n| n.trim().is_empty()) => Err("no program name given".to_string()),
            Values::Path if text.is_empty() => Err("no path given".to_string()),
            Values::Names | Values::Path => Ok(text.to_string()),
        }
    }

    fn arg(&'static self) -> Arg {
        let default = match self.values {
            // The flag has no value, so its absence is no news.
            Values::Switch(_) => String::new(),
            _ => format!(" [default: {}]", self.default),
        };
        let help = format!("{}{default} [env: {}]", self.help, self.variable);
        let arg = Arg::new(self.variable).long(self.flag).help(help).help_heading("Settings");
        let parser: ValueParser = match self.values {
            Values::OneOf(words) => {
                let words: Vec<_> = words.iter().map(|(w, h)| PossibleValue::new(*w).help(*h)).collect();
                PossibleValuesParser::new(words).map(OsString::from).into()
            }
            Values::Path => OsStringValueParser::new().into(),
            _ => ValueParser::from(move |text: &str| self.check(text).map(OsString::from)),
        };
        match self.values {
            Values::Switch(_) => arg.action(ArgAction::SetTrue),
            Values::OneOf(_) => arg.value_parser(parser).value_name("MODE"),
            Values::Size { .. } => arg.value_parser(parser).value_name("SIZE"),
            Values::Limits => arg.value_parser(parser).value_name("SIZE"),
            Values::Part => arg.value_parser(parser).value_name("PART"),
            Values::Number { .. } => arg.value_parser(parser).value_name("N"),
            Values::Path => arg.value_parser(parser).value_name("PATH"),
            Values::Names => arg.value_parser(parser).value_name("NAMES"),
        }
    }
}

/// The settings given as flags: variable and value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub Vec<(&'static str, OsString)>);

impl Flags {
    /// The value given for this variable.
    pub fn get(&self, variable: &str) -> Option<&OsString> {
        self.0.iter().find(|(v, _)| *v == variable).map(|(_, value)| value)
    }
}

impl clap::FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Vec::new();
        for s in SETTINGS {
            match s.values {
                Values::Switch(word) if matches.get_flag(s.variable) => flags.push((s.variable, word.into())),
                Values::Switch(_) => {}
                _ => flags.extend(matches.get_one::<OsString>(s.variable).map(|v| (s.variable, v.clone()))),
            }
        }
        Ok(Flags(flags))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        SETTINGS.iter().fold(command, |c, s| c.arg(s.arg()))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_value_is_told_what_is_allowed() {
        let get = |v: &str| SETTINGS.iter().find(|s| s.variable == v).unwrap();
        assert_eq!(get("VRAMSCOPE_POOL").check("maybe").unwrap_err(), "'maybe' is not one of auto, on, off");
        assert_eq!(get("VRAMSCOPE_POISON").check("yes").unwrap_err(), "'yes' is not one of on, off");
        assert_eq!(get("VRAMSCOPE_MAX_CACHED").check("1GiB").unwrap(), "1073741824");
        assert_eq!(get("VRAMSCOPE_MAX_CACHED").check("10%").unwrap(), "10%");
        assert_eq!(get("VRAMSCOPE_MAX_CACHED").check("0").unwrap(), "0");
        assert_eq!(get("VRAMSCOPE_MAX_CACHED").check("100KiB").unwrap(), "102400");
        let bare = get("VRAMSCOPE_MAX_CACHED").check("10").unwrap_err();
        assert_eq!(bare, "'10' is 10 bytes; write 10% or 10MiB (0 keeps nothing)");
        assert!(get("VRAMSCOPE_MAX_TRACE").check("2").unwrap_err().contains("write 2MiB"));
        assert_eq!(get("VRAMSCOPE_MAX_SPLIT_SIZE").check("512MiB").unwrap(), "536870912");
        let small = get("VRAMSCOPE_MAX_SPLIT_SIZE").check("2MiB").unwrap_err();
        assert_eq!(small, "'2MiB' is too small; allowed: 20.0 MiB or more");
        assert!(!get("VRAMSCOPE_MAX_SPLIT_SIZE").check("10%").unwrap_err().contains("a part"));
        assert_eq!(get("VRAMSCOPE_GC_THRESHOLD").check("0.8").unwrap(), "0.8");
        for wrong in ["80%", "1", "-0.1", "NaN", ""] {
            assert!(get("VRAMSCOPE_GC_THRESHOLD").check(wrong).unwrap_err().contains("like 0.8"), "{wrong}");
        }
        assert!(get("VRAMSCOPE_ONLY").check(" ,").is_err());
        assert!(get("VRAMSCOPE_LIMIT").check("x:24GiB").unwrap_err().starts_with("'x' is no device"));
        assert_eq!(get("VRAMSCOPE_LIMIT").check("0:24GiB,1:50%").unwrap(), "0:24GiB,1:50%");
    }

    #[test]
    fn words_that_are_defaults_are_allowed() {
        for s in SETTINGS {
            if let Values::OneOf(words) = s.values {
                assert!(words.iter().any(|(w, _)| *w == s.default), "{}", s.variable);
            }
        }
    }
}
