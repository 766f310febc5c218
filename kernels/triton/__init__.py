"""The op table as Triton kernels, for CUDA and ROCm devices. One kernel family a file; importing this loads nothing."""
