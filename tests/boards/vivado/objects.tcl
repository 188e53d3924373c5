# Objects of Vivado that a project may name: files, runs, cells with their pins and settings. What is not there is an
# error, as Vivado itself says it. Sourced by stub.tcl, whose journal it keeps.

# ---- cores: pins, interfaces and names of settings, by the vendors' manuals
set cores [dict create \
    xilinx.com:ip:proc_sys_reset {
        pins {slowest_sync_clk ext_reset_in aux_reset_in mb_debug_sys_rst dcm_locked mb_reset bus_struct_reset
            peripheral_reset interconnect_aresetn peripheral_aresetn}
        buses {}
        settings {C_EXT_RESET_HIGH C_AUX_RESET_HIGH C_EXT_RST_WIDTH C_AUX_RST_WIDTH C_NUM_BUS_RST C_NUM_PERP_RST
            C_NUM_INTERCONNECT_ARESETN C_NUM_PERP_ARESETN}} \
    xilinx.com:ip:smartconnect {pins {aclk aresetn} buses {} settings {NUM_SI NUM_MI NUM_CLKS HAS_ARESETN}} \
    xilinx.com:ip:jtag_axi {pins {aclk aresetn} buses {M_AXI}
        settings {PROTOCOL M_AXI_ADDR_WIDTH M_AXI_DATA_WIDTH M_AXI_ID_WIDTH WR_TXN_QUEUE_LENGTH RD_TXN_QUEUE_LENGTH}} \
    xilinx.com:ip:xlconstant {pins {dout} buses {} settings {CONST_WIDTH CONST_VAL}} \
    xilinx.com:ip:mig_7series {
        pins {ui_clk ui_clk_sync_rst mmcm_locked init_calib_complete sys_rst aresetn ui_addn_clk_0 device_temp}
        buses {S_AXI DDR3 SYS_CLK CLK_REF}
        settings {BOARD_MIG_PARAM MIG_DONT_TOUCH_PARAM RESET_BOARD_INTERFACE XML_INPUT_FILE Component_Name}} \
    xilinx.com:ip:zynq_ultra_ps_e {
        pins {pl_clk0 pl_resetn0}
        buses {}
        settings {PSU__FPGA_PL0_ENABLE PSU__FPGA_PL1_ENABLE PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ
            PSU__CRL_APB__PL0_REF_CTRL__SRCSEL PSU__USE__FABRIC__RST
            PSU__USE__M_AXI_GP0 PSU__USE__M_AXI_GP1 PSU__USE__M_AXI_GP2 PSU__MAXIGP0__DATA_WIDTH
            PSU__USE__S_AXI_GP2 PSU__SAXIGP2__DATA_WIDTH PSU__USE__S_AXI_GP3 PSU__SAXIGP3__DATA_WIDTH
            PSU__USE__S_AXI_GP4 PSU__SAXIGP4__DATA_WIDTH PSU__USE__S_AXI_GP5 PSU__SAXIGP5__DATA_WIDTH PSU__USE__IRQ0 PSU__USE__IRQ1}}]
# Pins and buses of the processing system that a setting switches on.
set switched {
    PSU__USE__M_AXI_GP0 {maxihpm0_fpd_aclk M_AXI_HPM0_FPD}
    PSU__USE__M_AXI_GP1 {maxihpm1_fpd_aclk M_AXI_HPM1_FPD}
    PSU__USE__M_AXI_GP2 {maxihpm0_lpd_aclk M_AXI_HPM0_LPD}
    PSU__USE__S_AXI_GP2 {saxihp0_fpd_aclk S_AXI_HP0_FPD}
    PSU__USE__S_AXI_GP3 {saxihp1_fpd_aclk S_AXI_HP1_FPD}
    PSU__USE__S_AXI_GP4 {saxihp2_fpd_aclk S_AXI_HP2_FPD}
    PSU__USE__S_AXI_GP5 {saxihp3_fpd_aclk S_AXI_HP3_FPD}
    PSU__USE__IRQ0 {pl_ps_irq0 ""}
    PSU__USE__IRQ1 {pl_ps_irq1 ""}
}
set board_settings {board_part ip_repo_paths}
set core_settings {name version core_revision display_name description supported_families}
set run_settings {strategy STEPS.PHYS_OPT_DESIGN.IS_ENABLED STEPS.POST_ROUTE_PHYS_OPT_DESIGN.IS_ENABLED}

# Of the open project; a project that is closed leaves its core in its folder.
set cells [dict create]
set bd_ports [dict create]
set driven {}
set saved_cores {}
set finished {}

