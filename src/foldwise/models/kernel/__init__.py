"""Kernel models: functions of a kernel's space, smooth ones and those with the hinge or the tube itself."""

from foldwise.models.kernel.assemble import MemoryLimitError, assemble_kernel, dense_rows
from foldwise.models.kernel.model import KernelModel

__all__ = ["KernelModel", "MemoryLimitError", "assemble_kernel", "dense_rows"]
