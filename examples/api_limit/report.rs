//! What is printed at the end, and what must be true of it.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};

use crate::{
    Failure,
    api::Books,
    calls::{LEASE, LIMIT, STREAM_LEASE},
    crash::Crash,
    worker::{Notes, STREAMS},
};

/// By how much a busy machine may be late.
const SLACK: Duration = Duration::from_secs(1);

/// All that is known about a run.
pub struct Outcome {
    /// Those that ended by themselves.
    pub processes: Vec<Process>,
    /// What is known of the others.
    pub failed: Vec<Failure>,
    pub crash: Crash,
    /// The API's.
    pub books: Books,
    /// How many permits were free when all had ended.
    pub free: u32,
}

pub struct Process {
    pub name: String,
    pub role: &'static str,
    pub notes: Notes,
}

impl Outcome {
    fn stream_held(&self) -> Duration {
        let stream = self.processes.iter().find(|process| process.role == STREAMS.name);
        stream.map_or(Duration::ZERO, |stream| stream.notes.longest_hold)
    }
}

pub fn table(outcome: &Outcome) -> Table {
    let ms = |time: Duration| format!("{:.0}", time.as_secs_f64() * 1000.0);
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header([
        "process",
        "way",
        "calls made",
        "skipped",
        "longest wait ms",
        "longest hold ms",
    ]);
    for Process { name, role, notes } in &outcome.processes {
        table.add_row([
            name.clone(),
            (*role).to_owned(),
            notes.made.to_string(),
            notes.skipped.to_string(),
            ms(notes.longest_wait),
            ms(notes.longest_hold),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

pub fn summary(outcome: &Outcome) -> String {
    let (books, crash, held) = (&outcome.books, &outcome.crash, outcome.stream_held());
    [
        format!(
            "API      at most {} calls at once of {LIMIT} permitted, {} refused",
            books.most, books.refused
        ),
        format!(
            "stream   held its permit for {held:.2?}: {:.1} times its lease of {STREAM_LEASE:?}",
            held.div_duration_f64(STREAM_LEASE)
        ),
        format!(
            "killed   its call ended after {:.1?}, its permit was free after {:.2?}; its lease was {LEASE:?}",
            crash.call_ended, crash.permit_free
        ),
        format!("at last  {} of {LIMIT} permits free", outcome.free),
    ]
    .join("\n")
}

/// What is not as it should be.
pub fn failures(outcome: &Outcome) -> Vec<String> {
    let mut failures: Vec<String> = outcome.failed.iter().map(Failure::to_string).collect();
    let mut check = |holds: bool, otherwise: String| {
        if !holds {
            failures.push(otherwise);
        }
    };
    let (books, crash, held) = (&outcome.books, &outcome.crash, outcome.stream_held());
    check(
        books.most == LIMIT,
        format!("the API saw up to {} calls at once instead of {LIMIT}", books.most),
    );
    check(
        held >= STREAM_LEASE * 3,
        format!("the stream held its permit for {held:.2?} only"),
    );
    check(
        crash.permit_free <= LEASE + SLACK,
        format!("a killed process kept its permit for {:.2?}", crash.permit_free),
    );
    check(
        outcome.free == LIMIT,
        format!("{} permits are free at the end", outcome.free),
    );
    for Process { name, notes, .. } in &outcome.processes {
        let (made, seen) = (notes.made, books.calls_of(name));
        check(
            made == seen,
            format!("{name} made {made} calls, and the API saw {seen} of them"),
        );
    }
    failures
}
