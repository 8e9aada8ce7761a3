//! A page for one run or several: HTML with the pictures inside, which needs no network and no script.
//! For one run, summary.md and the pictures are written as files, too.

use core::fmt::Write as _;
use std::path::Path;

use crate::origin::Binary;
use crate::plot::{self, PlotLine, escape};
use crate::run::{self, Description, Judge, Ran, Run, Table};
use crate::stats::float;
use crate::unit::Unit;
use crate::{Error, summary};

/// The page's name within a run's directory.
pub const PAGE: &str = "report.html";

/// Writes summary.md, the plots and the page of a run into its directory.
///
/// # Errors
/// When a file cannot be written or drawn.
pub fn write(run: &Run, dir: &Path) -> Result<(), Error> {
    run::write(&dir.join("summary.md"), summary::markdown(run).as_bytes())?;
    for ran in &run.meta.tests {
        let lines = lines(core::slice::from_ref(run), &ran.about.name);
        for (name, svg) in plot::of_test(&ran.about, &lines)? {
            run::write(&dir.join(name + ".svg"), svg.as_bytes())?;
        }
    }
    run::write(&dir.join(PAGE), page(core::slice::from_ref(run))?.as_bytes())
}

/// The series of a test in several runs.
fn lines<'a>(runs: &'a [Run], test: &'a str) -> Vec<PlotLine<'a>> {
    let several = runs.len() > 1;
    let all = runs.iter().flat_map(|run| run.of(test).map(move |series| (run, series)));
    all.map(|(run, series)| PlotLine { run: several.then_some(&run.meta.label), series }).collect()
}

/// The page. Tests of the same name in several runs are drawn over each other.
///
/// # Errors
/// When a plot cannot be drawn.
pub fn page(runs: &[Run]) -> Result<String, Error> {
    let title = runs.iter().map(|run| format!("{} {}", run.meta.suite, run.meta.label));
    let title = escape(&title.collect::<Vec<_>>().join(" · "));
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>samum-bench: {title}</title>\n\
         <style>{STYLE}</style>\n<h1>samum-bench: {title}</h1>\n"
    );
    for run in runs {
        html += &header(run);
    }
    let tests = tests(runs);
    html += "<nav>";
    for about in &tests {
        let _ = write!(html, "<a href=\"#{0}\">{0}</a> ", escape(&about.name));
    }
    html += "</nav>\n";
    for about in tests {
        html += &section(runs, about)?;
    }
    for run in runs {
        html += &machine(run);
    }
    html += "</html>\n";
    Ok(html)
}

/// Every test that a run has, once.
fn tests(runs: &[Run]) -> Vec<&Description> {
    let mut tests = Vec::<&Description>::new();
    for ran in runs.iter().flat_map(|run| &run.meta.tests) {
        if !tests.iter().any(|about| about.name == ran.about.name) {
            tests.push(&ran.about);
        }
    }
    tests
}

fn header(run: &Run) -> String {
    let meta = &run.meta;
    let verdict = meta.noise.as_ref().map(crate::machine::Noise::verdict);
    let mut html = format!(
        "<p><b>{}</b>: {} · {} CPUs · {} · {} · {}",
        escape(&meta.label),
        escape(&meta.machine.cpu),
        meta.machine.cpus,
        Unit::Bytes.show(float(meta.machine.memory)),
        escape(&meta.machine.kernel),
        escape(&meta.start),
    );
    let _ = write!(
        html,
        "<br>{}<br>{} {}",
        escape(&summary::origin(meta)),
        escape(&verdict.unwrap_or_else(|| "The run was cut off.".into())),
        escape(&meta.clock.words())
    );
    for (is_so, words) in [
        (meta.quick, "A quick run: it shows that the tests work, and little more."),
        (meta.interrupted, "Interrupted: what was measured until then is here."),
    ] {
        if is_so {
            let _ = write!(html, "<br><b>{words}</b>");
        }
    }
    html + "</p>\n"
}

fn section(runs: &[Run], about: &Description) -> Result<String, Error> {
    let mut html = format!(
        "<section id=\"{0}\">\n<h2><a href=\"#{0}\">{0}</a> {1}</h2>\n",
        escape(&about.name),
        escape(&about.title)
    );
    if !about.scales.is_empty() {
        let _ = writeln!(html, "<p>Scales means: {}</p>", escape(&about.scales));
    }
    let several = runs.len() > 1;
    for (_, svg) in plot::of_test(about, &lines(runs, &about.name))? {
        let _ = writeln!(html, "<figure>{}</figure>", inline(&svg));
    }
    if about.judge == Judge::Growth {
        html += "<p class=\"note\">A dot per step; the line joins their medians.</p>\n";
    }
    for run in runs {
        for ran in run.meta.tests.iter().filter(|ran| ran.about.name == about.name) {
            if several {
                let _ = writeln!(html, "<h3>{}</h3>", escape(&run.meta.label));
            }
            html += &table(&summary::test_table(run, ran));
            html += &details(ran);
        }
    }
    Ok(html + "</section>\n")
}

