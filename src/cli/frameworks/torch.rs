//! PyTorch: its allocator's settings, `PYTORCH_CUDA_ALLOC_CONF` and (from 2.9 on, read where the first is not set)
//! `PYTORCH_ALLOC_CONF`, with `backend:cudaMallocAsync` in them.

use vramscope_core::arena::LEAST_SPLIT;

use super::Wanted;

/// The variables, in the order in which PyTorch looks.
pub const CONF: [&str; 2] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// The backend that asks the driver, and so us, for every tensor.
const BACKEND: &str = "backend:cudaMallocAsync";

/// What is said of a PyTorch that was asked.
pub const SERVED: &str = "PyTorch (backend:cudaMallocAsync)";

/// Options that say to PyTorch's own cache what these settings say to the pool.
const CARRIED: [(&str, &str); 2] =
    [("max_split_size_mb", "VRAMSCOPE_MAX_SPLIT_SIZE"), ("garbage_collection_threshold", "VRAMSCOPE_GC_THRESHOLD")];

/// Takes part in `wanted`. `env`: the variables, and settings given as flags.
pub fn ask(env: &dyn Fn(&str) -> Option<String>, wanted: &mut Wanted) {
    let given: Vec<(&str, String)> = CONF.iter().filter_map(|n| Some((*n, env(n)?))).collect();
    // Of the first alone the second is not looked at: who set the second only has its options in both.
    let first = given.first().map_or("", |(_, text)| text.as_str());
    if let Some((name, backend)) = given.first().and_then(|(n, text)| Some((n, value(text, "backend")?)))
        && backend != "cudaMallocAsync"
    {
        wanted.say(format!(
            "{name} says backend:{backend}, and so PyTorch keeps its own allocator; without these words the pool serves it"
        ));
        return;
    }
    if value(first, "expandable_segments").is_some_and(|v| v == "True") {
        wanted.say(
            "expandable_segments:True is left out for PyTorch: it is an option of its own allocator, and the pool's memory \
             grows by itself"
                .to_owned(),
        );
    }
    if let [(older, a), (newer, b)] = given.as_slice()
        && !options(a).eq(options(b))
    {
        wanted.say(format!("{older} and {newer} differ; the pool looks at the first, as PyTorch does"));
    }
    for (option, setting) in CARRIED {
        let Some(text) = value(first, option) else { continue };
        match (carried(option, text), env(setting)) {
            (Err(allowed), _) => wanted.say(format!("{option}:{text} of PyTorch's is left out; allowed: {allowed}")),
            (Ok(_), Some(own)) => {
                wanted.say(format!("{option}:{text} of PyTorch's is left out, as {setting} is {own}"))
            }
            (Ok(value), None) => {
                wanted.say(format!("{option} of PyTorch's holds for the pool ({setting}={value})"));
                wanted.set(setting, value);
            }
        }
    }
    wanted.set(CONF[0], merged(first));
    if let Some((_, text)) = given.iter().find(|(name, _)| *name == CONF[1]) {
        wanted.set(CONF[1], merged(text));
    }
    wanted.who.push(SERVED);
}

/// The options: split at the commas that are not in brackets (`roundup_power2_divisions:[256:1,512:2]`).
fn options(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0usize;
    let parts = text.split(move |c| {
        depth = match c {
            '[' => depth + 1,
            ']' => depth.saturating_sub(1),
            _ => depth,
        };
        c == ',' && depth == 0
    });
    parts.map(str::trim).filter(|o| !o.is_empty())
}

fn key(option: &str) -> &str {
    option.split(':').next().unwrap_or(option).trim()
}

/// What an option says.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let option = options(text).find(|o| key(o) == name)?;
    option.split_once(':').map(|(_, v)| v.trim())
}

/// With our backend, and without what that backend refuses or warns of, and what the pool does instead.
fn merged(text: &str) -> String {
    let kept = options(text).filter(|o| {
        let key = key(o);
        key != "backend" && key != "expandable_segments" && CARRIED.iter().all(|(carried, _)| *carried != key)
    });
    std::iter::once(BACKEND).chain(kept).collect::<Vec<_>>().join(",")
}

