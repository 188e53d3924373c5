# From generated Verilog to bitstream: vivado -mode batch -source build.tcl
# Paths are relative to this file; settings.tcl holds all that differs from design to design.

set here [file dirname [file normalize [info script]]]
source [file join $here settings.tcl]
set design_dir [file dirname $here]
set work_dir [file join $here build]
set ip_dir [file join $work_dir ip]
set out_dir [file join $work_dir out]
set design gradloom_design
file mkdir $work_dir $out_dir

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

source [file join $here package_ip.tcl]

create_project -force $name [file join $work_dir project] -part $part
set board_part [lindex [get_board_parts "*:kv260*" -latest_file_version] 0]
if {$board_part eq ""} {
    error "this Vivado has no board files of the KV260: install them with Tools > Vivado Store > Boards"
}
set_property board_part $board_part [current_project]
set_property ip_repo_paths [list $ip_dir] [current_project]
update_ip_catalog

source [file join $here design.tcl]

set bd_file [get_files $design.bd]
generate_target all $bd_file
make_wrapper -files $bd_file -top -import
add_files -norecurse -fileset constrs_1 [file join $here constraints.xdc]
set_property top ${design}_wrapper [current_fileset]
update_compile_order -fileset sources_1

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

# PYNQ wants .bit and .hwh side by side under one name; bootgen wants the .bit.
set project_dir [file join $work_dir project]
gradloom_export [glob -nocomplain [file join $project_dir $name.runs impl_1 ${design}_wrapper.bit]] \
    [file join $out_dir $name.bit]
set handoff [file join sources_1 bd $design hw_handoff $design.hwh]
gradloom_export [glob -nocomplain [file join $project_dir $name.{gen,srcs} $handoff]] \
    [file join $out_dir $name.hwh]
write_hw_platform -fixed -include_bit -force [file join $out_dir $name.xsa]
close_project
