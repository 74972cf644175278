//! A scenario file as a network to emulate, with the flows and commands that it has.

use std::fs;
use std::path::Path;

use longhaul_proto::time::Time;
use longhaul_testbed::emu::EmulationSpec;
use longhaul_testbed::emu::flows::Flows;
use longhaul_testbed::scenario::{Reading, Scenario, Traffic};

use super::programs::Program;
use super::{EmulateArgs, Plan, Trouble, asked};

/// What `file` and the flags beside it ask for.
pub(super) fn plan(file: &Path, args: &EmulateArgs) -> Result<Plan, Trouble> {
    let mut scenario = read(file)?;
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

fn read(file: &Path) -> Result<Scenario, Trouble> {
    let usage = |what: String| Trouble::Usage(format!("{}: {what}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| usage(error.to_string()))?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let trace =
        |name: &str| fs::read_to_string(folder.join(name)).map_err(|error| error.to_string());
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let reading = Reading { trace: &trace, ..Reading::PLAIN };
    Scenario::parse(&name, &text, &reading).map_err(|error| usage(error.to_string()))
}
