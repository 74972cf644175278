//! A scenario file as a network to emulate, with the commands that it has.

use std::fs;
use std::path::Path;

use longhaul_proto::time::Time;
use longhaul_testbed::emu::EmulationSpec;
use longhaul_testbed::scenario::{Reading, Scenario, Traffic};

use super::programs::Program;
use super::{EmulateArgs, Plan, Trouble, asked, say};

/// What `file` and the flags beside it ask for.
pub(super) fn plan(file: &Path, args: &EmulateArgs) -> Result<Plan, Trouble> {
    let scenario = read(file)?;
    let mut spec = EmulationSpec::of(&scenario);
    spec.seed = args.seed.unwrap_or(spec.seed);
    let mut programs = Vec::new();
    for flow in &scenario.flows {
        let host = scenario.node_name(flow.from);
        match &flow.traffic {
            Traffic::Command(command) => {
                let start = flow.start.since(Time::ZERO);
                programs.push(Program { start, ..Program::shell(host, command) });
            }
            _ if !args.quiet => say(&format!(
                "longhaul emulate: flow {} is not started: only commands are",
                flow.name
            )),
            _ => {}
        }
    }
    let own = !programs.is_empty();
    let asked = asked(args, scenario.node_name(0), !own);
    // Whoever asks for a command waits for it; the scenario's own run beside it.
    let limit = if asked.is_empty() { Some(scenario.time_limit) } else { None };
    programs.extend(asked);
    Ok(Plan { spec, programs, limit: args.time_limit.or(limit) })
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
