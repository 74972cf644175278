//! Plots, drawn as SVG. The same numbers give the same bytes.

use std::fmt;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const WIDTH: u32 = 860;
const HEIGHT: u32 = 440;
const LEGEND: u32 = 230;
const LEGEND_LINE: i32 = 20;
/// A linear axis whose values are all closer to zero than this shows 0 to 1.
const LEAST: f64 = 1e-9;
const LEGEND_COLUMNS: usize = 30;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(40, 40, 40);
const FAINT: RGBColor = RGBColor(225, 225, 225);
/// Colours that colour-blind readers can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
];

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// The title, in one line.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines, in the order of the legend.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The label of the axis, with the unit.
    pub label: String,
    /// The scale of the axis.
    pub scale: Scale,
}

/// The scale of an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Linear, from zero (or from the smallest value, if that is negative).
    Linear,
    /// Logarithmic; values of zero and below are omitted.
    Log,
    /// By name: the value 0 is the first name, 1 the second. Names on the horizontal axis give
    /// bars; names on both axes give a map of tiles, coloured by series.
    Names(Vec<String>),
}

/// A line of a plot, or a set of bars or tiles.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The label in the legend.
    pub label: String,
    /// The source of the values. It determines the style.
    pub origin: Origin,
    /// The points, in the order in which they are connected.
    pub points: Vec<(f64, f64)>,
}

/// The source of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A paper: hollow markers, dashed lines.
    Published,
    /// An equation: dashed lines without markers.
    Model,
    /// Our simulation: a solid line with filled markers (without markers if there are many points).
    Simulated,
    /// Our emulation with real sockets: crosses (a line if there are many points).
    Emulated,
}

/// A plot that cannot be drawn.
#[derive(Debug)]
pub struct PlotError(String);

impl fmt::Display for PlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the plot cannot be drawn: {}", self.0)
    }
}

impl std::error::Error for PlotError {}

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for PlotError {
    fn from(error: DrawingAreaErrorKind<E>) -> PlotError {
        PlotError(error.to_string())
    }
}

impl Axis {
    /// A linear axis.
    pub fn linear(label: &str) -> Axis {
        Axis { label: label.into(), scale: Scale::Linear }
    }

    /// A logarithmic axis.
    pub fn log(label: &str) -> Axis {
        Axis { label: label.into(), scale: Scale::Log }
    }

    /// An axis of names.
    pub fn names(label: &str, names: impl IntoIterator<Item = impl Into<String>>) -> Axis {
        let names = names.into_iter().map(Into::into).collect();
        Axis { label: label.into(), scale: Scale::Names(names) }
    }

    fn range(&self, values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
        if let Scale::Names(names) = &self.scale {
            return -0.5..names.len() as f64 - 0.5;
        }
        let log = self.scale == Scale::Log;
        let shown = values.filter(|value| value.is_finite() && (!log || *value > 0.0));
        let (low, high) = shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        if low > high {
            return if log { 1.0..10.0 } else { 0.0..1.0 };
        }
        match log {
            true => low / 1.2..high * 1.2,
            // A range of almost zero would give endless ticks.
            false if high.max(-low) < LEAST => 0.0..1.0,
            false => low.min(0.0)..high + (high - low.min(0.0)) * 0.06,
        }
    }

    fn tick(&self, value: f64) -> String {
        if let Scale::Names(names) = &self.scale {
            let near = value.round();
            let named = (value - near).abs() < 0.01 && near >= 0.0;
            return if named { names.get(near as usize).cloned() } else { None }
                .unwrap_or_default();
        }
        // A logarithmic axis has labels at 1, 2 and 5 times a power of ten: there is no room for
        // more.
        let leading = value / libm::pow(10.0, libm::log10(value).floor());
        if self.scale == Scale::Log && ![1, 2, 5].contains(&(leading.round() as u32)) {
            return String::new();
        }
        let digits = match value.abs() {
            v if v >= 10.0 || v == 0.0 => 0,
            v if v >= 1.0 => 1,
            v if v >= 0.1 => 2,
            _ => 4,
        };
        let text = format!("{value:.digits$}");
        match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text,
        }
    }
}

impl Series {
    /// Creates a series from its points.
    pub fn new(
        label: impl Into<String>,
        origin: Origin,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Series {
        Series { label: label.into(), origin, points: points.into_iter().collect() }
    }
}

impl Plot {
    /// The plot as an SVG document.
    ///
    /// # Errors
    /// [`PlotError`] if the drawing library fails.
    pub fn svg(&self) -> Result<String, PlotError> {
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
            root.fill(&WHITE)?;
            let (chart, legend) = root.split_horizontally(WIDTH - LEGEND);
            self.draw(&chart)?;
            self.draw_legend(&legend)?;
            root.present()?;
        }
        Ok(svg)
    }

