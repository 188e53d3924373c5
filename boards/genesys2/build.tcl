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

# Only a critical warning by default, and the processor would have no firmware.
set_msg_config -id {Synth 8-4445} -new_severity ERROR

source [file join $here implement.tcl]
source [file join $here package_ip.tcl]

create_project -force $name [file join $work_dir project] -part $part
set_property ip_repo_paths [list $ip_dir] [current_project]
update_ip_catalog

# The processor with its memory is a module of the project; the memory's content is a source, too.
foreach file $soc_files {
    add_files -norecurse [list [file join $here soc $file]]
}
add_files -norecurse [list [file join $here soc soc_image.mem]]
update_compile_order -fileset sources_1

source [file join $here design.tcl]

set bd_file [get_files $design.bd]
generate_target all $bd_file
make_wrapper -files $bd_file -top -import
add_files -norecurse -fileset constrs_1 [list [file join $here pins.xdc]]
set_property top ${design}_wrapper [current_fileset]
update_compile_order -fileset sources_1

gradloom_implement $out_dir $allowed_rules

gradloom_export [glob -nocomplain [file join $work_dir project $name.runs impl_1 ${design}_wrapper.bit]] \
    [file join $out_dir $name.bit]
close_project
