"""Presets that work with recurrent networks."""

from gradloom.preset import Preset
from gradloom.rtl.machines.configs.recurrent import RecurrentConfig
from gradloom.rtl.machines.configs.sequence import SequenceConfig

from .answers_workload import AnswersWorkload
from .workload import SequenceWorkload

__all__ = ["LSTM_KV260", "LSTM_ULX3S", "LSTM_ZCU104"]

LSTM_KV260 = Preset(
    name="lstm-kv260",
    board="kv260",
    workload=SequenceWorkload(),
    summary="quantised LSTM, exact to the code, that learns from its states, without a pass back through time",
    config=SequenceConfig(
        tap_channels=64,
        positions=512,
        kernel=2,
        adapter_depth=512,
        weight_depth=1024,
        bias_depth=4,
        feature_depth=64,
        image_depth=1024,
        blocks=8,
        bank_luts=1,
    ),
)

LSTM_ZCU104 = Preset(
    name="lstm-zcu104",
    board="zcu104",
    workload=AnswersWorkload(),
    summary="quantised LSTM: weights beside their slices, two products a slice, answers exact to the code",
    config=RecurrentConfig(),
)

LSTM_ULX3S = Preset(
    name="lstm-ulx3s",
    board="ulx3s",
    workload=AnswersWorkload(),
    summary="quantised LSTM of 32 elements: at power-up it labels windows that lie on the chip",
    config=RecurrentConfig(
        hidden=32,
        inputs=32,
        parallel=1,
        products=1,
        sequences=1,
        table_cycles=2,
        queue_depth=4,
        outstanding=2,
        address_bits=32,
        clock_mhz=75,
    ),
)
