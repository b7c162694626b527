//! Captures: watched from their begin to their end, in every variant.

use crate::capture::{begin as began, end as ended};
use crate::cuda::{Ptr, Result, STREAM_PER_THREAD, Size, Stream};
use crate::hooks::{self, types};
use crate::state;

macro_rules! watched {
    ($($(#[$doc:meta])* $name:ident $own:literal $step:ident: $t:ident($($a:ident: $ty:ty),*);)*) => {
        $($(#[$doc])*
        #[allow(clippy::too_many_arguments, reason = "the driver's")]
        pub unsafe fn $name(real: types::$t, _: usize, stream: Stream $(, $a: $ty)*) -> Result {
            if $own || stream == STREAM_PER_THREAD {
                hooks::note_per_thread_streams();
            }
            if state::switched_off() || state::forked() {
                // SAFETY: the program's arguments.
                return unsafe { real(stream $(, $a)*) };
            }
            // SAFETY: as above.
            $step(stream, $own, || unsafe { real(stream $(, $a)*) })
        })*
    };
}

watched! {
    /// `cuStreamBeginCapture` of CUDA 10.0.
    begin_old false began: cuStreamBeginCapture();
    /// The same, `_ptsz`.
    begin_old_ptsz true began: cuStreamBeginCapture_ptsz();
    /// `cuStreamBeginCapture_v2`.
    begin false began: cuStreamBeginCapture_v2(mode: i32);
    /// The same, `_ptsz`.
    begin_ptsz true began: cuStreamBeginCapture_v2_ptsz(mode: i32);
    /// `cuStreamBeginCaptureToGraph`.
    begin_to_graph false began: cuStreamBeginCaptureToGraph(graph: Ptr, nodes: Ptr, edges: Ptr, count: Size, mode: i32);
    /// The same, `_ptsz`.
    begin_to_graph_ptsz true began: cuStreamBeginCaptureToGraph_ptsz(graph: Ptr, nodes: Ptr, edges: Ptr, count: Size, mode: i32);
    /// `cuStreamBeginCaptureToCig`.
    begin_to_cig false began: cuStreamBeginCaptureToCig(params: Ptr);
    /// The same, `_ptsz`.
    begin_to_cig_ptsz true began: cuStreamBeginCaptureToCig_ptsz(params: Ptr);
    /// `cuStreamEndCaptureToCig`.
    end_to_cig false ended: cuStreamEndCaptureToCig();
    /// The same, `_ptsz`.
    end_to_cig_ptsz true ended: cuStreamEndCaptureToCig_ptsz();
    /// `cuStreamEndCapture`.
    end false ended: cuStreamEndCapture(graph: *mut Ptr);
    /// The same, `_ptsz`.
    end_ptsz true ended: cuStreamEndCapture_ptsz(graph: *mut Ptr);
}