fn details(ran: &Ran) -> String {
    let mut html = String::new();
    for extra in &ran.tables {
        let _ = writeln!(html, "<h3>{}</h3>\n{}", escape(&extra.title), table(extra));
    }
    let _ = write!(
        html,
        "<ul class=\"note\"><li>Warm-up: {}. {} steps in {:.1} s.</li>",
        escape(&ran.about.warm_up),
        ran.steps,
        ran.seconds
    );
    for note in &ran.notes {
        let _ = write!(html, "<li>{}</li>", escape(note));
    }
    html + "</ul>\n"
}

fn machine(run: &Run) -> String {
    let meta = &run.meta;
    let machine = &meta.machine;
    let limit = |limit: &Option<u64>| limit.map_or("unlimited".to_owned(), |n| n.to_string());
    let mut rows = vec![
        vec!["command".to_owned(), meta.command.join(" ")],
        vec!["samum-bench".to_owned(), meta.version.clone()],
        vec!["virtual machine".to_owned(), if machine.is_virtual { "yes" } else { "no" }.into()],
        vec!["from, to".to_owned(), format!("{}, {}", meta.start, meta.end)],
    ];
    rows.extend(meta.tree.iter().map(|tree| {
        let changed = if tree.is_dirty { ", changed" } else { "" };
        vec!["commit".to_owned(), format!("{}{changed}", tree.commit)]
    }));
    rows.extend(meta.binaries.iter().map(|binary| {
        let Binary { name, sha256, bytes } = binary;
        vec![format!("SHA-256 of {name}"), format!("{sha256}, {bytes} bytes")]
    }));
    rows.extend(machine.governor.iter().map(|name| vec!["governor".to_owned(), name.clone()]));
    rows.extend(meta.versions.iter().map(|(name, version)| vec![name.clone(), version.clone()]));
    if let Some(noise) = &meta.noise {
        let loops = [("before", noise.before), ("after", noise.after)].map(|(when, spread)| {
            let [q1, median, q3] =
                [spread.q1, spread.median, spread.q3].map(|ns| Unit::Nanoseconds.show(ns));
            vec![format!("calibration loop {when}"), format!("{median} ({q1} … {q3})")]
        });
        rows.extend(loops);
        rows.push(vec!["stolen time".to_owned(), format!("{:.2} %", noise.steal * 100.0)]);
        rows.push(vec!["CPU time of others".to_owned(), format!("{:.1} %", noise.others * 100.0)]);
    }
    rows.extend(machine.limits.iter().map(|(name, (soft, hard))| {
        vec![format!("limit {name}"), format!("{}, hard {}", limit(soft), limit(hard))]
    }));
    rows.extend(machine.sysctls.iter().map(|(name, value)| vec![name.clone(), value.clone()]));
    let facts = Table { title: String::new(), head: vec!["fact".into(), "value".into()], rows };
    format!(
        "<details><summary>The machine of {}</summary>\n{}</details>\n",
        escape(&meta.label),
        table(&facts)
    )
}

fn table(table: &Table) -> String {
    if table.rows.is_empty() {
        return String::new();
    }
    let class = |column| if summary::is_numeric(table, column) { " class=\"n\"" } else { "" };
    let row = |tag: &str, cells: &[String]| {
        let cells: String = cells
            .iter()
            .enumerate()
            .map(|(column, cell)| format!("<{tag}{}>{}</{tag}>", class(column), escape(cell)))
            .collect();
        format!("<tr>{cells}</tr>\n")
    };
    let body: String = table.rows.iter().map(|cells| row("td", cells)).collect();
    format!("<table>\n{}{body}</table>\n", row("th", &table.head))
}

/// An SVG within HTML needs no name space, and so the page holds no address at all.
fn inline(svg: &str) -> String {
    let svg = svg.find("<svg").map_or(svg, |start| &svg[start..]);
    svg.replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1)
}

const STYLE: &str = "\
body{font:15px/1.5 sans-serif;color:#111;background:#fff;max-width:1000px;margin:2em auto;padding:0 1em}\
h1{font-size:1.5em}h2{font-size:1.2em;margin:2.5em 0 .3em;border-top:1px solid #ccc;padding-top:1em}\
h2 a{color:#111;font-family:monospace;text-decoration:none;background:#eee;padding:0 .4em}\
h3{font-size:1em}nav{line-height:1.9}nav a{color:#111;margin-right:.7em}\
figure{margin:1em 0}figure svg{max-width:100%;height:auto}\
table{border-collapse:collapse;font-size:13px;margin:.5em 0;font-variant-numeric:tabular-nums}\
th,td{text-align:left;padding:.15em .7em .15em 0;border-bottom:1px solid #ddd;vertical-align:top}\
.n{text-align:right}.note{color:#444;font-size:13px}ul.note{padding-left:1.2em}details{margin-top:2em}\
@media print{section{break-inside:avoid}nav{display:none}}";
