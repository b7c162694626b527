//! Why a suspect is thought to be of its kind, and what to do about it.

use super::SuspectPart;
use crate::report::frames::Shown;
use crate::report::growth::shape::Shape;
use crate::report::growth::steps::Steps;
use crate::report::growth::suspect::{Kind, Suspect};
use crate::report::text::{bytes, count, plural};

/// Why, and what to do.
///
/// `trains`: something in the program goes backward.
pub(super) fn say(s: &Suspect, lead: &SuspectPart, steps: Option<&Steps>, trains: bool) -> (String, String) {
    let (stay, one) = stay(s, steps);
    let over = match (s.shape, steps) {
        (Shape::Linear, Some(steps)) if lead.count_per_step < 0.75 => {
            format!("now and then in {} steps", count(steps.count))
        }
        (Shape::Linear | Shape::Swelling, Some(steps)) => format!("in each of {} steps", count(steps.count)),
        (Shape::Staircase, Some(steps)) => format!("now and then in {} steps", count(steps.count)),
        _ => "all along".to_string(),
    };
    let of_backward = format!("{} of {} more a step", bytes(s.backward as u64), bytes(s.bytes() as u64));
    match s.kind {
        Kind::GradientsAccumulating => (
            format!(
                "{of_backward} are made in the backward pass and stay, {over}: each new gradient is added to the one before it, as \
                 part of a graph (create_graph=True) that reaches back through all steps, and nothing takes it away"
            ),
            "optimizer.zero_grad(set_to_none=True) before each backward(); no create_graph=True without need".to_string(),
        ),
        Kind::GraphRetained if s.shape == Shape::Bursts => (
            format!(
                "it climbs over {} rounds and goes at once, {} times, and no backward pass frees any of it: more than \
                 each round's result stays",
                count(s.bursts.1),
                count(s.bursts.0)
            ),
            "with torch.no_grad(): (or torch.inference_mode()) around it, if nothing goes backward from there"
                .to_string(),
        ),
        Kind::GraphRetained if s.backward * 10.0 >= s.bytes() => (
            format!(
                "{of_backward} are made in the backward pass, and stay {over} with more than what the lines result in: a graph of \
                 gradients (create_graph=True), by a gradient or by what was made of one"
            ),
            "keep .item() or .detach() of a gradient, or of a penalty made of it; optimizer.zero_grad(set_to_none=True) before \
             each backward(); no create_graph=True without need"
                .to_string(),
        ),
        Kind::GraphRetained => (
            format!(
                "{stay}, and not only what the lines result in: what lies between stays as well, with what it was made of or \
                 leads to, and that only the graph keeps"
            ),
            match trains {
                true => {
                    "let go of the graph: .detach() what is carried on, .item() or .detach() what is added up, no \
                     retain_graph=True without need; torch.no_grad() around an evaluation; an exception that is kept keeps the \
                     variables of the calls it came through"
                }
                false => {
                    "nothing goes backward here: with torch.no_grad(): (or torch.inference_mode()) around it; or drop what is \
                     kept: results, or an exception, which keeps the variables of the calls it came through"
                }
            }
            .to_string(),
        ),
        Kind::CacheGrowing if s.shape == Shape::Swelling => (
            format!(
                "each takes the place of the one before and is larger, {over}, while what else a step makes does not get \
                 larger: something is joined to it and nothing taken away"
            ),
            "empty it where a new prompt or epoch begins, give it a limit, or keep the pieces on the CPU".to_string(),
        ),
        Kind::CacheGrowing => (
            format!("{stay}, and each has a size of its own: something is made for each new key and kept"),
            "give the cache a limit (functools.lru_cache(maxsize=...)), or fewer keys: lengths padded to a few sizes"
                .to_string(),
        ),
        Kind::ReferencesKept if s.tensors && s.is_gradients() => (
            format!("{of_backward} are made in the backward pass and stay, {over}: something in the program keeps gradients"),
            "a list, a dictionary or a hook: keep .norm().item() or .detach().cpu() of a gradient, or drop it in time"
                .to_string(),
        ),
        Kind::ReferencesKept if s.tensors && s.backward > 0.0 => (
            format!(
                "what stays {over} are results of their lines, and gradients ({} a step) no larger than these: something in \
                 the program keeps both, or parameters or inputs, and they keep their .grad",
                bytes(s.backward as u64)
            ),
            "a list, a dictionary or an attribute: drop the old model or input in time, or keep .detach() or .cpu() of it"
                .to_string(),
        ),
        Kind::ReferencesKept if s.tensors && is_of_function(lead) => (
            format!("{stay}, made in a torch.autograd.Function: something keeps {}", if one { "it" } else { "them" }),
            "ctx.save_for_backward() instead of an attribute of ctx: what forward returns and ctx keeps holds itself, until \
             Python's garbage collector comes; or drop what keeps the results"
                .to_string(),
        ),
        Kind::ReferencesKept if s.tensors => (
            format!("{stay}, made at this line: something in the program keeps {}", if one { "it" } else { "them" }),
            "a list, a dictionary or an attribute: keep .item() or .detach().cpu() of it, or drop it in time".to_string(),
        ),
        Kind::ReferencesKept => (
            format!("it is allocated {over}, and {:.0} of it are not freed", lead.count as f64),
            "free it where the step ends, or allocate it once".to_string(),
        ),
        Kind::NeverFreed => (
            "it does not grow; the program ended in good order without freeing it".to_string(),
            "free it before the end, if the program is to be clean".to_string(),
        ),
    }
}

/// Whether it was made by a `torch.autograd.Function` of the program's own.
fn is_of_function(part: &SuspectPart) -> bool {
    let calls = |f: &Shown| f.what == "Function.apply" && f.place.starts_with("torch/autograd/function.py");
    part.stack.iter().any(calls)
}

