//! `vramscope symbolize`: a copy of a history with the names in it, which can be read where the programs' files are not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use vramscope_core::trace::read::Reader;
use vramscope_core::trace::{Frame, Line, Module, Symbol, write};

use super::new_file::{Force, NewFile};
use super::whole::Whole;
use super::{raw_lines, say};
use crate::report::text::{clean, plural};
use crate::symbols::Names;

/// Writes a history that needs no other file.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The history: a .jsonl or .jsonl.zst file
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// The new history (default: TRACE with .symbols before its ending); compressed if it ends with .zst
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,
    /// Folder with the programs and libraries that ran, or their debug files; may be given several times
    #[arg(long, value_name = "DIR")]
    pub symbols: Vec<PathBuf>,
    /// Whether a file is replaced.
    #[command(flatten)]
    pub force: Force,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    for folder in &args.symbols {
        if !folder.is_dir() {
            bail!("{}: --symbols wants a folder", folder.display());
        }
    }
    if args.trace.is_dir() {
        bail!("{} is a folder: give a history file", args.trace.display());
    }
    let output = args.output.clone().unwrap_or_else(|| beside(&args.trace));
    super::new_file::check(&output, &[&args.trace], args.force)?;
    let file = Whole::of(&args.trace);
    let done = symbolize(file.file(), Some(&output), Names::new(&args.symbols), args.force)
        .map_err(|e| anyhow!("{}", file.named(&format!("{e:#}"))))?;
    for warning in &done.warnings {
        say::line(&clean(&file.named(warning)));
    }
    say::print(&format!("{done}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// What was done.
#[derive(Debug, Default)]
struct Done {
    path: PathBuf,
    addresses: u64,
    /// Addresses that had their names before.
    before: u64,
    named: u64,
    lines: u64,
    missing: Vec<String>,
    warnings: Vec<String>,
}

impl std::fmt::Display for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = clean(&self.path.display().to_string());
        match (self.addresses, self.before) {
            (0, 0) => return write!(f, "{path}: there are no addresses in it, so nothing to name"),
            (0, n) => return write!(f, "{path}: is already named: all {} of it have their names", addresses(n)),
            _ => {}
        }
        let addresses = addresses(self.addresses);
        write!(f, "{path}: {addresses}, {} named, {} with lines", self.named, self.lines)?;
        if self.before > 0 {
            write!(f, "; {} more had their names already", crate::report::text::count(self.before))?;
        }
        match self.missing.len() {
            0 => Ok(()),
            n => write!(f, "; {} missing: {}", plural(n as u64, "file"), clean(&self.missing.join(", "))),
        }
    }
}

fn addresses(n: u64) -> String {
    match n {
        1 => "1 address".to_string(),
        n => format!("{} addresses", crate::report::text::count(n)),
    }
}

/// What a first reading tells.
#[derive(Default)]
struct Wanted {
    modules: BTreeMap<u32, Module>,
    addresses: BTreeSet<(u32, u64)>,
    /// Addresses that have names.
    before: u64,
    warnings: Vec<String>,
    damaged: bool,
    /// Number of the first part that is there, if the copy is to say that those before it were dropped.
    part: u32,
}

fn wanted(path: &Path) -> Result<Wanted> {
    let mut reader = Reader::open(path).map_err(|e| anyhow!("{e}"))?;
    let mut w = Wanted::default();
    let mut named = BTreeSet::new();
    let (mut finished, mut exited) = (false, false);
    for line in &mut reader {
        exited |= line.exits();
        match line {
            Line::Module(m) => drop(w.modules.insert(m.module, m)),
            Line::Symbol(s) => drop(named.insert((s.module, s.offset))),
            Line::Stack(stack) => w.addresses.extend(stack.frames.iter().filter_map(|f| match f {
                Frame::Native(module, offset) | Frame::Guessed(module, offset, _) => Some((*module, *offset)),
                Frame::Python(_) | Frame::Other(_) => None,
            })),
            Line::Footer(_) => finished = true,
            _ => {}
        }
    }
    w.addresses.retain(|a| a.0 != 0);
    let all = w.addresses.len();
    w.addresses.retain(|a| !named.contains(a));
    w.before = (all - w.addresses.len()) as u64;
    if let Some(damage) = reader.damage() {
        w.damaged = true;
        w.warnings.push(format!("{damage}; all else is in the new history"));
    }
    w.part = if reader.header().dropped { 0 } else { reader.header().part };
    if !finished && !exited && !Path::new(&reader.header().spool).exists() {
        let path = path.display();
        w.warnings.push(format!("{path}: was never finished, and its spool is gone: it may lack its last events"));
    }
    Ok(w)
}

