"""Settings of Vivado's memory controller (MIG 7) for the DDR3.

1,600 MT/s, although chips and FPGA can do 1,800: MIG's user clock is a quarter of the memory's, and 200 MHz is the
clock that designs are made for, so that nothing between accelerator and memory crosses clocks. 256 bits at 200 MHz is
all that 32 bits at 1,600 MT/s can bring. A design that does not meet 200 MHz takes 1,333 MT/s and 166.67 MHz.
"""

import dataclasses
from collections.abc import Iterator
from xml.etree import ElementTree

__all__ = ["DATA_BITS", "PACES", "PINS", "Pace", "mig_project", "pace_of"]

#: Width of the bus in the user clock.
DATA_BITS = 256


@dataclasses.dataclass(frozen=True)
class Pace:
    """A speed of the memory.

    It has the period of the memory's clock in picoseconds, and the latencies of reads and writes in such periods.
    """

    period_ps: int
    reads: int
    writes: int

    @property
    def hz(self) -> int:
        """The user clock in Hz, a quarter of the memory's."""
        return 10**12 // (4 * self.period_ps)

    @property
    def mhz(self) -> float:
        """The user clock in MHz."""
        return self.hz / 1e6


#: The latencies of 1,333 MT/s are those that every speed grade from there on must bear (JESD79-3, CL 10 and CWL 7).
PACES = (Pace(1250, 11, 8), Pace(1500, 10, 7))
_BYTES = 1 << 30

#: Balls of each signal, lowest bit first, and its standard.
PINS: dict[str, tuple[str, str]] = {
    "addr": ("AC12 AE8 AD8 AC10 AD9 AA13 AA10 AA11 Y10 Y11 AB8 AA8 AB12 AA12 AH9", "SSTL15"),
    "ba": ("AE9 AB10 AC11", "SSTL15"),
    "cas_n": ("AF11", "SSTL15"),
    "ck_n": ("AC9", "DIFF_SSTL15"),
    "ck_p": ("AB9", "DIFF_SSTL15"),
    "cke": ("AJ9", "SSTL15"),
    "cs_n": ("AH12", "SSTL15"),
    "dm": ("AD4 AF3 AH4 AF8", "SSTL15"),
    "dq": (
        "AD3 AC2 AC1 AC5 AC4 AD6 AE6 AC7 AF2 AE1 AF1 AE4 AE3 AE5 AF5 AF6 "
        "AJ4 AH6 AH5 AH2 AJ2 AJ1 AK1 AJ3 AF7 AG7 AJ6 AK6 AJ8 AK8 AK5 AK4",
        "SSTL15_T_DCI",
    ),
    "dqs_n": ("AD1 AG3 AH1 AJ7", "DIFF_SSTL15_T_DCI"),
    "dqs_p": ("AD2 AG4 AG2 AH7", "DIFF_SSTL15_T_DCI"),
    "odt": ("AK9", "SSTL15"),
    "ras_n": ("AE11", "SSTL15"),
    "reset_n": ("AG5", "LVCMOS15"),
    "we_n": ("AG13", "SSTL15"),
}
#: Signals without an index although one ball wide.
_SCALARS = ("cas_n", "ras_n", "reset_n", "we_n")

