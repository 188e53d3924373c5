"""The convolution's inputs: image and feature maps, and the encoder of taps."""

from amaranth.hdl import Mux, Signal
from amaranth.lib import data, memory

from gradloom.rtl.hierarchy import place
from gradloom.rtl.stream.delay import delay

from ...encode.tap import TapEncoder

__all__ = ["feed_convolution"]


def feed_convolution(m, platform, ports, parts, base):
    """Reads image and feature maps, a pixel at a time.

    Also places the encoder of taps, which sees the same pixels.
    """
    config, convolve, finish = ports.config, parts.convolve, parts.finish
    m.submodules.images = images = memory.Memory(
        shape=data.ArrayLayout(config.activation.shape, 4), depth=config.image_depth // 4, init=[]
    )
    m.submodules.features = features = memory.Memory(
        shape=data.ArrayLayout(config.activation.shape, config.columns),
        depth=config.feature_depth,
        init=[],
        attrs={"ram_style": "ultra"},
    )
    image_write, image_read = images.write_port(), images.read_port()
    feature_write, feature_read = features.write_port(), features.read_port()
    pixel = convolve.pixel
    m.d.comb += [
        image_write.en.eq(ports.image.valid),
        image_write.addr.eq(ports.image.address),
        *(
            image_write.data[n].eq(ports.image.data[32 * n : 32 * n + config.activation.width].as_signed())
            for n in range(4)
        ),
        feature_write.en.eq(finish.feature.valid),
        feature_write.addr.eq(finish.feature.address),
        feature_write.data.eq(finish.feature.data),
        image_read.en.eq(pixel.valid),
        image_read.addr.eq(pixel.address >> 2),
        feature_read.en.eq(pixel.valid),
        feature_read.addr.eq(pixel.address),
    ]
    image, feature = Signal(image_read.data.shape(), reset_less=True), Signal(features.shape, reset_less=True)
    m.d.sync += [image.eq(image_read.data), feature.eq(feature_read.data)]
    which = delay(m, pixel.feature, 2)
    m.d.sync += convolve.data.eq(Mux(which, feature[delay(m, pixel.lane, 2)], image[delay(m, pixel.address[:2], 2)]))

    encoder = place(m, "encoder", TapEncoder(blocks=config.blocks, fmt=config.activation), platform)
    m.d.comb += [
        encoder.i.valid.eq(convolve.tap.valid),
        encoder.i.p.eq(convolve.tap.p),
        convolve.tap.ready.eq(encoder.i.ready),
        encoder.base.valid.eq(base.valid),
        encoder.base.p.eq(base.base),
        base.ready.eq(encoder.base.ready),
        encoder.table.en.eq(ports.table.en),
        encoder.table.addr.eq(ports.table.addr),
        encoder.table.data.eq(ports.table.data),
        ports.taps.valid.eq(encoder.o.valid),
        ports.taps.p.eq(encoder.o.p),
        encoder.o.ready.eq(ports.taps.ready),
    ]
