"""Ports of the component that holds a machine's engines, as the shell has them."""
from amaranth.lib import stream
from amaranth.lib.wiring import In, Member, Out

from ..shell.engines import Engines
from ..shell.signature import EngineSignature, Health, LoadBeat, StoreRequest

__all__ = ["engine_ports"]


def engine_ports(engines: Engines, data_bits: int) -> dict[str, Member]:
    """Members of its signature: commands for each engine; LOAD's beats; STORE's requests and beats; health."""
    return {
        **{each.name: In(EngineSignature()) for each in engines.own},
        "load": In(stream.Signature(LoadBeat(data_bits))), "refuse": Out(1),
        "request": In(stream.Signature(StoreRequest)), "refuse_store": Out(1),
        "store": Out(stream.Signature(data_bits)),
        "health": Out(Health),
    }
