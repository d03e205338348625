"""What the simulated server needs beside SGLang's and PyTorch's names: the CUDA libraries, the truth, ranks that talk."""
