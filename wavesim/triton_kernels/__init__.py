"""The Triton kernels, each beside its launcher; imports layout and equations, never reference."""