proc missing {what name} { error "no $what $name" }
proc folder_of {path} {
    if {![file isdirectory [file dirname $path]]} { error "no folder [file dirname $path] to write [file tail $path] to" }
}

# ---- projects, files, runs
proc create_project {args} {
    record [list create_project {*}$args]
    set names [lsearch -all -inline -not -glob $args -*]
    lassign $names ::project_name ::project_dir
    if {"-force" ni $args && [file exists $::project_dir]} { error "project $::project_dir exists already" }
    if {[lsearch -exact $args -part] < 0} { error "a project needs a part" }
    file mkdir $::project_dir
    set ::added {}
    set ::runs {synth_1 impl_1}
    set ::design_name ""
    set ::catalogue {}
    set ::finished {}
}
proc add_files {args} {
    record [list add_files {*}$args]
    set sets {sources_1 constrs_1 sim_1}
    set at [lsearch -exact $args -fileset]
    if {$at >= 0 && [lindex $args $at+1] ni $sets} { missing fileset [lindex $args $at+1] }
    foreach file [lindex $args end] {
        if {![file isfile $file]} { missing file $file }
        lappend ::added $file
    }
}
proc get_files {args} {
    set name [lindex $args end]
    if {$::design_name ne "" && $name eq "$::design_name.bd"} { return $name }
    foreach file $::added { if {[file tail $file] eq $name} { return $file } }
    missing file $name
}
proc get_runs {name} { return [expr {$name in $::runs ? $name : [missing run $name]}] }
proc wait_on_run {args} {
    record [list wait_on_run {*}$args]
    if {[lindex $args 0] ni $::launched} { error "run [lindex $args 0] was not launched" }
    lappend ::finished [lindex $args 0]
}
proc open_run {name} {
    record [list open_run $name]
    if {$name ni $::finished} { error "run $name has not ended" }
}
proc update_ip_catalog {args} {
    record [list update_ip_catalog {*}$args]
    set ::catalogue {}
    foreach core $::saved_cores {
        lassign $core vlnv folder
        if {$folder in $::repositories} { lappend ::catalogue $vlnv }
    }
}
set repositories {}
set launched {}

# ---- packages
rename ipx::package_project stub_package_project
proc ipx::package_project {args} {
    if {![llength $::added]} { error "a core without files" }
    foreach {name value} [lsearch -all -inline -not -exact [lrange $args 1 end] -import_files] { set ::package($name) $value }
    file mkdir $::package(-root_dir)
    uplevel #0 [list stub_package_project {*}$args]
}
proc ipx::save_core {core} {
    record [list ipx::save_core $core]
    lappend ::saved_cores [list "$::package(-vendor):$::package(-library):$::package(name):$::package(version)" \
        $::package(-root_dir)]
}

