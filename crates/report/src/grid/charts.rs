//! Charts as SVG.
//!
//! A colour in the SVG stands for a place in the palette: [`style`] says what is seen for it, on light and on dark paper, and which
//! dashes tell lines apart where no colour does.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use study::{Estimate, Interval};

use ascribe_study as study;

/// A place in the palette.
struct Look {
    /// On light paper and in print.
    light: RGBColor,
    /// On dark paper.
    dark: &'static str,
    /// Dashes of its lines.
    dash: &'static str,
}

/// Lines that one figure holds: more are not told apart.
pub(super) const MOST_LINES: usize = PALETTE.len();

/// The hues of Okabe and Ito 2008, which are told apart without red or green; darker on light paper and lighter on dark paper than
/// theirs, so that each has a contrast of 3:1.
const PALETTE: [Look; 7] = [
    Look { light: RGBColor(0x00, 0x72, 0xB2), dark: "#56b4e9", dash: "none" },
    Look { light: RGBColor(0xD5, 0x5E, 0x00), dark: "#ff9a5c", dash: "9 4" },
    Look { light: RGBColor(0x00, 0x86, 0x62), dark: "#3fcf9f", dash: "3 3" },
    Look { light: RGBColor(0xA8, 0x45, 0x7F), dark: "#f0a3cd", dash: "12 4 3 4" },
    Look { light: RGBColor(0x8F, 0x6B, 0x00), dark: "#f0e442", dash: "6 2 2 2 2 2" },
    Look { light: RGBColor(0x3B, 0x4C, 0xC0), dark: "#9db2ff", dash: "16 5" },
    Look { light: RGBColor(0x5F, 0x66, 0x6E), dark: "#b8c1cb", dash: "1 4" },
];
const INK: RGBColor = RGBColor(0x1B, 0x1F, 0x24);
const GRID: RGBColor = RGBColor(0xD4, 0xD9, 0xDF);

const WIDTH: u32 = 760;
const FONT: f64 = 15.0;

/// A colour as it stands in the SVG.
pub(super) fn colour(place: usize) -> String {
    hex(PALETTE[place % MOST_LINES].light)
}

fn hex(RGBColor(r, g, b): RGBColor) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

/// What is seen for the colours of charts.
pub(super) fn style() -> String {
    let mut out = String::from(
        "svg.chart, svg.key { max-width: 100%; height: auto; overflow: visible; }\nsvg.chart text { font-family: inherit; }\n",
    );
    for (colour, variable) in [(INK, "--ink"), (GRID, "--line")] {
        let colour = hex(colour);
        out += &format!(
            "svg [stroke=\"{colour}\"] {{ stroke: var({variable}); }} svg [fill=\"{colour}\"] {{ fill: var({variable}); }}\n"
        );
    }
    for (i, look) in PALETTE.iter().enumerate() {
        let colour = hex(look.light);
        out += &format!(
            "svg [stroke=\"{colour}\"] {{ stroke: var(--series-{i}); }} svg [fill=\"{colour}\"] {{ fill: var(--series-{i}); }} \
             .lines polyline[stroke=\"{colour}\"], .key polyline[stroke=\"{colour}\"] {{ stroke-dasharray: {}; }}\n",
            look.dash
        );
    }
    let variables = |of: &dyn Fn(&Look) -> String| -> String {
        PALETTE.iter().enumerate().map(|(i, look)| format!("--series-{i}: {}; ", of(look))).collect()
    };
    let light = variables(&|look| hex(look.light));
    let dark = variables(&|look| look.dark.to_string());
    out += &format!(
        ":root {{ {light}}}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark}}} }}\n@media print {{ :root {{ {light}}} }}\n"
    );
    out
}

/// A line with its band.
pub(super) struct Line {
    /// Place in the palette.
    pub place: usize,
    /// What stands at its end.
    pub key: String,
    /// Positions, ascending, and the estimate at each.
    pub points: Vec<(f64, Estimate)>,
}

/// What a chart's axes say.
pub(super) struct Axes<'a> {
    /// Below.
    pub x: &'a str,
    /// Beside.
    pub y: &'a str,
    /// Where the vertical axis ends, whatever the numbers do.
    pub bounds: (f64, f64),
    /// Whether a number holds until the next position.
    pub steps: bool,
}

