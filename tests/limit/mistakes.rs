//! Mistakes that a semaphore on a server can have, each made in the scripts on their way to the server: the sweep has
//! to notice every one.

use std::time::{Duration, Instant};

use crate::{
    clock::{Skew, skewed_time},
    storm::Storm,
    support::{SECOND, Script, scripts},
    sweep::Flaw,
};

pub struct Mistake {
    pub name: &'static str,
    /// How it is noticed.
    noticed_as: Flaw,
    /// Whether it shows only when limits are changed.
    changes_limits: bool,
    swaps: &'static [Swap],
    /// Whether the scripts are given the client's time as their last arguments.
    tells_time: bool,
}

/// In which scripts what piece of their text is replaced by what.
type Swap = (&'static [&'static str], &'static str, &'static str);

/// The scripts that workers run.
const ALL: &[&str] = &["acquire", "renew", "release", "turn", "withdraw"];
/// Those that know of waiters.
const WITH_QUEUE: &[&str] = &["acquire", "release", "turn", "withdraw"];

/// Where the scripts for semaphores know what they are called with.
const SLOT: &str = "local slot_permits = permits\n";

/// A mistake that has more permits held than there are.
const fn too_many_held(name: &'static str, swaps: &'static [Swap]) -> Mistake {
    Mistake {
        name,
        noticed_as: Flaw::TooManyHeld,
        changes_limits: false,
        swaps,
        tells_time: false,
    }
}

pub static MISTAKES: &[Mistake] = &[
    Mistake {
        tells_time: true,
        ..too_many_held(
            "the_clock_of_the_client_decides_what_has_expired",
            &[(
                ALL,
                "local time\n",
                "local time = {table.remove(ARGV, #ARGV - 1), table.remove(ARGV)}\n",
            )],
        )
    },
    too_many_held(
        "what_was_granted_longer_ago_than_the_callers_lease_has_expired",
        &[
            (ALL, "math.ceil(micros() / 1000) + ms", "math.ceil(micros() / 1000)"),
            (
                &["acquire", "renew"],
                SLOT,
                "local slot_permits = permits\nlocal now = millis\nlocal function millis() return now() - ARGV[2] end\n",
            ),
            (
                &["turn"],
                SLOT,
                "local slot_permits = permits\nlocal now = millis\nlocal function millis() return now() - ARGV[4] end\n",
            ),
            (
                &["release", "withdraw"],
                SLOT,
                "local slot_permits = permits\nlocal now = millis\nlocal function millis() return now() - 2000 end\n",
            ),
            // For those who wait the time is what it is.
            (
                WITH_QUEUE,
                "local function queue_at(",
                "local millis = now\nlocal function queue_at(",
            ),
        ],
    ),
    too_many_held(
        "the_oldest_permit_is_taken_out_before_the_others_are_counted",
        &[(
            &["acquire"],
            "  local claimed = ",
            "  call('ZREMRANGEBYRANK', key, 0, 0)\n  local claimed = ",
        )],
    ),
    Mistake {
        noticed_as: Flaw::LostEarly,
        ..too_many_held(
            "a_release_takes_out_the_oldest_permit",
            &[(
                &["release", "turn"],
                "local function slot_drop(token)\n  remove(token, permits)",
                "local function slot_drop()\n  call('ZPOPMIN', key, permits)",
            )],
        )
    },
    too_many_held(
        "one_permit_too_many_is_granted",
        &[(&["acquire"], "if missing > 0 then", "if missing > 1 then")],
    ),
    too_many_held(
        "several_permits_of_one_holder_count_as_one",
        &[(
            ALL,
            "for nth = 2, count do\n    scored",
            "for nth = 2, 1 do\n    scored",
        )],
    ),
    too_many_held(
        "what_is_left_to_waiters_does_not_count",
        &[(
            ALL,
            "  return limit - call('ZCOUNT', key, string.format('(%.0f', millis()), '+inf')",
            "  local count = 0
               for _, member in ipairs(call('ZRANGEBYSCORE', key, string.format('(%.0f', millis()), '+inf')) do
                 count = count + (string.find(member, '^redlatch:claim:') and 0 or 1)
               end
               return limit - count",
        )],
    ),
    too_many_held(
        "several_permits_that_are_left_to_a_waiter_count_as_one",
        &[(
            WITH_QUEUE,
            "put(claim_of(waiter.token), waiter.permits,",
            "put(claim_of(waiter.token), 1,",
        )],
    ),
    Mistake {
        noticed_as: Flaw::TooManyOnServer,
        ..too_many_held(
            "more_is_left_to_a_waiter_than_is_free",
            &[(
                WITH_QUEUE,
                "elseif slot.has_room(waiter.permits) then",
                "elseif slot.has_room(1) then",
            )],
        )
    },
    too_many_held(
        "a_short_lease_ends_all",
        &[
            (ALL, "if ttl < ms + 1 then", "if true then"),
            (ALL, "math.max(ttl, ms + 1)", "ms + 1"),
        ],
    ),
    too_many_held(
        "a_renewal_shortens_what_was_extended",
        &[(&["renew"], "  if is_short then", "  if true then")],
    ),
    Mistake {
        noticed_as: Flaw::TooManyOnServer,
        ..too_many_held(
            "a_late_renewal_takes_permits_again",
            &[
                (&["renew"], "if found == 1 then", "if found >= 0 then"),
                (
                    &["renew"],
                    "call('ZSCORE', key, token) - millis() < ms",
                    "(call('ZSCORE', key, token) or 0) - millis() < ms",
                ),
            ],
        )
    },
    Mistake {
        noticed_as: Flaw::NotFreed,
        ..too_many_held(
            "the_permits_of_the_dead_stay_taken",
            &[(
                ALL,
                "local function put(owner, count, ms)\n",
                "local function put(owner, count, ms)\n  ms = ms + 86400000\n",
            )],
        )
    },
    Mistake {
        noticed_as: Flaw::TokenTwice,
        ..too_many_held(
            "fencing_tokens_are_the_time_in_milliseconds",
            &[(
                ALL,
                "local first = math.max(last + 1, micros(), floor or 0)",
                "local first = millis()",
            )],
        )
    },
    Mistake {
        changes_limits: true,
        ..too_many_held(
            "a_grant_sets_the_limit_to_the_declared_one",
            &[(
                &["acquire"],
                "  if stored then\n    keep_limit(ms)",
                "  if false then\n    keep_limit(ms)",
            )],
        )
    },
    Mistake {
        changes_limits: true,
        ..too_many_held(
            "the_declared_limit_governs",
            &[(&["acquire"], "limit = tonumber(limit) or 0", "limit = declared")],
        )
    },
];

