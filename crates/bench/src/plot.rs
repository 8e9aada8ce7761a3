//! Pictures as SVG: a dot per step, and the medians along them as a line with markers. Systems differ
//! by marker, dash and shade, so they can be told apart in a black-and-white print. Pure.

use core::fmt::Write as _;
use core::ops::Range;
use std::collections::BTreeSet;

use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::{
    Cartesian2d, ChartBuilder, ChartContext, IntoDrawingArea as _, IntoLogRange as _, LogCoord,
    RGBColor, SVGBackend,
};

use crate::run::{Description, Figure, Judge, Series};
use crate::unit::Unit;
use crate::{Error, fit};

/// Pixels across.
const WIDTH: u32 = 960;
/// Pixels down, without the legend.
const HEIGHT: u32 = 460;
/// Pixels of the title.
const TITLE: u32 = 36;
/// The x coordinate of the axis, and of title and legend.
const LEFT: usize = 98;
/// Pixels of a line of the legend.
const LEGEND_LINE: u32 = 20;
/// Values that spread further than this go on a logarithmic axis.
const LOG_FROM: f64 = 30.0;
/// The maximum ratio that a logarithmic axis spans; smaller values are drawn at its edge.
const DECADES_MAX: f64 = 1e15;
/// Values beyond this are no measurements, and have no logarithmic axis.
const HUGE: f64 = 1e30;
/// Lines in one plot; further ones are left out, and the title says so.
const LINES_MAX: usize = 24;
/// If a line has at most this many points, each gets a marker.
const MARKED_MAX: usize = 60;

/// A line of a plot.
#[derive(Clone, Copy, Debug)]
pub struct PlotLine<'a> {
    /// The name of its run in the legend, if there are several runs.
    pub run: Option<&'a str>,
    /// The points to show.
    pub series: &'a Series,
}

/// The names of a figure's lines in the legend: the system, the measured quantity if the lines differ
/// in it, and the run if there are several.
fn names(lines: &[PlotLine<'_>]) -> Vec<String> {
    let differ = lines.iter().any(|line| line.series.series != lines[0].series.series);
    let name = |line: &PlotLine<'_>| {
        let measured = differ.then_some(&line.series.series[..]);
        let parts = [Some(&line.series.system[..]), measured, line.run];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    };
    lines.iter().map(name).collect()
}

/// The plots of a test, as names for files and SVG texts: its figures, or else one for each unit.
/// Figures without points are left out.
///
/// # Errors
/// When plotters cannot draw.
pub fn of_test(
    about: &Description,
    lines: &[PlotLine<'_>],
) -> Result<Vec<(String, String)>, Error> {
    let units: BTreeSet<Unit> = lines.iter().map(|line| line.series.unit).collect();
    let default: Vec<_> = units.into_iter().map(Figure::of).collect();
    let figures = if about.figures.is_empty() { &default } else { &about.figures };
    let mut plots = Vec::new();
    for figure in figures {
        let is_in = |line: &&PlotLine<'_>| {
            line.series.unit == figure.unit
                && (figure.series.is_empty() || figure.series.contains(&line.series.series))
        };
        let lines: Vec<_> = lines.iter().filter(is_in).copied().collect();
        if lines.iter().any(|line| !line.series.points.is_empty()) {
            let nth = plots.len() + 1;
            let name = if nth == 1 { about.name.clone() } else { format!("{}-{nth}", about.name) };
            plots.push((name, draw(about, figure, &lines)?));
        }
    }
    Ok(plots)
}

