//! PyTorch's native frames: between a line of Python and the allocator lie some twenty, of which one or two say something:
//! the operator (`aten::addmm`), the node of the backward pass (`AddmmBackward0`), the handle whose workspace it is.

use super::Entry;

/// The place of what runs in the backward pass.
pub const BACKWARD: &str = "backward pass";

/// What runs a node of the backward pass, and what leads from one to the next.
const ENGINE: &str = "torch::autograd::Engine::evaluate_function";

/// For each entry whether it is shown; in place of operators and nodes, with their names as PyTorch's users know them.
pub(super) fn tell(entries: &[&Entry]) -> Vec<Entry> {
    let mut kept = Vec::new();
    let mut i = 0;
    while i < entries.len() {
        let run = entries[i..].iter().take_while(|e| is_torch(e)).count();
        if run == 0 {
            kept.push(entries[i].clone());
            i += 1;
            continue;
        }
        of_run(&entries[i..i + run], &mut kept);
        i += run;
    }
    kept
}

fn is_torch(e: &Entry) -> bool {
    !e.is_python() && (e.module.starts_with("libtorch") || e.module.starts_with("libc10"))
}

fn of_run(run: &[&Entry], kept: &mut Vec<Entry>) {
    let is = |i: &usize| operator(&run[*i].function).is_some_and(|name| !is_bare(&name));
    let operators: Vec<usize> = (0..run.len()).filter(is).collect();
    // What Python called, and what that called in the end.
    let ends = [operators.first(), operators.last()];
    let told = |i: usize| -> Option<Entry> {
        let e = run[i];
        if let Some(name) = node(&e.function) {
            return Some(Entry { function: name, place: BACKWARD.to_string(), ..e.clone() });
        }
        if ends.contains(&Some(&i)) {
            return Some(Entry { function: operator(&e.function)?, place: e.module.clone(), ..e.clone() });
        }
        is_handle(&e.function).then(|| e.clone())
    };
    let mut lines: Vec<Entry> = (0..run.len()).filter_map(told).collect();
    lines.dedup_by(|a, b| a.function == b.function);
    // Between two nodes the engine itself adds gradients up and brings them into shape (a bias's, by a sum).
    if !run.iter().any(|e| node(&e.function).is_some())
        && let Some(engine) = run.iter().find(|e| e.function.starts_with(ENGINE))
    {
        lines.push(Entry { function: "autograd engine".to_string(), place: BACKWARD.to_string(), ..(*engine).clone() });
    }
    if lines.is_empty() {
        let inner = run.iter().position(|e| !is_allocator(&e.function)).unwrap_or(0);
        lines.push(run[inner].clone());
        if run.len() - 1 > inner {
            lines.push(run[run.len() - 1].clone());
        }
    }
    kept.append(&mut lines);
}

/// `at::_ops::addmm::call(…)` is `aten::addmm`.
fn operator(function: &str) -> Option<String> {
    let at = function.find("at::_ops::")?;
    let rest = &function[at + "at::_ops::".len()..];
    let (name, call) = rest.split_once("::")?;
    call.starts_with("call").then(|| format!("aten::{}", name.trim_end_matches('_')))
}

/// Operators that only make room for what another one computes.
fn is_bare(name: &str) -> bool {
    name.starts_with("aten::empty") || name.starts_with("aten::resize")
}

/// `torch::autograd::generated::AddmmBackward0::apply(…)` is `AddmmBackward0`; those that are written by hand (`AccumulateGrad`,
/// `CopySlices`, `PyNode` for a Function of Python) are no `generated` ones.
fn node(function: &str) -> Option<String> {
    let rest = function.strip_prefix("torch::autograd::")?;
    let (name, call) = rest.strip_prefix("generated::").unwrap_or(rest).split_once("::")?;
    (call.starts_with("apply(") || call == "apply").then(|| name.to_string())
}

/// Memory of a library's handle, which lives as long as that.
fn is_handle(function: &str) -> bool {
    ["at::cuda::getCurrentCUDABlasHandle", "at::cuda::getCUDABlasLtWorkspace", "at::native::getCudnnHandle"]
        .iter()
        .any(|f| function.starts_with(f))
}

/// PyTorch's way to its own allocator.
fn is_allocator(function: &str) -> bool {
    ["c10::cuda::CUDACachingAllocator::", "at::detail::empty", "at::native::empty"]
        .iter()
        .any(|f| function.starts_with(f))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(module: &str, function: &str) -> Entry {
        Entry { number: 1, module: module.into(), function: function.into(), ..Entry::default() }
    }

    fn told(functions: &[&str]) -> Vec<String> {
        let entries: Vec<Entry> = functions.iter().map(|f| native("libtorch_cpu.so", f)).collect();
        tell(&entries.iter().collect::<Vec<_>>()).into_iter().map(|e| e.function).collect()
    }

    #[test]
    fn operators_and_nodes_are_told() {
        let allocator =
            "c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::malloc(void**, unsigned long)";
        let stack = [
            allocator,
            "at::detail::empty_cuda(c10::ArrayRef<long>)",
            "at::(anonymous namespace)::wrapper_CUDA_empty()",
            "at::_ops::empty_memory_format::call(c10::SymIntArrayRef)",
            "at::_ops::mm::call(at::Tensor const&, at::Tensor const&)",
            "torch::autograd::VariableType::(anonymous namespace)::linear()",
            "at::_ops::linear::call(at::Tensor const&)",
        ];
        assert_eq!(told(&stack), ["aten::mm", "aten::linear"]);
        let backward = [
            allocator,
            "at::_ops::mm::call(at::Tensor const&)",
            "torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)",
            "torch::autograd::Engine::thread_main()",
        ];
        assert_eq!(told(&backward), ["aten::mm", "AddmmBackward0"]);
        // Out of memory there, nothing else says that it was in the backward pass.
        let engine = "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)";
        let bias = [
            allocator,
            "at::_ops::sum_dim_IntList::call(at::Tensor const&)",
            "torch::autograd::InputMetadata::reduce_grad(at::Tensor&) const",
            engine,
            "torch::autograd::Engine::thread_main()",
        ];
        assert_eq!(told(&bias), ["aten::sum_dim_IntList", "autograd engine"]);
        let sum = [
            allocator,
            "at::_ops::add_Tensor::call(at::Tensor const&)",
            "torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)",
            engine,
        ];
        assert_eq!(told(&sum), ["aten::add_Tensor", "AccumulateGrad"]);
        let handle = [allocator, "at::cuda::getCUDABlasLtWorkspace()", "at::_ops::addmm::call(at::Tensor const&)"];
        assert_eq!(told(&handle), ["at::cuda::getCUDABlasLtWorkspace()", "aten::addmm"]);
        assert_eq!(told(&[allocator, "mine::run()", "mine::call()", "mine::main()"]), ["mine::run()", "mine::main()"]);
    }
}
