"""Stands for torch._inductor, which is imported by torch.compile only."""