# ---- block designs
proc create_bd_design {name} {
    record [list create_bd_design $name]
    set ::design_name $name
    set ::cells [dict create]
    set ::bd_ports [dict create]
    set ::driven {}
}
proc in_design {} { if {$::design_name eq ""} { error "no block design is open" } }
proc create_bd_cell {args} {
    record [list create_bd_cell {*}$args]
    in_design
    set name [lindex $args end]
    set at [lsearch -exact $args -vlnv]
    if {[dict exists $::cells $name]} { error "cell $name exists already" }
    if {$at >= 0} {
        set vlnv [lindex $args $at+1]
        if {[dict exists $::cores $vlnv]} {
            dict set ::cells $name [dict merge [dict get $::cores $vlnv] [dict create vlnv $vlnv values {}]]
        } elseif {$vlnv in $::catalogue} {
            set pins [list $::clock_port $::reset_port $::interrupt_port]
            dict set ::cells $name [dict create vlnv $vlnv pins $pins buses [lsearch -all -inline -regexp $::inferred {^(s_axi|m_axi(_[0-9])?)$}] settings {} values {}]
        } else {
            missing core $vlnv
        }
    } else {
        dict set ::cells $name [module_of [lindex $args [lsearch -exact $args -reference]+1]]
    }
    return $name
}
# Ports and parameters of a module of the project's files; buses by the names of their ports.
proc module_of {module} {
    foreach file $::added {
        if {[file extension $file] ne ".v"} continue
        set channel [open $file]
        set text [read $channel]
        close $channel
        if {[regexp "(?n)^module $module\\M(.*)" $text]} {
            regexp "\nmodule $module\\M(.*?)\n\\);" "\n$text" all head
            set ports [lmap {all name} [regexp -all -inline \
                {\m(?:input|output)\M(?:\s+(?:wire|reg))?(?:\s*\[[^]]*\])?\s+(\w+)} $head] { set name }]
            set parameters [lmap {all name} [regexp -all -inline {\mparameter\M(?:\s+integer)?(?:\s*\[[^]]*\])?\s+(\w+)} $head] { set name }]
            set buses [lmap port [lsearch -all -inline -regexp $ports _awvalid$] { string range $port 0 end-8 }]
            return [dict create vlnv module pins $ports buses $buses settings $parameters values {}]
        }
    }
    missing module $module
}
proc has {cell kind} {
    set found [dict get $::cells $cell $kind]
    set values [dict get $::cells $cell values]
    switch -glob -- [dict get $::cells $cell vlnv] {
        *:smartconnect {
            if {$kind eq "buses"} {
                foreach {setting name} {NUM_SI S NUM_MI M} {
                    set count [expr {[dict exists $values $setting] ? [dict get $values $setting] : 1}]
                    for {set n 0} {$n < $count} {incr n} { lappend found [format %s%02d_AXI $name $n] }
                }
            }
        }
        *:zynq_ultra_ps_e {
            dict for {setting names} $::switched {
                if {[dict exists $values $setting] && [dict get $values $setting] == 1} { lappend found {*}$names }
            }
        }
    }
    return $found
}
proc member {kind args} {
    in_design
    set path [lindex $args end]
    lassign [split $path /] cell name
    if {![dict exists $::cells $cell] || $name ni [has $cell $kind]} {
        missing [expr {$kind eq "pins" ? "pin" : "interface"}] $path
    }
    return $path
}
proc get_bd_pins {args} { member pins {*}$args }
proc get_bd_intf_pins {args} { member buses {*}$args }
proc get_bd_cells {args} {
    return [expr {[dict exists $::cells [lindex $args end]] ? [lindex $args end] : [missing cell [lindex $args end]]}]
}
foreach command {create_bd_port create_bd_intf_port} {
    proc $command {args} [string map [list COMMAND $command] {
        record [list COMMAND {*}$args]
        in_design
        dict set ::bd_ports [lindex $args end] COMMAND
        return [lindex $args end]
    }]
}
foreach {getter maker} {get_bd_ports create_bd_port get_bd_intf_ports create_bd_intf_port} {
    proc $getter {args} [string map [list MAKER $maker] {
        set name [lindex $args end]
        if {![dict exists $::bd_ports $name] || [dict get $::bd_ports $name] ne "MAKER"} { missing port $name }
        return $name
    }]
}
foreach command {connect_bd_net connect_bd_intf_net} {
    proc $command {source sink} [string map [list COMMAND $command] {
        record [list COMMAND $source $sink]
        if {$sink in $::driven} { error "$sink is connected already" }
        lappend ::driven $sink
    }]
}
proc get_bd_addr_spaces {name} {
    lassign [split $name /] cell space
    if {![dict exists $::cells $cell] || ($space ne "Data" && $space ni [has $cell buses])} {
        missing {address space} $name
    }
    return $name
}
proc get_bd_addr_segs {args} {
    set name [lindex $args end]
    if {![dict exists $::cells [lindex [split $name /] 0]]} { missing {address segment} $name }
    return $name
}
proc assign_bd_address {args} {
    record [list assign_bd_address {*}$args]
    foreach option {-offset -range} {
        set at [lsearch -exact $args $option]
        if {$at >= 0 && ![string is wideinteger -strict [lindex $args $at+1]]} { error "$option must be a number" }
    }
}

# ---- settings
proc set_property {args} {
    record [list set_property {*}$args]
    set object [lindex $args end]
    set pairs [expr {[lindex $args 0] eq "-dict" ? [lindex $args 1] : [lrange $args 0 1]}]
    if {$object eq ""} { error "set_property: no object for [lindex $pairs 0]" }
    foreach {name value} $pairs {
        if {[dict exists $::cells $object]} {
            set setting [string range $name 7 end]
            if {![string match CONFIG.* $name] || $setting ni [dict get $::cells $object settings]} {
                missing "setting of cell $object:" $name
            }
            dict set ::cells $object values $setting $value
        } elseif {[dict exists $::bd_ports $object]} {
            if {$name ni {CONFIG.FREQ_HZ CONFIG.POLARITY}} { missing "setting of port $object:" $name }
        } elseif {$object eq "current_project"} {
            if {$name ni $::board_settings} { missing "setting of a project:" $name }
            if {$name eq "ip_repo_paths"} {
                foreach folder $value { if {![file isdirectory $folder]} { missing folder $folder } }
                set ::repositories $value
            }
        } elseif {$object eq "core"} {
            if {$name ni $::core_settings} { missing "setting of a core:" $name }
            set ::package($name) $value
        } elseif {$object in $::runs && $name ni $::run_settings} {
            missing "setting of a run:" $name
        }
    }
}
