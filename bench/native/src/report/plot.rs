//! Bars of each rate relative to the best of its row, on one page.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Report, Row, short};
use crate::measure::Unit;

const WIDTH: i32 = 1000;
const LABELS: i32 = 300;
const BAR: i32 = 11;
const GAP: i32 = 10;
const TITLE: i32 = 36;
const LEGEND: i32 = 44;
const FONT: &str = "sans-serif";
const COLORS: [RGBColor; 8] = [
    RGBColor(27, 120, 55),
    RGBColor(127, 191, 123),
    RGBColor(178, 24, 43),
    RGBColor(33, 102, 172),
    RGBColor(230, 145, 56),
    RGBColor(118, 42, 131),
    RGBColor(110, 110, 110),
    RGBColor(0, 150, 160),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

pub(super) fn svg(report: &Report) -> String {
    let sections: Vec<(&str, Vec<Row>)> = report.rows().map(|(title, rows)| (title, rates(rows))).collect();
    let bars = report.engines.len() as i32;
    let row_height = bars * BAR + GAP;
    let height = |(_, rows): &(&str, Vec<Row>)| TITLE + rows.len() as i32 * row_height;
    let total = LEGEND + sections.iter().map(height).sum::<i32>() + GAP;
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, (WIDTH as u32, total as u32)).into_drawing_area();
    draw(&area, report, &sections, row_height).expect("strings take everything");
    drop(area);
    text
}

fn rates(rows: Vec<Row>) -> Vec<Row> {
    rows.into_iter().filter(|row| row.unit == Unit::PerSecond).collect()
}

fn draw(area: &Area<'_>, report: &Report, sections: &[(&str, Vec<Row>)], row_height: i32) -> Drawn {
    area.fill(&WHITE)?;
    for (at, name) in report.engines.iter().enumerate() {
        let left = GAP + at as i32 * (WIDTH - GAP) / report.engines.len() as i32;
        area.draw(&Rectangle::new([(left, 14), (left + 12, 26)], color(at).filled()))?;
        label(area, name, (left + 17, 20), 12, HPos::Left)?;
    }
    let mut top = LEGEND;
    for (title, rows) in sections {
        label(area, &title.replace('`', ""), (GAP, top + TITLE / 2), 15, HPos::Left)?;
        top += TITLE;
        for row in rows {
            draw_row(area, row, top)?;
            top += row_height;
        }
    }
    area.present()?;
    Ok(())
}

fn draw_row(area: &Area<'_>, row: &Row, top: i32) -> Drawn {
    let Some(best) = row.unit.best(row.values.iter().flatten().copied()) else {
        return Ok(());
    };
    let middle = top + row.values.len() as i32 * BAR / 2;
    label(area, &row.name, (LABELS - GAP, middle), 12, HPos::Right)?;
    let widest = f64::from(WIDTH - LABELS - 100);
    for (at, value) in row.values.iter().enumerate() {
        let Some(value) = value else { continue };
        let top = top + at as i32 * BAR;
        let right = LABELS + (value / best * widest).round().max(1.0) as i32;
        area.draw(&Rectangle::new(
            [(LABELS, top), (right, top + BAR - 2)],
            color(at).filled(),
        ))?;
        let rate = format!("{} /s", short(*value));
        label(area, &rate, (right + 4, top + BAR / 2), 10, HPos::Left)?;
    }
    Ok(())
}

fn color(engine: usize) -> RGBColor {
    COLORS[engine % COLORS.len()]
}

fn label(area: &Area<'_>, text: &str, at: (i32, i32), size: i32, side: HPos) -> Drawn {
    let style = (FONT, size).into_text_style(area).pos(Pos::new(side, VPos::Center));
    area.draw(&Text::new(text.to_owned(), at, style))?;
    Ok(())
}
