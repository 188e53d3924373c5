# What every Vivado project does with its design: runs that must finish, reports, and gates that a design must pass
# before its bitstream leaves. Sourced by build.tcl.

# Messages that end the build. A file of $readmemh that is not read leaves a memory empty.
set gradloom_fatal {{Synth 8-4445}}

# Parallel runs; each takes some gigabytes.
proc gradloom_jobs {} {
    if {[catch {exec nproc} count] && [catch {set ::env(NUMBER_OF_PROCESSORS)} count]} { set count 4 }
    return [expr {max(1, min(8, $count))}]
}

proc gradloom_read {path} {
    set file [open $path r]
    set text [read $file]
    close $file
    return $text
}

proc gradloom_run {run args} {
    launch_runs $run -jobs [gradloom_jobs] {*}$args
    wait_on_run $run
    # Cores of a block design have runs of their own, beside this one.
    set runs [file dirname [get_property DIRECTORY [get_runs $run]]]
    foreach log [lsort [glob -nocomplain -directory $runs */runme.log]] {
        foreach id $::gradloom_fatal {
            foreach line [split [gradloom_read $log] \n] {
                if {[string first "\[$id\]" $line] >= 0} { error "$run: $line" }
            }
        }
    }
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

# Each gate takes a report's text and gives a line for each thing that the design fails. A report that cannot be read
# fails as well.

# The row of the Design Timing Summary; empty if there is none.
proc gradloom_timing_row {text} {
    if {![regexp {WNS\(ns\)[^\n]*WPWS\(ns\)[^\n]*\n[ -]*\n([^\n]*)} $text all row] || [llength $row] != 12} {
        return {}
    }
    return $row
}

# Setup, hold and pulse width, by the row of the Design Timing Summary: of pulse width a run keeps no property.
proc gradloom_gate_timing {text} {
    set row [gradloom_timing_row $text]
    if {[llength $row] == 0} {
        return [list "timing: the report holds no Design Timing Summary"]
    }
    set failed {}
    foreach {name at} {WNS 0 WHS 4 WPWS 8} {
        set slack [lindex $row $at]
        set endpoints [lindex $row [expr {$at + 2}]]
        if {![string is double -strict $slack] || $slack < 0 || $endpoints != 0} {
            lappend failed "timing is not met ($name is $slack ns, $endpoints endpoints)"
        }
    }
    return $failed
}

# Paths that no constraint reaches, by the checks of check_timing. Ports without delays are no fault here: the false
# paths and bounds of the board's pins stand in their place.
proc gradloom_gate_constraints {text} {
    set failed {}
    foreach check {no_clock unconstrained_internal_endpoints generated_clocks loops latch_loops} {
        if {![regexp "checking $check \\((\\d+)\\)" $text all count]} {
            lappend failed "constraints: the report does not tell of $check"
        } elseif {$count != 0} {
            lappend failed "constraints are missing or wrong ($check: $count)"
        }
    }
    return $failed
}

# Violations of at least critical warning, by the summary of report_drc or report_methodology.
proc gradloom_gate_rules {what text allowed} {
    if {![regexp {(?:Violations|Checks) found: *\d+} $text]} {
        return [list "$what: the report holds no summary"]
    }
    set failed {}
    set row {^\| *([^ |]+) *\| *(Fatal|Error|Critical Warning) *\| *([^|]*[^ |]) *\| *(\d+) *\|}
    foreach {all rule severity description count} [regexp -all -inline -line $row $text] {
        if {$rule ni $allowed} {
            lappend failed "$what: $rule, $count times ([string tolower $severity]: $description)"
        }
    }
    return $failed
}

# Takes a clock that the worst slack of a routed design allows, where the processing system makes it: a register sets
# it, and the bitstream is the same at each. $clocks are in Hz, that which was asked for first, then slower ones. A
# design that does not meet the first is timed again with the fastest that its slack allows. Returns the report that
# the gates read; the clock goes to clock.txt.
proc gradloom_settle {out_dir clocks text} {
    set chosen [lindex $clocks 0]
    set slack [lindex [gradloom_timing_row $text] 0]
    if {[string is double -strict $slack] && $slack < 0} {
        set clock [get_clocks clk_pl_0]
        set shortest [expr {[get_property PERIOD $clock] - $slack}]
        foreach hz $clocks {
            if {1e9 / $hz >= $shortest} { set chosen $hz; break }
        }
    }
    if {$chosen != [lindex $clocks 0]} {
        set file [file join $out_dir timing.rpt]
        file rename -force $file [file join $out_dir timing_asked.rpt]
        set jitter [get_property INPUT_JITTER $clock]
        create_clock -name clk_pl_0 -period [expr {floor(1e12 / $chosen) / 1e3}] [get_property SOURCE_PINS $clock]
        if {$jitter ne ""} { set_input_jitter clk_pl_0 $jitter }
        report_timing_summary -max_paths 20 -file $file
        set text [gradloom_read $file]
        puts "gradloom: worst slack $slack ns: the clock is $chosen Hz in place of [lindex $clocks 0]"
    }
    set file [open [file join $out_dir clock.txt] w]
    puts $file $chosen
    close $file
    return $text
}

# How the rules among the lines of gradloom_gate_rules are allowed beside those that are; nothing without such a line.
proc gradloom_remedy {failed allowed} {
    set rules $allowed
    foreach line $failed {
        if {[regexp {: (\S+), \d+ times \(} $line all rule] && $rule ni $rules} { lappend rules $rule }
    }
    if {[llength $rules] == [llength $allowed]} { return {} }
    return [list "to accept a rule after review, such as one of a vendor's core: set allowed_rules \[list $rules\] in\
        board/settings.tcl"]
}

# From the open project's sources to a bitstream; reports go to $out_dir. A rule in $allowed_rules may be violated.
# $clocks: see gradloom_settle; none where the clock stands.
proc gradloom_implement {out_dir allowed_rules {clocks {}}} {
    gradloom_run synth_1
    set_property strategy Performance_ExplorePostRoutePhysOpt [get_runs impl_1]
    foreach step {PHYS_OPT_DESIGN POST_ROUTE_PHYS_OPT_DESIGN} {
        set_property STEPS.$step.IS_ENABLED true [get_runs impl_1]
    }
    gradloom_run impl_1 -to_step write_bitstream

    open_run impl_1
    # Power is estimated from the activity of a simulated workload where there is one. Its instances below the bench and
    # the outermost module are those of this design; names that synthesis has changed are in the list of unmatched nets.
    set activity [file join [file dirname $out_dir] activity.saif]
    if {[file exists $activity]} {
        read_saif -strip_path bench/gradloom_design_wrapper -out_file [file join $out_dir saif_unmatched.rpt] $activity
    }
    foreach {report options} {timing_summary {-max_paths 20} utilization -hierarchical power {} drc {} methodology {}} {
        set file [file join $out_dir [expr {$report eq "timing_summary" ? "timing" : $report}].rpt]
        report_$report {*}$options -file $file
        set text($report) [gradloom_read $file]
    }
    if {[llength $clocks]} { set text(timing_summary) [gradloom_settle $out_dir $clocks $text(timing_summary)] }
    set failed [list {*}[gradloom_gate_timing $text(timing_summary)] \
        {*}[gradloom_gate_constraints $text(timing_summary)] \
        {*}[gradloom_gate_rules "design rules (drc.rpt)" $text(drc) $allowed_rules] \
        {*}[gradloom_gate_rules "methodology (methodology.rpt)" $text(methodology) $allowed_rules]]
    if {[llength $failed]} {
        lappend failed {*}[gradloom_remedy $failed $allowed_rules]
        error "[join $failed \n]\nthe bitstream is kept back: see [file join build out]"
    }
}
