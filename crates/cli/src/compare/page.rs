//! The report of a comparison: one self-contained HTML page.

use longhaul_experiments::plot::{Axis, Plot, PlotError, Series};

use super::Setting;
use super::runs::{self, Run, Standing};
use super::table;

/// The plot has a white background in dark mode too.
const STYLE: &str = "\
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem;
  color: light-dark(#222, #ddd); background: light-dark(#fff, #181a1b); }
h1 { font-size: 1.2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid light-dark(#ddd, #444); }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1.5rem 0; padding: .5rem; background: #fff; border-radius: 6px; }
figure svg { max-width: 100%; height: auto; display: block; margin: auto; }
";

pub(super) fn html(
    setting: &Setting,
    runs: &[Run],
    standings: &[Standing],
) -> Result<String, PlotError> {
    let title = escaped(&setting.title);
    let svg = plot(setting, runs, standings).svg()?;
    let notes: String =
        setting.notes.iter().map(|note| format!("<li>{}.</li>\n", escaped(note))).collect();
    let failures: String = runs
        .iter()
        .filter_map(|run| run.end.as_ref().err().map(|reason| (run, reason)))
        .map(|(run, reason)| {
            format!("<li>{}, turn {}: {}</li>\n", run.candidate, run.turn, escaped(reason))
        })
        .collect();
    let failures = match failures.is_empty() {
        true => failures,
        false => format!("<h2>Runs that failed</h2>\n<ul>\n{failures}</ul>\n"),
    };
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n\
         <div class=\"wide\">\n<table>\n{}</table>\n</div>\n<ul>\n\
         <li>{}</li>\n{notes}</ul>\n\
         <figure>\n{svg}\n</figure>\n{failures}<p>longhaul {}</p>\n</body>\n</html>\n",
        rows(setting, standings),
        table::COUNTED,
        env!("CARGO_PKG_VERSION"),
    ))
}

fn rows(setting: &Setting, standings: &[Standing]) -> String {
    let row = |(at, row): (usize, &Vec<String>)| {
        let tag = if at == 0 { "th" } else { "td" };
        let cells: String =
            row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    table::cells(setting, standings).iter().enumerate().map(row).collect()
}

/// The receive rates of each candidate's median run.
fn plot(setting: &Setting, runs: &[Run], standings: &[Standing]) -> Plot {
    let series = standings.iter().filter_map(|standing| {
        let run = runs::typical(standing.candidate, runs)?;
        let label = setting.name(standing.candidate);
        Some(Series::new(label, setting.origin, run.rates.iter().copied()))
    });
    Plot {
        title: "Receive rate over time, in each protocol's median run".into(),
        x: Axis::linear("seconds since the start"),
        y: Axis::linear(setting.rates),
        series: series.collect(),
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::candidate::Candidate;
    use super::super::runs::{standings, tests::example};
    use super::*;
    use longhaul_experiments::plot::Origin;

    #[test]
    fn a_page_is_self_contained_and_escapes_its_title_notes_and_failure_reasons() {
        let runs = [example("rbudp", 1, Some(8)), example("rbudp", 2, None)];
        let standings = standings(&[Candidate::parse("rbudp").unwrap()], &runs);
        let title = "a<b & \"c\"".to_owned();
        let origin = Origin::Emulated;
        let (notes, rates, congestion) = (vec!["it <is> so".into()], "Mbit/s", None);
        let setting = Setting { title, notes, rates, origin, congestion };
        let page = html(&setting, &runs, &standings).unwrap();
        for part in ["a&lt;b &amp; &quot;c&quot;", "it &lt;is&gt; so", "the path &lt;broke&gt;"] {
            assert!(page.contains(part), "{part}");
        }
        assert!(page.contains("<svg") && page.contains("8.00 Mbit/s"));
        assert_eq!(plot(&setting, &runs, &standings).series[0].origin, Origin::Emulated);
        assert!(page.contains("color-scheme: light dark"));
        for outside in ["src=", "href=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
