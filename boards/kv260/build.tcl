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

source [file join $here implement.tcl]
source [file join $here package_ip.tcl]

create_project -force $name [file join $work_dir project] -part $part
set board_part [lindex [get_board_parts $board_store -latest_file_version] 0]
if {$board_part eq ""} {
    error "this Vivado has no board files of the $board_title: install them with Tools > Vivado Store > Boards"
}
set_property board_part $board_part [current_project]
set_property ip_repo_paths [list $ip_dir] [current_project]
update_ip_catalog

source [file join $here design.tcl]

set bd_file [get_files $design.bd]
generate_target all $bd_file
make_wrapper -files $bd_file -top -import
add_files -norecurse -fileset constrs_1 [list [file join $here constraints.xdc]]
set_property top ${design}_wrapper [current_fileset]
update_compile_order -fileset sources_1

gradloom_implement $out_dir $allowed_rules $clocks

# PYNQ wants .bit and .hwh side by side under one name; bootgen wants the .bit.
set project_dir [file join $work_dir project]
gradloom_export [glob -nocomplain [file join $project_dir $name.runs impl_1 ${design}_wrapper.bit]] \
    [file join $out_dir $name.bit]
set handoff [file join sources_1 bd $design hw_handoff $design.hwh]
gradloom_export [glob -nocomplain [file join $project_dir $name.{gen,srcs} $handoff]] \
    [file join $out_dir $name.hwh]
write_hw_platform -fixed -include_bit -force [file join $out_dir $name.xsa]
close_project