    fn draw(&self, area: &Area<'_, '_>) -> Result<(), PlotError> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x = self.x.range(points().map(|point| point.0));
        let y = self.y.range(points().map(|point| point.1));
        match (&self.x.scale, &self.y.scale) {
            (Scale::Log, Scale::Log) => self.draw_over(area, x.log_scale(), y.log_scale()),
            (Scale::Log, _) => self.draw_over(area, x.log_scale(), y),
            (_, Scale::Log) => self.draw_over(area, x, y.log_scale()),
            (_, _) => self.draw_over(area, x, y),
        }
    }

    fn draw_over<X, Y>(&self, area: &Area<'_, '_>, x: X, y: Y) -> Result<(), PlotError>
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 16).into_font().color(&INK))
            .margin(12)
            .x_label_area_size(46)
            .y_label_area_size(64)
            .build_cartesian_2d(x, y)?;
        let ticks = match &self.x.scale {
            Scale::Names(names) => names.len() * 2 + 1,
            _ => 10,
        };
        let label = (FONT, 12).into_font().color(&INK);
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(FAINT)
            .axis_style(INK)
            .x_labels(ticks)
            .y_labels(if let Scale::Names(names) = &self.y.scale {
                names.len() * 2 + 1
            } else {
                10
            })
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .x_label_formatter(&|value| self.x.tick(*value))
            .y_label_formatter(&|value| self.y.tick(*value))
            .label_style(label.clone())
            .axis_desc_style((FONT, 13).into_font().color(&INK))
            .draw()?;
        let bars = matches!(self.x.scale, Scale::Names(_));
        for (index, series) in self.series.iter().enumerate() {
            let look = self.look(index);
            let points = series.points.iter().copied().filter(|point| self.shows(*point));
            if bars {
                let (left, width) = self.bar(index);
                chart.draw_series(points.flat_map(|(x, y)| {
                    let corners = self.corners((x, y), left, width);
                    let ground = look.colour.mix(look.ground);
                    let filled = Rectangle::new(corners, ground.filled());
                    [filled, Rectangle::new(corners, look.colour.stroke_width(1))]
                }))?;
                continue;
            }
            let points: Vec<(f64, f64)> = points.collect();
            if look.dashed {
                let style = look.colour.stroke_width(2);
                chart.draw_series(DashedLineSeries::new(points.iter().copied(), 6, 4, style))?;
            } else if look.line {
                let style = look.colour.stroke_width(2);
                chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
            }
            for point in points {
                let area = chart.plotting_area();
                look.mark(area, point)?;
            }
        }
        Ok(())
    }

    /// A bar from zero up to `y`, or a tile of a map if both axes have names.
    fn corners(&self, (x, y): (f64, f64), left: f64, width: f64) -> [(f64, f64); 2] {
        match self.y.scale {
            Scale::Names(_) => [(x - 0.48, y - 0.46), (x + 0.48, y + 0.46)],
            _ => [(x + left, 0.0), (x + left + width, y)],
        }
    }

    /// The offset and width of a series' bar within its group.
    fn bar(&self, index: usize) -> (f64, f64) {
        let width = 0.8 / self.series.len() as f64;
        (-0.4 + width * index as f64, width)
    }

    fn shows(&self, (x, y): (f64, f64)) -> bool {
        let fits = |axis: &Axis, value: f64| axis.scale != Scale::Log || value > 0.0;
        x.is_finite() && y.is_finite() && fits(&self.x, x) && fits(&self.y, y)
    }

    fn look(&self, index: usize) -> Look {
        let series = &self.series[index];
        let colour = COLOURS[index % COLOURS.len()];
        let many = series.points.len() > 40;
        let (mark, line, dashed, ground) = match series.origin {
            Origin::Published => (Mark::Hollow, false, true, 0.0),
            Origin::Model => (Mark::None, false, true, 0.2),
            Origin::Simulated if many => (Mark::None, true, false, 1.0),
            Origin::Simulated => (Mark::Full, true, false, 1.0),
            Origin::Emulated if many => (Mark::None, true, false, 0.5),
            Origin::Emulated => (Mark::Cross, false, false, 0.5),
        };
        Look { colour, mark, line, dashed, ground }
    }

    fn draw_legend(&self, area: &Area<'_, '_>) -> Result<(), PlotError> {
        let font = (FONT, 12).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
        let mut y = 50;
        for (index, series) in self.series.iter().enumerate() {
            let look = self.look(index);
            let style = look.colour.stroke_width(2);
            if matches!(self.x.scale, Scale::Names(_)) {
                let corners = [(4, y - 6), (30, y + 6)];
                area.draw(&Rectangle::new(corners, look.colour.mix(look.ground).filled()))?;
                area.draw(&Rectangle::new(corners, look.colour.stroke_width(1)))?;
            } else {
                let ends = match (look.dashed, look.line) {
                    (true, _) => vec![(4, 11), (23, 30)],
                    (false, true) => vec![(4, 30)],
                    (false, false) => vec![],
                };
                for (from, to) in ends {
                    area.draw(&PathElement::new([(from, y), (to, y)], style))?;
                }
                look.mark(area, (17, y))?;
            }
            for line in folded(&series.label) {
                area.draw(&Text::new(line, (38, y), font.clone()))?;
                y += LEGEND_LINE;
            }
        }
        Ok(())
    }
}

