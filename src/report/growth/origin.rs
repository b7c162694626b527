//! What a stack tells of how its memory came to be: loaded, made where no graph is kept, computed again, added up. By what PyTorch's own functions are
//! called, never by the user's.

use vramscope_core::trace::Python;

use super::Look;
use crate::report::history::At;
use crate::report::python::{self, Whose};

impl Look<'_> {
    /// The Python frames of a stack, the innermost first.
    fn places(&self, stack: u32) -> impl Iterator<Item = &Python> {
        let frames = self.history.stacks.get(&stack).into_iter().flatten();
        frames.filter_map(|f| if let At::Python(place) = f { self.history.python.get(place) } else { None })
    }

    /// Whether it is the loading of a model, which keeps what it makes.
    pub(super) fn loads(&self, stack: u32) -> bool {
        const LOADING: [&str; 4] = ["_apply", "load_state_dict", "from_pretrained", "reset_parameters"];
        let mut installed = self.places(stack).filter(|p| python::whose(&p.file) != Whose::User);
        installed.any(|p| LOADING.contains(&p.function.rsplit('.').next().unwrap_or_default()))
    }

    /// Whether it was made where PyTorch keeps no graph: parameters that are loaded, inside checkpointing, and between the user's line and it an
    /// optimizer or a function under `no_grad` or `inference_mode`. (A closure that an optimizer calls is the user's line.)
    pub(super) fn is_without_graph(&self, stack: u32) -> bool {
        const PLACES: [(&str, &str); 2] = [("torch/optim/", ""), ("torch/utils/_contextlib.py", "decorate_context")];
        let mut inner = self.places(stack).take_while(|p| python::whose(&p.file) != Whose::User);
        let made_in = |p: &Python| {
            let function = p.function.rsplit('.').next().unwrap_or_default();
            PLACES.iter().any(|(file, of)| p.file.contains(file) && (of.is_empty() || *of == function))
        };
        self.loads(stack) || self.is_checkpointed(stack) || inner.any(made_in)
    }

    /// Whether it was made inside activation checkpointing, of which the graph keeps the inputs only: the backward pass runs it again,
    /// in its own thread.
    pub(super) fn is_checkpointed(&self, stack: u32) -> bool {
        self.places(stack).any(|p| p.file.contains("torch/utils/checkpoint.py"))
    }

    /// Whether it is the sum of a gradient and the one before it, made anew and not in place: that is how gradients accumulate that are
    /// part of a graph.
    pub(super) fn is_sum_of_gradients(&self, stack: u32) -> bool {
        let frames = self.history.stacks.get(&stack).into_iter().flatten();
        let native = frames.filter_map(|f| if let At::Native(m, offset, _) = f { Some((*m, *offset)) } else { None });
        let mut functions = native.flat_map(|(m, offset)| self.names.at(m, offset)).map(|n| n.function.as_str());
        functions.any(|f| f.contains("add_Tensor")) && functions.any(|f| f.contains("AccumulateGrad"))
    }

    /// Whether the steps are those of loading, if there are any: a model that is loaded again and again in a loop of another
    /// kind may well stay.
    pub(super) fn is_loading(&self) -> bool {
        let Some(steps) = self.steps else { return true };
        let loading = steps.members.iter().filter(|i| self.loads(self.site(**i).stack)).count();
        loading * 2 >= steps.members.len()
    }
}
