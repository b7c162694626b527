//! What is said of an allocation.

use super::Value;
use crate::export::Source;
use crate::export::lives::Life;
use crate::export::select::layer_name;
use vramscope_core::event::Source as Served;

/// Lines said of a stack, as a report would say it in so many.
pub const FRAMES: usize = 16;

/// The words of a life. `stack`: its frames, `region` and `mark`: what was going on, if anything.
pub fn of_life<'a>(
    source: &'a Source,
    life: &Life,
    stack: &'a [String],
    region: &'a str,
    mark: &'a str,
) -> Vec<(&'static str, Value<'a>)> {
    let (a, e) = (&life.allocation, &life.allocation.event);
    let mut words = vec![
        ("bytes", Value::Number(e.bytes)),
        ("block", Value::Number(a.block())),
        ("id", Value::Number(e.id)),
        ("address", Value::Address(e.address)),
        ("layer", Value::Text(layer_name(a.layer))),
        ("memory", Value::Text(e.memory.name())),
        ("how", Value::Text(Served::from_number(e.how).map_or("driver", Served::name))),
        ("device", Value::Number(a.device.into())),
        ("context", Value::Number(e.context.into())),
        ("stack", Value::List(stack)),
        ("stack_number", Value::Number(e.stack.into())),
        ("api", Value::Text(e.api.name())),
        ("caller", Value::Text(if e.caller == 0 { "" } else { source.history.module_name(e.caller) })),
        ("thread", Value::Text(source.threads.get(&a.thread).map_or("", |t| t.name.as_str()))),
        ("region", Value::Text(region)),
        ("mark", Value::Text(mark)),
        ("segment", Value::Number(e.extra[0])),
        ("stream", Value::Address(e.extra[1])),
        ("took_ns", Value::Number(e.extra[2])),
    ];
    match life.ended {
        Some(end) => {
            let thread = source.threads.get(&end.thread).map_or("", |t| t.name.as_str());
            words.extend([("freed", Value::Text(end.how)), ("freed_by", Value::Text(thread))]);
        }
        None => words.push(("freed", Value::Text("never"))),
    }
    // What is nothing says nothing.
    words.retain(|(_, v)| !matches!(v, Value::Number(0) | Value::Address(0) | Value::Text("") | Value::List([])));
    words
}
