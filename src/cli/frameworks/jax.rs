//! JAX: `XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async`, and no three quarters of the device at its start.

use super::Wanted;

const ALLOCATOR: &str = "XLA_PYTHON_CLIENT_ALLOCATOR";
const PREALLOCATE: &str = "XLA_PYTHON_CLIENT_PREALLOCATE";

/// Takes part in `wanted`. `env`: the variables.
pub fn ask(env: &dyn Fn(&str) -> Option<String>, wanted: &mut Wanted) {
    match env(ALLOCATOR) {
        Some(other) if !other.eq_ignore_ascii_case("cuda_async") => {
            wanted.say(format!("{ALLOCATOR}={other} stays, and so JAX keeps that allocator"));
            return;
        }
        Some(_) => {}
        None => wanted.set(ALLOCATOR, "cuda_async"),
    }
    match env(PREALLOCATE) {
        None => wanted.set(PREALLOCATE, "false"),
        // As JAX reads it: FALSE is true.
        Some(v) if matches!(v.as_str(), "0" | "false" | "False") => {}
        Some(v) => {
            wanted.say(format!("{PREALLOCATE}={v} stays, and so JAX takes its share of the device at its start"))
        }
    }
    wanted.who.push("JAX (cuda_async, no preallocation)");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(env: &[(&str, &str)]) -> Wanted {
        let mut wanted = Wanted::default();
        ask(&|name| env.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()), &mut wanted);
        wanted
    }

    #[test]
    fn what_was_said_to_jax_stays() {
        let names = |w: &Wanted| w.set.iter().map(|(n, _)| *n).collect::<Vec<_>>();
        assert_eq!(names(&asked(&[])), [ALLOCATOR, PREALLOCATE]);
        let platform = asked(&[(ALLOCATOR, "platform")]);
        assert!(platform.set.is_empty() && platform.who.is_empty() && platform.notes.len() == 1);
        let eager = asked(&[(PREALLOCATE, "true")]);
        assert!(names(&eager) == [ALLOCATOR] && eager.notes[0].contains("stays"), "{eager:?}");
        assert!(asked(&[(ALLOCATOR, "cuda_async"), (PREALLOCATE, "false")]).set.is_empty());
    }
}
