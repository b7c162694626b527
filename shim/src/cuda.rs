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
/// Work that goes on.
pub const ERROR_NOT_READY: Result = 600;
/// A capture forbids the call.
pub const ERROR_STREAM_CAPTURE_UNSUPPORTED: Result = 900;

/// CU_STREAM_PER_THREAD: the handle that names the calling thread's default stream.
pub const STREAM_PER_THREAD: Stream = 2;

pub const EVENT_DISABLE_TIMING: Uint = 2;
pub const CAPTURE_MODE_RELAXED: c_int = 2;

pub const POINTER_ATTRIBUTE_CONTEXT: c_int = 1;
pub const POINTER_ATTRIBUTE_MEMORY_TYPE: c_int = 2;
pub const POINTER_ATTRIBUTE_DEVICE_POINTER: c_int = 3;
pub const POINTER_ATTRIBUTE_P2P_TOKENS: c_int = 5;
pub const POINTER_ATTRIBUTE_SYNC_MEMOPS: c_int = 6;
pub const POINTER_ATTRIBUTE_BUFFER_ID: c_int = 7;
pub const POINTER_ATTRIBUTE_IS_MANAGED: c_int = 8;
pub const POINTER_ATTRIBUTE_DEVICE_ORDINAL: c_int = 9;
pub const POINTER_ATTRIBUTE_IS_LEGACY_IPC_CAPABLE: c_int = 10;
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
pub const MEM_ALLOCATION_TYPE_PINNED: c_int = 1;

/// CUmemAllocationProp, whole.
#[repr(C)]
pub struct Placement {
    pub head: AllocationProp,
    pub win32: usize,
    pub flags: [u8; 8],
}

/// CUmemAccessDesc.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    pub location_type: c_int,
    pub location_id: c_int,
    pub flags: c_int,
}
pub const ACCESS_READ_WRITE: c_int = 3;

/// CUmemPoolProps, as far as it is looked at.
#[repr(C)]
pub struct PoolProps {
    pub kind: c_int,
    pub handle_types: c_int,
    pub location_type: c_int,
    pub location_id: c_int,
    pub win32: usize,
    pub max_size: usize,
}

pub const POOL_RELEASE_THRESHOLD: c_int = 4;
pub const POOL_RESERVED_CURRENT: c_int = 5;
pub const POOL_RESERVED_HIGH: c_int = 6;
pub const POOL_USED_CURRENT: c_int = 7;
pub const POOL_USED_HIGH: c_int = 8;

/// CU_STREAM_LEGACY: the handle that names the legacy default stream.
pub const STREAM_LEGACY: Stream = 1;
pub const ERROR_INVALID_DEVICE: Result = 101;
pub const ERROR_INVALID_CONTEXT: Result = 201;
pub const ERROR_NOT_SUPPORTED: Result = 801;
pub const POINTER_ATTRIBUTE_RANGE_START: c_int = 11;
pub const POINTER_ATTRIBUTE_MEMPOOL: c_int = 17;
/// A memory type.
pub const MEMORY_TYPE_DEVICE: u32 = 2;
/// What `cuMemGetAddressRange` answers for an address in no allocation.
pub const ERROR_NOT_FOUND_RANGE: Result = 500;
