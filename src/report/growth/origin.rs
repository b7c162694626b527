//! What a stack tells of how its memory came to be: loaded, or made where no graph is kept. By what PyTorch's own functions are
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

    /// Whether it was made where PyTorch keeps no graph: parameters that are loaded, and between the user's line and it an
    /// optimizer or a function under `no_grad` or `inference_mode`. (A closure that an optimizer calls is the user's line.)
    pub(super) fn is_without_graph(&self, stack: u32) -> bool {
        const PLACES: [(&str, &str); 2] = [("torch/optim/", ""), ("torch/utils/_contextlib.py", "decorate_context")];
        let mut inner = self.places(stack).take_while(|p| python::whose(&p.file) != Whose::User);
        let made_in = |p: &Python| {
            let function = p.function.rsplit('.').next().unwrap_or_default();
            PLACES.iter().any(|(file, of)| p.file.contains(file) && (of.is_empty() || *of == function))
        };
        self.loads(stack) || inner.any(made_in)
    }

    /// Whether the steps are those of loading, if there are any: a model that is loaded again and again in a loop of another
    /// kind may well stay.
    pub(super) fn is_loading(&self) -> bool {
        let Some(steps) = self.steps else { return true };
        let loading = steps.members.iter().filter(|i| self.loads(self.site(**i).stack)).count();
        loading * 2 >= steps.members.len()
    }
}