fn symbolize(trace: &Path, output: Option<&Path>, mut names: Names, force: Force) -> Result<Done> {
    // It is read twice, and what is no file may never end.
    if std::fs::metadata(trace).is_ok_and(|there| !there.is_file()) {
        bail!("{}: can't be read twice, as it is no regular file: write it to one first", trace.display());
    }
    let output = output.map_or_else(|| beside(trace), Path::to_path_buf);
    super::new_file::check(&output, &[trace], force)?;
    let mut wanted = wanted(trace)?;
    names.resolve(&wanted.modules, wanted.addresses.iter().copied());
    let mut done = Done {
        path: output.clone(),
        addresses: wanted.addresses.len() as u64,
        before: wanted.before,
        ..Done::default()
    };
    let mut symbols: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    for (module, offset) in wanted.addresses {
        // Without a file, another machine may have it.
        let Some(found) = names.found(module, offset) else { continue };
        done.named += u64::from(!found.is_empty());
        done.lines += u64::from(found.iter().any(|n| n.line > 0));
        let symbol = Symbol { module, offset, names: found.to_vec() };
        write::line(symbols.entry(module).or_default(), &Line::Symbol(symbol));
    }
    let compressed = match output.extension().and_then(|e| e.to_str()) {
        Some("zst") => true,
        Some("jsonl") => false,
        _ => raw_lines::is_compressed(trace).unwrap_or(false),
    };
    let place = || format!("{}: cannot be written (-o says where else)", output.display());
    let mut file = NewFile::create(&output, compressed).with_context(place)?;
    let (part, damaged) = (wanted.part, wanted.damaged);
    let add = |kind: &str, line: &[u8]| -> Result<()> {
        // The copy is of all parts that there are: none is to be looked for beside it.
        match line.trim_ascii_end().strip_suffix(b"}").filter(|_| kind == "header" && part > 0 && !damaged) {
            Some(header) => file.lines(&[header, b",\"dropped\":true}\n"].concat()),
            None => file.lines(line),
        }
        .with_context(place)?;
        if kind == "module"
            && let Ok(module) = serde_json::from_slice::<Module>(line)
            && let Some(lines) = symbols.remove(&module.module)
        {
            file.lines(&lines).with_context(place)?;
        }
        Ok(())
    };
    if wanted.damaged { raw_lines::each_readable(trace, add) } else { raw_lines::each(trace, add) }?;
    file.finish().with_context(place)?;
    done.missing = std::mem::take(&mut names.missing);
    // (Some notes give the advice themselves.)
    let advice = |note: String| match note.contains("--symbols") || note.contains("is stripped") {
        true => note,
        false => format!("{note}; --symbols DIR says where the one that ran is"),
    };
    done.warnings = std::mem::take(&mut wanted.warnings);
    done.warnings.extend(names.notes.into_iter().map(advice));
    Ok(done)
}

