//! Counters of what the pool did, in the order in which a `counters` event carries them.

/// Totals since the start of the process. They travel in `counters` events and are what the summary prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "documented by NAMES and docs/trace-format.md")]
pub struct Counters {
    /// Plain requests (cuMemAlloc) in all.
    pub requests: u64,
    /// Served from a cached block of the same size class.
    pub hits_exact: u64,
    /// Served from a larger cached block (down to 7/8 of its size).
    pub hits_near: u64,
    /// Needed a new segment from the driver.
    pub misses: u64,
    /// Sent to the driver (capture, hoarder, large, pool off).
    pub direct: u64,
    /// Frees kept by the pool.
    pub frees_cached: u64,
    /// Frees that went to the driver.
    pub frees_driver: u64,
    /// Device barriers issued.
    pub device_barriers: u64,
    /// Host waits made in free.
    pub host_barriers: u64,
    /// Frees that needed no barrier (only the default stream was ever used).
    pub no_barriers: u64,
    /// Barriers that could not be used (capture, callback, old driver, error).
    pub barriers_refused: u64,
    /// Times idle memory was given back.
    pub trims: u64,
    /// Bytes so given back.
    pub trimmed_bytes: u64,
    /// Nanoseconds spent in driver allocation calls (cuMemAlloc) by the pool's misses and direct requests.
    pub driver_alloc_ns: u64,
    /// Nanoseconds spent in cuMemFree.
    pub driver_free_ns: u64,
    /// Driver allocation calls timed.
    pub driver_allocs: u64,
    /// Driver free calls timed.
    pub driver_frees: u64,
    /// Bytes of blocks in use now / at most.
    pub active: u64,
    pub active_peak: u64,
    /// Bytes the pool holds from the driver now / at most.
    pub reserved: u64,
    pub reserved_peak: u64,
    /// Bytes cached and reusable now.
    pub inactive: u64,
    /// Bytes of frees waiting (for the barrier call to return) now.
    pub waiting: u64,
    /// Double frees and frees of unknown pointers.
    pub bad_frees: u64,
    /// Allocations that failed in the end.
    pub failures: u64,
}

/// Number of counters.
pub const COUNT: usize = 25;
/// Words of an event that carry counters, a page.
pub const PER_EVENT: usize = 7;

/// The counters' names in a history, in order.
pub const NAMES: [&str; COUNT] = [
    "requests",
    "hits_exact",
    "hits_near",
    "misses",
    "direct",
    "frees_cached",
    "frees_driver",
    "device_barriers",
    "host_barriers",
    "no_barriers",
    "barriers_refused",
    "trims",
    "trimmed_bytes",
    "driver_alloc_ns",
    "driver_free_ns",
    "driver_allocs",
    "driver_frees",
    "active",
    "active_peak",
    "reserved",
    "reserved_peak",
    "inactive",
    "waiting",
    "bad_frees",
    "failures",
];

impl Counters {
    /// All of them, in the order of [`NAMES`].
    pub fn to_array(&self) -> [u64; COUNT] {
        let c = self;
        [
            c.requests,
            c.hits_exact,
            c.hits_near,
            c.misses,
            c.direct,
            c.frees_cached,
            c.frees_driver,
            c.device_barriers,
            c.host_barriers,
            c.no_barriers,
            c.barriers_refused,
            c.trims,
            c.trimmed_bytes,
            c.driver_alloc_ns,
            c.driver_free_ns,
            c.driver_allocs,
            c.driver_frees,
            c.active,
            c.active_peak,
            c.reserved,
            c.reserved_peak,
            c.inactive,
            c.waiting,
            c.bad_frees,
            c.failures,
        ]
    }

    /// Counters of such an array.
    pub fn from_array(a: &[u64; COUNT]) -> Counters {
        Counters {
            requests: a[0],
            hits_exact: a[1],
            hits_near: a[2],
            misses: a[3],
            direct: a[4],
            frees_cached: a[5],
            frees_driver: a[6],
            device_barriers: a[7],
            host_barriers: a[8],
            no_barriers: a[9],
            barriers_refused: a[10],
            trims: a[11],
            trimmed_bytes: a[12],
            driver_alloc_ns: a[13],
            driver_free_ns: a[14],
            driver_allocs: a[15],
            driver_frees: a[16],
            active: a[17],
            active_peak: a[18],
            reserved: a[19],
            reserved_peak: a[20],
            inactive: a[21],
            waiting: a[22],
            bad_frees: a[23],
            failures: a[24],
        }
    }
}
