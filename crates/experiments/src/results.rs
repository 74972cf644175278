//! The folder with the committed pages, and its index.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::catalogue::{self, Paper};
use crate::experiment::Experiment;
use crate::page::File;

const INDEX: &str = "README.md";
const BEGIN: &str = "<!-- The lines below are made by `longhaul reproduce`. -->";
const END: &str = "<!-- The lines above are made by `longhaul reproduce`. -->";

/// Finds the results folder: `results` beside the nearest `ARCHITECTURE.md` at or above `from`.
pub fn find(from: &Path) -> Option<PathBuf> {
    let upwards = from.ancestors().find(|folder| folder.join("ARCHITECTURE.md").is_file());
    upwards.map(|folder| folder.join("results")).filter(|results| results.is_dir())
}

/// Reads a file of the folder; `None` if it does not exist.
///
/// # Errors
/// If the file exists, but cannot be read.
pub fn read(folder: &Path, name: &str) -> io::Result<Option<String>> {
    match fs::read_to_string(folder.join(name)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the files that differ from the existing files; returns their number. Creates the folder
/// if needed.
///
/// # Errors
/// If the folder cannot be created, or a file cannot be read or written.
pub fn write(folder: &Path, files: &[File]) -> io::Result<usize> {
    fs::create_dir_all(folder)?;
    let mut changed = 0;
    for File { name, text } in files {
        if read(folder, name)?.as_deref() != Some(text) {
            fs::write(folder.join(name), text)?;
            changed += 1;
        }
    }
    Ok(changed)
}

/// Returns `page` with new text between its two marker lines: a line for each of `experiments`.
/// Returns `None` if `page` lacks a marker line.
pub fn index(page: &str, experiments: &[&Experiment]) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    let of_paper = |paper: Paper| {
        let there = |id: &str| experiments.iter().any(|experiment| experiment.id == id);
        let rows = paper.experiments.iter().filter(|experiment| there(experiment.id));
        let rows: String = rows.map(|experiment| row(experiment)).collect();
        let Paper { heading, about, .. } = paper;
        match rows.is_empty() {
            true => String::new(),
            false => format!(
                "### {heading}\n\n{about}\n\n| page | in the paper | shows |\n| --- | --- | --- |\n\
                 {rows}\n"
            ),
        }
    };
    let papers: String = catalogue::papers().into_iter().map(of_paper).collect();
    Some(format!("{before}{BEGIN}\n\n{papers}{END}{after}"))
}

fn row(Experiment { id, title, source, .. }: &Experiment) -> String {
    let place = source.rsplit_once("), ").map_or("", |(_, place)| place);
    // The index omits the remark that may follow the place.
    let place = place.split([':', ';']).next().unwrap_or_default();
    let place = place.split(", which").next().unwrap_or_default();
    format!("| [{id}]({id}.md) | {place} | {title} |\n")
}

/// Updates the index, with a line for each experiment that has a page; creates the index if needed.
/// Returns the number of changed files: 0 or 1.
///
/// # Errors
/// If the index cannot be read or written, or lacks the two marker lines.
pub fn write_index(folder: &Path, experiments: &[&Experiment]) -> io::Result<usize> {
    let new = || format!("# Results\n\n{BEGIN}\n{END}\n");
    let page = read(folder, INDEX)?.unwrap_or_else(new);
    let there = experiments.iter().filter(|experiment| folder.join(experiment.file()).is_file());
    let there: Vec<&Experiment> = there.copied().collect();
    let text = index(&page, &there).ok_or_else(|| {
        let what = format!("{INDEX} has no lines {BEGIN} and {END}");
        io::Error::new(io::ErrorKind::InvalidData, what)
    })?;
    write(folder, &[File { name: INDEX.into(), text }])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed() -> PathBuf {
        find(Path::new(env!("CARGO_MANIFEST_DIR"))).expect("the crate lies in the repository")
    }

    #[test]
    fn the_index_lists_every_experiment() {
        let page = read(&committed(), INDEX).unwrap().unwrap();
        let expected = index(&page, &catalogue::all());
        assert!(
            expected.as_ref() == Some(&page),
            "results/{INDEX} is out of date; run longhaul reproduce all --update"
        );
    }

    #[test]
    fn an_index_keeps_the_text_outside_its_marker_lines() {
        let page = format!("# Results\n\n{BEGIN}\nold\n{END}\n\nMore.\n");
        let text = index(&page, &catalogue::all()[..1]).unwrap();
        assert!(text.starts_with("# Results\n\n<!--") && text.ends_with("-->\n\nMore.\n"));
        assert!(
            !text.contains("old")
                && text.contains("| [quanta-fig5](quanta-fig5.md) | section 4.2.1, Fig. 5 | ")
        );
        assert_eq!(index(&text, &catalogue::all()[..1]), Some(text));
        assert_eq!(index("# No place", &catalogue::all()), None);
    }

    #[test]
    fn only_files_that_differ_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = |text: &str| [File { name: "a.md".into(), text: text.into() }];
        assert_eq!(write(folder.path(), &file("one")).unwrap(), 1);
        assert_eq!(write(folder.path(), &file("one")).unwrap(), 0);
        assert_eq!(write(folder.path(), &file("two")).unwrap(), 1);
        assert_eq!(read(folder.path(), "a.md").unwrap().as_deref(), Some("two"));
        assert_eq!(read(folder.path(), "b.md").unwrap(), None);
        assert_eq!(find(folder.path()), None);
    }

    #[test]
    fn a_new_folder_gets_an_index_of_its_pages() {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().join("new").join("results");
        let all = catalogue::all();
        let page = File { name: all[1].file(), text: "a page".into() };
        assert_eq!(write(&results, &[page]).unwrap(), 1);
        assert_eq!(write_index(&results, &all).unwrap(), 1);
        let text = read(&results, INDEX).unwrap().unwrap();
        assert!(text.contains(&row(all[1])) && !text.contains(&row(all[0])), "{text}");
        assert!(!text.contains("### GTP"), "{text}");
        assert_eq!(write_index(&results, &all).unwrap(), 0);
        fs::write(results.join(INDEX), "mine").unwrap();
        assert!(write_index(&results, &all).is_err());
    }
}
