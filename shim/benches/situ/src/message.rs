//! What the library's parts say to the user: here just said.

macro_rules! error { ($($t:tt)*) => { eprintln!("situ: {}", format_args!($($t)*)) }; }
pub(crate) use error;
