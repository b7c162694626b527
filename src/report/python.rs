//! Places in Python code as a person reads them: whose code it is, and its file as short as it stays clear.

use super::frames;
use super::text::clean;

/// Whose code a frame is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Whose {
    /// Native code, anybody's.
    Native,
    /// Python code that the user wrote, as far as its file's place tells.
    User,
    /// Python code that was installed: the package, or [`STANDARD`].
    Library(String),
}

impl serde::Serialize for Whose {
    /// `native`, `user`, or the package.
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(match self {
            Whose::Native => "native",
            Whose::User => "user",
            Whose::Library(package) => package,
        })
    }
}

/// What the packages that come with Python are called here.
pub const STANDARD: &str = "the standard library";

/// Whose code lies in a file, named as `co_filename` has it.
pub fn whose(file: &str) -> Whose {
    if let Some(inside) = installed(file) {
        let package = inside.split('/').next().unwrap_or(inside);
        return Whose::Library(clean(package.strip_suffix(".py").unwrap_or(package)));
    }
    if standard(file).is_some() || file.starts_with("<frozen ") {
        return Whose::Library(STANDARD.to_string());
    }
    Whose::User
}

/// The file in few words: `torch/nn/functional.py`, `python3.11/threading.py`, `train.py`, `<stdin>`.
pub fn short(file: &str, directory: &str) -> String {
    match installed(file).or_else(|| standard(file)) {
        Some(inside) => inside.to_string(),
        None if file.starts_with('/') => frames::short(file, directory),
        // Relative to where the program was started, or no file at all.
        None => file.strip_prefix("./").unwrap_or(file).to_string(),
    }
}

/// Whether a file is the machinery behind `import`, which stands a dozen frames deep between one module and the next.
pub fn imports(file: &str) -> bool {
    file.starts_with("<frozen importlib._bootstrap")
}

/// The path inside the folder that packages are installed in.
fn installed(file: &str) -> Option<&str> {
    let after = |folder: &str| Some(file.rfind(folder)? + folder.len());
    let at = after("/site-packages/").max(after("/dist-packages/"))?;
    Some(&file[at..])
}

/// The path from the folder of the standard library on, `lib/python3.11` and the like.
fn standard(file: &str) -> Option<&str> {
    file.match_indices("/python3.").find_map(|(at, _)| {
        let (before, path) = (&file[..at], &file[at + 1..]);
        let version = path.split('/').next()?.strip_prefix("python3.")?;
        let lib = before.ends_with("/lib") || before.ends_with("/lib64");
        (lib && version.chars().all(|c| c.is_ascii_digit() || c == 't')).then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(name: &str) -> Whose {
        Whose::Library(name.to_string())
    }

    #[test]
    fn whose_code_it_is() {
        assert_eq!(whose("/job/train.py"), Whose::User);
        assert_eq!(whose("<stdin>"), Whose::User);
        assert_eq!(whose("/job/.venv/lib/python3.12/site-packages/torch/nn/functional.py"), library("torch"));
        assert_eq!(whose("/usr/lib/python3/dist-packages/six.py"), library("six"));
        assert_eq!(whose("/opt/conda/lib/python3.13t/threading.py"), library(STANDARD));
        assert_eq!(whose("<frozen runpy>"), library(STANDARD));
        // A folder of the user's that only looks like it.
        assert_eq!(whose("/home/ann/python3.11/model.py"), Whose::User);
        assert_eq!(whose("/home/ann/lib/python3.x/model.py"), Whose::User);
    }

    #[test]
    fn files_in_few_words() {
        let short = |file| short(file, "/job");
        assert_eq!(short("/job/nets/resnet/block.py"), "nets/resnet/block.py");
        assert_eq!(short("/home/ann/work/nets/block.py"), "nets/block.py");
        assert_eq!(short("./train.py"), "train.py");
        assert_eq!(short("nets/resnet/block.py"), "nets/resnet/block.py");
        assert_eq!(short("/job/.venv/lib/python3.12/site-packages/torch/nn/functional.py"), "torch/nn/functional.py");
        assert_eq!(short("/usr/lib/python3.11/asyncio/events.py"), "python3.11/asyncio/events.py");
        for kept in ["<string>", "<stdin>", "<ipython-input-3-5f1a>", "<frozen runpy>"] {
            assert_eq!(short(kept), kept);
        }
        assert!(imports("<frozen importlib._bootstrap_external>") && !imports("<frozen runpy>"));
    }
}