/// `run.jsonl.zst` → `run.symbols.jsonl.zst`.
fn beside(trace: &Path) -> PathBuf {
    let name = trace.file_name().unwrap_or_default().to_string_lossy();
    let ending = [".jsonl.zst", ".jsonl", ".zst"].into_iter().find(|e| name.ends_with(e)).unwrap_or_default();
    trace.with_file_name(format!("{}.symbols{ending}", &name[..name.len() - ending.len()]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::History;
    use crate::symbols::cache::Cache;
    use crate::symbols::find::Places;
    use crate::symbols::tests::own_symbol;

    /// A history whose stack leads through this test and through a library that is gone, and the test's address.
    fn script(part: &str) -> (String, u64) {
        let (mut module, address) = own_symbol(part);
        let mut text =
            "{\"kind\":\"header\",\"format\":\"vramscope-history\",\"version\":1,\"later\":\"field\"}\n".to_string();
        let mut add = |line: &Line| {
            let mut out = Vec::new();
            write::line(&mut out, line);
            text += &String::from_utf8(out).unwrap();
        };
        add(&Line::Module(module.clone()));
        module = Module { module: 4, path: "/gone/libgone.so".into(), build_id: "abcd".into(), ..Module::default() };
        add(&Line::Module(module));
        text += "{\"kind\": \"of a later version\", \"value\": [1, 2]}\n";
        text += &format!(
            "{{\"kind\":\"stack\",\"stack\":1,\"frames\":[[3,{}],[4,64],[3,1099511627776],7]}}\n",
            address + 1
        );
        text += "{\"kind\":\"alloc\",\"thread\":1,\"time\":5,\"id\":1,\"bytes\":512,\"stack\":1}\n";
        text += "{\"kind\":\"footer\",\"time\":5,\"events\":1,\"lost\":0,\"stacks_refused\":0,\"end\":\"exit\",\"by\":\"launcher\"}\n";
        (text, address + 1)
    }

    fn names() -> Names {
        Names::with(Places::default(), Cache::off())
    }

    #[test]
    fn a_history_with_its_names_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let (text, address) = script("a_history_with_its_names_in_it");
        for (name, new) in [("t.jsonl", "t.symbols.jsonl"), ("t.jsonl.zst", "t.symbols.jsonl.zst"), ("t", "t.symbols")]
        {
            let path = folder.path().join(name);
            let bytes =
                if name.ends_with("zst") { zstd::encode_all(text.as_bytes(), 3).unwrap() } else { text.clone().into() };
            std::fs::write(&path, &bytes).unwrap();
            let done = symbolize(&path, None, names(), Force::default()).unwrap();
            assert_eq!((done.addresses, done.named, done.lines), (3, 1, 1));
            assert_eq!(done.missing, ["libgone.so"]);
            assert_eq!(done.warnings.len(), 1, "{:?}", done.warnings);
            assert!(done.warnings[0].contains("/gone/libgone.so; --symbols DIR"), "{:?}", done.warnings);
            assert_eq!(std::fs::read(&path).unwrap(), bytes);
            let out = folder.path().join(new);
            assert_eq!(done.path, out);
            let mut copy = Vec::new();
            raw_lines::each(&out, |_, line| {
                copy.extend_from_slice(line);
                Ok(())
            })
            .unwrap();
            assert_eq!(raw_lines::is_compressed(&out).unwrap(), name.ends_with("zst"));
            let copy = String::from_utf8(copy).unwrap();
            // Every line as it was, and two more behind their module.
            let lines: Vec<&str> = copy.lines().collect();
            let old: Vec<&str> = lines.iter().copied().filter(|l| !l.starts_with("{\"kind\":\"symbol\"")).collect();
            assert_eq!(old, text.lines().collect::<Vec<_>>());
            assert!(lines[2].contains("\"symbol\"") && lines[3].contains("\"names\":[]"), "{copy}");
            let history = History::read(&out).unwrap();
            assert!(history.damage.is_none());
            assert!(history.symbols[&(3, address)].iter().any(|n| n.function.contains("names_in_it") && n.line > 0));
            // Once more adds nothing.
            let again = symbolize(&out, None, names(), Force::default()).unwrap();
            assert_eq!((again.addresses, again.named), (1, 0));
            let content = |p: &Path| {
                let mut all = Vec::new();
                raw_lines::each(p, |_, l| {
                    all.extend_from_slice(l);
                    Ok(())
                })
                .unwrap();
                all
            };
            assert_eq!(content(&again.path), content(&out));
        }
        let left = std::fs::read_dir(folder.path()).unwrap().flatten();
        assert!(left.into_iter().all(|e| !e.file_name().to_string_lossy().ends_with(".new")));
    }

    #[test]
    fn damage_is_said_and_the_rest_is_carried() {
        let folder = tempfile::tempdir().unwrap();
        let (text, _) = script("damage_is_said_and_the_rest_is_carried");
        let path = folder.path().join("t.jsonl");
        let cut = text.replace("{\"kind\": \"of a later", "{\"ki\u{0}\": \"of a later");
        std::fs::write(&path, cut.trim_end().trim_end_matches('}')).unwrap();
        let done = symbolize(&path, None, names(), Force::default()).unwrap();
        assert_eq!((done.addresses, done.named), (3, 1));
        assert!(
            done.warnings[0].contains("line 4") && done.warnings[0].contains("1 more place"),
            "{:?}",
            done.warnings
        );
        let history = History::read(&done.path).unwrap();
        assert!(history.damage.is_none() && history.events == 1 && history.symbols.len() == 2);
    }

    #[test]
    fn a_rotated_history_becomes_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let (text, _) = script("a_rotated_history_becomes_one");
        let part = |n: u32, before: u32| {
            let head = format!("\"version\":1,\"pid\":7,\"part\":{n},\"events_before\":{before}");
            text.replace("\"version\":1", &head)
        };
        let first: String = part(2, 10).lines().filter(|l| !l.contains("footer")).map(|l| format!("{l}\n")).collect();
        let live = "{\"kind\":\"live\",\"thread\":1,\"time\":5,\"id\":1,\"bytes\":512}\n";
        std::fs::write(folder.path().join("t.jsonl.1"), first).unwrap();
        std::fs::write(&path, part(3, 11).replace("{\"kind\":\"alloc\"", &format!("{live}{{\"kind\":\"alloc\"")))
            .unwrap();
        let whole = History::read(&path).unwrap();
        let done = symbolize(&path, None, names(), Force::default()).unwrap();
        let one = History::read(&done.path).unwrap();
        assert_eq!((one.header.part, one.events, one.all_events()), (2, 2, whole.all_events()));
        assert_eq!(one.damage, None);
        assert_eq!(one.symbols.len(), 2);
        let all = std::fs::read_to_string(&done.path).unwrap();
        assert!(
            !all.contains("\"kind\":\"live\"")
                && all.matches("\"header\"").count() == 1
                && all.matches("\"symbol\"").count() == 2
        );
    }

    #[test]
    fn the_input_is_never_the_output() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        std::fs::write(&path, script("the_input_is_never_the_output").0).unwrap();
        let link = folder.path().join("link");
        std::fs::hard_link(&path, &link).unwrap();
        for out in [&path, &link] {
            let e = symbolize(&path, Some(out), names(), Force::default()).unwrap_err();
            assert!(e.to_string().contains("is the history itself"), "{e}");
        }
        let e = symbolize(&path, Some(folder.path()), names(), Force::default()).unwrap_err();
        assert!(e.to_string().contains("is no file"), "{e}");
        let e = symbolize(&path, Some(&folder.path().join("none/t")), names(), Force::default()).unwrap_err();
        assert!(format!("{e:#}").contains("cannot be written (-o says where else): No such file"), "{e:#}");
        let e = symbolize(&folder.path().join("none"), None, names(), Force::default()).unwrap_err();
        assert!(e.to_string().contains("cannot be read"), "{e}");
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let e = symbolize(&pipe, None, names(), Force::default()).unwrap_err();
        assert!(e.to_string().contains("can't be read twice"), "{e}");
    }

    #[test]
    fn what_is_said() {
        let done = |addresses, before| Done { path: "t".into(), addresses, before, ..Done::default() }.to_string();
        assert_eq!(done(0, 1200), "t: is already named: all 1,200 addresses of it have their names");
        assert_eq!(done(0, 0), "t: there are no addresses in it, so nothing to name");
        assert_eq!(done(1, 2), "t: 1 address, 0 named, 0 with lines; 2 more had their names already");
        let mut done =
            Done { path: "t.symbols.jsonl".into(), addresses: 1200, named: 900, lines: 40, ..Done::default() };
        assert_eq!(done.to_string(), "t.symbols.jsonl: 1,200 addresses, 900 named, 40 with lines");
        done.missing = vec!["libx.so".into(), "liby.so".into()];
        assert!(done.to_string().ends_with("; 2 files missing: libx.so, liby.so"));
        done.missing = vec!["lib\u{1b}[2Jx\n.so".into()];
        assert!(done.to_string().ends_with("; 1 file missing: lib [2Jx .so"), "{done}");
    }
}
