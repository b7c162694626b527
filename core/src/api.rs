//! The entry points an event can come through: the name that the program called, runtime or driver.

macro_rules! apis {
    ($($v:ident = $n:literal => $s:literal),* $(,)?) => {
        /// The function through which an event came.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "the name says it")]
        pub enum Api { #[default] None = 0, $($v = $n),* }
        impl Api {
            /// The entry point of this number.
            pub fn from_number(n: u8) -> Option<Api> { match n { 0 => Some(Api::None), $($n => Some(Api::$v),)* _ => None } }
            /// Its name in a history: the C name.
            pub fn name(self) -> &'static str { match self { Api::None => "", $(Api::$v => $s),* } }
            /// The entry point of this C name.
            pub fn from_name(s: &str) -> Option<Api> { match s { "" => Some(Api::None), $($s => Some(Api::$v),)* _ => None } }
        }
    };
}

apis! {
    CudaMalloc = 1 => "cudaMalloc", CudaFree = 2 => "cudaFree", CudaMallocPitch = 3 => "cudaMallocPitch",
    CudaMalloc3D = 4 => "cudaMalloc3D", CudaMallocManaged = 5 => "cudaMallocManaged", CudaMallocHost = 6 => "cudaMallocHost",
    CudaHostAlloc = 7 => "cudaHostAlloc", CudaFreeHost = 8 => "cudaFreeHost", CudaHostRegister = 9 => "cudaHostRegister",
    CudaHostUnregister = 10 => "cudaHostUnregister", CudaMallocAsync = 11 => "cudaMallocAsync",
    CudaMallocFromPoolAsync = 12 => "cudaMallocFromPoolAsync", CudaFreeAsync = 13 => "cudaFreeAsync",
    CudaMallocArray = 14 => "cudaMallocArray", CudaMalloc3DArray = 15 => "cudaMalloc3DArray", CudaFreeArray = 16 => "cudaFreeArray",
    CudaDeviceReset = 17 => "cudaDeviceReset", CudaIpcOpenMemHandle = 18 => "cudaIpcOpenMemHandle",
    CudaIpcCloseMemHandle = 19 => "cudaIpcCloseMemHandle",
    CuMemAlloc = 64 => "cuMemAlloc", CuMemFree = 65 => "cuMemFree", CuMemAllocPitch = 66 => "cuMemAllocPitch",
    CuMemAllocManaged = 67 => "cuMemAllocManaged", CuMemHostAlloc = 68 => "cuMemHostAlloc", CuMemAllocHost = 69 => "cuMemAllocHost",
    CuMemFreeHost = 70 => "cuMemFreeHost", CuMemHostRegister = 71 => "cuMemHostRegister",
    CuMemHostUnregister = 72 => "cuMemHostUnregister", CuMemAllocAsync = 73 => "cuMemAllocAsync",
    CuMemAllocFromPoolAsync = 74 => "cuMemAllocFromPoolAsync", CuMemFreeAsync = 75 => "cuMemFreeAsync",
    CuMemCreate = 76 => "cuMemCreate", CuMemRelease = 77 => "cuMemRelease", CuMemMap = 78 => "cuMemMap", CuMemUnmap = 79 => "cuMemUnmap",
    CuIpcGetMemHandle = 80 => "cuIpcGetMemHandle", CuIpcOpenMemHandle = 81 => "cuIpcOpenMemHandle",
    CuIpcCloseMemHandle = 82 => "cuIpcCloseMemHandle", CuMemGetHandleForAddressRange = 83 => "cuMemGetHandleForAddressRange",
    CuPointerSetAttribute = 84 => "cuPointerSetAttribute", CuPointerGetAttribute = 85 => "cuPointerGetAttribute",
    CuCtxDestroy = 86 => "cuCtxDestroy", CuDevicePrimaryCtxReset = 87 => "cuDevicePrimaryCtxReset",
    CuDevicePrimaryCtxRelease = 88 => "cuDevicePrimaryCtxRelease", CuModuleLoad = 89 => "cuModuleLoad", CuLibraryLoad = 90 => "cuLibraryLoad",
    CuArrayCreate = 91 => "cuArrayCreate", CuArrayDestroy = 92 => "cuArrayDestroy", CuCtxCreate = 93 => "cuCtxCreate",
    CuStreamCreate = 94 => "cuStreamCreate", CuMemExport = 95 => "cuMemExportToShareableHandle",
    CuMemImport = 96 => "cuMemImportFromShareableHandle", CuGraphLaunch = 97 => "cuGraphLaunch", CuGraphInstantiate = 98 => "cuGraphInstantiate",
    CuDevicePrimaryCtxRetain = 99 => "cuDevicePrimaryCtxRetain",
}
