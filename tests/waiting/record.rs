//! Who was granted the lock, in order, and who waited meanwhile: kept on the server.

use std::{
    collections::{HashMap, HashSet},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use redlatch::Guard;

use crate::{
    corner::Corner,
    support::{Server, SetOnDrop, millis},
    terms::{Kind, NAME},
};

/// The record of a name. A grant is noted while it lasts, so the grants stand in their order.
fn record_key(name: &str) -> String {
    format!("record:{name}")
}

pub struct Grant {
    pub who: String,
    pub fencing_token: u64,
    pub token: String,
}

/// Notes a grant, which must not have been released yet. Whoever has a guard is the one whose token stands at the key.
#[track_caller]
pub fn note(connection: &mut redis::Connection, kind: Kind, guard: &Guard, who: &str) {
    let name = String::from_utf8_lossy(guard.name());
    let grant = format!("{who} {} {}", guard.fencing_token(), guard.token());
    let (key, mut look) = (kind.key(&name), redis::pipe());
    match kind {
        Kind::Lock => look.get(key),
        Kind::Semaphore { .. } => look.zrange(key, 0, -1),
    };
    let (held, _): (redis::Value, usize) = look.rpush(record_key(&name), grant).query(connection).unwrap();
    let holders: Vec<String> = match held {
        redis::Value::Array(_) => redis::from_redis_value(held).unwrap(),
        held => vec![redis::from_redis_value(held).unwrap()],
    };
    assert!(
        holders.iter().any(|holder| holder == guard.token()),
        "{holders:?} at the key while {who} has {guard:?}"
    );
}

/// All grants of a name that were noted. Their fencing tokens rise.
#[track_caller]
pub fn grants(server: &Server, name: &str) -> Vec<Grant> {
    let mut record = redis::cmd("LRANGE");
    record.arg(record_key(name)).arg(0).arg(-1);
    let record: Vec<String> = record.query(&mut server.connection()).unwrap();
    let read = |line: &String| match line.split(' ').collect::<Vec<_>>()[..] {
        [who, fencing_token, token] => Grant {
            who: who.into(),
            fencing_token: fencing_token.parse().unwrap(),
            token: token.into(),
        },
        _ => panic!("{line:?} is no grant"),
    };
    let grants: Vec<Grant> = record.iter().map(read).collect();
    let risen = grants.is_sorted_by(|earlier, later| earlier.fencing_token < later.fencing_token);
    assert!(risen, "the fencing tokens do not rise: {record:?}");
    grants
}

/// What stood on the server at one instant.
pub struct Sample {
    /// How many grants had been noted. One more may have been made.
    noted: usize,
    /// Who was registered as waiting (the tokens), and their places in the order.
    waiting: Vec<(String, f64)>,
}

/// Runs `work` and looks at the server again and again meanwhile.
pub fn watch(corner: &Corner, work: impl FnOnce()) -> Vec<Sample> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _done = SetOnDrop(&done);
        let watcher = scope.spawn(|| {
            let (mut connection, mut samples) = (corner.server.connection(), Vec::new());
            while !done.load(Ordering::SeqCst) {
                let mut look = redis::pipe();
                look.atomic()
                    .llen(record_key(NAME))
                    .zrange_withscores(corner.kind.queue_key(NAME), 0, -1);
                let (noted, waiting) = look.query(&mut connection).unwrap();
                samples.push(Sample { noted, waiting });
                // Or the server would do little else.
                thread::sleep(millis(1) / 5);
            }
            samples
        });
        work();
        done.store(true, Ordering::SeqCst);
        watcher.join().unwrap()
    })
}

/// For each grant to `who` that was seen waiting: how many grants `other` got from then until it was served.
pub fn turns_meanwhile(samples: &[Sample], grants: &[Grant], who: &str, other: &str) -> Vec<usize> {
    let first_seen = first_seen(samples);
    let waits = grants.iter().enumerate().filter(|(_, grant)| grant.who == who);
    let seen = waits.filter_map(|(nth, grant)| grants.get(*first_seen.get(&*grant.token)?..nth));
    seen.map(|meanwhile| meanwhile.iter().filter(|grant| grant.who == other).count())
        .collect()
}

/// How many grants had been noted when each token was seen waiting for the first time.
fn first_seen(samples: &[Sample]) -> HashMap<&str, usize> {
    let mut first_seen = HashMap::new();
    for sample in samples {
        for (token, _) in &sample.waiting {
            first_seen.entry(&**token).or_insert(sample.noted);
        }
    }
    first_seen
}

/// Asserts that nobody was served before somebody who had certainly come earlier. Each grant must have had a token of
/// its own.
#[track_caller]
pub fn assert_first_come_first_served(samples: &[Sample], grants: &[Grant]) {
    let order: HashMap<&str, usize> = grants
        .iter()
        .enumerate()
        .map(|(nth, grant)| (&*grant.token, nth))
        .collect();
    assert_eq!(order.len(), grants.len(), "a token came again");
    let mut compared = 0;
    for Sample { noted, waiting } in samples {
        // The grant that follows those noted may have been made already, to one who waited no more.
        let waited: HashSet<&str> = waiting.iter().map(|(token, _)| &**token).collect();
        let last = waited.iter().filter_map(|token| order.get(token)).max();
        for grant in grants.iter().take(last.map_or(0, |last| last + 1)).skip(noted + 1) {
            let Grant { who, token, .. } = grant;
            assert!(
                waited.contains(&**token),
                "{who} passed one of those who waited: {waiting:?}"
            );
            compared += 1;
        }
    }
    assert!(compared > 100, "hardly anybody was seen waiting: {compared}");
    assert_places_rise(samples, grants);
}

/// Asserts that grants came in the order of the places that the server gave.
#[track_caller]
fn assert_places_rise(samples: &[Sample], grants: &[Grant]) {
    let waiting = samples.iter().flat_map(|sample| &sample.waiting);
    let places: HashMap<&str, f64> = waiting.map(|(token, place)| (&**token, *place)).collect();
    let placed: Vec<_> = grants.iter().filter_map(|grant| places.get(&*grant.token)).collect();
    assert!(placed.len() > 100, "hardly anybody was seen waiting: {}", placed.len());
    assert!(placed.is_sorted_by(|earlier, later| earlier < later), "{placed:?}");
}