/// One plot.
fn draw(about: &Description, figure: &Figure, lines: &[PlotLine<'_>]) -> Result<String, Error> {
    let shown = &lines[..lines.len().min(LINES_MAX)];
    let points = || shown.iter().flat_map(|line| line.series.points.iter().copied());
    let x = Axis::over(points().map(|point| point.0), figure.log_x);
    let y = Axis::over(points().map(|point| point.1), false);
    let helps = y.least_positive < f64::INFINITY && y.range.end > LOG_FROM * y.least_positive;
    let y = if figure.log_y.unwrap_or(helps) {
        Axis::over(points().map(|point| point.1), true)
    } else {
        // From zero: a picture of latency must not make much of little.
        Axis { range: y.range.start.min(0.0)..y.range.end * 1.05, ..y }
    };
    let mut title = about.title.clone();
    if !figure.title.is_empty() {
        let _ = write!(title, ": {}", figure.title);
    }
    if lines.len() > LINES_MAX {
        let _ = write!(title, " ({} of {} lines)", LINES_MAX, lines.len());
    }
    let legend = Legend::of(&names(shown));
    let frame = Frame { title: &title, x_title: &about.x, unit: figure.unit, top: legend.height() };
    // For a growth many dots with their medians on top; otherwise the dots are the line.
    let clouds = about.judge == Judge::Growth && !figure.lines;
    let paint = Paint { lines: shown, clouds, x: x.clone(), y: y.clone() };
    let (svg, over) = match (x.is_log, y.is_log) {
        (false, false) => frame.draw(x.range, y.range, &paint),
        (true, false) => frame.draw(x.range.log_scale(), y.range, &paint),
        (false, true) => frame.draw(x.range, y.range.log_scale(), &paint),
        (true, true) => frame.draw(x.range.log_scale(), y.range.log_scale(), &paint),
    }?;
    let body = svg.trim_end().strip_suffix("</svg>").unwrap_or(&svg);
    // Long titles still fit the width.
    let size = match title.chars().count() {
        0..=72 => 18,
        73..=90 => 15,
        _ => 12,
    };
    let title = escape(&title);
    Ok(format!(
        "{body}{over}{}<text x=\"{LEFT}\" y=\"26\" font-family=\"sans-serif\" font-size=\"{size}\" \
         font-weight=\"bold\" fill=\"#111111\">{title}</text>\n</svg>\n",
        legend.svg
    ))
}

/// A step: 15000 is 15,000.
fn plain(value: f64) -> String {
    if value.fract() != 0.0 || value.abs() >= 1e15 {
        // Ticks are multiples of steps such as 0.2, which binary fractions only come near to.
        let near = (value * 1e6).round() / 1e6;
        return if near == 0.0 { value } else { near }.to_string();
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        let left = digits.len() - nth;
        if nth > 0 && left % 3 == 0 && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A value without zeros that say nothing: "10.0 µs" is "10 µs".
fn short(shown: &str) -> String {
    let (number, unit) = shown.split_at(shown.find(' ').unwrap_or(shown.len()));
    if number.contains('.') {
        format!("{}{unit}", number.trim_end_matches('0').trim_end_matches('.'))
    } else {
        shown.to_owned()
    }
}

/// The span of an axis.
#[derive(Clone, Debug)]
struct Axis {
    range: Range<f64>,
    least_positive: f64,
    is_log: bool,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, log: bool) -> Self {
        let (mut low, mut high, mut least_positive) =
            (f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY);
        for value in values.filter(|value| value.is_finite()) {
            low = low.min(value);
            high = high.max(value);
            if value > 0.0 {
                least_positive = least_positive.min(value);
            }
        }
        let is_log = log && least_positive < high && high < HUGE;
        let range = if is_log {
            (least_positive / 1.2).max(high / DECADES_MAX)..high * 1.2
        } else if low < high {
            low..high
        } else if low > high {
            // No value could be drawn.
            0.0..1.0
        } else {
            low.min(0.0)..high.max(low + 1.0)
        };
        Self { range, least_positive, is_log }
    }

    /// The position of a value: on a logarithmic axis zero is drawn at the edge.
    fn clamp(&self, value: f64) -> f64 {
        value.clamp(self.range.start, self.range.end)
    }
}

/// Everything around the points.
struct Frame<'a> {
    /// For messages.
    title: &'a str,
    x_title: &'a str,
    unit: Unit,
    /// Pixels for the legend.
    top: u32,
}

type Chart<'a, 'b, X, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>;

impl Frame<'_> {
    /// The SVG with title and axes, and the markers to be drawn over it.
    fn draw<X, Y>(&self, x: X, y: Y, paint: &Paint<'_>) -> Result<(String, String), Error>
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64> + Tick,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64> + Tick,
    {
        let mut svg = String::new();
        let over = {
            let size = (WIDTH, HEIGHT + self.top);
            let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            self.axes(&root, x, y, paint)
        }
        .map_err(|error| format!("cannot draw the plot \"{}\": {error}", self.title))?;
        Ok((svg, over))
    }

    fn axes<'a, X, Y>(
        &self,
        root: &plotters::drawing::DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
        x: X,
        y: Y,
        paint: &Paint<'_>,
    ) -> Result<String, String>
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64> + Tick,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64> + Tick,
    {
        let plotters = |error: &dyn core::fmt::Display| error.to_string();
        root.fill(&plotters::style::WHITE).map_err(|e| plotters(&e))?;
        let mut chart: Chart<'_, 'a, _, _> = ChartBuilder::on(root)
            .margin(12)
            .margin_right(28)
            .margin_top(TITLE + self.top)
            .x_label_area_size(48)
            .y_label_area_size(86)
            .build_cartesian_2d(x, y)
            .map_err(|e| plotters(&e))?;
        chart
            .configure_mesh()
            .x_desc(self.x_title)
            .x_labels(10)
            .y_labels(8)
            .x_max_light_lines(if X::CoordDescType::IS_LOG { 9 } else { 0 })
            .y_max_light_lines(if Y::CoordDescType::IS_LOG { 9 } else { 0 })
            .light_line_style(RGBColor(240, 240, 240))
            .bold_line_style(RGBColor(215, 215, 215))
            .label_style(("sans-serif", 13))
            .axis_desc_style(("sans-serif", 14))
            .x_label_formatter(&|value| plain(*value))
            .y_label_formatter(&|value| short(&self.unit.show(*value)))
            .draw()
            .map_err(|e| plotters(&e))?;
        let over = paint.over(&|x, y| chart.backend_coord(&(x, y)));
        root.present().map_err(|e| plotters(&e))?;
        Ok(over)
    }
}

