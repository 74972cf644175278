//! Turns a scenario file into an emulated network with flows and commands.

use std::path::Path;

use longhaul_proto::time::Time;
use longhaul_testbed::emu::EmulationSpec;
use longhaul_testbed::emu::flows::Flows;
use longhaul_testbed::scenario::Traffic;

use super::programs::Program;
use super::{EmulateArgs, Plan, Trouble, requested_programs};
use crate::scenario_file;

pub(super) fn plan(file: &Path, args: &EmulateArgs) -> Result<Plan, Trouble> {
    let text = scenario_file::text(file).map_err(Trouble::File)?;
    let mut scenario = scenario_file::parse(file, &text, &[]).map_err(Trouble::File)?;
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    let spec = EmulationSpec::of(&scenario);
    if args.no_flows {
        scenario.flows.clear();
    }
    let commands = scenario.flows.iter().filter_map(|flow| {
        let Traffic::Command(command) = &flow.traffic else { return None };
        let start = flow.start.since(Time::ZERO);
        Some(Program { start, ..Program::shell(scenario.node_name(flow.from), command) })
    });
    let mut programs: Vec<Program> = commands.collect();
    let own = !scenario.flows.is_empty();
    let requested = requested_programs(args, scenario.node_name(0), !own);
    // A run with commands of the command line, or with a shell, ignores the file's time limit.
    let limit = if requested.is_empty() { Some(scenario.time_limit) } else { None };
    programs.iter_mut().for_each(|program| program.counts = requested.is_empty());
    programs.extend(requested);
    let flows = Some(scenario).filter(Flows::are_some);
    Ok(Plan { spec, programs, limit: args.time_limit.or(limit), flows })
}
