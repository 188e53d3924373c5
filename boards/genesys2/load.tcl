# Writes files into the memory of a running board: vivado -mode batch -source load.tcl -tclargs OFFSET FILE ...
# Offsets count from the memory's first byte. The last pair should be the job's header at 0: its first word, which
# starts the job, is written last of all.

source [file join [file dirname [file normalize [info script]]] settings.tcl]

proc gradloom_words {path} {
    set file [open $path rb]
    set data [read $file]
    close $file
    if {[string length $data] % 4} {
        append data [string repeat \0 [expr {4 - [string length $data] % 4}]]
    }
    binary scan $data iu* words
    return $words
}

# What the bus answered to the last write; run_hw_axi itself need not fail.
proc gradloom_answer {axi} {
    refresh_hw_axi $axi
    if {![string is true -strict [get_property STATUS.AXI_WRITE_DONE $axi]]} {
        return "no answer"
    }
    return [get_property STATUS.BRESP $axi]
}

# A transaction has at most 256 words, the last of which stands first in what is written.
proc gradloom_write {axi address words} {
    for {set from 0} {$from < [llength $words]} {incr from 256} {
        set part [lrange $words $from $from+255]
        set text ""
        foreach word [lreverse $part] { append text [format %08x $word] }
        create_hw_axi_txn -force gradloom_write $axi -type write -address [format %08x $address] \
            -len [llength $part] -data $text
        run_hw_axi [get_hw_axi_txns gradloom_write]
        set answer [gradloom_answer $axi]
        if {$answer ne "OKAY"} {
            error [format "the write of %d bytes at 0x%08x failed: %s" [expr {4 * [llength $part]}] $address $answer]
        }
        incr address 1024
    }
}

if {[llength $argv] == 0 || [llength $argv] % 2} {
    error "usage: load.tcl -tclargs OFFSET FILE ..."
}
open_hw_manager
connect_hw_server
open_hw_target
set device [lindex [get_hw_devices xc7k325t*] 0]
if {$device eq ""} {
    error "no Genesys 2 answers: is it switched on, and its port PROG connected?"
}
current_hw_device $device
refresh_hw_device $device
set axi [lindex [get_hw_axis] 0]
if {$axi eq ""} {
    error "the FPGA holds no gradloom design: run gradloom flash first"
}
reset_hw_axi $axi
foreach {offset path} $argv {
    # No burst may cross 4 KB.
    if {$offset % 1024} {
        error "OFFSET must be a multiple of 1024, not $offset"
    }
    set address [expr {$memory_base + $offset}]
    set words [gradloom_words $path]
    if {$offset == 0} {
        gradloom_write $axi [expr {$address + 4}] [lrange $words 1 end]
        gradloom_write $axi $address [lrange $words 0 0]
    } else {
        gradloom_write $axi $address $words
    }
}
close_hw_manager
