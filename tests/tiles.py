"""The machines of tiles that tests simulate. To build another takes half a minute: tests share these."""

from dataclasses import replace

from gradloom.rtl.machines.configs.diffusion import DiffusionConfig

__all__ = ["LEAST", "ROOMY"]

#: The least array; slots for a kernel.
LEAST = DiffusionConfig(array_rows=16, array_columns=16, x_slots=8, w_slots=16, element_slots=2, norm_slots=2)
#: The same with slots for several tiles of a tensor.
ROOMY = replace(LEAST, x_slots=32, w_slots=32, element_slots=8, norm_slots=8)