/// How many stay in a step, as the suspect's own numbers tell it; or in one of how many steps one does. And whether it is one.
fn stay(s: &Suspect, steps: Option<&Steps>) -> (String, bool) {
    let rate: f64 = s.parts.iter().map(|p| p.count).sum();
    let rate = match steps {
        Some(steps) if rate >= 0.75 && s.exact() => s.live().0 as f64 / steps.count as f64,
        _ => rate,
    };
    let each = rate.round().max(1.0) as u64;
    let (live, rounds) = (s.live().0, steps.map_or(0, |steps| steps.count));
    let stay = match (s.shape, steps) {
        // Many at once and then none for long is not so many a step.
        (Shape::Staircase, Some(_)) if s.exact() && live > 1 => {
            let stay = format!("{} stay, made now and then in {}", plural(live, "tensor"), plural(rounds, "step"));
            return (stay, false);
        }
        (Shape::Linear | Shape::Staircase, Some(steps)) if rate < 0.75 => {
            let of = count((1.0 / rate.max(1e-9)).round() as u64);
            format!("1 tensor stays in about 1 of {of} steps, over {}", plural(steps.count, "step"))
        }
        (Shape::Linear, Some(steps)) if rate < 1.5 => format!("1 tensor stays in each of {} steps", count(steps.count)),
        (Shape::Linear | Shape::Staircase, Some(steps)) => {
            let about = if (rate - each as f64).abs() < 0.1 { "" } else { "about " };
            format!("{about}{} stay a step, over {}", plural(each, "tensor"), plural(steps.count, "step"))
        }
        _ if live == 1 => "1 tensor stays".to_string(),
        _ => format!("{} stay", plural(live, "tensor")),
    };
    (stay, rate < 1.5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::growth::suspect::Part;
    use crate::report::python::Whose;
    use crate::report::testing::MIB;

    /// What is said of so many tensors in all, in 40 steps, from so many sites.
    #[allow(clippy::field_reassign_with_default)] // Its other fields are its own.
    fn said(shape: Shape, live: u64, sites: u64) -> String {
        let part = |i: u64| {
            let count = live / sites;
            Part { site: i as u32, bytes: 1.0, count: count as f64 / 40.0, live: (count, count), exact: true, since: 0 }
        };
        let s = Suspect::of(Kind::ReferencesKept, shape, (0..sites).map(part).collect(), 0.0, true);
        let mut steps = Steps::default();
        steps.count = 40;
        stay(&s, Some(&steps)).0
    }

    /// What is said of one of a kind that grows by so many allocations a step, from a stack with this frame.
    #[allow(clippy::field_reassign_with_default)] // Its other fields are its own.
    fn told(kind: Kind, rate: f64, tensors: bool, frame: (&str, &str), trains: bool) -> (String, String) {
        let live = ((rate * 40.0) as u64, MIB);
        let part = Part { site: 0, bytes: 1.0, count: rate, live, exact: true, since: 0 };
        let whose = Whose::Library("torch".into());
        let lead = SuspectPart {
            place: "train.py:7 step".into(),
            bytes_per_step: 1,
            count_per_step: rate,
            bytes: MIB,
            count: live.0,
            exact: true,
            backward: false,
            stack: vec![Shown { what: frame.0.into(), place: frame.1.into(), whose, count: 1 }],
        };
        let mut steps = Steps::default();
        steps.count = 40;
        say(&Suspect::of(kind, Shape::Linear, vec![part], 0.0, tensors), &lead, Some(&steps), trains)
    }

    #[test]
    fn advice_fits_what_the_program_does() {
        let linear = ("Linear.forward", "torch/nn/modules/linear.py:134");
        // Where nothing goes backward, no graph is needed at all.
        let (_, advice) = told(Kind::GraphRetained, 4.0, true, linear, false);
        assert!(advice.starts_with("nothing goes backward here: with torch.no_grad()"), "{advice}");
        let (_, advice) = told(Kind::GraphRetained, 4.0, true, linear, true);
        assert!(advice.starts_with("let go of the graph: "), "{advice}");
        let apply = ("Function.apply", "torch/autograd/function.py:596");
        let (why, advice) = told(Kind::ReferencesKept, 4.0, true, apply, true);
        assert!(why.starts_with("4 tensors stay a step, over 40 steps, made in a torch.autograd.Function"), "{why}");
        assert!(advice.starts_with("ctx.save_for_backward() instead"), "{advice}");
        let (why, _) = told(Kind::ReferencesKept, 1.0, false, linear, true);
        assert_eq!(why, "it is allocated in each of 40 steps, and 40 of it are not freed");
        let (why, _) = told(Kind::ReferencesKept, 0.25, false, linear, true);
        assert_eq!(why, "it is allocated now and then in 40 steps, and 10 of it are not freed");
    }

    #[test]
    fn tensors_are_counted_and_not_the_lines_that_make_them() {
        assert_eq!(said(Shape::Linear, 40, 1), "1 tensor stays in each of 40 steps");
        assert_eq!(said(Shape::Linear, 200, 2), "5 tensors stay a step, over 40 steps");
        assert_eq!(said(Shape::Linear, 210, 2), "about 5 tensors stay a step, over 40 steps");
        assert_eq!(said(Shape::Staircase, 4, 1), "4 tensors stay, made now and then in 40 steps");
        assert_eq!(said(Shape::Linear, 4, 1), "1 tensor stays in about 1 of 10 steps, over 40 steps");
        assert_eq!(said(Shape::Bursts, 1, 1), "1 tensor stays");
    }
}
