//! What was granted to whom, and for how long: a file to which all processes append.
//!
//! A hold is recorded as what redlatch promises, and never as more: from when acquire had returned to the first of: the
//! release was about to be called, the last known end of the lease was reached. A line is written before what it says
//! makes a difference to others, so every beginning of the file is a record by itself, and whoever is killed has
//! written what counts.

use std::{
    collections::HashMap,
    fmt,
    fs::File,
    io::{Read, Write},
    path::Path,
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use redlatch::Guard;

use crate::{
    clock::{Moment, now},
    support::millis,
    terms::Terms,
};

pub enum Line {
    Granted(Grant),
    /// The permits last at least until then.
    Lasts {
        id: u64,
        until: Moment,
    },
    /// They are about to be given back.
    Released {
        id: u64,
        at: Moment,
    },
    /// They were seen not to be held any more.
    Lost {
        id: u64,
        at: Moment,
    },
    /// Something that must not happen to a worker.
    Trouble(String),
}

#[derive(Clone, Debug)]
pub struct Grant {
    pub id: u64,
    /// The semaphore, as one of `NAMES`.
    pub name: usize,
    pub permits: u32,
    pub fencing_token: u64,
    pub token: String,
    /// When acquire was called.
    pub asked: Moment,
    /// When it had returned.
    pub start: Moment,
    pub until: Moment,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Granted(grant) => write!(
                f,
                "granted {} {} {} {} {} {} {} {}",
                grant.id,
                grant.name,
                grant.permits,
                grant.fencing_token,
                grant.token,
                grant.asked.as_nanos(),
                grant.start.as_nanos(),
                grant.until.as_nanos(),
            ),
            Line::Lasts { id, until } => write!(f, "lasts {id} {}", until.as_nanos()),
            Line::Released { id, at } => write!(f, "released {id} {}", at.as_nanos()),
            Line::Lost { id, at } => write!(f, "lost {id} {}", at.as_nanos()),
            Line::Trouble(what) => write!(f, "trouble {}", what.replace('\n', " ")),
        }
    }
}

impl FromStr for Line {
    type Err = Box<dyn std::error::Error>;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let moment = |nanos: &str| nanos.parse().map(Duration::from_nanos);
        let (kind, rest) = line.split_once(' ').ok_or(line)?;
        Ok(match (kind, &rest.split(' ').collect::<Vec<_>>()[..]) {
            ("granted", [id, name, permits, fencing_token, token, asked, start, until]) => Line::Granted(Grant {
                id: id.parse()?,
                name: name.parse()?,
                permits: permits.parse()?,
                fencing_token: fencing_token.parse()?,
                token: (*token).into(),
                asked: moment(asked)?,
                start: moment(start)?,
                until: moment(until)?,
            }),
            ("lasts", [id, until]) => Line::Lasts {
                id: id.parse()?,
                until: moment(until)?,
            },
            ("released", [id, at]) => Line::Released {
                id: id.parse()?,
                at: moment(at)?,
            },
            ("lost", [id, at]) => Line::Lost {
                id: id.parse()?,
                at: moment(at)?,
            },
            ("trouble", _) => Line::Trouble(rest.into()),
            _ => return Err(line.into()),
        })
    }
}

/// The record, for those who write it.
#[derive(Clone)]
pub struct Log(Arc<File>);

impl Log {
    pub fn append_to(file: &Path) -> Self {
        let file = File::options().append(true).open(file);
        Self(Arc::new(file.expect("the record")))
    }

    /// Writes a line at once and in one piece.
    pub fn write(&self, line: &Line) {
        let line = format!("{line}\n");
        (&*self.0).write_all(line.as_bytes()).expect("to write the record");
    }

    /// Records a grant.
    pub fn granted(&self, guard: &Guard, terms: &Terms, asked: Moment) -> Entry<'_> {
        let (id, start) = (fastrand::u64(..), now());
        let until = held_until(guard).unwrap_or(start);
        self.write(&Line::Granted(Grant {
            id,
            name: terms.name,
            permits: terms.permits,
            fencing_token: guard.fencing_token(),
            token: guard.token().to_owned(),
            asked,
            start,
            until,
        }));
        Entry { log: self, id, until }
    }
}

/// The grant in the record.
pub struct Entry<'a> {
    log: &'a Log,
    id: u64,
    until: Moment,
}

impl Entry<'_> {
    /// Records how long the permits last by now, if that is longer.
    pub fn lasts(&mut self, guard: &Guard) {
        let later = |until: &Moment| *until >= self.until + millis(1);
        if let Some(until) = held_until(guard).filter(later) {
            self.until = until;
            self.log.write(&Line::Lasts { id: self.id, until });
        }
    }

    pub fn lost(&self) {
        self.log.write(&Line::Lost { id: self.id, at: now() });
    }

    /// Records that the permits are about to be given back: whoever is granted them then comes later in the record.
    pub fn about_to_release(&self) {
        self.log.write(&Line::Released { id: self.id, at: now() });
    }
}

/// The end of the guard's lease, or what lies shortly before; `None` if it has come.
fn held_until(guard: &Guard) -> Option<Moment> {
    // Read before: the time that is left counts from later.
    let (before, left) = (now(), guard.remaining());
    (!left.is_zero()).then(|| before + left)
}

/// A grant, and for how long it counts.
#[derive(Clone, Debug)]
pub struct Hold {
    pub grant: Grant,
    /// The last known end of its lease.
    pub until: Moment,
    pub released: Option<Moment>,
    /// When it was seen to be lost.
    pub lost: Option<Moment>,
}

impl Hold {
    /// When it ends.
    pub fn end(&self) -> Moment {
        self.released.map_or(self.until, |released| released.min(self.until))
    }
}

/// The record, for whoever judges it.
pub struct Record {
    file: File,
    /// What was read of a line that was not complete yet.
    incomplete: String,
    pub holds: HashMap<u64, Hold>,
    pub troubles: Vec<String>,
}

impl Record {
    pub fn create(file: &Path) -> Self {
        let file = File::options().create_new(true).append(true).read(true).open(file);
        Self {
            file: file.expect("a new record"),
            incomplete: String::new(),
            holds: HashMap::new(),
            troubles: Vec::new(),
        }
    }

    /// Reads on to the end.
    pub fn read_on(&mut self) {
        let mut text = std::mem::take(&mut self.incomplete);
        self.file.read_to_string(&mut text).expect("to read the record");
        let (complete, incomplete) = text.split_at(text.rfind('\n').map_or(0, |end| end + 1));
        self.incomplete = incomplete.to_owned();
        for line in complete.lines() {
            self.take_in(line.parse().unwrap_or_else(|error| panic!("{line:?}: {error}")));
        }
    }

    fn take_in(&mut self, line: Line) {
        match line {
            Line::Granted(grant) => {
                let hold = Hold {
                    until: grant.until,
                    grant,
                    released: None,
                    lost: None,
                };
                self.holds.insert(hold.grant.id, hold);
            }
            Line::Lasts { id, until } => self.hold(id).until = until,
            Line::Released { id, at } => self.hold(id).released = Some(at),
            Line::Lost { id, at } => self.hold(id).lost = Some(at),
            Line::Trouble(what) => self.troubles.push(what),
        }
    }

    /// The hold that a line is about. Its grant stands before it.
    fn hold(&mut self, id: u64) -> &mut Hold {
        self.holds.get_mut(&id).expect("a grant")
    }
}
