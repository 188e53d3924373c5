"""Entries of the catalogue: names and configurations of presets, claims with their broken units."""

import functools

from gradloom.preset import PRESETS
from gradloom.sim.bench.mutants import holder, mutant
from gradloom.sim.proofs.proof import FREE_PRODUCTS, stream_proof

from .placed import units_of

__all__ = ["ANY", "CONFIGS", "FREE", "GENESYS2", "IMAGE_CONFIGS", "KV260", "ULX3S", "pair", "placed", "told"]

ANY, KV260, GENESYS2, ULX3S = "all", "instantft-kv260", "edge-qlora-genesys2", "digits-ulx3s"
CONFIGS = {name: PRESETS[name].config for name in (KV260, GENESYS2, ULX3S)}
#: Presets of the machine for images, each with its configuration.
IMAGE_CONFIGS = [(name, CONFIGS[name]) for name in (KV260, ULX3S)]
#: Products are anything within their factors' bounds.
FREE = (FREE_PRODUCTS,)


def pair(factory, unit, *names, **given):
    """Claim, and the claim of the unit that is broken as each of the mutants of these names."""
    return {
        "make": functools.partial(factory, unit, **given),
        "broken": {told(unit, name): lambda name=name: factory(mutant(unit, name), **given) for name in names},
    }


def told(unit, name):
    """A mutant in the table of proofs."""
    return f"{holder(unit, name).__name__.removeprefix('gradloom.rtl.')}: {name}"


def placed(preset, unit, **given):
    """Of a unit in a preset's machine, as it is made there."""
    return stream_proof(f"{unit.lower()}-{preset}", lambda: units_of(preset)[unit], preset=preset, **given)