/// Lines with bands.
///
/// # Errors
/// Why there is no chart, in words.
pub(super) fn lines(axes: &Axes<'_>, lines: &[Line]) -> Result<String, String> {
    let x = span(lines.iter().flat_map(|line| line.points.iter().map(|(x, _)| *x)), 0.0)?;
    let y = span(lines.iter().flat_map(|line| line.points.iter().flat_map(|(_, estimate)| ends(estimate))), 0.06)?;
    // A little beyond the bounds: a line along an axis is not seen.
    let beyond = (y.1 - y.0) * 0.02;
    let y = (y.0.max(axes.bounds.0 - beyond), y.1.min(axes.bounds.1 + beyond));
    draw((WIDTH, 360), |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .margin_right(34)
            .x_label_area_size(46)
            .y_label_area_size(64)
            .build_cartesian_2d(x.0..x.1, y.0..y.1)?;
        chart
            .configure_mesh()
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .label_style(text(FONT))
            .axis_desc_style(text(FONT))
            .x_labels(8)
            .y_labels(6)
            .x_label_formatter(&|x| short(*x))
            .y_label_formatter(&|y| short(*y))
            .x_desc(axes.x)
            .y_desc(axes.y)
            .draw()?;
        for line in lines {
            let low = line.points.iter().filter_map(|(x, of)| of.interval.map(|Interval { low, .. }| (*x, low)));
            let high = line.points.iter().filter_map(|(x, of)| of.interval.map(|Interval { high, .. }| (*x, high)));
            let mut band = path(low, axes.steps);
            band.extend(path(high, axes.steps).into_iter().rev());
            if band.len() > 2 {
                chart.draw_series([Polygon::new(band, PALETTE[line.place].light.mix(0.16).filled())])?;
            }
        }
        let mut labels = Vec::new();
        let mut taken = Vec::new();
        for line in lines {
            let colour = PALETTE[line.place].light;
            let points = path(line.points.iter().map(|(x, of)| (*x, of.point)), axes.steps);
            let Some(end) = points.last().copied() else { continue };
            labels.push((chart.backend_coord(&end), line));
            if line.points.len() == 1 {
                chart.draw_series([Circle::new(end, 4, colour.filled())])?;
            }
            chart.draw_series([PathElement::new(points, colour.stroke_width(2))])?;
        }
        let (top, bottom) = (chart.backend_coord(&(x.1, y.1)).1, chart.backend_coord(&(x.1, y.0)).1);
        for ((right, at), line) in labels {
            let style = text(FONT).color(&PALETTE[line.place].light).pos(Pos::new(HPos::Left, VPos::Center));
            root.draw(&Text::new(line.key.clone(), free_place(&mut taken, (right + 7, at), top, bottom), style))?;
        }
        Ok(())
    })
}

/// Where a label hides no other: at its place, or as near above or below as there is room between `top` and `bottom`.
fn free_place(taken: &mut Vec<(i32, i32)>, (x, y): (i32, i32), top: i32, bottom: i32) -> (i32, i32) {
    const HIGH: i32 = 15;
    const WIDE: i32 = 24;
    let free = |at: i32| taken.iter().all(|(right, middle)| (right - x).abs() >= WIDE || (middle - at).abs() >= HIGH);
    let near = (0..=(bottom - top).max(0)).flat_map(|d| [y - d, y + d]);
    let at = near.filter(|at| (top..=bottom).contains(at)).find(|at| free(*at)).unwrap_or(y);
    taken.push((x, at));
    (x, at)
}

/// A row of a chart of intervals.
pub(super) struct Row {
    /// What stands beside it.
    pub label: String,
    /// Place in the palette.
    pub place: usize,
    /// Its numbers: a full circle, and a hollow one below it.
    pub estimates: Vec<Estimate>,
}