/// Tells whether to draw light lines between the powers of ten.
trait Tick {
    const IS_LOG: bool;
}

impl Tick for RangedCoordf64 {
    const IS_LOG: bool = false;
}

impl Tick for LogCoord<f64> {
    const IS_LOG: bool = true;
}

/// The points.
struct Paint<'a> {
    lines: &'a [PlotLine<'a>],
    clouds: bool,
    x: Axis,
    y: Axis,
}

impl Paint<'_> {
    /// All markers; `place` turns values into pixels.
    fn over(&self, place: &dyn Fn(f64, f64) -> (i32, i32)) -> String {
        let place = |(x, y): (f64, f64)| place(self.x.clamp(x), self.y.clamp(y));
        let finite = |series: &Series| -> Vec<(f64, f64)> {
            series.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect()
        };
        let mut svg = String::new();
        if self.clouds {
            for (nth, line) in self.lines.iter().enumerate() {
                // Points on the same pixel are drawn once.
                let pixels: BTreeSet<_> = finite(line.series).into_iter().map(place).collect();
                let _ = write!(
                    svg,
                    r#"<path fill="none" stroke="{}" stroke-opacity="0.45" stroke-width="2.2" stroke-linecap="round" d=""#,
                    Style::of(nth).shade
                );
                for (x, y) in pixels {
                    let _ = write!(svg, "M{x} {y}h0");
                }
                svg.push_str("\"/>\n");
            }
        }
        for (nth, line) in self.lines.iter().enumerate() {
            let style = Style::of(nth);
            let points = finite(line.series);
            let medians = fit::trend(&points);
            let points = if self.clouds && !medians.is_empty() { medians } else { points };
            let pixels: Vec<_> = points.iter().copied().map(place).collect();
            style.line(&mut svg, &pixels);
            // The markers of different lines are at different steps, so that none hides another.
            let every = pixels.len().div_ceil(MARKED_MAX);
            for pixel in pixels.iter().skip(nth % every.max(1)).step_by(every.max(1)) {
                style.mark(&mut svg, *pixel);
            }
        }
        svg
    }
}

