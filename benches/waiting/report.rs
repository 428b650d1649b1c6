//! Figures, printed as a table or as JSON.

use comfy_table::{CellAlignment, Table, presets};

/// The figures of one measurement.
pub struct Report {
    measurement: &'static str,
    columns: &'static [Column],
    rows: Vec<(String, Vec<f64>)>,
}

/// The heading in the table, the key in JSON, and how many digits follow the decimal point.
pub type Column = (&'static str, &'static str, usize);

impl Report {
    pub fn new(measurement: &'static str, columns: &'static [Column]) -> Self {
        Report {
            measurement,
            columns,
            rows: Vec::new(),
        }
    }

    /// Adds a row with one figure for each column; NaN where there is none.
    pub fn row(&mut self, label: impl Into<String>, figures: impl Into<Vec<f64>>) {
        let figures = figures.into();
        assert_eq!(figures.len(), self.columns.len());
        self.rows.push((label.into(), figures));
    }

    pub fn print(&self, json: bool) {
        if json {
            (0..self.rows.len()).for_each(|row| println!("{}", self.json(row)));
        } else {
            println!("{}", self.table());
        }
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        let headings = self.columns.iter().map(|(heading, ..)| *heading);
        table.set_header([self.measurement].into_iter().chain(headings));
        for (label, figures) in &self.rows {
            let figures = figures.iter().zip(self.columns);
            let figures = figures.map(|(figure, (.., digits))| written(*figure, *digits, ""));
            table.add_row([label.clone()].into_iter().chain(figures));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }

    fn json(&self, row: usize) -> String {
        let (label, figures) = &self.rows[row];
        let mut json = format!(r#"{{"measurement":"{}","row":"{label}""#, self.measurement);
        for (figure, (_, key, digits)) in figures.iter().zip(self.columns) {
            json += &format!(r#","{key}":{}"#, written(*figure, *digits, "null"));
        }
        json + "}"
    }
}

fn written(figure: f64, digits: usize, nothing: &str) -> String {
    if figure.is_finite() {
        format!("{figure:.digits$}")
    } else {
        nothing.into()
    }
}
