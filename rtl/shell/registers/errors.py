"""Every way in which a program can stop, as one list of codes."""

from enum import IntEnum

__all__ = ["Error", "DESCRIPTIONS"]


class Error(IntEnum):
    """Value of the register ``ERROR_CODE``.

    Engines report the same codes on their error port.

    The register ``ERROR_COMMAND`` names the command, so one code serves every engine; ``ERROR_ADDRESS``
    is set for the codes that have an address (see :data:`DESCRIPTIONS`) and is 0 for the others, but with
    BAD_OPERAND of a LOAD it is that of the beat that has no place.
    """

    NONE = 0x00
    ABORTED = 0x01
    WATCHDOG = 0x02

    UNKNOWN_ENGINE = 0x10
    UNKNOWN_OPCODE = 0x11
    BAD_OPERAND = 0x12
    SLOT_RANGE = 0x13
    TOKEN_OVERFLOW = 0x14
    DEADLOCK = 0x15

    BASE_ALIGNMENT = 0x20
    PROGRAM_LENGTH = 0x21
    PROGRAM_ALIGNMENT = 0x22
    PROGRAM_WINDOW = 0x23
    PROGRAM_UNENDED = 0x24
    FETCH_SLVERR = 0x25
    FETCH_DECERR = 0x26

    LOAD_LENGTH = 0x30
    LOAD_ALIGNMENT = 0x31
    LOAD_WINDOW = 0x32
    READ_SLVERR = 0x33
    READ_DECERR = 0x34

    STORE_LENGTH = 0x40
    STORE_ALIGNMENT = 0x41
    STORE_WINDOW = 0x42
    WRITE_SLVERR = 0x43
    WRITE_DECERR = 0x44


#: What each code means, as the register manual, the C header and the command line tell it.
DESCRIPTIONS = {
    Error.NONE: "No error.",
    Error.ABORTED: "The host wrote CONTROL.reset while a program ran.",
    Error.WATCHDOG: "No command completed and no bus beat moved for WATCHDOG cycles.",
    Error.UNKNOWN_ENGINE: "The command names an engine that this machine does not have.",
    Error.UNKNOWN_OPCODE: "The engine does not know the opcode.",
    Error.BAD_OPERAND: "An operand is outside the engine's bounds.",
    Error.SLOT_RANGE: "A range of cache slots ends beyond the last slot.",
    Error.TOKEN_OVERFLOW: "A token counter that held 255 was posted.",
    Error.DEADLOCK: "Every engine is idle and every queued command waits for a token that nobody will post.",
    Error.BASE_ALIGNMENT: "WINDOW_BASE is not a multiple of 4096; ERROR_ADDRESS holds it.",
    Error.PROGRAM_LENGTH: "PROGRAM_COMMANDS, or REQUEST_COMMANDS, is zero.",
    Error.PROGRAM_ALIGNMENT: (
        "The offset of the program, or of the request, is not a multiple of 32; ERROR_ADDRESS holds the address."
    ),
    Error.PROGRAM_WINDOW: "The program ends outside the window; ERROR_ADDRESS holds its first byte.",
    Error.PROGRAM_UNENDED: "The last command of the program, or of the request, was not END.",
    Error.FETCH_SLVERR: "SLVERR while fetching the program; ERROR_ADDRESS holds the beat's address.",
    Error.FETCH_DECERR: "DECERR while fetching the program; ERROR_ADDRESS holds the beat's address.",
    Error.LOAD_LENGTH: "LOAD of zero beats.",
    Error.LOAD_ALIGNMENT: "LOAD from an offset that is not a multiple of a beat; ERROR_ADDRESS holds the address.",
    Error.LOAD_WINDOW: "LOAD ends outside the window; ERROR_ADDRESS holds its first byte.",
    Error.READ_SLVERR: "SLVERR on a read; ERROR_ADDRESS holds the beat's address.",
    Error.READ_DECERR: "DECERR on a read; ERROR_ADDRESS holds the beat's address.",
    Error.STORE_LENGTH: "STORE of zero beats.",
    Error.STORE_ALIGNMENT: "STORE to an offset that is not a multiple of a beat; ERROR_ADDRESS holds the address.",
    Error.STORE_WINDOW: "STORE ends outside the window; ERROR_ADDRESS holds its first byte.",
    Error.WRITE_SLVERR: "SLVERR on a write; ERROR_ADDRESS holds the burst's first byte.",
    Error.WRITE_DECERR: "DECERR on a write; ERROR_ADDRESS holds the burst's first byte.",
}
