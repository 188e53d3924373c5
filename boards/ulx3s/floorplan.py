"""Where the array's multipliers lie on the chip.

A placer that is left alone strews them: sums of 48 bits then go back and forth from row to row of the array, and wires
run short between them. Here rows of the array follow each other from left to right, and its panels are one above the
other, so that a sum reaches the next row's multiplier in the block beside, and the logic of a row lies between.
"""
from gradloom.rtl.config import Config

__all__ = ["SITES", "floorplan_script", "multiplier_sites"]

#: Lines of multipliers on the LFE5U-85F, as nextpnr counts tiles.
_LINES = (10, 34, 58)
#: First tile of a block of four, and where in it they are. Between the 7th and the 8th block lies the chip's middle.
_BLOCKS = tuple(9 * block + (4 if block < 7 else 6) for block in range(13))
_PLACES = (0, 1, 4, 5)

#: All of them.
SITES = frozenset((first + place, line, place) for line in _LINES for first in _BLOCKS for place in _PLACES)


def multiplier_sites(config: Config) -> dict[tuple[int, int], tuple[int, int, int]]:
    """Tile and place of the multiplier of each (row, column); none if rows are more than blocks, a panel has more
    columns than a block has places, or a PE has more than one multiplier."""
    if (config.rows > len(_BLOCKS) or config.rank > len(_PLACES) or config.panels > len(_LINES)
            or config.activation_bits > 18):
        return {}
    # Of a block every other place, if that is enough: what is beside a multiplier needs room.
    places = _PLACES[::2] if config.rank <= len(_PLACES) // 2 else _PLACES
    # The last blocks but one: what feeds the array and what it gives lie at its two ends.
    before = len(_BLOCKS) - config.rows - (config.rows < len(_BLOCKS) - 1) * 2
    lines = _LINES[len(_LINES) - config.panels:]
    return {(row, panel * config.rank + rank): (_BLOCKS[before + row] + places[rank], lines[panel], places[rank])
            for row in range(config.rows) for panel in range(config.panels) for rank in range(config.rank)}


def floorplan_script(config: Config) -> str:
    """Yosys' commands that write it into the netlist."""
    lines = ["# Places of the array's multipliers, for nextpnr."]
    for (row, column), (x, y, place) in multiplier_sites(config).items():
        lines.append(f'setattr -set BEL "X{x}/Y{y}/MULT18_{place}" c:*array.*row_{row}.*pe_{column}.* t:MULT18X18D %i')
    return "\n".join(lines) + "\n"
