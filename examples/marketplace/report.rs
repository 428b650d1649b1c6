//! What is printed at the end.

use comfy_table::{CellAlignment, Table, presets};

use crate::session::Run;
use crate::ways::Way;

pub fn table(runs: &[Run]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header([
        "way",
        "listers/buyers",
        "listed",
        "bought",
        "purchases/s",
        "retries",
        "missed",
        "mean wait ms",
        "p99 wait ms",
        "check",
    ]);
    for run in runs {
        table.add_row([
            run.way.to_string(),
            format!("{}/{}", run.mix.listers, run.mix.buyers),
            run.notes.books.listed.to_string(),
            run.bought().to_string(),
            format!("{:.0}", run.purchases_per_second()),
            run.notes.retries.to_string(),
            run.notes.missed.to_string(),
            format!("{:.2}", run.notes.waits.mean() / 1000.0),
            format!("{:.2}", run.notes.waits.value_at_quantile(0.99) as f64 / 1000.0),
            if run.wrong.is_empty() { "ok" } else { "FAILED" }.to_owned(),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Compares item locks with `WATCH` under the last mix, the one with the most traders.
pub fn verdict(runs: &[Run]) -> Option<String> {
    let last = |way| runs.iter().rfind(|run| run.way == way);
    let (locks, watch) = (last(Way::ItemLocks)?, last(Way::Watch)?);
    Some(format!(
        "With {} listers and {} buyers, item locks made {:.0} purchases/s and WATCH {:.0}: {:.1} times as many.",
        locks.mix.listers,
        locks.mix.buyers,
        locks.purchases_per_second(),
        watch.purchases_per_second(),
        locks.purchases_per_second() / watch.purchases_per_second(),
    ))
}

pub fn failures(runs: &[Run]) -> Vec<String> {
    runs.iter()
        .flat_map(|run| {
            run.wrong
                .iter()
                .map(move |what| format!("{} with {}/{}: {what}", run.way, run.mix.listers, run.mix.buyers))
        })
        .collect()
}
