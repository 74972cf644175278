//! Runs the quick experiments again, and checks that their committed pages equal the new pages byte
//! for byte.

use std::path::Path;

use longhaul_experiments::experiment::Set;
use longhaul_experiments::page::{self, File, Page};
use longhaul_experiments::{catalogue, results, simulate};

#[test]
fn quick_experiments_give_the_committed_pages() {
    let folder = results::find(Path::new(env!("CARGO_MANIFEST_DIR"))).expect("in the repository");
    let quick: Vec<_> = catalogue::all().into_iter().filter(|e| e.set == Set::Quick).collect();
    assert!(quick.len() > 5);
    let mut found = Vec::new();
    for experiment in quick {
        let simulated = simulate::run(&(experiment.cases)()).expect("it can be simulated");
        let committed = results::read(&folder, &experiment.file()).expect("it can be read");
        let page = Page::new(experiment, &simulated, committed.as_deref());
        for File { name, text } in page.files(&simulated).expect("it can be drawn") {
            let committed = results::read(&folder, &name).expect("it can be read");
            let committed = committed.unwrap_or_default();
            if committed == text {
                continue;
            }
            let why = page::differences(&text, &committed);
            found.push(format!("{name}: {}", why.join("; ")));
        }
    }
    assert!(
        found.is_empty(),
        "the code no longer gives the committed pages:\n  {}\nif the change is intended, run \
         longhaul reproduce all --update and say in the commit why",
        found.join("\n  ")
    );
}
