//! Which devices may touch a device's arena: itself, and the peers that the program let at its memory pool.

use std::sync::RwLock;

use crate::cuda::{ACCESS_READ_WRITE, Access, MEM_LOCATION_TYPE_DEVICE, Result, SUCCESS};
use crate::driver;

/// (device, peer)
static PEERS: RwLock<Vec<(i32, i32)>> = RwLock::new(Vec::new());

fn access(device: i32) -> Access {
    Access { location_type: MEM_LOCATION_TYPE_DEVICE, location_id: device, flags: ACCESS_READ_WRITE }
}

/// All that may.
pub fn of(device: i32) -> Vec<Access> {
    let peers = PEERS.read().unwrap_or_else(|e| e.into_inner());
    std::iter::once(device).chain(peers.iter().filter(|p| p.0 == device).map(|p| p.1)).map(access).collect()
}

/// Lets a peer at everything that is mapped and that will be. Nobody is shut out again: an arena serves several memory pools.
pub fn allow(device: i32, peer: i32) -> Result {
    {
        let mut peers = PEERS.write().unwrap_or_else(|e| e.into_inner());
        if peer == device || peers.contains(&(device, peer)) {
            return SUCCESS;
        }
        peers.push((device, peer));
    }
    for arena in super::of_device(device) {
        let all = || {
            let s = arena.snapshot();
            s.chunks.into_iter().chain(s.aliases).collect::<Vec<_>>()
        };
        for chunk in all() {
            let r = driver::set_access(chunk.address, chunk.bytes, &[access(peer)]);
            // One that was unmapped meanwhile needs none.
            if r != SUCCESS && all().contains(&chunk) {
                // It was not let in: the next try begins anew.
                PEERS.write().unwrap_or_else(|e| e.into_inner()).retain(|p| *p != (device, peer));
                return r;
            }
        }
    }
    SUCCESS
}
