"""Generated from registers.rdl by gradloom.firmware.generate; do not edit."""
# ruff: noqa: E501

# Byte offset of each register.
ID = 0x000
VERSION = 0x004
MACHINE = 0x008
CONFIG_MEMORY = 0x00C
CONTROL = 0x010
STATUS = 0x014
IRQ_ENABLE = 0x018
IRQ_STATUS = 0x01C
WINDOW_BASE_LO = 0x020
WINDOW_BASE_HI = 0x024
WINDOW_SIZE = 0x028
WATCHDOG = 0x02C
PROGRAM_OFFSET = 0x030
PROGRAM_COMMANDS = 0x034
BASE_ID = 0x038
CACHE_CLEAR = 0x03C
ERROR_CODE = 0x040
ERROR_COMMAND = 0x044
ERROR_ADDRESS_LO = 0x048
ERROR_ADDRESS_HI = 0x04C
CYCLES_LO = 0x050
CYCLES_HI = 0x054
COMMANDS_DONE = 0x058
COMMANDS_DROPPED = 0x05C
CACHE_HITS = 0x060
CACHE_MISSES = 0x064
READ_BEATS = 0x068
WRITE_BEATS = 0x06C
SATURATED = 0x070
UNDERFLOWED = 0x074
GRADIENT_NORM_LO = 0x078
GRADIENT_NORM_HI = 0x07C
REQUEST_OFFSET = 0x0A0
REQUEST_COMMANDS = 0x0A4
REQUEST_WAITED = 0x0A8
REQUEST_CYCLES = 0x0AC
TABLE_PLACE = 0x0B0
TABLE_WORD = 0x0B4
PHASE_CYCLES0 = 0x0C0
PHASE_CYCLES1 = 0x0C4
PHASE_CYCLES2 = 0x0C8
PHASE_CYCLES3 = 0x0CC
PHASE_CYCLES4 = 0x0D0
PHASE_CYCLES5 = 0x0D4
PHASE_CYCLES6 = 0x0D8
PHASE_CYCLES7 = 0x0DC
PHASE_CYCLES8 = 0x0E0
PHASE_CYCLES9 = 0x0E4
PHASE_CYCLES10 = 0x0E8
PHASE_CYCLES11 = 0x0EC
PHASE_CYCLES12 = 0x0F0
PHASE_CYCLES13 = 0x0F4
PHASE_CYCLES14 = 0x0F8
PHASE_CYCLES15 = 0x0FC

#: Every register, by name.
REGISTERS = {
    "ID": ID,
    "VERSION": VERSION,
    "MACHINE": MACHINE,
    "CONFIG_MEMORY": CONFIG_MEMORY,
    "CONTROL": CONTROL,
    "STATUS": STATUS,
    "IRQ_ENABLE": IRQ_ENABLE,
    "IRQ_STATUS": IRQ_STATUS,
    "WINDOW_BASE_LO": WINDOW_BASE_LO,
    "WINDOW_BASE_HI": WINDOW_BASE_HI,
    "WINDOW_SIZE": WINDOW_SIZE,
    "WATCHDOG": WATCHDOG,
    "PROGRAM_OFFSET": PROGRAM_OFFSET,
    "PROGRAM_COMMANDS": PROGRAM_COMMANDS,
    "BASE_ID": BASE_ID,
    "CACHE_CLEAR": CACHE_CLEAR,
    "ERROR_CODE": ERROR_CODE,
    "ERROR_COMMAND": ERROR_COMMAND,
    "ERROR_ADDRESS_LO": ERROR_ADDRESS_LO,
    "ERROR_ADDRESS_HI": ERROR_ADDRESS_HI,
    "CYCLES_LO": CYCLES_LO,
    "CYCLES_HI": CYCLES_HI,
    "COMMANDS_DONE": COMMANDS_DONE,
    "COMMANDS_DROPPED": COMMANDS_DROPPED,
    "CACHE_HITS": CACHE_HITS,
    "CACHE_MISSES": CACHE_MISSES,
    "READ_BEATS": READ_BEATS,
    "WRITE_BEATS": WRITE_BEATS,
    "SATURATED": SATURATED,
    "UNDERFLOWED": UNDERFLOWED,
    "GRADIENT_NORM_LO": GRADIENT_NORM_LO,
    "GRADIENT_NORM_HI": GRADIENT_NORM_HI,
    "REQUEST_OFFSET": REQUEST_OFFSET,
    "REQUEST_COMMANDS": REQUEST_COMMANDS,
    "REQUEST_WAITED": REQUEST_WAITED,
    "REQUEST_CYCLES": REQUEST_CYCLES,
    "TABLE_PLACE": TABLE_PLACE,
    "TABLE_WORD": TABLE_WORD,
    "PHASE_CYCLES0": PHASE_CYCLES0,
    "PHASE_CYCLES1": PHASE_CYCLES1,
    "PHASE_CYCLES2": PHASE_CYCLES2,
    "PHASE_CYCLES3": PHASE_CYCLES3,
    "PHASE_CYCLES4": PHASE_CYCLES4,
    "PHASE_CYCLES5": PHASE_CYCLES5,
    "PHASE_CYCLES6": PHASE_CYCLES6,
    "PHASE_CYCLES7": PHASE_CYCLES7,
    "PHASE_CYCLES8": PHASE_CYCLES8,
    "PHASE_CYCLES9": PHASE_CYCLES9,
    "PHASE_CYCLES10": PHASE_CYCLES10,
    "PHASE_CYCLES11": PHASE_CYCLES11,
    "PHASE_CYCLES12": PHASE_CYCLES12,
    "PHASE_CYCLES13": PHASE_CYCLES13,
    "PHASE_CYCLES14": PHASE_CYCLES14,
    "PHASE_CYCLES15": PHASE_CYCLES15,
}

