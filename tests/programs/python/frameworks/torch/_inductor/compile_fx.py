"""Stands for torch._inductor.compile_fx: it imports the trees whether or not it uses them."""

from torch._inductor import config


def cudagraphify_impl(model, inputs):
    return "%s alone with %d inputs" % (model, len(inputs))


def cudagraphify(model, inputs):
    from torch._inductor.cudagraph_trees import cudagraphify_impl as new_cudagraphify_impl

    return (new_cudagraphify_impl if config.triton.cudagraph_trees else cudagraphify_impl)(model, inputs)