impl Mistake {
    /// What a proxy has to make of the commands of a client whose clock is so far ahead.
    pub fn rewriting(&'static self, skew: Skew) -> impl Fn(&[Vec<u8>]) -> Option<Vec<Vec<u8>>> + Send + Sync {
        let of_semaphores = scripts().iter().filter(|script| script.slot == "semaphore");
        let mistaken: Vec<_> = of_semaphores
            .filter_map(|script| Some((script, self.made_in(script)?)))
            .collect();
        assert!(!mistaken.is_empty(), "{} is no mistake", self.name);
        move |args| {
            let (_, text) = mistaken.iter().find(|(script, _)| script.is_run_by(args))?;
            let call = [b"EVAL".to_vec(), text.clone().into_bytes()];
            let (seconds, micros) = skewed_time(skew);
            let time = [seconds.to_string(), micros.to_string()].map(String::into_bytes);
            let time = time.into_iter().filter(|_| self.tells_time);
            Some(call.into_iter().chain(args[2..].iter().cloned()).chain(time).collect())
        }
    }

    /// The text of the script with this mistake; `None` if it is not made there.
    fn made_in(&self, script: &Script) -> Option<String> {
        let here = self.swaps.iter().filter(|(names, ..)| names.contains(&script.name));
        here.fold(None, |made, (_, right, wrong)| {
            let text: String = made.unwrap_or_else(|| script.text.to_owned());
            // A mistake that is silently none would go unnoticed for ever.
            assert_eq!(text.matches(right).count(), 1, "{right:?} stands in {}", script.name);
            Some(text.replace(right, wrong))
        })
    }
}

/// How long a mistake may stay unnoticed. It takes seconds, on a machine that has nothing else to do.
const PATIENCE: Duration = SECOND.saturating_mul(90);

/// Makes the mistake and asserts that it is noticed.
pub fn is_noticed(mistake: &'static Mistake) {
    let is_it = |flaw| flaw == mistake.noticed_as;
    let start = Instant::now();
    let mut storm = Storm::begin(mistake.changes_limits, Some(mistake));
    let found = if mistake.noticed_as == Flaw::NotFreed {
        storm.rage(SECOND, |_| false);
        storm.end().findings.into_iter().find(|finding| is_it(finding.flaw))
    } else {
        storm.rage(PATIENCE, |finding| is_it(finding.flaw))
    };
    let found = found.unwrap_or_else(|| panic!("{} went unnoticed", mistake.name));
    println!("{}: after {:.1?}: {found}", mistake.name, start.elapsed());
}
