"""Generated from registers.rdl by gradloom.rtl.control.regmap; do not edit."""
from .regmap import Field, Register, RegisterMap

__all__ = ["REGISTERS"]

# ruff: noqa: E501
REGISTERS = RegisterMap(description='Registers of a gradloom fine-tuning accelerator. An access to an address that is not listed here answers SLVERR and has no effect; so does a write to a register that is locked while STATUS.busy is set. Counters start at zero when the bell rings, stop when the interrupt is raised, and saturate instead of wrapping. The two words of a 64-bit pair belong together whenever STATUS.busy is clear.', registers=(
    Register(name='ID', address=0x000, locked=False, title='Identification',
             description='Says that this is a gradloom accelerator.', fields=(
        Field(name='magic', lsb=0, width=32, readable=True, writable=False, reset=1196575821, stored=False, pulse=False, clear_on_one=False, constant=True,
              description='Constant 0x47524C4D, the letters GRLM.'),
    )),
    Register(name='VERSION', address=0x004, locked=False, title='Version',
             description='Version of the register map and of the command format.', fields=(
        Field(name='patch', lsb=0, width=8, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=True,
              description='Changes that no driver can see.'),
        Field(name='minor', lsb=8, width=8, readable=True, writable=False, reset=1, stored=False, pulse=False, clear_on_one=False, constant=True,
              description='Additions that an older driver may ignore.'),
        Field(name='major', lsb=16, width=16, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=True,
              description='Changes that need another driver.'),
    )),
    Register(name='CONFIG_ARRAY', address=0x008, locked=False, title='Configuration of the array',
             description='Generation parameters of this machine.', fields=(
        Field(name='rows', lsb=0, width=8, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Rows of the systolic array.'),
        Field(name='panels', lsb=8, width=8, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Panels of columns.'),
        Field(name='rank', lsb=16, width=8, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Columns in a panel, the largest adapter rank.'),
        Field(name='classes', lsb=24, width=8, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Largest number of classes.'),
    )),
    Register(name='CONFIG_MEMORY', address=0x00c, locked=False, title='Configuration of the memory port',
             description='Generation parameters of this machine.', fields=(
        Field(name='data_bits', lsb=0, width=16, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Width of the AXI4 data bus in bits.'),
        Field(name='slots', lsb=16, width=16, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Slots that have a valid bit.'),
    )),
    Register(name='CONTROL', address=0x010, locked=False, title='Control',
             description='Writing 1 to a bit acts once. Reads as 0.', fields=(
        Field(name='bell', lsb=0, width=1, readable=False, writable=True, reset=0, stored=False, pulse=True, clear_on_one=False, constant=False,
              description='Start the program. Ignored while STATUS.busy is set.'),
        Field(name='reset', lsb=1, width=1, readable=False, writable=True, reset=0, stored=False, pulse=True, clear_on_one=False, constant=False,
              description='Stop the program (error ABORTED) once outstanding bus transactions have ended, and reset every engine. While idle, reset the engines only. Registers and valid bits keep their values.'),
    )),
    Register(name='STATUS', address=0x014, locked=False, title='Status',
             description='State of the machine.', fields=(
        Field(name='busy', lsb=0, width=1, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='A program runs or is being stopped.'),
        Field(name='done', lsb=1, width=1, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='The last program ended without error.'),
        Field(name='error', lsb=2, width=1, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='The last program stopped with an error, see ERROR_CODE.'),
        Field(name='draining', lsb=3, width=1, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='A program is being stopped and bus transactions are still outstanding.'),
    )),
    Register(name='IRQ_ENABLE', address=0x018, locked=False, title='Interrupt enable',
             description='The interrupt line is high while a bit is set both here and in IRQ_STATUS.', fields=(
        Field(name='done', lsb=0, width=1, readable=True, writable=True, reset=0, stored=True, pulse=False, clear_on_one=False, constant=False,
              description='Interrupt when a program ends without error.'),
        Field(name='error', lsb=1, width=1, readable=True, writable=True, reset=0, stored=True, pulse=False, clear_on_one=False, constant=False,
              description='Interrupt when a program stops with an error.'),
    )),
    Register(name='IRQ_STATUS', address=0x01c, locked=False, title='Interrupt status',
             description='Pending interrupts. Writing 1 to a bit clears it.', fields=(
        Field(name='done', lsb=0, width=1, readable=True, writable=True, reset=0, stored=True, pulse=False, clear_on_one=True, constant=False,
              description='A program ended without error.'),
        Field(name='error', lsb=1, width=1, readable=True, writable=True, reset=0, stored=True, pulse=False, clear_on_one=True, constant=False,
              description='A program stopped with an error.'),
    )),
    Register(name='WINDOW_BASE_LO', address=0x020, locked=True, title='Window base, low word',
             description="Address of the window's first byte. Every address of a program is an offset into the window, and nothing outside the window is read or written. Locked while busy.", fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=True, reset=0, stored=True, pulse=False, clear_on_one=False, constant=False,
              description='Bits 31 to 0; a multiple of 4096.'),
    )),
    Register(name='WINDOW_BASE_HI', address=0x024, locked=True, title='Window base, high word',
             description='Upper half of WINDOW_BASE_LO. Locked while busy.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=True, reset=0, stored=True, pulse=False, clear_on_one=False, constant=False,
              description='Bits 63 to 32.'),
    )),
    Register(name='WINDOW_SIZE', address=0x028, locked=True, title='Window size',
             description='Size of the window. Zero, the value after reset, allows no access at all. Locked while busy.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=True, reset=0, stored=True, pulse=False, clear_on_one=False, constant=False,
              description='Bytes.'),
    )),
    Register(name='WATCHDOG', address=0x02c, locked=True, title='Watchdog',
             description='Cycles without a completed command and without a bus beat after which a running program is stopped. Locked while busy.', fields=(
        Field(name='cycles', lsb=0, width=32, readable=True, writable=True, reset=1048576, stored=True, pulse=False, clear_on_one=False, constant=False,
              description='Cycles; 0 switches the watchdog off.'),
    )),
    Register(name='PROGRAM_OFFSET', address=0x030, locked=True, title='Program offset',
             description='Where the program lies in the window. Locked while busy.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=True, reset=0, stored=True, pulse=False, clear_on_one=False, constant=False,
              description="Bytes from the window's base; a multiple of 32."),
    )),
    Register(name='PROGRAM_COMMANDS', address=0x034, locked=True, title='Program length',
             description='How many commands of 32 bytes may be fetched; the last of them must be END. Locked while busy.', fields=(
        Field(name='value', lsb=0, width=24, readable=True, writable=True, reset=0, stored=True, pulse=False, clear_on_one=False, constant=False,
              description='Commands, at least 1.'),
    )),
    Register(name='BASE_ID', address=0x038, locked=True, title='Base identity',
             description='Name of the frozen network that fills the forward cache, for instance a hash. Writing another value clears all valid bits. Locked while busy.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=True, reset=0, stored=True, pulse=False, clear_on_one=False, constant=False,
              description='Any number.'),
    )),
    Register(name='CACHE_CLEAR', address=0x03c, locked=True, title='Cache clear',
             description='Clears all valid bits of the forward cache. A program that is started right afterwards sees them cleared. Locked while busy. Reads as 0.', fields=(
        Field(name='clear', lsb=0, width=1, readable=False, writable=True, reset=0, stored=False, pulse=True, clear_on_one=False, constant=False,
              description='Write 1 to clear all valid bits.'),
    )),
    Register(name='ERROR_CODE', address=0x040, locked=False, title='Error code',
             description='Why the last program stopped. 0 is no error. Kept until the next bell.', fields=(
        Field(name='code', lsb=0, width=8, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='One of the codes of error_code_e.'),
    )),
    Register(name='ERROR_COMMAND', address=0x044, locked=False, title='Command at fault',
             description='Which command of the program was at fault. Kept until the next bell.', fields=(
        Field(name='index', lsb=0, width=24, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Position in the program, 0 first.'),
    )),
    Register(name='ERROR_ADDRESS_LO', address=0x048, locked=False, title='Error address, low word',
             description='Bus address at fault, or 0 for an error without an address. Kept until the next bell.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Bits 31 to 0.'),
    )),
    Register(name='ERROR_ADDRESS_HI', address=0x04c, locked=False, title='Error address, high word',
             description='Upper half of ERROR_ADDRESS_LO.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Bits 63 to 32.'),
    )),
    Register(name='CYCLES_LO', address=0x050, locked=False, title='Cycles, low word',
             description='Cycles from bell to interrupt.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Bits 31 to 0.'),
    )),
    Register(name='CYCLES_HI', address=0x054, locked=False, title='Cycles, high word',
             description='Upper half of CYCLES_LO.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Bits 63 to 32.'),
    )),
    Register(name='COMMANDS_DONE', address=0x058, locked=False, title='Commands done',
             description='Commands that completed. A predicated command that was dropped does not count.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Commands.'),
    )),
    Register(name='COMMANDS_DROPPED', address=0x05c, locked=False, title='Commands dropped',
             description='Predicated commands that were dropped because every slot they name was valid.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Commands.'),
    )),
    Register(name='CACHE_HITS', address=0x060, locked=False, title='Cache hits',
             description='Slots that LOOKUP found valid.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Slots.'),
    )),
    Register(name='CACHE_MISSES', address=0x064, locked=False, title='Cache misses',
             description='Slots that LOOKUP found invalid.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Slots.'),
    )),
    Register(name='READ_BEATS', address=0x068, locked=False, title='Read beats',
             description='Beats read over the AXI4 port, program included.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Beats.'),
    )),
    Register(name='WRITE_BEATS', address=0x06c, locked=False, title='Write beats',
             description='Beats written over the AXI4 port.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Beats.'),
    )),
    Register(name='SATURATED', address=0x070, locked=False, title='Saturated values',
             description='Results that were clipped to the range of their format.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Values.'),
    )),
    Register(name='UNDERFLOWED', address=0x074, locked=False, title='Underflowed values',
             description='Results that were not zero and became zero in their format.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Values.'),
    )),
    Register(name='GRADIENT_NORM_LO', address=0x078, locked=False, title='Gradient norm, low word',
             description="Sum of the absolute values of the gradients, in units of the gradient's least significant bit.", fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Bits 31 to 0.'),
    )),
    Register(name='GRADIENT_NORM_HI', address=0x07c, locked=False, title='Gradient norm, high word',
             description='Upper half of GRADIENT_NORM_LO.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Bits 63 to 32.'),
    )),
    Register(name='PHASE_CYCLES0', address=0x080, locked=False, title='Cycles of a phase',
             description='Cycles counted to each phase: 0 waiting, 1 load, 2 convolution, 3 dense, 4 forward, 5 loss, 6 gradient, 7 store. Each cycle belongs to one phase, so that the eight add up to CYCLES.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Cycles.'),
    )),
    Register(name='PHASE_CYCLES1', address=0x084, locked=False, title='Cycles of a phase',
             description='Cycles counted to each phase: 0 waiting, 1 load, 2 convolution, 3 dense, 4 forward, 5 loss, 6 gradient, 7 store. Each cycle belongs to one phase, so that the eight add up to CYCLES.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Cycles.'),
    )),
    Register(name='PHASE_CYCLES2', address=0x088, locked=False, title='Cycles of a phase',
             description='Cycles counted to each phase: 0 waiting, 1 load, 2 convolution, 3 dense, 4 forward, 5 loss, 6 gradient, 7 store. Each cycle belongs to one phase, so that the eight add up to CYCLES.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Cycles.'),
    )),
    Register(name='PHASE_CYCLES3', address=0x08c, locked=False, title='Cycles of a phase',
             description='Cycles counted to each phase: 0 waiting, 1 load, 2 convolution, 3 dense, 4 forward, 5 loss, 6 gradient, 7 store. Each cycle belongs to one phase, so that the eight add up to CYCLES.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Cycles.'),
    )),
    Register(name='PHASE_CYCLES4', address=0x090, locked=False, title='Cycles of a phase',
             description='Cycles counted to each phase: 0 waiting, 1 load, 2 convolution, 3 dense, 4 forward, 5 loss, 6 gradient, 7 store. Each cycle belongs to one phase, so that the eight add up to CYCLES.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Cycles.'),
    )),
    Register(name='PHASE_CYCLES5', address=0x094, locked=False, title='Cycles of a phase',
             description='Cycles counted to each phase: 0 waiting, 1 load, 2 convolution, 3 dense, 4 forward, 5 loss, 6 gradient, 7 store. Each cycle belongs to one phase, so that the eight add up to CYCLES.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Cycles.'),
    )),
    Register(name='PHASE_CYCLES6', address=0x098, locked=False, title='Cycles of a phase',
             description='Cycles counted to each phase: 0 waiting, 1 load, 2 convolution, 3 dense, 4 forward, 5 loss, 6 gradient, 7 store. Each cycle belongs to one phase, so that the eight add up to CYCLES.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Cycles.'),
    )),
    Register(name='PHASE_CYCLES7', address=0x09c, locked=False, title='Cycles of a phase',
             description='Cycles counted to each phase: 0 waiting, 1 load, 2 convolution, 3 dense, 4 forward, 5 loss, 6 gradient, 7 store. Each cycle belongs to one phase, so that the eight add up to CYCLES.', fields=(
        Field(name='value', lsb=0, width=32, readable=True, writable=False, reset=0, stored=False, pulse=False, clear_on_one=False, constant=False,
              description='Cycles.'),
    )),
))