type Backend<'a> = SVGBackend<'a>;
type Area<'a, 'b> = DrawingArea<Backend<'b>, Shift>;

#[derive(Clone, Copy)]
struct Look {
    colour: RGBColor,
    mark: Mark,
    line: bool,
    dashed: bool,
    /// The opacity of a bar's fill.
    ground: f64,
}

#[derive(Clone, Copy)]
enum Mark {
    None,
    Hollow,
    Full,
    Cross,
}

impl Look {
    fn mark<C: CoordTranslate>(
        &self,
        area: &DrawingArea<Backend<'_>, C>,
        at: C::From,
    ) -> Result<(), PlotError>
    where
        C::From: Clone,
    {
        let pen = self.colour.stroke_width(2);
        match self.mark {
            Mark::None => {}
            Mark::Hollow => {
                area.draw(&Circle::new(at.clone(), 4, WHITE.filled()))?;
                area.draw(&Circle::new(at, 4, pen))?;
            }
            Mark::Full => area.draw(&Circle::new(at, 4, self.colour.filled()))?,
            Mark::Cross => area.draw(&Cross::new(at, 5, pen))?,
        }
        Ok(())
    }
}

fn folded(label: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in label.split(' ') {
        let line = lines.last_mut().expect("there is one from the start");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > LEGEND_COLUMNS {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(x: Axis, y: Axis) -> Plot {
        let published = Series::new("published", Origin::Published, [(1.0, 90.0), (10.0, 80.0)]);
        let model = Series::new("model, equation 4", Origin::Model, [(1.0, 95.0), (10.0, 85.0)]);
        let ours = Series::new("simulated", Origin::Simulated, [(1.0, 92.0), (10.0, 81.0)]);
        let series = vec![published, model, ours];
        Plot { title: "Share against size".into(), x, y, series }
    }

    #[test]
    fn a_plot_drawn_twice_gives_the_same_bytes_and_contains_its_labels() {
        let plot = example(Axis::log("payload, MB"), Axis::linear("goodput, Mbit/s"));
        let svg = plot.svg().unwrap();
        assert_eq!(svg, plot.svg().unwrap());
        for word in ["payload, MB", "goodput, Mbit/s", "Share against size", "model, equation 4"] {
            assert!(svg.contains(word), "{word}");
        }
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn each_kind_of_x_axis_is_drawn_with_a_linear_or_log_y_axis_also_without_series() {
        let axes = || [Axis::linear("a"), Axis::log("b")];
        for x in axes().into_iter().chain([Axis::names("c", ["one", "two"])]) {
            for y in axes() {
                let mut plot = example(x.clone(), y);
                assert!(plot.svg().unwrap().contains("circle") || x.scale != Scale::Linear);
                plot.series[0].points.push((0.0, f64::NAN));
                plot.svg().unwrap();
                plot.series.clear();
                plot.svg().unwrap();
            }
        }
    }

    #[test]
    fn a_plot_with_a_largest_value_from_a_ten_billionth_to_ten_million_is_drawn() {
        let mut top = 1e-10;
        while top < 1e7 {
            let points = [(1.0, 0.0), (8.0, top)];
            let series = vec![Series::new("ours", Origin::Simulated, points)];
            let (x, y) = (Axis::linear("x"), Axis::linear("y"));
            let svg = Plot { title: String::new(), x, y, series }.svg();
            assert!(svg.is_ok_and(|svg| svg.contains("circle")), "{top}");
            top *= 1.37;
        }
    }

    #[test]
    fn published_model_and_simulated_series_look_different() {
        let plot = example(Axis::linear("x"), Axis::linear("y"));
        let looks: Vec<Look> = (0..3).map(|index| plot.look(index)).collect();
        assert!(matches!(looks[0].mark, Mark::Hollow) && looks[0].dashed);
        assert!(matches!(looks[1].mark, Mark::None) && looks[1].dashed);
        assert!(matches!(looks[2].mark, Mark::Full) && looks[2].line);
    }

    #[test]
    fn a_tick_has_as_many_digits_as_it_needs() {
        let axis = Axis::linear("x");
        let ticks = [0.0, 0.25, 1.5, 2.0, 400.0, 0.0002].map(|value| axis.tick(value));
        assert_eq!(ticks, ["0", "0.25", "1.5", "2", "400", "0.0002"]);
        assert_eq!([0.5, 40.0, 200.0].map(|v| Axis::log("x").tick(v)), ["0.5", "", "200"]);
        assert_eq!(Axis::names("x", ["one"]).tick(0.0), "one");
        assert_eq!(Axis::names("x", ["one"]).tick(0.5), "");
    }

    #[test]
    fn a_long_label_continues_in_the_next_line() {
        let lines = folded("RBUDP with scatter and gather, simulated");
        assert_eq!(lines, ["RBUDP with scatter and gather,", "simulated"]);
    }
}
