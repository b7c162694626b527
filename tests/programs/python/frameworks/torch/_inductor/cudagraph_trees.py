"""Stands for torch._inductor.cudagraph_trees."""


def cudagraphify_impl(model, inputs, *args, **kwargs):
    return "trees of %s with %d inputs" % (model, len(inputs))
