//! NVTX: the ranges and marks that programs carry anyway (PyTorch's emit_nvtx, NCCL, Megatron) become regions and marks.
//!
//! NVTX is a header. At its first use it loads the library that `NVTX_INJECTION64_PATH` names and calls its
//! `InitializeInjectionNvtx2`, which stores functions of its own into the header's table; what is not stored does nothing.
//! `vramscope run` sets the variable, unless another tool's is there. The numbers and the layout of the event attributes are
//! those of nvtxTypes.h and nvToolsExt.h, which keep them for ever.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Mutex;

use crate::regions::{self, Domain, NAME};
use crate::{labels, settings, state};

type GetExportTable = unsafe extern "C" fn(u32) -> *const Callbacks;
type Function = *const ();

/// `NvtxExportTableCallbacks`.
#[repr(C)]
pub struct Callbacks {
    size: usize,
    get_module_function_table: Option<unsafe extern "C" fn(c_int, *mut *const *mut Function, *mut c_uint) -> c_int>,
}

const CALLBACKS: u32 = 1;
const CORE: c_int = 1;
const CORE2: c_int = 5;
/// `NVTX_NO_PUSH_POP_TRACKING`.
const NOT_FOLLOWED: c_int = -2;

/// `nvtxEventAttributes_t`, as far as its text.
#[repr(C)]
pub struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color: [u32; 2],
    payload_type: [u32; 2],
    payload: u64,
    message_type: i32,
    message: *const (),
}
const ASCII: i32 = 1;
const UNICODE: i32 = 2;
const REGISTERED: i32 = 3;

/// A registered string, or a domain: never given back, because the program may keep it as long as it likes.
pub struct Named {
    number: u32,
    name: Box<[u8]>,
}

/// What the program calls once for each library that has the header in it.
///
/// # Safety
/// Called by NVTX, with its function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(get: Option<GetExportTable>) -> c_int {
    let Some(get) = get else { return 0 };
    if state::switched_off() || state::broken() {
        return 0;
    }
    state::guarded("NVTX", || {
        if !settings::get().nvtx {
            return 0;
        }
        // SAFETY: as the caller says.
        c_int::from(unsafe { attach(get) })
    })
    .unwrap_or(0)
}

/// The same by the name that NVTX 1 and 2 (libnvToolsExt.so) ask for.
///
/// # Safety
/// As the other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx(get: Option<GetExportTable>) -> c_int {
    // SAFETY: as the caller says.
    unsafe { InitializeInjectionNvtx2(get) }
}

unsafe fn attach(get: GetExportTable) -> bool {
    // SAFETY: NVTX's function; its table lives as long as it.
    let Some(table) = (unsafe { get(CALLBACKS).as_ref() }) else { return false };
    if table.size < size_of::<Callbacks>() {
        return false;
    }
    let Some(functions_of) = table.get_module_function_table else { return false };
    let core: [(usize, Function); 10] = [
        (1, mark_ex as Function),
        (2, mark_a as Function),
        (3, mark_w as Function),
        (4, start_ex as Function),
        (5, start_a as Function),
        (6, start_w as Function),
        (7, end as Function),
        (8, push_ex as Function),
        (9, push_a as Function),
        (10, push_w as Function),
    ];
    let core2: [(usize, Function); 9] = [
        (1, domain_mark as Function),
        (2, domain_start as Function),
        (3, domain_end as Function),
        (4, domain_push as Function),
        (5, domain_pop as Function),
        (10, register_a as Function),
        (11, register_w as Function),
        (12, create_a as Function),
        (13, create_w as Function),
    ];
    let store = |module: c_int, all: &[(usize, Function)]| {
        let (mut table, mut size) = (std::ptr::null(), 0);
        // SAFETY: NVTX's function and two locals.
        if unsafe { functions_of(module, &mut table, &mut size) } == 0 || table.is_null() {
            return false;
        }
        for (at, function) in all.iter().filter(|(at, _)| *at < size as usize) {
            // SAFETY: the table has so many entries, each null or where a function's address is kept.
            unsafe {
                let place = *table.add(*at);
                if !place.is_null() {
                    *place = *function;
                }
            }
        }
        true
    };
    // (NVTX 1 had no domains.)
    let stored = store(CORE, &core) && store(CORE, &[(11, pop as Function)]);
    store(CORE2, &core2);
    stored
}

// ---- texts -------------------------------------------------------------------------------------------------------------

/// A text of wide characters as UTF-8, as much as a name has room for.
struct Narrow {
    bytes: [u8; NAME],
    length: usize,
}

impl Narrow {
    /// # Safety
    /// Null, or wide characters that end with a 0.
    unsafe fn of(mut text: *const u32) -> Narrow {
        let mut narrow = Narrow { bytes: [0; NAME], length: 0 };
        while !text.is_null() {
            // SAFETY: the text goes on to its 0, which is not passed.
            let letter = unsafe { *text };
            let letter = char::from_u32(letter).unwrap_or(char::REPLACEMENT_CHARACTER);
            let room = &mut narrow.bytes[narrow.length..];
            if letter == '\0' || room.len() < letter.len_utf8() {
                break;
            }
            narrow.length += letter.encode_utf8(room).len();
            // SAFETY: as above.
            text = unsafe { text.add(1) };
        }
        narrow
    }