/// As a setting of ours, or what is allowed.
fn carried(option: &str, value: &str) -> Result<String, String> {
    if option == "max_split_size_mb" {
        let bytes = value.parse::<u64>().ok().and_then(|mib| mib.checked_mul(1 << 20)).filter(|b| *b >= LEAST_SPLIT);
        return bytes.map(|b| b.to_string()).ok_or_else(|| format!("{} or more", LEAST_SPLIT >> 20));
    }
    let share = value.parse::<f64>().ok().filter(|share| *share > 0.0 && *share < 1.0);
    share.map(|_| value.to_owned()).ok_or_else(|| "a number between 0 and 1".to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn asked(env: &[(&str, &str)]) -> (BTreeMap<&'static str, String>, Vec<String>) {
        let env: BTreeMap<_, _> = env.iter().copied().collect();
        let mut wanted = Wanted::default();
        ask(&|name| env.get(name).map(|v| (*v).to_owned()), &mut wanted);
        let set = wanted.set.iter().map(|(n, v)| (*n, v.to_str().unwrap().to_owned()));
        (set.collect(), wanted.notes)
    }

    #[test]
    fn the_backend_joins_what_is_there() {
        let (set, notes) = asked(&[]);
        assert_eq!(set, BTreeMap::from([(CONF[0], BACKEND.to_owned())]));
        assert!(notes.is_empty());
        let rounding = "roundup_power2_divisions:[256:1,512:2,>:4]";
        let (set, _) = asked(&[(CONF[0], &format!(" pinned_use_cuda_host_register:True , {rounding}"))]);
        assert_eq!(set[CONF[0]], format!("{BACKEND},pinned_use_cuda_host_register:True,{rounding}"));
        let (set, notes) = asked(&[(CONF[0], BACKEND)]);
        assert_eq!((set[CONF[0]].as_str(), notes.len()), (BACKEND, 0));
    }

    /// A PyTorch that reads the first variable must find there what was in the second.
    #[test]
    fn the_newer_variable_counts_where_the_older_is_not_set() {
        let (set, _) = asked(&[(CONF[1], "pinned_num_register_threads:8")]);
        let expected = format!("{BACKEND},pinned_num_register_threads:8");
        assert_eq!(set, CONF.map(|n| (n, expected.clone())).into());
        let (set, _) = asked(&[(CONF[0], "a:1"), (CONF[1], "b:2")]);
        assert_eq!(set, [(CONF[0], format!("{BACKEND},a:1")), (CONF[1], format!("{BACKEND},b:2"))].into());
    }

    #[test]
    fn conflicts_are_said() {
        let (set, notes) = asked(&[(CONF[0], "backend:native,max_split_size_mb:64")]);
        assert!(set.is_empty() && notes.len() == 1 && notes[0].contains("says backend:native"), "{notes:?}");
        let (set, notes) = asked(&[(CONF[1], "expandable_segments:True")]);
        assert_eq!(set[CONF[0]], BACKEND);
        assert!(notes.len() == 1 && notes[0].starts_with("expandable_segments:True is left out"), "{notes:?}");
    }

    #[test]
    fn what_the_pool_can_do_carries_over() {
        let (set, notes) = asked(&[(CONF[0], "max_split_size_mb:128,garbage_collection_threshold:0.6")]);
        assert_eq!(set["VRAMSCOPE_MAX_SPLIT_SIZE"], (128u64 << 20).to_string());
        assert_eq!((set["VRAMSCOPE_GC_THRESHOLD"].as_str(), set[CONF[0]].as_str()), ("0.6", BACKEND));
        assert_eq!(notes.len(), 2);
        let (set, notes) = asked(&[(CONF[0], "max_split_size_mb:128"), ("VRAMSCOPE_MAX_SPLIT_SIZE", "1GiB")]);
        assert!(
            set.len() == 1 && notes[0].ends_with("left out, as VRAMSCOPE_MAX_SPLIT_SIZE is 1GiB"),
            "{set:?} {notes:?}"
        );
    }

    #[test]
    fn what_the_pool_cannot_do_is_said() {
        for wrong in ["garbage_collection_threshold:7", "max_split_size_mb:x", "max_split_size_mb:1"] {
            let (set, notes) = asked(&[(CONF[0], wrong)]);
            assert_eq!((set.len(), set[CONF[0]].as_str(), notes.len()), (1, BACKEND, 1));
            assert!(notes[0].starts_with(&format!("{wrong} of PyTorch's is left out; allowed: ")), "{notes:?}");
        }
        let (_, notes) = asked(&[(CONF[0], "max_split_size_mb:64"), (CONF[1], "max_split_size_mb:128")]);
        assert!(notes.len() == 2 && notes[0].contains("differ"), "{notes:?}");
        assert!(asked(&[(CONF[0], "a:1 ,b:2"), (CONF[1], "a:1,b:2")]).1.is_empty());
    }
}
