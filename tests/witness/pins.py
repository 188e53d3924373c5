"""Files by the boards' makers: pins and standards of ULX3S and Genesys 2, and the Genesys 2's memory controller."""

import re
from pathlib import Path
from xml.etree import ElementTree

from gradloom.boards import genesys2, ulx3s
from gradloom.boards.genesys2.memory import mig_project

__all__ = ["FILES", "OF", "hear", "subject"]

#: What is counted.
OF = "settings"
FILES = ("ulx3s/ulx3s_v20.lpf", "digilent/Genesys-2-Master.xdc", "digilent/mig.prj")
#: Digilent's names of our ports: the card in SPI mode has command line, first and last data line.
_NAMES = {
    "reset_n": "cpu_resetn",
    "uart_txd": "uart_rx_out",
    "uart_rxd": "uart_tx_in",
    "sd_mosi": "sd_cmd",
    "sd_miso": "sd_d[0]",
    "sd_cs_n": "sd_d[3]",
    "led_memory": "led[0]",
    "led_trap": "led[1]",
    "led_fault": "led[2]",
    "mains_lost": "ja[0]",
    "fan_pwm": "FAN_PWM",
}
#: Where the memory controller differs from Digilent's: a clock of 1,600 MT/s with its latencies, and ids of the bus.
_OTHERS = {
    "ModuleName": "memory_controller",
    "TimePeriod": "1250",
    "InputClkFreq": "200",
    "MMCM_VCO": "800",
    "mrCasLatency": "11",
    "mr2CasWriteLatency": "8",
    "C0_S_AXI_ID_WIDTH": "1",
}


def subject():
    """Constraints and the controller's project, as a design gets them."""
    return {
        "pins.lpf": (Path(ulx3s.__file__).parent / "pins.lpf").read_text(encoding="utf-8"),
        "pins.xdc": (Path(genesys2.__file__).parent / "pins.xdc").read_text(encoding="utf-8"),
        "mig.prj": mig_project(),
    }


def _lpf(text):
    """Site and each option of a pad, by port."""
    found = {}
    for line in (each.split("#")[0] for each in text.splitlines()):
        if pad := re.match(r'\s*LOCATE\s+COMP\s+"(.*?)"\s+SITE\s+"(\w+)"', line):
            found[pad[1], "site"] = pad[2]
        elif pad := re.match(r'\s*IOBUF\s+PORT\s+"(.*?)"\s+([^;]*)', line):
            found |= {(pad[1], option.split("=")[0]): option.split("=")[1] for option in pad[2].split()}
        elif pad := re.match(r'\s*FREQUENCY\s+PORT\s+"(.*?)"\s+([\d.]+)', line):
            found[pad[1], "MHz"] = float(pad[2])
    return found


def _xdc(text):
    """Pin and standard by port; in a master file every line is a comment."""
    found = {}
    line = r"^#?set_property -dict \{([^}]*)\} *\[get_ports (?:\{ *(.*?) *\}|(\w+))\]"
    for options, braced, bare in re.findall(line, text, re.MULTILINE):
        port = braced or bare
        words = options.split()
        values = dict(zip(words[::2], words[1::2]))
        found |= {(_NAMES.get(port, port), name): values[name] for name in ("PACKAGE_PIN", "IOSTANDARD")}
    return found


def _mig(text):
    """Text and attributes of every element, by the names above it and its own."""
    found = {}

    def walk(element, above):
        name = (*above, element.tag, element.get("name", ""))
        found[name] = ((element.text or "").strip(), dict(sorted(element.attrib.items())))
        for child in element:
            walk(child, name)

    walk(ElementTree.fromstring(text), ())
    return found


def _meant(name, value):
    return _OTHERS.get(name[-2]) == value[0]


def hear(witness, folder):
    """Settings of ours, and those that the maker has otherwise or not at all, beside what is meant to differ."""
    ours = subject()
    lpf, xdc, mig = ((witness / path).read_text(encoding="utf-8-sig") for path in FILES)
    pairs = {
        "pins of the ULX3S": (_lpf(ours["pins.lpf"]), _lpf(lpf)),
        "pins of the Genesys 2": (_xdc(ours["pins.xdc"]), _xdc(xdc)),
        "mig.prj of the Genesys 2": (_mig(ours["mig.prj"]), _mig(mig)),
    }
    said = {}
    for title, (mine, theirs) in pairs.items():
        differing = {name: value for name, value in mine.items() if theirs.get(name) != value}
        if "mig" in title:
            differing |= {name: None for name in theirs.keys() - mine.keys()}
            differing = {name: value for name, value in differing.items() if value is None or not _meant(name, value)}
        elif "ULX3S" in title:
            # Nothing reads the pad of a lamp, which the FPGA always drives.
            differing = {
                name: value for name, value in differing.items() if name[1] != "PULLMODE" or "led" not in name[0]
            }
        if len(mine) < 20:
            raise RuntimeError(f"{title}: {len(mine)} settings only are read")
        for name, value in differing.items():
            print(f"{title}: {name} is {value}, the maker's {theirs.get(name)}")
        said[title] = {"differing": len(differing), "compared": len(mine)}
    return said