_SYSTEM = {
    "ModuleName": "memory_controller",
    "dci_inouts_inputs": 1,
    "dci_inputs": 1,
    "Debug_En": "OFF",
    "DataDepth_En": 1024,
    "LowPower_En": "ON",
    "XADC_En": "Enabled",
    "TargetFPGA": "xc7k325t-ffg900/-2",
    "Version": "4.2",
    "SystemClock": "Differential",
    "ReferenceClock": "Use System Clock",
    "SysResetPolarity": "ACTIVE LOW",
    "BankSelectionFlag": "FALSE",
    "InternalVref": 0,
    "dci_hr_inouts_inputs": "50 Ohms",
    "dci_cascade": 0,
}
# Two MT41K256M16 or MT41J256M16 side by side.
_CONTROLLER = {
    "MemoryDevice": "DDR3_SDRAM/Components/MT41J256m16XX-107",
    "TimePeriod": "",
    "VccAuxIO": "2.0V",
    "PHYRatio": "4:1",
    "InputClkFreq": 200,
    "UIExtraClocks": 0,
    "MMCM_VCO": "",
    "MMCMClkOut0": "1.000",
    "MMCMClkOut1": 1,
    "MMCMClkOut2": 1,
    "MMCMClkOut3": 1,
    "MMCMClkOut4": 1,
    "DataWidth": 32,
    "DeepMemory": 1,
    "DataMask": 1,
    "ECC": "Disabled",
    "Ordering": "Normal",
    "BankMachineCnt": 4,
    "CustomPart": "FALSE",
    "NewPartName": "",
    "RowAddress": 15,
    "ColAddress": 10,
    "BankAddress": 3,
    "MemoryVoltage": "1.5V",
    "C0_MEM_SIZE": _BYTES,
    "UserMemoryAddressMap": "BANK_ROW_COLUMN",
}
_TIMING = {
    "tcke": "5",
    "tfaw": "35",
    "tras": "34",
    "trcd": "13.91",
    "trefi": "7.8",
    "trfc": "260",
    "trp": "13.91",
    "trrd": "6",
    "trtp": "7.5",
    "twtr": "7.5",
}
# Mode registers: tag, MIG's name of the setting, value.
_MODES = (
    ("mrBurstLength", "Burst Length", "8 - Fixed"),
    ("mrBurstType", "Read Burst Type and Length", "Sequential"),
    ("mrCasLatency", "CAS Latency", "{reads}"),
    ("mrMode", "Mode", "Normal"),
    ("mrDllReset", "DLL Reset", "No"),
    ("mrPdMode", "DLL control for precharge PD", "Slow Exit"),
    ("emrDllEnable", "DLL Enable", "Enable"),
    ("emrOutputDriveStrength", "Output Driver Impedance Control", "RZQ/7"),
    ("emrMirrorSelection", "Address Mirroring", "Disable"),
    ("emrCSSelection", "Controller Chip Select Pin", "Enable"),
    ("emrRTT", "RTT (nominal) - On Die Termination (ODT)", "RZQ/6"),
    ("emrPosted", "Additive Latency (AL)", "0"),
    ("emrOCD", "Write Leveling Enable", "Disabled"),
    ("emrDQS", "TDQS enable", "Enabled"),
    ("emrRDQS", "Qoff", "Output Buffer Enabled"),
    ("mr2PartialArraySelfRefresh", "Partial-Array Self Refresh", "Full Array"),
    ("mr2CasWriteLatency", "CAS write latency", "{writes}"),
    ("mr2AutoSelfRefresh", "Auto Self Refresh", "Enabled"),
    # Spelt as MIG spells it.
    ("mr2SelfRefreshTempRange", "High Temparature Self Refresh Rate", "Normal"),
    ("mr2RTTWR", "RTT_WR - Dynamic On Die Termination (ODT)", "Dynamic ODT off"),
)
_BUS = {
    "C0_C_RD_WR_ARB_ALGORITHM": "RD_PRI_REG",
    "C0_S_AXI_ADDR_WIDTH": 30,
    "C0_S_AXI_DATA_WIDTH": DATA_BITS,
    "C0_S_AXI_ID_WIDTH": 1,
    "C0_S_AXI_SUPPORTS_NARROW_BURST": 0,
}


def signals() -> Iterator[tuple[str, str, str]]:
    """``(name, ball, standard)`` of every signal of the memory."""
    for name, (balls, standard) in PINS.items():
        for index, ball in enumerate(balls.split()):
            yield f"ddr3_{name}" + ("" if name in _SCALARS else f"[{index}]"), ball, standard


def pace_of(mhz: float, board: str) -> Pace:
    """The speed whose user clock is asked for; :class:`ValueError` if there is none."""
    for pace in PACES:
        if abs(pace.mhz / mhz - 1) < 5e-4:
            return pace
    known = " or ".join(f"{pace.mhz:.6g}" for pace in PACES)
    raise ValueError(f"clock_mhz={mhz:g}: must be {known} on {board}, whose memory controller clocks the whole design")


def mig_project(pace: Pace = PACES[0]) -> str:
    """The project file of the memory interface generator."""
    project = ElementTree.Element("Project", {"NoOfControllers": "1"})

    def put(parent: ElementTree.Element, **values: object) -> None:
        for name, value in values.items():
            ElementTree.SubElement(parent, name).text = str(value) or None

    put(project, **_SYSTEM)
    controller = ElementTree.SubElement(project, "Controller", {"number": "0"})
    # MIG writes whole MHz of its clock manager, four times the user clock.
    put(controller, **_CONTROLLER | {"TimePeriod": pace.period_ps, "MMCM_VCO": 4 * pace.hz // 10**6})
    pins = ElementTree.SubElement(controller, "PinSelection")
    for name, ball, standard in signals():
        ElementTree.SubElement(
            pins,
            "Pin",
            {"IN_TERM": "", "IOSTANDARD": standard, "PADName": ball, "SLEW": "", "VCCAUX_IO": "NORMAL", "name": name},
        )
    clock = ElementTree.SubElement(controller, "System_Clock")
    ElementTree.SubElement(clock, "Pin", {"Bank": "33", "PADName": "AD12/AD11(CC_P/N)", "name": "sys_clk_p/n"})
    control = ElementTree.SubElement(controller, "System_Control")
    for name in ("sys_rst", "init_calib_complete", "tg_compare_error"):
        ElementTree.SubElement(control, "Pin", {"Bank": "Select Bank", "PADName": "No connect", "name": name})
    timing = ElementTree.SubElement(controller, "TimingParameters")
    ElementTree.SubElement(timing, "Parameters", _TIMING)
    for tag, name, value in _MODES:
        ElementTree.SubElement(controller, tag, {"name": name}).text = value.format(
            reads=pace.reads, writes=pace.writes
        )
    put(controller, PortInterface="AXI")
    put(ElementTree.SubElement(controller, "AXIParameters"), **_BUS)
    ElementTree.indent(project)
    return "<?xml version='1.0' encoding='UTF-8'?>\n" + ElementTree.tostring(project, encoding="unicode") + "\n"
