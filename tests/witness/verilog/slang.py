"""Verilog as slang reads it: a SystemVerilog front end that keeps to the standard's letter."""

from pyslang.driver import Driver

from gradloom.rtl.emit.verilog import WAIVERS

__all__ = ["WAIVED", "findings"]

#: Of all that slang can warn of, what does not hold for our Verilog: mostly the same rules as Verilator's.
WAIVED = {
    "arith-op-mismatch": WAIVERS["WIDTHEXPAND"],
    "sign-conversion": "numbers of both kinds are the same bits; where it matters, an operand says $signed",
    "width-trunc": WAIVERS["WIDTHTRUNC"],
    "case-overlap": WAIVERS["CASEOVERLAP"],
    "case-too-complex": "which items of a case overlap, where there are many",
    "unused-port": WAIVERS["UNUSEDSIGNAL"],
    "unused-but-set-net": WAIVERS["UNUSEDSIGNAL"],
}


def findings(files, *, top):
    """``(option, "FILE:LINE: MESSAGE")`` of every error, and of every warning that is not waived, in ``files``.

    Files are read as Verilog-2005.
    """
    driver = Driver()
    driver.addStandardArgs()
    options = ["slang", "--std", "1364-2005", "--top", top, "-Weverything", "--error-limit", "0"]
    options += [f"-Wno-{name}" for name in WAIVED]
    driver.diagEngine.clearClients()
    if not (driver.parseCommandLine(" ".join([*options, *sorted(map(str, files))])) and driver.processOptions()):
        raise RuntimeError("slang does not take its options")
    driver.parseAllSources()
    design = driver.createCompilation()
    found = list(design.getAllDiagnostics())
    engine, sources = driver.diagEngine, driver.sourceManager

    def place(each):
        return f"{sources.getFileName(each.location)}:{sources.getLineNumber(each.location)}"

    # What is wrong so far keeps slang from looking for drivers, latches and what is unused.
    if not any(each.isError() for each in found):
        found += driver.runAnalysis(design).getDiagnostics()
    return [
        (engine.getOptionName(each.code), f"{place(each)}: {engine.formatMessage(each)}")
        for each in found
        if engine.getSeverity(each.code, each.location).name in ("Warning", "Error", "Fatal")
    ]
