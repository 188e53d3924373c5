# Stands in for Vivado: commands that only act are recorded; the few whose answer matters answer.
# $journal_file and $scenario (a dict) are set before this file is sourced.

set journal {}
set inferred {}

proc json_string {text} {
    return "\"[string map {\\ \\\\ \" \\\" \n \\n \t \\t} $text]\""
}

proc record {words} {
    set line {}
    foreach word $words { lappend line [json_string $word] }
    lappend ::journal "\[[join $line ,]\]"
}

proc write_journal {} {
    set file [open $::journal_file w]
    puts $file "\[[join $::journal ,\n]\]"
    close $file
}

proc touch {path} {
    file mkdir [file dirname $path]
    close [open $path w]
}

proc unknown {args} { record $args; return "" }

proc get_board_parts {args} {
    record [list get_board_parts {*}$args]
    return [dict get $::scenario board_parts]
}

# An object is its name.
foreach getter {get_ips get_hw_axi_txns} {
    proc $getter {args} { return [lindex $args end] }
}
proc current_project {} { return current_project }
proc current_fileset {} { return current_fileset }
proc current_design {} { return current_design }

proc get_property {name object} {
    if {$name eq "DIRECTORY"} { return [file join $::project_dir $::project_name.runs $object] }
    set answers [dict get $::scenario properties]
    return [expr {[dict exists $answers $name] ? [dict get $answers $name] : ""}]
}

# The clock of the processing system, as its core's constraints make it; a second create_clock has the design timed anew.
proc get_clocks {name} { return [expr {$name eq "clk_pl_0" ? $name : [error "no clock $name"]}] }
proc create_clock {args} {
    record [list create_clock {*}$args]
    if {[dict exists $::scenario reports timing_retimed]} {
        dict set ::scenario reports timing_summary [dict get $::scenario reports timing_retimed]
    }
}

# Boards that answer, and what is in them.
proc get_hw_devices {pattern} { return [dict get $::scenario hw_devices] }
proc get_hw_axis {} { return [dict get $::scenario hw_axis] }

proc generate_target {args} {
    record [list generate_target {*}$args]
    touch [file join $::project_dir $::project_name.gen sources_1 bd gradloom_design hw_handoff gradloom_design.hwh]
}
proc launch_runs {args} {
    record [list launch_runs {*}$args]
    lappend ::launched [lindex $args 0]
    if {[dict exists $::scenario run_log]} {
        set path [file join $::project_dir $::project_name.runs gradloom_design_soc_0_synth_1 runme.log]
        touch $path
        set file [open $path w]
        puts $file [dict get $::scenario run_log]
        close $file
    }
    if {"write_bitstream" in $args} {
        touch [file join $::project_dir $::project_name.runs impl_1 gradloom_design_wrapper.bit]
    }
}

# Reports go to their file, by the text that the scenario has for them.
foreach report {timing_summary utilization power drc methodology} {
    proc report_$report {args} [string map [list REPORT $report] {
        record [list report_REPORT {*}$args]
        set path [lindex $args [expr {[lsearch -exact $args -file] + 1}]]
        folder_of $path
        touch $path
        if {[dict exists $::scenario reports REPORT]} {
            set file [open $path w]
            puts $file [dict get $::scenario reports REPORT]
            close $file
        }
    }]
}

namespace eval ipx {}
proc ipx::current_core {} { return core }
proc ipx::package_project {args} {
    record [list ipx::package_project {*}$args]
    # What Vivado infers by itself, and by the names of the ports alone.
    lappend ::inferred {*}[dict get $::scenario inferred]
}
proc ipx::infer_bus_interface {name vlnv core} {
    if {$name in $::inferred} { error "interface $name exists already" }
    record [list ipx::infer_bus_interface $name $vlnv]
    lappend ::inferred $name
}
proc ipx::get_bus_interfaces {name args} { return [expr {$name in $::inferred ? $name : ""}] }
proc ipx::get_bus_parameters {name args} {
    set key [lindex $args end].$name
    return [expr {$key in $::inferred ? $key : ""}]
}
proc ipx::remove_bus_parameter {name interface} {
    if {"$interface.$name" ni $::inferred} { error "no parameter $name of $interface" }
    record [list ipx::remove_bus_parameter $name $interface]
}
proc ipx::add_bus_parameter {name interface} {
    record [list ipx::add_bus_parameter $name $interface]
    lappend ::inferred $interface.$name
}

proc write_hw_platform {args} {
    record [list write_hw_platform {*}$args]
    folder_of [lindex $args end]
}

source [file join [file dirname [info script]] objects.tcl]