#: Place of each field: lowest bit and width.
FIELDS = {
    "ID.magic": (0, 32),
    "VERSION.patch": (0, 8),
    "VERSION.minor": (8, 8),
    "VERSION.major": (16, 16),
    "MACHINE.table_format": (0, 8),
    "MACHINE.program_format": (8, 8),
    "MACHINE.engines": (16, 8),
    "MACHINE.phases": (24, 8),
    "CONFIG_MEMORY.data_bits": (0, 16),
    "CONFIG_MEMORY.slots": (16, 16),
    "CONTROL.bell": (0, 1),
    "CONTROL.reset": (1, 1),
    "CONTROL.request": (2, 1),
    "STATUS.busy": (0, 1),
    "STATUS.done": (1, 1),
    "STATUS.error": (2, 1),
    "STATUS.draining": (3, 1),
    "STATUS.request_busy": (4, 1),
    "STATUS.request_running": (5, 1),
    "STATUS.request_done": (6, 1),
    "STATUS.request_error": (7, 1),
    "STATUS.refused": (8, 1),
    "STATUS.requests": (9, 1),
    "IRQ_ENABLE.done": (0, 1),
    "IRQ_ENABLE.error": (1, 1),
    "IRQ_ENABLE.request": (2, 1),
    "IRQ_STATUS.done": (0, 1),
    "IRQ_STATUS.error": (1, 1),
    "IRQ_STATUS.request": (2, 1),
    "WINDOW_BASE_LO.value": (0, 32),
    "WINDOW_BASE_HI.value": (0, 32),
    "WINDOW_SIZE.value": (0, 32),
    "WATCHDOG.cycles": (0, 32),
    "PROGRAM_OFFSET.value": (0, 32),
    "PROGRAM_COMMANDS.value": (0, 24),
    "BASE_ID.value": (0, 32),
    "CACHE_CLEAR.clear": (0, 1),
    "ERROR_CODE.code": (0, 8),
    "ERROR_COMMAND.index": (0, 24),
    "ERROR_COMMAND.request": (31, 1),
    "ERROR_ADDRESS_LO.value": (0, 32),
    "ERROR_ADDRESS_HI.value": (0, 32),
    "CYCLES_LO.value": (0, 32),
    "CYCLES_HI.value": (0, 32),
    "COMMANDS_DONE.value": (0, 32),
    "COMMANDS_DROPPED.value": (0, 32),
    "CACHE_HITS.value": (0, 32),
    "CACHE_MISSES.value": (0, 32),
    "READ_BEATS.value": (0, 32),
    "WRITE_BEATS.value": (0, 32),
    "SATURATED.value": (0, 32),
    "UNDERFLOWED.value": (0, 32),
    "GRADIENT_NORM_LO.value": (0, 32),
    "GRADIENT_NORM_HI.value": (0, 32),
    "REQUEST_OFFSET.value": (0, 32),
    "REQUEST_COMMANDS.value": (0, 24),
    "REQUEST_WAITED.value": (0, 32),
    "REQUEST_CYCLES.value": (0, 32),
    "TABLE_PLACE.word": (0, 7),
    "TABLE_WORD.bytes": (0, 32),
    "PHASE_CYCLES0.value": (0, 32),
    "PHASE_CYCLES1.value": (0, 32),
    "PHASE_CYCLES2.value": (0, 32),
    "PHASE_CYCLES3.value": (0, 32),
    "PHASE_CYCLES4.value": (0, 32),
    "PHASE_CYCLES5.value": (0, 32),
    "PHASE_CYCLES6.value": (0, 32),
    "PHASE_CYCLES7.value": (0, 32),
    "PHASE_CYCLES8.value": (0, 32),
    "PHASE_CYCLES9.value": (0, 32),
    "PHASE_CYCLES10.value": (0, 32),
    "PHASE_CYCLES11.value": (0, 32),
    "PHASE_CYCLES12.value": (0, 32),
    "PHASE_CYCLES13.value": (0, 32),
    "PHASE_CYCLES14.value": (0, 32),
    "PHASE_CYCLES15.value": (0, 32),
}