/// The style of a line.
#[derive(Clone, Copy)]
struct Style {
    shade: &'static str,
    dash: &'static str,
    marker: usize,
}

/// Dark to light in turns, so that neighbours differ in grey as well as in hue.
const SHADES: [&str; 6] = ["#111111", "#d1495b", "#3a86c8", "#8a6d00", "#7b2d8b", "#2a9d5c"];
const DASHES: [&str; 4] = ["", "7 3", "2 3", "9 3 2 3"];
const MARKERS: usize = 8;

impl Style {
    fn of(nth: usize) -> Self {
        Self {
            shade: SHADES[nth % SHADES.len()],
            dash: DASHES[(nth / SHADES.len() + nth) % DASHES.len()],
            marker: nth % MARKERS,
        }
    }

    fn line(self, svg: &mut String, pixels: &[(i32, i32)]) {
        if pixels.len() < 2 {
            return;
        }
        let points: Vec<_> = pixels.iter().map(|(x, y)| format!("{x},{y}")).collect();
        let points = points.join(" ");
        // White beneath sets it off from the dots, and lets other lines shine through.
        for (shade, width, dash) in
            [("#ffffff\" stroke-opacity=\"0.6", 4.0, ""), (self.shade, 1.8, self.dash)]
        {
            let _ = writeln!(
                svg,
                r#"<polyline fill="none" stroke="{shade}" stroke-width="{width}" stroke-dasharray="{dash}" points="{points}"/>"#
            );
        }
    }

    fn mark(self, svg: &mut String, (x, y): (i32, i32)) {
        let shade = self.shade;
        let (path, fill) = match self.marker {
            0 => ("m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", shade),
            1 => ("m-4 -4h8v8h-8z", "#ffffff"),
            2 => ("m0 -5l5 9h-10z", shade),
            3 => ("m0 -5l5 5l-5 5l-5 -5z", "#ffffff"),
            4 => ("m-4 -4l8 8m0 -8l-8 8", "none"),
            5 => ("m0 5l5 -9h-10z", "#ffffff"),
            6 => ("m-4 -4h8v8h-8z", shade),
            _ => ("m0 -5v10m-5 -5h10", "none"),
        };
        let _ = writeln!(
            svg,
            r#"<path d="M{x} {y}{path}" fill="{fill}" stroke="{shade}" stroke-width="1.6"/>"#
        );
    }
}

/// The names of the lines, in rows beneath the title.
struct Legend {
    svg: String,
    rows: u32,
}

impl Legend {
    fn of(names: &[String]) -> Self {
        /// About a letter's width at the size below.
        const LETTER: usize = 7;
        const MARK: usize = 44;
        let (mut svg, mut x, mut row) = (String::new(), LEFT, 0_u32);
        for (nth, name) in names.iter().enumerate() {
            let width = MARK + name.chars().count() * LETTER + 14;
            if x + width > WIDTH as usize - 20 && x > LEFT {
                (x, row) = (LEFT, row + 1);
            }
            let y = i32::try_from(TITLE + 12 + row * LEGEND_LINE).unwrap_or(i32::MAX);
            let left = i32::try_from(x).unwrap_or(i32::MAX);
            let style = Style::of(nth);
            style.line(&mut svg, &[(left, y), (left + 32, y)]);
            style.mark(&mut svg, (left + 16, y));
            let _ = writeln!(
                svg,
                r##"<text x="{}" y="{}" font-family="sans-serif" font-size="13" fill="#111111">{}</text>"##,
                left + 40,
                y + 4,
                escape(name)
            );
            x += width;
        }
        Self { svg, rows: row + 1 }
    }

    fn height(&self) -> u32 {
        self.rows * LEGEND_LINE + 8
    }
}