    fn text(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// # Safety
/// Null, or a C string.
unsafe fn plain<'a>(text: *const c_char) -> &'a [u8] {
    // SAFETY: as the caller says.
    if text.is_null() { b"" } else { unsafe { CStr::from_ptr(text) }.to_bytes() }
}

/// Calls `f` with an event's text.
///
/// # Safety
/// Null, or NVTX's structure, whose text is what its type says.
unsafe fn with_text<T>(e: *const Attributes, f: impl FnOnce(&[u8]) -> T) -> T {
    // SAFETY: as the caller says.
    let Some(e) = (unsafe { e.as_ref() }) else { return f(b"") };
    if usize::from(e.size) < size_of::<Attributes>() || e.message.is_null() {
        return f(b"");
    }
    match e.message_type {
        // SAFETY: as the caller says.
        ASCII => f(unsafe { plain(e.message.cast()) }),
        // SAFETY: as above.
        UNICODE => f(unsafe { Narrow::of(e.message.cast()) }.text()),
        // SAFETY: a handle that `register` gave.
        REGISTERED => f(unsafe { &(*e.message.cast::<Named>()).name }),
        _ => f(b""),
    }
}

/// What was named so far: the same name gets the same again.
type Names = HashMap<&'static [u8], &'static Named, BuildHasherDefault<DefaultHasher>>;
static STRINGS: Mutex<Names> = Mutex::new(HashMap::with_hasher(BuildHasherDefault::new()));
static DOMAINS: Mutex<Names> = Mutex::new(HashMap::with_hasher(BuildHasherDefault::new()));

fn named(all: &Mutex<Names>, name: &[u8]) -> *const Named {
    let found = state::guarded("NVTX", || {
        let mut all = all.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(known) = all.get(name) {
            return std::ptr::from_ref(*known);
        }
        let new: &'static Named = Box::leak(Box::new(Named { number: all.len() as u32 + 1, name: name.into() }));
        all.insert(&new.name, new);
        std::ptr::from_ref(new)
    });
    found.unwrap_or(std::ptr::null())
}

/// # Safety
/// Null (the default domain), or what `create` gave.
unsafe fn number(domain: *const Named) -> Domain {
    // SAFETY: as the caller says.
    unsafe { domain.as_ref() }.map_or(0, |d| d.number)
}

// ---- what the program calls ----------------------------------------------------------------------------------------------

fn entered(domain: Domain, name: &[u8]) -> c_int {
    let level = state::guarded("an NVTX push", || regions::push(domain, name)).flatten();
    level.map_or(NOT_FOLLOWED, |l| l as c_int)
}

fn left(domain: Domain) -> c_int {
    let level = state::guarded("an NVTX pop", || regions::pop(domain)).flatten();
    level.map_or(NOT_FOLLOWED, |l| l as c_int)
}

fn started(name: &[u8]) -> u64 {
    state::guarded("an NVTX range", || regions::start(name)).unwrap_or(0)
}

fn marked(text: &[u8]) {
    if state::started() {
        state::guarded("an NVTX mark", || labels::mark(text));
    }
}

macro_rules! callbacks {
    ($($name:ident($($a:ident: $t:ty),*) $(-> $r:ty)? = $body:expr;)*) => {
        $(unsafe extern "C" fn $name($($a: $t),*) $(-> $r)? {
            // SAFETY: called by NVTX with the program's arguments: texts that are null or end, handles that are null or ours.
            unsafe { $body }
        })*
    };
}

callbacks! {
    mark_ex(e: *const Attributes) = with_text(e, marked);
    mark_a(text: *const c_char) = marked(plain(text));
    mark_w(text: *const u32) = marked(Narrow::of(text).text());
    start_ex(e: *const Attributes) -> u64 = with_text(e, started);
    start_a(text: *const c_char) -> u64 = started(plain(text));
    start_w(text: *const u32) -> u64 = started(Narrow::of(text).text());
    push_ex(e: *const Attributes) -> c_int = with_text(e, |name| entered(0, name));
    push_a(text: *const c_char) -> c_int = entered(0, plain(text));
    push_w(text: *const u32) -> c_int = entered(0, Narrow::of(text).text());
    domain_mark(_domain: *const Named, e: *const Attributes) = with_text(e, marked);
    domain_start(_domain: *const Named, e: *const Attributes) -> u64 = with_text(e, started);
    domain_push(domain: *const Named, e: *const Attributes) -> c_int = with_text(e, |name| entered(number(domain), name));
    domain_pop(domain: *const Named) -> c_int = left(number(domain));
    register_a(_domain: *const Named, text: *const c_char) -> *const Named = named(&STRINGS, plain(text));
    register_w(_domain: *const Named, text: *const u32) -> *const Named = named(&STRINGS, Narrow::of(text).text());
    create_a(name: *const c_char) -> *const Named = named(&DOMAINS, plain(name));
    create_w(name: *const u32) -> *const Named = named(&DOMAINS, Narrow::of(name).text());
}

unsafe extern "C" fn end(id: u64) {
    state::guarded("an NVTX range", || regions::stop(id));
}

unsafe extern "C" fn domain_end(_domain: *const Named, id: u64) {
    state::guarded("an NVTX range", || regions::stop(id));
}

unsafe extern "C" fn pop() -> c_int {
    left(0)
}
