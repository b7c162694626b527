//! CUDA's driver types and numbers, as far as the hooks need them (names as in `cuda.h`).

use std::ffi::{c_char, c_int, c_uint, c_void};

/// CUresult.
pub type Result = c_int;
/// CUdeviceptr of the 64-bit ABI.
pub type DevicePtr = u64;
/// CUcontext.
pub type Context = usize;
/// CUstream.
pub type Stream = usize;
/// CUdevice.
pub type Device = c_int;
/// CUevent.
pub type Event = usize;
/// `void *`.
pub type Ptr = *mut c_void;
/// `const char *`.
pub type Str = *const c_char;
/// `size_t`.
pub type Size = usize;
/// `unsigned int`.
pub type Uint = c_uint;
/// A 64-byte opaque structure passed by value (CUipcMemHandle).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle(pub [u8; 64]);

pub const SUCCESS: Result = 0;
pub const ERROR_INVALID_VALUE: Result = 1;
pub const ERROR_OUT_OF_MEMORY: Result = 2;
pub const ERROR_NOT_FOUND: Result = 500;

/// CU_STREAM_PER_THREAD: the handle that names the calling thread's default stream.
pub const STREAM_PER_THREAD: Stream = 2;

pub const EVENT_DISABLE_TIMING: Uint = 2;
pub const CAPTURE_MODE_RELAXED: c_int = 2;

pub const POINTER_ATTRIBUTE_P2P_TOKENS: c_int = 5;
pub const POINTER_ATTRIBUTE_SYNC_MEMOPS: c_int = 6;
pub const POINTER_ATTRIBUTE_BUFFER_ID: c_int = 7;
pub const POINTER_ATTRIBUTE_IS_MANAGED: c_int = 8;
pub const POINTER_ATTRIBUTE_RANGE_SIZE: c_int = 12;

/// CUmemAllocationProp, its head: the location tells whether a handle is device memory.
#[repr(C)]
pub struct AllocationProp {
    pub kind: c_int,
    pub requested_handle_types: c_int,
    pub location_type: c_int,
    pub location_id: c_int,
}
pub const MEM_LOCATION_TYPE_DEVICE: c_int = 1;
/// What `cuMemGetAddressRange` answers for an address in no allocation.
pub const ERROR_NOT_FOUND_RANGE: Result = 500;