/// Text within XML and HTML.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Test;

    fn series(system: &str, unit: Unit, points: Vec<(f64, f64)>) -> Series {
        let (test, series) = ("t".to_owned(), "s".to_owned());
        Series { test, system: system.to_owned(), series, unit, points }
    }

    fn plots(test: &Test, all: &[Series]) -> Vec<(String, String)> {
        let lines: Vec<_> = all.iter().map(|series| PlotLine { run: None, series }).collect();
        of_test(test.about(), &lines).unwrap()
    }

    #[test]
    fn each_unit_has_its_plot_with_title_legend_and_dots() {
        let steps = |scale: f64| (1..500).map(|x| (f64::from(x), scale * f64::from(x))).collect();
        let all = [
            series("one & two", Unit::Nanoseconds, steps(10.0)),
            series("<three>", Unit::Nanoseconds, steps(1e6)),
            series("four", Unit::Bytes, steps(1.0)),
        ];
        let plots = plots(&Test::new("t", "Cost of it", |_| Ok(())), &all);
        let names: Vec<_> = plots.iter().map(|(name, _)| &name[..]).collect();
        assert_eq!(names, ["t", "t-2"]);
        let svg = &plots[0].1;
        for part in ["Cost of it", "one &amp; two", "&lt;three&gt;", "M", "</svg>"] {
            assert!(svg.contains(part), "{part} is not in it");
        }
        assert!(!svg.contains("four"));
        assert_eq!(svg.matches("</svg>").count(), 1);
    }

    #[test]
    fn a_legend_says_no_more_than_differs_in_its_figure() {
        let one = series("a", Unit::Count, Vec::new());
        let other = Series { series: "other".to_owned(), ..one.clone() };
        let line = |series, run| PlotLine { run, series };
        assert_eq!(names(&[line(&one, None)]), ["a"]);
        assert_eq!(names(&[line(&one, Some("r")), line(&one, Some("q"))]), ["a, r", "a, q"]);
        let both = [line(&one, None), line(&other, Some("r"))];
        assert_eq!(names(&both), ["a, s", "a, other, r"]);
        assert!(names(&[]).is_empty());
    }

    #[test]
    fn labels_are_short() {
        for (shown, want) in
            [("10.0 µs", "10 µs"), ("1.20 ms", "1.2 ms"), ("100 ns", "100 ns"), ("10.0", "10")]
        {
            assert_eq!(short(shown), want);
        }
        for (value, want) in
            [(15_000.0, "15,000"), (200.0, "200"), (-1000.0, "-1,000"), (0.5, "0.5")]
        {
            assert_eq!(plain(value), want);
        }
    }

    #[test]
    fn odd_values_are_drawn_all_the_same() {
        let test = Test::new("t", "T", |_| Ok(()))
            .figure(Figure::of(Unit::Count).log_x().log_y(true))
            .figure(Figure::of(Unit::Count).lines());
        let odd = [
            vec![(1.0, 1.0)],
            vec![(0.0, 0.0), (1.0, 0.0)],
            vec![(1.0, f64::NAN), (2.0, f64::INFINITY), (3.0, -5.0)],
            vec![(5.0, 1e300), (5.0, 1e-300)],
            vec![(5.0, f64::NAN)],
        ];
        for points in odd {
            assert_eq!(plots(&test, &[series("a", Unit::Count, points)]).len(), 2);
        }
        assert_eq!(plots(&test, &[series("a", Unit::Count, Vec::new())]).len(), 0);
    }

    #[test]
    fn more_lines_than_can_be_told_apart_are_left_out_aloud() {
        let all: Vec<_> = (0..LINES_MAX + 3)
            .map(|n| series(&format!("s{n}"), Unit::Count, vec![(1.0, 1.0), (2.0, 2.0)]))
            .collect();
        let plots = plots(&Test::new("t", "T", |_| Ok(())), &all);
        assert!(plots[0].1.contains("(24 of 27 lines)"));
    }
}
