//! A scenario file as a network to emulate, with the flows and commands that it has.

use std::path::Path;

use longhaul_proto::time::Time;
use longhaul_testbed::emu::EmulationSpec;
use longhaul_testbed::emu::flows::Flows;
use longhaul_testbed::scenario::Traffic;

use super::programs::Program;
use super::{EmulateArgs, Plan, Trouble, asked};
use crate::scenario_file;

/// What `file` and the flags beside it ask for.
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
    let asked = asked(args, scenario.node_name(0), !own);
    // Whoever asks for a command waits for it; the scenario's own run beside it.
    let limit = if asked.is_empty() { Some(scenario.time_limit) } else { None };
    programs.iter_mut().for_each(|program| program.counts = asked.is_empty());
    programs.extend(asked);
    let flows = Some(scenario).filter(Flows::are_some);
    Ok(Plan { spec, programs, limit: args.time_limit.or(limit), flows })
}
