//! Which native frames of a stack are Python's interpreter at work, and the glue between it and C libraries. Beside the
//! Python lines they say nothing, so they are hidden.
//!
//! Only in a stack with Python frames: in another one they may be all there is. A program that has the interpreter
//! linked in keeps every frame that is not named as CPython's are, above all those without a name.

use super::frames::Entry;

/// For each frame whether it is the interpreter's or glue.
pub fn own(entries: &[Entry]) -> Vec<bool> {
    if !entries.iter().any(Entry::is_python) {
        return vec![false; entries.len()];
    }
    // A run of Python frames stands right before the native frame that ran it.
    let ran = |pair: &[Entry]| (pair[0].is_python() && !pair[1].is_python()).then_some(pair[1].number);
    let runners: Vec<u32> = entries.windows(2).filter_map(ran).collect();
    let own = |e: &Entry| {
        let embedded = || e.number != 0 && runners.contains(&e.number) && cpython(&e.function);
        !e.is_python() && (python_file(&e.module) || glue(e) || embedded())
    };
    entries.iter().map(own).collect()
}

/// The interpreter's library, or its executable: `python3.13t`. `python_server` is a program of somebody's.
fn python_file(name: &str) -> bool {
    const BUILDS: [&str; 8] = ["", "t", "d", "td", "m", "dm", "-dbg", "-debug"];
    let version = |rest: &str| BUILDS.contains(&rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.'));
    name.starts_with("libpython") || name.strip_prefix("python").is_some_and(version)
}

/// What passes calls from Python on to C and C++: ctypes and pybind11; and CPython's other modules written in C.
fn glue(e: &Entry) -> bool {
    let pybind = e.function.contains("pybind11::cpp_function::dispatcher")
        || e.function.contains("pybind11::cpp_function::initialize<") && e.function.contains("::{lambda(");
    let ctypes = e.module.starts_with("_ctypes.") || e.module.starts_with("libffi");
    pybind || ctypes || e.path.contains("/lib-dynload/")
}

/// Functions that are not exported, so have no prefix; these run Python code or pass calls on. What a program may well
/// call a function of its own (`thread_run`) is not here: one frame too many is better than one that is missed.
const STATIC: [&str; 32] = [
    "atexit_callfuncs",
    "builtin___build_class__",
    "builtin___import__",
    "builtin_eval",
    "builtin_exec",
    "builtin_exec_impl",
    "call_function",
    "classmethoddescr_call",
    "context_run",
    "do_call_core",
    "exec_code_in_module",
    "function_code_fastcall",
    "gen_close",
    "gen_iternext",
    "gen_send",
    "import_find_and_load",
    "import_name",
    "methodcaller_call",
    "object_vacall",
    "partial_call",
    "partial_call_impl",
    "partial_vectorcall",
    "property_descr_get",
    "property_descr_set",
    "pythread_wrapper",
    "run_eval_code_obj",
    "run_mod",
    "type_call",
    "type_new_init_subclass",
    "vectorcall_method",
    "wrapper_call",
    "wrapperdescr_call",
];

const STATIC_PREFIXES: [&str; 12] = [
    "_TAIL_CALL_",
    "cfunction_",
    "gen_send_ex",
    "method_vectorcall",
    "pymain_",
    "pyrun_",
    "slot_am_",
    "slot_mp_",
    "slot_nb_",
    "slot_sq_",
    "slot_tp_",
    "vectorcall_",
];

/// Whether a function's name is one of CPython's.
fn cpython(function: &str) -> bool {
    // `_PyEval_EvalFrameDefault.cold`
    let name = function.split(['.', '@']).next().unwrap_or_default();
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    plain && (exported(name) || STATIC.contains(&name) || STATIC_PREFIXES.iter().any(|p| name.starts_with(p)))
}

/// `PyObject_Call`, `_Py_Main`; not `Pyramid_build`, nor `PyInit_model`, which belongs to the module of that name.
fn exported(name: &str) -> bool {
    let Some(rest) = name.strip_prefix('_').unwrap_or(name).strip_prefix("Py") else { return false };
    rest.starts_with(|c: char| c.is_ascii_uppercase() || c == '_') && rest.contains('_') && !rest.starts_with("Init_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::python::Whose;

    fn native(number: u32, module: &str, function: &str) -> Entry {
        Entry { number, module: module.into(), function: function.into(), ..Entry::default() }
    }

    fn python(function: &str) -> Entry {
        Entry { whose: Whose::User, function: function.into(), ..Entry::default() }
    }

    /// The functions that are left.
    fn left(entries: &[Entry]) -> Vec<&str> {
        let own = own(entries);
        entries.iter().zip(own).filter(|(_, own)| !own).map(|(e, _)| e.function.as_str()).collect()
    }

    #[test]
    fn the_interpreters_module_is_hidden_whole() {
        for file in ["libpython3.11.so.1.0", "python3.11", "python3.13t"] {
            let stack = [
                native(2, "_model.so", "model_run"),
                native(3, file, "method_vectorcall_VARARGS"),
                python("forward"),
                native(3, file, "_PyEval_EvalFrameDefault"),
                native(3, file, ""),
                python("train"),
                native(3, file, "_PyEval_EvalFrameDefault"),
                native(4, "python3", "main"),
            ];
            assert_eq!(left(&stack), ["model_run", "forward", "train"], "{file}");
        }
    }

    #[test]
    fn a_program_around_the_interpreter_keeps_its_own() {
        for file in ["server", "python_server"] {
            let stack = [
                native(1, file, "call_model(float*)"),
                native(1, file, "cfunction_vectorcall_FASTCALL"),
                native(1, file, ""),
                python("forward"),
                native(1, file, "_PyEval_EvalFrameDefault.cold"),
                native(1, file, "PyObject_CallObject"),
                native(1, file, "PyInit_model"),
                native(1, file, "Pyramid_build"),
                native(5, "other.so", "PyRun_Mine"),
                native(1, file, "main"),
            ];
            let own = ["call_model(float*)", "", "forward", "PyInit_model", "Pyramid_build", "PyRun_Mine", "main"];
            assert_eq!(left(&stack), own, "{file}");
        }
    }

    #[test]
    fn glue_is_hidden_and_cython_stays() {
        let dynload = Entry {
            path: "/usr/lib/python3.11/lib-dynload/_asyncio.cpython-311-x86_64-linux-gnu.so".into(),
            ..native(9, "_asyncio.cpython-311-x86_64-linux-gnu.so", "task_step")
        };
        let stack = [
            native(2, "libmine.so", "mine_alloc"),
            native(3, "libffi.so.8", ""),
            native(4, "_ctypes.cpython-311-x86_64-linux-gnu.so", "_ctypes_callproc"),
            python("alloc"),
            native(6, "model.so", "pybind11::cpp_function::dispatcher(_object*, _object*, _object*)"),
            native(6, "model.so", "pybind11::cpp_function::initialize<A>(A&&)::{lambda(function_call&)#1}::_FUN(B)"),
            native(7, "memory.cpython-311-x86_64-linux-gnu.so", "__pyx_pw_4cupy_alloc"),
            dynload,
        ];
        assert_eq!(left(&stack), ["mine_alloc", "alloc", "__pyx_pw_4cupy_alloc"]);
    }

    #[test]
    fn without_python_frames_nothing_is_hidden() {
        let stack = [native(3, "libpython3.11.so.1.0", "PyObject_Call"), native(4, "libffi.so.8", "ffi_call")];
        assert_eq!(left(&stack), ["PyObject_Call", "ffi_call"]);
    }
}
