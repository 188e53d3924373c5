"""A machine of which the array engine is small enough for Amaranth's simulator."""

from gradloom.rtl.machines.configs.images import ImageConfig

CONFIG = ImageConfig(
    rows=5,
    kernel=2,
    panels=4,
    rank=2,
    classes=4,
    taps=4,
    adapter_depth=256,
    weight_depth=128,
    feature_depth=64,
    image_depth=256,
    dense_depth=128,
    blocks=8,
    positions=64,
    width=16,
)