#: Value of each register that is constant in this version.
CONSTANTS = {
    "ID": 0x47524C4D,
    "VERSION": 0x00010000,
}

#: Registers that must not be written while one of these is set.
LOCKED = {
    "WINDOW_BASE_LO": ("STATUS.busy", "STATUS.request_busy"),
    "WINDOW_BASE_HI": ("STATUS.busy", "STATUS.request_busy"),
    "WINDOW_SIZE": ("STATUS.busy", "STATUS.request_busy"),
    "WATCHDOG": ("STATUS.busy", "STATUS.request_busy"),
    "PROGRAM_OFFSET": ("STATUS.busy",),
    "PROGRAM_COMMANDS": ("STATUS.busy",),
    "BASE_ID": ("STATUS.busy", "STATUS.request_busy"),
    "CACHE_CLEAR": ("STATUS.busy", "STATUS.request_busy"),
    "REQUEST_OFFSET": ("STATUS.request_busy",),
    "REQUEST_COMMANDS": ("STATUS.request_busy",),
}

#: Value of ERROR_CODE: name and meaning.
ERRORS = {
    0x00: ("NONE", "No error."),
    0x01: ("ABORTED", "The host wrote CONTROL.reset while a program ran."),
    0x02: ("WATCHDOG", "No command completed and no bus beat moved for WATCHDOG cycles."),
    0x10: ("UNKNOWN_ENGINE", "The command names an engine that this machine does not have."),
    0x11: ("UNKNOWN_OPCODE", "The engine does not know the opcode."),
    0x12: ("BAD_OPERAND", "An operand is outside the engine's bounds."),
    0x13: ("SLOT_RANGE", "A range of cache slots ends beyond the last slot."),
    0x14: ("TOKEN_OVERFLOW", "A token counter that held 255 was posted."),
    0x15: ("DEADLOCK", "Every engine is idle and every queued command waits for a token that nobody will post."),
    0x20: ("BASE_ALIGNMENT", "WINDOW_BASE is not a multiple of 4096; ERROR_ADDRESS holds it."),
    0x21: ("PROGRAM_LENGTH", "PROGRAM_COMMANDS, or REQUEST_COMMANDS, is zero."),
    0x22: ("PROGRAM_ALIGNMENT", "The offset of the program, or of the request, is not a multiple of 32; ERROR_ADDRESS holds the address."),
    0x23: ("PROGRAM_WINDOW", "The program ends outside the window; ERROR_ADDRESS holds its first byte."),
    0x24: ("PROGRAM_UNENDED", "The last command of the program, or of the request, was not END."),
    0x25: ("FETCH_SLVERR", "SLVERR while fetching the program; ERROR_ADDRESS holds the beat's address."),
    0x26: ("FETCH_DECERR", "DECERR while fetching the program; ERROR_ADDRESS holds the beat's address."),
    0x30: ("LOAD_LENGTH", "LOAD of zero beats."),
    0x31: ("LOAD_ALIGNMENT", "LOAD from an offset that is not a multiple of a beat; ERROR_ADDRESS holds the address."),
    0x32: ("LOAD_WINDOW", "LOAD ends outside the window; ERROR_ADDRESS holds its first byte."),
    0x33: ("READ_SLVERR", "SLVERR on a read; ERROR_ADDRESS holds the beat's address."),
    0x34: ("READ_DECERR", "DECERR on a read; ERROR_ADDRESS holds the beat's address."),
    0x40: ("STORE_LENGTH", "STORE of zero beats."),
    0x41: ("STORE_ALIGNMENT", "STORE to an offset that is not a multiple of a beat; ERROR_ADDRESS holds the address."),
    0x42: ("STORE_WINDOW", "STORE ends outside the window; ERROR_ADDRESS holds its first byte."),
    0x43: ("WRITE_SLVERR", "SLVERR on a write; ERROR_ADDRESS holds the burst's first byte."),
    0x44: ("WRITE_DECERR", "DECERR on a write; ERROR_ADDRESS holds the burst's first byte."),
}

#: Engine field of a command, of the engines that every machine has.
ENGINES = {
    "control": 0,
    "load": 1,
    "store": 2,
}

#: Opcodes of the engine CONTROL.
CONTROL_OPCODES = {
    "END": 0,
    "FENCE": 1,
    "MARK": 2,
    "LOOKUP": 3,
    "CLEAR": 4,
    "YIELD": 5,
}

COMMAND_BYTES = 32
TOKENS = 16
