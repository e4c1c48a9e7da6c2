"""The same steps in plain eager PyTorch, differentiated by autograd. Imports no Triton."""