/// Intervals, one row below the other.
///
/// * `reference`: where a line stands across all rows.
///
/// # Errors
/// Why there is no chart, in words.
pub(super) fn intervals(label: &str, reference: Option<f64>, rows: &[Row]) -> Result<String, String> {
    const ROW: u32 = 38;
    const MOST_LETTERS: usize = 44;
    let x = span(rows.iter().flat_map(|row| row.estimates.iter().flat_map(ends)).chain(reference), 0.06)?;
    let shown: Vec<String> = rows.iter().map(|row| shortened(&study::visible(&row.label), MOST_LETTERS)).collect();
    let letters = shown.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    let left = 20 + 8 * u32::try_from(letters).unwrap_or(0);
    let n = rows.len();
    draw((WIDTH, ROW * u32::try_from(n).unwrap_or(u32::MAX / ROW - 2) + 62), |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .margin_right(20)
            .x_label_area_size(46)
            .y_label_area_size(left)
            .build_cartesian_2d(x.0..x.1, n as f64..0.0)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .label_style(text(FONT))
            .axis_desc_style(text(FONT))
            .x_labels(7)
            .y_labels(0)
            .x_label_formatter(&|x| short(*x))
            .x_desc(label)
            .draw()?;
        if let Some(reference) = reference {
            chart.draw_series([PathElement::new(vec![(reference, 0.0), (reference, n as f64)], INK.stroke_width(1))])?;
        }
        for (i, (row, label)) in rows.iter().zip(shown).enumerate() {
            let colour = PALETTE[row.place].light;
            let (edge, middle) = chart.backend_coord(&(x.0, i as f64 + 0.5));
            let style = text(FONT).color(&INK).pos(Pos::new(HPos::Right, VPos::Center));
            root.draw(&Text::new(label, (edge - 10, middle), style))?;
            for (k, estimate) in row.estimates.iter().enumerate() {
                let y = i as f64 + 0.5 + 0.3 * (k as f64 - (row.estimates.len() as f64 - 1.0) / 2.0);
                if let Some(Interval { low, high }) = estimate.interval {
                    chart.draw_series([PathElement::new(vec![(low, y), (high, y)], colour.stroke_width(2))])?;
                }
                let dot = if k == 0 { colour.filled() } else { colour.stroke_width(2) };
                chart.draw_series([Circle::new((estimate.point, y), 4, dot)])?;
            }
        }
        Ok(())
    })
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn draw(
    size: (u32, u32),
    on: impl FnOnce(&Area<'_>) -> Result<(), DrawingAreaErrorKind<std::io::Error>>,
) -> Result<String, String> {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let drawn = on(&root).and_then(|()| root.present());
    drop(root);
    drawn.map(|()| svg).map_err(|e| format!("the chart could not be drawn: {e}"))
}

fn text(size: f64) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// A number and both ends of its interval.
fn ends(estimate: &Estimate) -> impl Iterator<Item = f64> + use<> {
    let interval = estimate.interval.map(|Interval { low, high }| [low, high]);
    std::iter::once(estimate.point).chain(interval.into_iter().flatten())
}

/// From the smallest to the largest number, wider by a share of that at both ends.
fn span(numbers: impl Iterator<Item = f64>, wider: f64) -> Result<(f64, f64), String> {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for x in numbers {
        if !x.is_finite() {
            return Err(format!("no chart: one of its numbers is {x}"));
        }
        (low, high) = (low.min(x), high.max(x));
    }
    if low > high {
        return Err("no chart: there is nothing to draw".into());
    }
    // Numbers that are next to equal have no scale of their own.
    let size = low.abs().max(high.abs());
    let margin = if high - low <= 1e-9 * size || high == low { (0.05 * size).max(0.05) } else { (high - low) * wider };
    let (low, high) = (low - margin, high + margin);
    if (high - low).is_finite() { Ok((low, high)) } else { Err("no chart: its numbers are too far apart".into()) }
}

/// Points of a line; where a number holds until the next position, with a corner there.
fn path(points: impl Iterator<Item = (f64, f64)>, steps: bool) -> Vec<(f64, f64)> {
    let mut out: Vec<(f64, f64)> = Vec::new();
    for (x, y) in points {
        if let Some((_, before)) = out.last().copied().filter(|(_, before)| steps && *before != y) {
            out.push((x, before));
        }
        out.push((x, y));
    }
    out
}

fn shortened(label: &str, most: usize) -> String {
    if label.chars().count() <= most { label.into() } else { label.chars().take(most - 1).chain(['…']).collect() }
}

/// A number for an axis: `0.25`, `12k`, `3.4M`.
fn short(x: f64) -> String {
    let (scaled, unit) = match x.abs() {
        size if size >= 1e15 => return format!("{x:.2e}"),
        size if size >= 1e9 => (x / 1e9, "G"),
        size if size >= 1e6 => (x / 1e6, "M"),
        size if size >= 1e4 => (x / 1e3, "k"),
        size if size < 1e-3 && size > 1e-12 => return format!("{x:.1e}"),
        _ => (x, ""),
    };
    let text = format!("{scaled:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { format!("{text}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(points: &[(f64, f64)]) -> Line {
        let at = |(x, y): &(f64, f64)| (*x, Estimate { point: *y, interval: Some(Interval { low: *y, high: *y }) });
        Line { place: 0, key: "A".into(), points: points.iter().map(at).collect() }
    }

    fn axes() -> Axes<'static> {
        Axes { x: "tokens", y: "mean", bounds: (f64::NEG_INFINITY, f64::INFINITY), steps: true }
    }

    #[test]
    fn a_number_holds_until_the_next_position() {
        assert_eq!(path([(0.0, 1.0), (2.0, 3.0)].into_iter(), true), [(0.0, 1.0), (2.0, 1.0), (2.0, 3.0)]);
        assert_eq!(path([(0.0, 1.0), (2.0, 3.0)].into_iter(), false), [(0.0, 1.0), (2.0, 3.0)]);
    }

    #[test]
    fn numbers_of_axes_are_short() {
        let shown = [0.0, -0.0, 0.25, 1.0, 9999.0, 12_000.0, 3.4e6, -2.5e9, 1e20, 2e-5].map(short);
        assert_eq!(shown, ["0", "0", "0.25", "1", "9999", "12k", "3.4M", "-2.5G", "1.00e20", "2.0e-5"]);
    }

    #[test]
    fn labels_hide_no_other() {
        let mut taken = Vec::new();
        let mut place = |x, y| free_place(&mut taken, (x, y), 0, 100);
        // At the lower end they go up, at the upper end down; side by side they stay.
        assert_eq!([place(7, 100), place(7, 100), place(7, 100)], [(7, 100), (7, 85), (7, 70)]);
        assert_eq!([place(60, 3), place(60, 3), place(90, 3)], [(60, 3), (60, 18), (90, 3)]);
    }

    #[test]
    fn what_cannot_be_drawn_is_said() {
        assert!(lines(&axes(), &[]).unwrap_err().contains("nothing to draw"));
        for broken in [f64::NAN, f64::INFINITY] {
            assert!(lines(&axes(), &[line(&[(0.0, broken)])]).unwrap_err().contains("one of its numbers is"));
        }
        assert!(lines(&axes(), &[line(&[(0.0, -1.7e308), (1.0, 1.7e308)])]).unwrap_err().contains("too far apart"));
    }

    #[test]
    fn names_are_text_in_a_chart() {
        let row = Row { label: "<script>&\"\u{202e}".into(), place: 0, estimates: vec![Estimate { point: 0.5, interval: None }] };
        let svg = intervals("score", Some(0.5), &[row]).unwrap();
        assert!(svg.contains("&lt;script&gt;&amp;&quot;") && !svg.contains("<script"), "{svg}");
        assert!(svg.contains("[U+202E]"), "{svg}");
    }

    #[test]
    fn every_colour_of_a_chart_is_in_the_stylesheet() {
        let all: Vec<Line> = (0..MOST_LINES).map(|place| Line { place, ..line(&[(0.0, 0.1), (5.0, 0.9)]) }).collect();
        let svg = lines(&axes(), &all).unwrap();
        let style = style();
        let colours: std::collections::BTreeSet<&str> = svg.split('"').filter(|part| part.starts_with('#')).collect();
        assert_eq!(colours.len(), MOST_LINES + 2, "{colours:?}");
        for colour in colours {
            assert!(style.contains(&format!("[stroke=\"{colour}\"]")), "{colour}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn finite_numbers_of_any_size_make_finite_charts(
            points in prop::collection::vec((-1e300..1e300f64, prop_oneof![-1e300..1e300f64, -1e-300..1e-300f64, 0.4..0.6f64]), 1..6),
        ) {
            let mut points = points;
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            if let Ok(svg) = lines(&axes(), &[line(&points)]) {
                prop_assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
                prop_assert!(svg.trim_end().ends_with("</svg>"));
            }
        }
    }
}
