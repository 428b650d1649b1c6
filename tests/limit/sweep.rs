//! Judges the record: goes through all holds of a semaphore in the order of time and adds up their permits.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use crate::{
    clock::Moment,
    record::{Hold, Record},
    terms::NAMES,
};

/// What can be found to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// More permits were held at once than there are.
    TooManyHeld,
    /// As the server sees it, more were held or left to waiters than there are.
    TooManyOnServer,
    /// A fencing token came twice.
    TokenTwice,
    /// Permits were lost before the end that their guard had told.
    LostEarly,
    /// Some did not come back when all holders were dead.
    NotFreed,
    /// A worker met with an error, or panicked.
    Trouble,
}

#[derive(Clone, Debug)]
pub struct Finding {
    pub flaw: Flaw,
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.flaw, self.what)
    }
}

/// How many permits there were from one time to another.
pub struct Limits(Vec<Limit>);

struct Limit {
    /// When it was about to be set, and when that had been done.
    set: (Moment, Moment),
    limit: u32,
}

impl Limits {
    pub fn new(limit: u32) -> Self {
        let set = (Moment::ZERO, Moment::ZERO);
        Self(vec![Limit { set, limit }])
    }

    pub fn change(&mut self, limit: u32, set: (Moment, Moment)) {
        self.0.push(Limit { set, limit });
    }

    /// The highest limit that can have governed at any time between the two.
    fn highest(&self, from: Moment, to: Moment) -> u32 {
        let replaced = self.0[1..].iter().map(|next| next.set.1).chain([Moment::MAX]);
        let limits = self.0.iter().zip(replaced);
        let possible = limits.filter(|(limit, replaced)| limit.set.0 <= to && from <= *replaced);
        possible
            .map(|(limit, _)| limit.limit)
            .max()
            .expect("a limit at any time")
    }

    /// The one that was set last.
    pub fn last(&self) -> u32 {
        self.0.last().expect("a limit at any time").limit
    }

    /// The highest that there ever was.
    pub fn highest_ever(&self) -> u32 {
        self.highest(Moment::ZERO, Moment::MAX)
    }
}

/// What a sweep has seen of one semaphore.
#[derive(Default)]
pub struct Swept {
    /// The most permits that were held at once.
    pub peak: u32,
    pub findings: Vec<Finding>,
}

/// Goes through all holds of the semaphore with this index in [`NAMES`].
pub fn sweep(record: &Record, name: usize, limits: &Limits, origin: Moment) -> Swept {
    let of_name = |hold: &&Hold| hold.grant.name == name;
    let mut swept = Swept::default();
    let mut holds: Vec<&Hold> = record.holds.values().filter(of_name).collect();
    holds.sort_by_key(|hold| hold.grant.start);
    let mut held: Vec<&Hold> = Vec::new();
    for hold in holds.iter().filter(|hold| hold.end() > hold.grant.start) {
        let start = hold.grant.start;
        held.retain(|earlier| earlier.end() > start);
        held.push(hold);
        let sum = held.iter().map(|hold| hold.grant.permits).sum();
        swept.peak = swept.peak.max(sum);
        // Lowering the limit throws nobody out, so that what counts is how many there are when somebody comes in.
        let limit = limits.highest(hold.grant.asked, start);
        if sum > limit {
            swept.findings.push(too_many(&held, sum, limit, name, origin));
        }
    }
    swept.findings.extend(token_twice(&holds, name));
    swept.findings.extend(lost_early(&holds, origin));
    swept
}

fn too_many(held: &[&Hold], sum: u32, limit: u32, name: usize, origin: Moment) -> Finding {
    let lines: Vec<String> = held.iter().map(|hold| line(hold, origin)).collect();
    let name = NAMES[name].name;
    Finding {
        flaw: Flaw::TooManyHeld,
        what: format!(
            "{sum} permits of {name:?} were held at once, of {limit}:\n{}",
            lines.join("\n")
        ),
    }
}

/// A hold in words, with times since `origin`.
fn line(hold: &Hold, origin: Moment) -> String {
    let since = |moment: Moment| moment.saturating_sub(origin);
    let released = hold
        .released
        .map(|released| format!(", released at {:?}", since(released)));
    format!(
        "    {} permits from {:?} (asked for at {:?}), valid until {:?}{}; token {}, fencing token {}",
        hold.grant.permits,
        since(hold.grant.start),
        since(hold.grant.asked),
        since(hold.until),
        released.unwrap_or_default(),
        hold.grant.token,
        hold.grant.fencing_token,
    )
}

fn token_twice(holds: &[&Hold], name: usize) -> Option<Finding> {
    let mut seen = HashSet::new();
    let twice = holds.iter().find(|hold| !seen.insert(hold.grant.fencing_token))?;
    Some(Finding {
        flaw: Flaw::TokenTwice,
        what: format!("{} of {:?}", twice.grant.fencing_token, NAMES[name].name),
    })
}

fn lost_early(holds: &[&Hold], origin: Moment) -> Option<Finding> {
    let early = holds
        .iter()
        .find(|hold| hold.lost.is_some_and(|lost| lost < hold.until))?;
    Some(Finding {
        flaw: Flaw::LostEarly,
        what: format!("at {:?}:\n{}", early.lost? - origin, line(early, origin)),
    })
}

/// What happened, so that a test in which nothing did is told apart.
#[derive(Debug, Default)]
pub struct Figures {
    pub grants: usize,
    pub of_several_permits: usize,
    pub handed_on: usize,
    pub lost: usize,
    /// Those that nobody gave back, since they were forgotten or their holder was killed.
    pub never_released: usize,
}

impl Figures {
    pub fn of(record: &Record) -> Self {
        let holds = record.holds.values();
        let count = |what: fn(&Hold) -> bool| holds.clone().filter(|hold| what(hold)).count();
        let mut leases: HashMap<_, usize> = HashMap::new();
        for hold in holds.clone() {
            *leases.entry((hold.grant.name, &hold.grant.token)).or_default() += 1;
        }
        Self {
            grants: holds.len(),
            of_several_permits: count(|hold| hold.grant.permits > 1),
            handed_on: holds.len() - leases.len(),
            lost: count(|hold| hold.lost.is_some()),
            never_released: count(|hold| hold.released.is_none() && hold.lost.is_none()),
        }
    }
}
