# What every Vivado project does with its design: runs that must finish, reports, a gate on timing. Sourced by build.tcl.

proc gradloom_run {run args} {
    launch_runs $run {*}$args
    wait_on_run $run
    if {[get_property PROGRESS [get_runs $run]] ne "100%"} {
        error "$run did not finish: [get_property STATUS [get_runs $run]]"
    }
}

proc gradloom_export {from to} {
    if {[llength $from] != 1} {
        error "expected one file for [file tail $to], found [llength $from]"
    }
    file copy -force [lindex $from 0] $to
}

# From the open project's sources to a bitstream; reports go to $out_dir.
proc gradloom_implement {out_dir} {
    gradloom_run synth_1
    gradloom_run impl_1 -to_step write_bitstream

    open_run impl_1
    report_timing_summary -max_paths 20 -file [file join $out_dir timing.rpt]
    report_utilization -hierarchical -file [file join $out_dir utilization.rpt]
    report_power -file [file join $out_dir power.rpt]
    report_drc -file [file join $out_dir drc.rpt]
    foreach slack {WNS WHS} {
        set value [get_property STATS.$slack [get_runs impl_1]]
        if {$value eq "" || $value < 0} {
            error "timing is not met ($slack is $value ns): see [file join build out timing.rpt]"
        }
    }
}
