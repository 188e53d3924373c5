"""A cable to the UART of a simulated board."""

import random


class Line:
    """A cable to the simulated board: of so many bytes one is lost, and one is changed."""

    def __init__(self, soc, every=0, deaf=False, gap=4000, silence=60_000):
        self.soc, self.every, self.deaf, self.chosen, self.hurt = soc, every, deaf, random.Random(3), 0
        self.gap, self.silence = gap, silence

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def _carried(self, data):
        for byte in data:
            fate = self.chosen.randrange(self.every) if self.every else 2
            self.hurt += fate < 2
            if fate:
                yield byte ^ (1 << self.chosen.randrange(8) if fate == 1 else 0)

    def write(self, data):
        if not self.deaf:
            self.soc.say(bytes(self._carried(data)), gap=self.gap)

    def read(self, size):
        return bytes(self._carried(self.soc.spoken(self.silence)))
