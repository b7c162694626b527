//! What the library's parts write to the history: here nowhere.

/// Would note it.
pub fn note(_text: &str) {}

/// Would write the place down; true.
pub fn define_python(_number: u32, _line: u32, _file: &[u8], _function: &[u8]) -> bool {
    true
}
