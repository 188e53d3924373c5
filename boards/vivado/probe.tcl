# Asks Vivado for a part, board files and a licence: vivado -mode batch -source probe.tcl -tclargs PART [PATTERN]
# Each answer is a line "gradloom-probe: NAME ANSWER". Runs in a folder that is thrown away.
set part [lindex $argv 0]
set pattern [lindex $argv 1]

proc probe_say {name answer} {
    puts "gradloom-probe: $name $answer"
}

if {![llength [get_parts -quiet $part]]} {
    probe_say part missing
    return
}
probe_say part there
if {$pattern ne ""} {
    probe_say board [expr {[llength [get_board_parts -quiet $pattern]] ? "there" : "missing"}]
}
# Vivado looks for a licence when it synthesises for a part.
set file [open probe.v w]
puts $file "module probe(input c, input d, output reg q); always @(posedge c) q <= d; endmodule"
close $file
create_project -in_memory -part $part
read_verilog probe.v
if {[catch {synth_design -top probe -part $part} why]} {
    # The message itself, with [Common 17-345] for a licence, is printed by the command.
    probe_say synthesis [string map {\n " "} "failed: $why"]
} else {
    probe_say synthesis done
}
